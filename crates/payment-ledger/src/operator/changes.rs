//! Changes: what operators do to accounts, limits, kill switches, API keys, webhook endpoints, events and the Temporal namespace, and what
//! administrators do to operators. Functions of the database make them, each in the session of its operator ([`Ledger::acting_in`]): what
//! lets money move, or lets more of it move, takes two operators; everything else takes one.

use iso_currency::Currency;
use jiff::Timestamp;
use payment_protocol::ids::{AccountId, ClientId, KeyId, TenantId};
use payment_protocol::money::Money;
use payment_protocol::text_enum;
use postgres_kit::text::replace_nul;
use serde_json::{Value, json};

use crate::access::api_keys::Scopes;
use crate::access::operators::{OperatorIdentity, OperatorRole};
use crate::admission::kill_switches::KillSwitchTarget;
use crate::admission::limits::{LimitBounds, LimitScope};
use crate::operator::decisions::{DecisionRefusedError, validate_reason};
use crate::{Ledger, LedgerError};

text_enum!(
    /// Status of a change.
    ChangeStatus {
        /// Awaits the confirmation of another operator.
        Proposed = "proposed",
        /// Made.
        Done = "done",
        /// Withdrawn; nothing was changed.
        Withdrawn = "withdrawn",
    }
);

/// What an operator changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Opens a customer account, without money.
    OpenAccount {
        /// Whose account it is.
        tenant: TenantId,
        /// Its id.
        account: AccountId,
        /// Its currency.
        currency: Currency,
    },
    /// Deposits money from the funding account. Two operators.
    FundAccount {
        /// Whose account it is.
        tenant: TenantId,
        /// The account.
        account: AccountId,
        /// The deposit, in the account's currency.
        money: Money,
    },
    /// Freezes an account: nothing is reserved in it or debited from it.
    FreezeAccount {
        /// Whose account it is.
        tenant: TenantId,
        /// The account.
        account: AccountId,
    },
    /// Unfreezes an account. Two operators.
    UnfreezeAccount {
        /// Whose account it is.
        tenant: TenantId,
        /// The account.
        account: AccountId,
    },
    /// Erases the personal fields of an account's payments that are accepted until now, after their end. Two operators.
    EraseAccount {
        /// Whose account it is.
        tenant: TenantId,
        /// The account.
        account: AccountId,
    },
    /// Refuses new payments.
    ActivateKillSwitch(KillSwitchTarget),
    /// Accepts payments again. Two operators.
    LiftKillSwitch {
        /// Its number.
        kill_switch_id: i64,
    },
    /// Replaces a limit. Two operators if a bound is raised or removed.
    SetLimit {
        /// Whose limit it is.
        scope: LimitScope,
        /// The limited currency.
        currency: Currency,
        /// The new bounds; none removes the limit.
        bounds: LimitBounds,
    },
    /// Creates an API key. Two operators.
    CreateApiKey {
        /// The key's id and hash.
        key: ChangedKey,
        /// Whose key it is.
        tenant: TenantId,
        /// The client that uses it.
        client: ClientId,
        /// What it may do.
        scopes: Scopes,
        /// Lifetime in seconds; `None` for ever.
        lifetime_s: Option<i64>,
    },
    /// Replaces an API key by one with the same client, scopes and lifetime. Two operators.
    RotateApiKey {
        /// The key to replace.
        key_id: KeyId,
        /// The new key.
        successor: ChangedKey,
        /// How long the old one stays active, in seconds.
        overlap_s: i64,
    },
    /// Revokes an API key for good.
    RevokeApiKey {
        /// The key.
        key_id: KeyId,
    },
    /// Stops deliveries to a webhook endpoint; its tenant cannot enable it, and reads who disabled it and why.
    DisableEndpoint {
        /// The endpoint.
        endpoint_id: String,
    },
    /// Starts deliveries to a webhook endpoint again, whatever stopped them.
    EnableEndpoint {
        /// The endpoint.
        endpoint_id: String,
    },
    /// Delivers an event to a webhook endpoint again.
    ReplayDelivery {
        /// The endpoint.
        endpoint_id: String,
        /// The event.
        event_id: String,
    },
    /// Delivers events to a webhook endpoint again whose delivery failed: the 10,000 oldest, so that it is repeated until it takes fewer.
    ReplayFailedDeliveries {
        /// The endpoint.
        endpoint_id: String,
        /// Events that were to be delivered from then on.
        since: Timestamp,
        /// Deliveries that failed before then: a repeat takes none that failed again.
        failed_before: Timestamp,
    },
    /// Publishes an event again that was parked because the broker rejected it.
    RetryEvent {
        /// The event.
        event_id: String,
    },
    /// Discards a parked message that its consumer can never consume; the record stays.
    DiscardMessage {
        /// The consumer that parked it.
        consumer: String,
        /// Its stream at the broker.
        stream: String,
        /// Its number in the stream.
        stream_sequence: i64,
    },
    /// Publishes events again: the 10,000 oldest, so that it is repeated until it takes fewer. Consumers skip those that they know.
    RepublishEvents {
        /// Events published from then on.
        since: Timestamp,
        /// Events published before then: a repeat takes none that it published again.
        published_before: Timestamp,
    },
    /// Accepts that the workflows of open payments are in another Temporal namespace: those that it does not have are lost, and started
    /// again. Two operators.
    AcceptTemporalNamespace {
        /// The namespace.
        namespace_id: String,
    },
    /// Creates an operator, who logs in as an identity of an OpenID provider. Two administrators.
    CreateOperator {
        /// The name, which never changes.
        name: String,
        /// What the operator may do.
        roles: Vec<OperatorRole>,
        /// As whom the operator logs in.
        identity: OperatorIdentity,
    },
    /// Replaces an operator's roles, which takes effect at once. Two administrators.
    SetOperatorRoles {
        /// The operator.
        name: String,
        /// What the operator may do from then on.
        roles: Vec<OperatorRole>,
    },
    /// Replaces how an operator logs in by an identity, and ends the operator's sessions. Two administrators.
    SetOperatorIdentity {
        /// The operator.
        name: String,
        /// As whom the operator logs in from then on.
        identity: OperatorIdentity,
    },
    /// Disables an operator for good, and ends the operator's sessions. One administrator.
    DisableOperator {
        /// The operator.
        name: String,
    },
}

