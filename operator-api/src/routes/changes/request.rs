//! What a request changes, and its check.

use iso_currency::Currency;
use jiff::Timestamp;
use payment_ledger::access::api_keys::{ApiKeyScope, Scopes};
use payment_ledger::access::operators::{OperatorIdentity, OperatorRole};
use payment_ledger::admission::kill_switches::KillSwitchTarget;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::operator::changes::{Change, ChangedKey};
use payment_ledger::operator::decisions::validate_operator_name;
use payment_protocol::ids::{AccountId, ClientId, KeyId, SwitchName, TenantId};
use payment_protocol::money::{Money, parse_currency};
use serde::Deserialize;
use service_kit::problem::Problem;
use utoipa::ToSchema;

/// What to change. An amount is a decimal in major units, a currency an ISO 4217 code.
#[derive(Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum RequestedChange {
    /// Open an account without money. One operator.
    OpenAccount {
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: TenantId,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        account_id: AccountId,
        #[schema(example = "EUR")]
        currency: String,
    },
    /// Deposit money into an account, in the account's currency. Two operators.
    FundAccount {
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: TenantId,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        account_id: AccountId,
        #[schema(example = "100.00")]
        amount: String,
        #[schema(example = "EUR")]
        currency: String,
    },
    /// Freeze an account: nothing is reserved in it or debited from it. One operator.
    FreezeAccount {
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: TenantId,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        account_id: AccountId,
    },
    /// Unfreeze an account. Two operators.
    UnfreezeAccount {
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: TenantId,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        account_id: AccountId,
    },
    /// Erase the personal fields of the payments that an account has made until now, each some time after its end. Two operators.
    EraseAccount {
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: TenantId,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        account_id: AccountId,
    },
    /// Refuse new payments of a switch, or of a currency to destination accounts with a prefix; an empty prefix is every account. Accepted
    /// payments proceed. One operator.
    ActivateKillSwitch {
        #[serde(default)]
        #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        switch: Option<SwitchName>,
        #[serde(default)]
        currency: Option<String>,
        #[serde(default)]
        destination_prefix: Option<String>,
    },
    /// Accept the payments of a kill switch again. Two operators.
    LiftKillSwitch { kill_switch_id: i64 },
    /// Replace the limit of an account or of a tenant's accounts together; without a bound, remove it. Two operators if a bound is raised or
    /// removed, otherwise one.
    SetLimit {
        /// Either this or `tenant_id`.
        #[serde(default)]
        #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        account_id: Option<AccountId>,
        #[serde(default)]
        #[schema(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: Option<TenantId>,
        currency: String,
        /// Largest amount of one payment.
        #[serde(default)]
        per_payment: Option<String>,
        /// Largest amount of one UTC day.
        #[serde(default)]
        per_day: Option<String>,
        /// Most payments of one UTC day.
        #[serde(default)]
        #[schema(minimum = 0)]
        per_day_count: Option<i64>,
    },
    /// Create an API key, which its owner has generated: `<key_id>_` and at least 32 random bytes. Two operators: it authenticates nobody before
    /// the confirmation.
    CreateApiKey {
        #[schema(value_type = String, pattern = "^pk_[0-9a-f]{12}$")]
        key_id: KeyId,
        /// SHA-256 of the key, in hexadecimal digits. The key itself is sent to nobody.
        #[schema(pattern = "^[0-9a-f]{64}$")]
        key_sha256: String,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        tenant_id: TenantId,
        #[schema(value_type = String, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
        client_id: ClientId,
        /// `pay`, `read` and `webhooks`.
        scopes: Vec<String>,
        /// 1 to 3650; without it the key does not expire.
        #[serde(default)]
        #[schema(minimum = 1, maximum = 3650)]
        expires_in_days: Option<i64>,
    },
    /// Replace an API key by one with the same client, scopes and lifetime. Two operators.
    RotateApiKey {
        /// The key to replace.
        #[schema(value_type = String, pattern = "^pk_[0-9a-f]{12}$")]
        key_id: KeyId,
        #[schema(value_type = String, pattern = "^pk_[0-9a-f]{12}$")]
        successor_id: KeyId,
        /// SHA-256 of the new key, in hexadecimal digits.
        #[schema(pattern = "^[0-9a-f]{64}$")]
        successor_sha256: String,
        /// Hours until the old key expires, 0 to 720; an earlier expiry stays.
        #[schema(minimum = 0, maximum = 720)]
        overlap_hours: i64,
    },
    /// Revoke an API key at once and for good. One operator.
    RevokeApiKey {
        #[schema(value_type = String, pattern = "^pk_[0-9a-f]{12}$")]
        key_id: KeyId,
    },
    /// Stop the deliveries to a webhook endpoint. Its tenant cannot enable it, and reads the operator's name and the reason. One operator.
    DisableEndpoint { endpoint_id: String },
    /// Start the deliveries to a webhook endpoint again, whatever stopped them. One operator.
    EnableEndpoint { endpoint_id: String },
    /// Deliver an event to a webhook endpoint again. One operator.
    ReplayDelivery { endpoint_id: String, event_id: String },
    /// Deliver events to a webhook endpoint again whose delivery failed: the 10,000 oldest. Repeat it until the detail names fewer. One operator.
    ReplayFailedDeliveries {
        endpoint_id: String,
        /// Events that were to be delivered from then on.
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
        /// Deliveries that failed before then, so that a repeat takes none that failed again.
        #[schema(value_type = String, format = DateTime)]
        failed_before: Timestamp,
    },
    /// Publish an event again that was parked because the broker rejected it. One operator.
    RetryEvent { event_id: String },
    /// Discard a parked message that its consumer can never consume; the record stays. One operator.
    DiscardMessage {
        consumer: String,
        stream: String,
        #[schema(minimum = 1)]
        stream_sequence: i64,
    },
    /// Publish events again: the 10,000 oldest. Consumers skip those that they know. Repeat it until the detail names fewer. One operator.
    RepublishEvents {
        /// Events published from then on.
        #[schema(value_type = String, format = DateTime)]
        since: Timestamp,
        /// Events published before then, so that a repeat takes none that it published again.
        #[schema(value_type = String, format = DateTime)]
        published_before: Timestamp,
    },
    /// Accept that the workflows of open payments are in another Temporal namespace: those that it does not have are started again. Two
    /// operators.
    AcceptTemporalNamespace {
        /// As the refused payment-worker prints it.
        #[schema(min_length = 1)]
        namespace_id: String,
    },
    /// Create an operator, who logs in as an identity of the OpenID provider. Two administrators.
    CreateOperator {
        /// It never changes.
        #[schema(pattern = "^[a-zA-Z0-9][a-zA-Z0-9._@-]{0,63}$")]
        name: String,
        /// `viewer`, `operator`, `approver` and `administrator`.
        roles: Vec<String>,
        /// URL of the provider, as its discovery document has it.
        #[schema(min_length = 1, max_length = 255)]
        issuer: String,
        /// The claim `sub` in the operator's ID tokens.
        #[schema(min_length = 1, max_length = 255)]
        subject: String,
    },
    /// Replace an operator's roles, at once and in open sessions. Two administrators.
    SetOperatorRoles { name: String, roles: Vec<String> },
    /// Let an operator log in as an identity of the OpenID provider, and no longer otherwise; ends the operator's sessions. Two administrators.
    SetOperatorIdentity { name: String, issuer: String, subject: String },
    /// Disable an operator for good, and end the operator's sessions. One administrator.
    DisableOperator { name: String },
}