/// A key that is yet to be created. The key itself stays with who generated it, and authenticates nobody before the change is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// Its public id, the readable beginning of the key.
    pub id: KeyId,
    /// SHA-256 of the key.
    pub hash: [u8; 32],
}

impl Change {
    /// The kind, as it is stored.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::OpenAccount { .. } => "open_account",
            Self::FundAccount { .. } => "fund_account",
            Self::FreezeAccount { .. } => "freeze_account",
            Self::UnfreezeAccount { .. } => "unfreeze_account",
            Self::EraseAccount { .. } => "erase_account",
            Self::ActivateKillSwitch(_) => "activate_kill_switch",
            Self::LiftKillSwitch { .. } => "lift_kill_switch",
            Self::SetLimit { .. } => "set_limit",
            Self::CreateApiKey { .. } => "create_api_key",
            Self::RotateApiKey { .. } => "rotate_api_key",
            Self::RevokeApiKey { .. } => "revoke_api_key",
            Self::DisableEndpoint { .. } => "disable_endpoint",
            Self::EnableEndpoint { .. } => "enable_endpoint",
            Self::ReplayDelivery { .. } => "replay_delivery",
            Self::ReplayFailedDeliveries { .. } => "replay_failed_deliveries",
            Self::RetryEvent { .. } => "retry_event",
            Self::DiscardMessage { .. } => "discard_message",
            Self::RepublishEvents { .. } => "republish_events",
            Self::AcceptTemporalNamespace { .. } => "accept_temporal_namespace",
            Self::CreateOperator { .. } => "create_operator",
            Self::SetOperatorRoles { .. } => "set_operator_roles",
            Self::SetOperatorIdentity { .. } => "set_operator_identity",
            Self::DisableOperator { .. } => "disable_operator",
        }
    }

    /// What `apply_change()` of the database reads.
    fn arguments(&self) -> Value {
        match self {
            Self::OpenAccount { tenant, account, currency } => {
                json!({"tenant_id": tenant, "account_id": account, "currency": currency.code()})
            }
            Self::FundAccount { tenant, account, money } => json!({
                "tenant_id": tenant, "account_id": account, "amount_minor": money.amount_minor(), "currency": money.currency().code(),
            }),
            Self::FreezeAccount { tenant, account }
            | Self::UnfreezeAccount { tenant, account }
            | Self::EraseAccount { tenant, account } => {
                json!({"tenant_id": tenant, "account_id": account})
            }
            Self::ActivateKillSwitch(KillSwitchTarget::Switch(switch)) => json!({"switch": switch}),
            Self::ActivateKillSwitch(KillSwitchTarget::Corridor { currency, destination_prefix }) => {
                json!({"currency": currency.code(), "destination_prefix": destination_prefix})
            }
            Self::LiftKillSwitch { kill_switch_id } => json!({"kill_switch_id": kill_switch_id}),
            Self::SetLimit { scope, currency, bounds } => {
                let (scope, scope_id) = scope.columns();
                json!({
                    "scope": scope, "scope_id": scope_id, "currency": currency.code(), "per_payment_minor": bounds.per_payment_minor,
                    "per_day_minor": bounds.per_day_minor, "per_day_count": bounds.per_day_count,
                })
            }
            Self::CreateApiKey { key, tenant, client, scopes, lifetime_s } => json!({
                "key_id": key.id, "tenant_id": tenant, "client_id": client, "scopes": scopes.words(),
                "lifetime_s": lifetime_s,
            }),
            Self::RotateApiKey { key_id, successor, overlap_s } => json!({
                "key_id": key_id, "successor_id": successor.id, "overlap_s": overlap_s,
            }),
            Self::RevokeApiKey { key_id } => json!({"key_id": key_id}),
            Self::DisableEndpoint { endpoint_id } | Self::EnableEndpoint { endpoint_id } => {
                json!({"endpoint_id": endpoint_id})
            }
            Self::ReplayDelivery { endpoint_id, event_id } => {
                json!({"endpoint_id": endpoint_id, "event_id": event_id})
            }
            Self::ReplayFailedDeliveries { endpoint_id, since, failed_before } => {
                json!({"endpoint_id": endpoint_id, "since": since, "failed_before": failed_before})
            }
            Self::RetryEvent { event_id } => json!({"event_id": event_id}),
            Self::DiscardMessage { consumer, stream, stream_sequence } => {
                json!({"consumer": consumer, "stream": stream, "stream_sequence": stream_sequence})
            }
            Self::RepublishEvents { since, published_before } => {
                json!({"since": since, "published_before": published_before})
            }
            Self::AcceptTemporalNamespace { namespace_id } => json!({"namespace_id": namespace_id}),
            Self::CreateOperator { name, roles, identity } => json!({
                "name": name, "roles": roles, "issuer": identity.issuer(), "subject": identity.subject(),
            }),
            Self::SetOperatorRoles { name, roles } => json!({"name": name, "roles": roles}),
            Self::SetOperatorIdentity { name, identity } => {
                json!({"name": name, "issuer": identity.issuer(), "subject": identity.subject()})
            }
            Self::DisableOperator { name } => json!({"name": name}),
        }
    }

    fn key_hash(&self) -> Option<&[u8]> {
        match self {
            Self::CreateApiKey { key, .. } | Self::RotateApiKey { successor: key, .. } => Some(&key.hash),
            _ => None,
        }
    }
}