/// Seconds of an hour.
const HOUR_S: i64 = 3_600;
/// Seconds of a day.
const DAY_S: i64 = 24 * HOUR_S;
/// Longest prefix of destination accounts, in characters; that of an account's id.
const PREFIX_MAX: usize = 64;

impl RequestedChange {
    /// Whose role proposes it. The database requires the same: `change_role()`.
    pub(super) fn proposed_by(&self) -> OperatorRole {
        match self {
            Self::CreateOperator { .. }
            | Self::SetOperatorRoles { .. }
            | Self::SetOperatorIdentity { .. }
            | Self::DisableOperator { .. } => OperatorRole::Administrator,
            _ => OperatorRole::Operator,
        }
    }

    /// # Errors
    /// 422 `invalid_currency`, `invalid_amount` or `invalid_change`; the detail says what to send.
    pub(super) fn check(self) -> Result<Change, Problem> {
        Ok(match self {
            Self::OpenAccount { tenant_id, account_id, currency: code } => {
                Change::OpenAccount { tenant: tenant_id, account: account_id, currency: currency(&code)? }
            }
            Self::FundAccount { tenant_id, account_id, amount, currency: code } => Change::FundAccount {
                tenant: tenant_id,
                account: account_id,
                money: money(&amount, currency(&code)?)?,
            },
            Self::FreezeAccount { tenant_id, account_id } => {
                Change::FreezeAccount { tenant: tenant_id, account: account_id }
            }
            Self::UnfreezeAccount { tenant_id, account_id } => {
                Change::UnfreezeAccount { tenant: tenant_id, account: account_id }
            }
            Self::EraseAccount { tenant_id, account_id } => {
                Change::EraseAccount { tenant: tenant_id, account: account_id }
            }
            Self::ActivateKillSwitch { switch, currency: code, destination_prefix } => {
                Change::ActivateKillSwitch(kill_switch_target(switch, code.as_deref(), destination_prefix)?)
            }
            Self::LiftKillSwitch { kill_switch_id } => Change::LiftKillSwitch { kill_switch_id },
            Self::SetLimit { account_id, tenant_id, currency: code, per_payment, per_day, per_day_count } => {
                let scope = match (account_id, tenant_id) {
                    (Some(account), None) => LimitScope::Account(account),
                    (None, Some(tenant)) => LimitScope::Tenant(tenant),
                    _ => return Err(invalid("a limit has either account_id or tenant_id")),
                };
                let currency = currency(&code)?;
                let minor = |amount: Option<String>| {
                    amount
                        .map(|amount| money(&amount, currency).map(|money| money.amount_minor()))
                        .transpose()
                };
                in_range("per_day_count", per_day_count, 0..=i64::MAX)?;
                let bounds = LimitBounds {
                    per_payment_minor: minor(per_payment)?,
                    per_day_minor: minor(per_day)?,
                    per_day_count,
                };
                Change::SetLimit { scope, currency, bounds }
            }
            Self::CreateApiKey { key_id, key_sha256, tenant_id, client_id, scopes, expires_in_days } => {
                in_range("expires_in_days", expires_in_days, 1..=3_650)?;
                let scopes: Result<Vec<ApiKeyScope>, _> = scopes.iter().map(|scope| scope.parse()).collect();
                let scopes = scopes.ok().and_then(Scopes::new);
                let scopes =
                    scopes.ok_or_else(|| invalid("scopes are one or more of pay, read and webhooks"))?;
                Change::CreateApiKey {
                    key: key(key_id, &key_sha256)?,
                    tenant: tenant_id,
                    client: client_id,
                    scopes,
                    lifetime_s: expires_in_days.map(|days| days * DAY_S),
                }
            }
            Self::RotateApiKey { key_id, successor_id, successor_sha256, overlap_hours } => {
                in_range("overlap_hours", Some(overlap_hours), 0..=720)?;
                let successor = key(successor_id, &successor_sha256)?;
                Change::RotateApiKey { key_id, successor, overlap_s: overlap_hours * HOUR_S }
            }
            Self::RevokeApiKey { key_id } => Change::RevokeApiKey { key_id },
            Self::DisableEndpoint { endpoint_id } => Change::DisableEndpoint { endpoint_id },
            Self::EnableEndpoint { endpoint_id } => Change::EnableEndpoint { endpoint_id },
            Self::ReplayDelivery { endpoint_id, event_id } => {
                Change::ReplayDelivery { endpoint_id, event_id }
            }
            Self::ReplayFailedDeliveries { endpoint_id, since, failed_before } => {
                Change::ReplayFailedDeliveries { endpoint_id, since, failed_before }
            }
            Self::RetryEvent { event_id } => Change::RetryEvent { event_id },
            Self::DiscardMessage { consumer, stream, stream_sequence } => {
                Change::DiscardMessage { consumer, stream, stream_sequence }
            }
            Self::RepublishEvents { since, published_before } => {
                Change::RepublishEvents { since, published_before }
            }
            Self::AcceptTemporalNamespace { namespace_id } => {
                Change::AcceptTemporalNamespace { namespace_id }
            }
            Self::CreateOperator { name, roles, issuer, subject } => Change::CreateOperator {
                name: operator(name)?,
                roles: operator_roles(&roles)?,
                identity: identity(&issuer, &subject)?,
            },
            Self::SetOperatorRoles { name, roles } => {
                Change::SetOperatorRoles { name: operator(name)?, roles: operator_roles(&roles)? }
            }
            Self::SetOperatorIdentity { name, issuer, subject } => {
                Change::SetOperatorIdentity { name: operator(name)?, identity: identity(&issuer, &subject)? }
            }
            Self::DisableOperator { name } => Change::DisableOperator { name: operator(name)? },
        })
    }
}