/// A change as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeView {
    /// Its id.
    pub change_id: String,
    /// Its kind, as of [`Change::kind`].
    pub kind: String,
    /// Its arguments; amounts are in minor units.
    pub arguments: Value,
    /// Whether it takes two operators.
    pub needs_two: bool,
    /// What it changes, as it was when the change was proposed; `None` for what did not exist.
    pub before: Option<Value>,
    /// The proposer's reason.
    pub reason: String,
    /// The operator who proposed it.
    pub proposed_by: String,
    /// When it was proposed.
    pub proposed_at: Timestamp,
    /// The operator who confirmed it; the proposer if one operator suffices.
    pub confirmed_by: Option<String>,
    /// The confirming operator's reason.
    pub confirm_reason: Option<String>,
    /// The operator who withdrew it.
    pub withdrawn_by: Option<String>,
    /// Its status.
    pub status: ChangeStatus,
    /// The outcome, or the reason of a withdrawal, in words.
    pub detail: Option<String>,
    /// When it was done or withdrawn.
    pub closed_at: Option<Timestamp>,
}

/// A change that was not made or not recorded.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// A missing or invalid text.
    #[error(transparent)]
    Text(#[from] DecisionRefusedError),
    /// No such change.
    #[error("{0}")]
    Unknown(String),
    /// Four eyes: the proposing operator cannot confirm.
    #[error("{0}")]
    SameOperator(String),
    /// A change of this kind takes another role.
    #[error("{0}")]
    Role(String),
    /// It cannot be made now; the text says why.
    #[error("{0}")]
    Barred(String),
    /// No outcome. After [`LedgerError::Unavailable`] it may be recorded: repeat it.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl From<sqlx::Error> for ChangeError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            // A function of the database says why in its own words.
            sqlx::Error::Database(refused) if refused.code().as_deref() == Some(RESTRICT_VIOLATION) => {
                return Self::Barred(refused.message().to_owned());
            }
            _ => {}
        }
        match LedgerError::from(error) {
            // A type, a range or a constraint: what the arguments ask for cannot be stored.
            LedgerError::Refused(refused) => Self::Barred(format!("the database refuses it: {refused}")),
            error => Self::Ledger(error),
        }
    }
}

/// SQLSTATE with which triggers and functions refuse.
const RESTRICT_VIOLATION: &str = "23001";

/// Which changes to list.
#[derive(Clone, Copy, Debug)]
pub struct ChangeFilter {
    /// Only those that await another operator, oldest first; otherwise all, newest first.
    pub only_open: bool,
    /// At most this many.
    pub limit: i64,
}

impl Ledger {
    /// Proposes a change in the operator's session, and makes it if one operator suffices. A repeat of an open proposal is that proposal.
    /// Returns its id. What is done withdraws the other open changes of the same account's freeze or the same limit.
    ///
    /// # Errors
    /// [`ChangeError`]; without a session of an operator, [`LedgerError::is_not_allowed`].
    pub async fn propose_change(&self, change: &Change, reason: &str) -> Result<String, ChangeError> {
        let reason = validate_reason(reason)?;
        let mut tx = self.begin_decision().await?;
        let outcome = sqlx::query!(
            "SELECT refusal, proposed FROM propose_change($1, $2, $3, $4)",
            change.kind(),
            change.arguments(),
            change.key_hash(),
            &*replace_nul(&reason),
        )
        .fetch_one(&mut *tx)
        .await?;
        match (outcome.refusal, outcome.proposed) {
            (None, Some(change_id)) => {
                tx.commit().await?;
                Ok(change_id)
            }
            (refusal, _) => Err(ChangeError::Barred(refusal.unwrap_or_default())),
        }
    }

    /// Confirms another operator's change in the session of an approver, or of an administrator if an administrator proposed it, and makes it. A repeat has no further effect.
    ///
    /// # Errors
    /// [`ChangeError`], as [`Ledger::propose_change`].
    pub async fn confirm_change(&self, change_id: &str, reason: &str) -> Result<(), ChangeError> {
        let reason = validate_reason(reason)?;
        let mut tx = self.begin_decision().await?;
        let outcome = sqlx::query!(
            "SELECT refused, refusal FROM confirm_change($1, $2)",
            &*replace_nul(change_id),
            &*replace_nul(&reason),
        )
        .fetch_one(&mut *tx)
        .await?;
        refusal(outcome.refused, outcome.refusal)?;
        Ok(tx.commit().await?)
    }