fn kill_switch_target(
    switch: Option<SwitchName>,
    code: Option<&str>,
    destination_prefix: Option<String>,
) -> Result<KillSwitchTarget, Problem> {
    match (switch, code, destination_prefix) {
        (Some(switch), None, None) => Ok(KillSwitchTarget::Switch(switch)),
        (None, Some(code), Some(prefix)) => {
            let is_visible = prefix.chars().all(|character| character.is_ascii_graphic());
            if prefix.len() > PREFIX_MAX || !is_visible {
                return Err(invalid("destination_prefix has at most 64 visible ASCII characters"));
            }
            Ok(KillSwitchTarget::Corridor { currency: currency(code)?, destination_prefix: prefix })
        }
        _ => Err(invalid("a kill switch has either switch, or currency and destination_prefix")),
    }
}

fn operator(name: String) -> Result<String, Problem> {
    validate_operator_name(&name).map_err(|error| invalid(&error.to_string()))?;
    Ok(name)
}

fn operator_roles(words: &[String]) -> Result<Vec<OperatorRole>, Problem> {
    let roles: Option<Vec<_>> = words.iter().map(|word| OperatorRole::parse(word)).collect();
    let roles = roles.filter(|roles| !roles.is_empty());
    let mut roles = roles
        .ok_or_else(|| invalid("roles are one or more of viewer, operator, approver and administrator"))?;
    // One order, so that a repeat is the same proposal.
    roles.sort_by_key(|role| OperatorRole::ALL.iter().position(|known| known == role));
    roles.dedup();
    Ok(roles)
}