    /// Withdraws a proposed change in the session of an operator or approver, or of an administrator if an administrator proposed it. A repeat has no further effect.
    ///
    /// # Errors
    /// [`ChangeError`], as [`Ledger::propose_change`].
    pub async fn withdraw_change(&self, change_id: &str, reason: &str) -> Result<(), ChangeError> {
        let reason = validate_reason(reason)?;
        let mut tx = self.begin_decision().await?;
        let outcome = sqlx::query!(
            "SELECT refused, refusal FROM withdraw_change($1, $2)",
            &*replace_nul(change_id),
            &*replace_nul(&reason),
        )
        .fetch_one(&mut *tx)
        .await?;
        refusal(outcome.refused, outcome.refusal)?;
        Ok(tx.commit().await?)
    }

    /// One change.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn change(&self, change_id: &str) -> Result<Option<ChangeView>, LedgerError> {
        let row = sqlx::query_as!(
            ChangeRow,
            r#"SELECT change_id, kind, arguments, needs_two, before, reason, proposed_by, proposed_at, confirmed_by, confirm_reason,
                      withdrawn_by, status, detail, closed_at
               FROM changes WHERE change_id = $1"#,
            &*replace_nul(change_id),
        )
        .fetch_optional(&self.pool)
        .await?;
        row.map(ChangeRow::view).transpose()
    }

    /// Changes.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn changes(&self, filter: ChangeFilter) -> Result<Vec<ChangeView>, LedgerError> {
        let rows = sqlx::query_as!(
            ChangeRow,
            r#"SELECT change_id, kind, arguments, needs_two, before, reason, proposed_by, proposed_at, confirmed_by, confirm_reason,
                      withdrawn_by, status, detail, closed_at
               FROM changes WHERE NOT $1 OR status = 'proposed'
               ORDER BY CASE WHEN $1 THEN proposed_at END, proposed_at DESC LIMIT $2"#,
            filter.only_open,
            filter.limit,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter().map(ChangeRow::view).collect()
    }
}

/// What a function of the database refused, by its word.
fn refusal(refused: Option<String>, text: Option<String>) -> Result<(), ChangeError> {
    let text = text.unwrap_or_default();
    match refused.as_deref() {
        None => Ok(()),
        Some("unknown") => Err(ChangeError::Unknown(text)),
        Some("same_operator") => Err(ChangeError::SameOperator(text)),
        Some("role") => Err(ChangeError::Role(text)),
        Some(_) => Err(ChangeError::Barred(text)),
    }
}

/// Columns of a change.
struct ChangeRow {
    change_id: String,
    kind: String,
    arguments: Value,
    needs_two: bool,
    before: Option<Value>,
    reason: String,
    proposed_by: String,
    proposed_at: jiff_sqlx::Timestamp,
    confirmed_by: Option<String>,
    confirm_reason: Option<String>,
    withdrawn_by: Option<String>,
    status: String,
    detail: Option<String>,
    closed_at: Option<jiff_sqlx::Timestamp>,
}

impl ChangeRow {
    fn view(self) -> Result<ChangeView, LedgerError> {
        let status = ChangeStatus::parse(&self.status).ok_or_else(|| LedgerError::Unreadable {
            id: self.change_id.clone(),
            column: "status",
            value: self.status.clone(),
        })?;
        Ok(ChangeView {
            change_id: self.change_id,
            kind: self.kind,
            arguments: self.arguments,
            needs_two: self.needs_two,
            before: self.before,
            reason: self.reason,
            proposed_by: self.proposed_by,
            proposed_at: self.proposed_at.to_jiff(),
            confirmed_by: self.confirmed_by,
            confirm_reason: self.confirm_reason,
            withdrawn_by: self.withdrawn_by,
            status,
            detail: self.detail,
            closed_at: self.closed_at.map(|at| at.to_jiff()),
        })
    }
}