fn identity(issuer: &str, subject: &str) -> Result<OperatorIdentity, Problem> {
    OperatorIdentity::new(issuer, subject).map_err(|error| invalid(&error.to_string()))
}

fn currency(code: &str) -> Result<Currency, Problem> {
    parse_currency(code).map_err(|error| Problem::unprocessable("invalid_currency", error.to_string()))
}

fn money(amount: &str, currency: Currency) -> Result<Money, Problem> {
    let money = Money::parse_major(amount, currency);
    money.map_err(|error| Problem::unprocessable("invalid_amount", error.to_string()))
}

fn key(id: KeyId, sha256: &str) -> Result<ChangedKey, Problem> {
    let is_key = id.as_str().strip_prefix("pk_").is_some_and(|digits| digits.len() == 12 && is_hex(digits));
    if !is_key {
        return Err(invalid("the id of a key is pk_ and 12 hexadecimal digits"));
    }
    let mut hash = [0; 32];
    let bytes = (sha256.len() == 64 && is_hex(sha256)).then(|| {
        hash.iter_mut().zip(sha256.as_bytes().chunks(2)).try_for_each(|(byte, digits)| {
            let digits = std::str::from_utf8(digits).ok()?;
            *byte = u8::from_str_radix(digits, 16).ok()?;
            Some(())
        })
    });
    bytes.flatten().ok_or_else(|| invalid("the SHA-256 of a key has 64 hexadecimal digits"))?;
    Ok(ChangedKey { id, hash })
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn in_range(field: &str, value: Option<i64>, range: std::ops::RangeInclusive<i64>) -> Result<(), Problem> {
    match value {
        Some(value) if !range.contains(&value) => {
            Err(invalid(&format!("{field} is from {} to {}", range.start(), range.end())))
        }
        _ => Ok(()),
    }
}

fn invalid(detail: &str) -> Problem {
    Problem::unprocessable("invalid_change", detail.to_owned())
}
