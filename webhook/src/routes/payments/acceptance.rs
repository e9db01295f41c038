//! Acceptance of payments: many at once, in the transaction that holds their keys (S3.1).

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use axum::http::StatusCode;
use idempotency::{BatchEffect, EffectOutcome, IdempotencyError, StoredResponse};
use iso_currency::Currency;
use jiff::Timestamp;
use payment_ledger::admission::kill_switches::{self, KillSwitchView};
use payment_ledger::steps::accept::{self, AcceptOutcome, NewPayment};
use payment_ledger::{LedgerError, access::api_keys, accounts, claims};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, SwitchName, TxId};
use payment_protocol::money::format_major;
use postgres_kit::Connection;
use serde::Serialize;
use service_kit::problem::Problem;
use switch_client::CheckedSwitches;
use trace_kit::TraceParent;
use utoipa::ToSchema;

use super::order::Order;
use crate::error::excerpt;
use crate::limits::WriteQuota;

/// `Retry-After` of a payment whose switch or corridor takes none; that is not over within seconds.
const SUSPENDED_RETRY_AFTER: Duration = Duration::from_secs(60);

/// An accepted payment; a replay has the same bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Acceptance<'a> {
    /// Id of the payment.
    payment_id: &'a str,
    /// Id of the transaction at the switch.
    transaction_id: &'a str,
    /// Always `accepted`.
    status: &'a str,
    /// Decimal in major units, with all decimals of the currency.
    #[schema(example = "12.50")]
    amount: String,
    /// ISO 4217 code.
    currency: &'a str,
    /// Account to be charged.
    source_account: &'a str,
    /// Account to be credited.
    destination_account: &'a str,
    /// End-to-end id of the payer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    end_to_end_id: Option<&'a str>,
    /// When the payment was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// A request to accept a payment.
pub(crate) struct AcceptanceRequest {
    pub(crate) payment_id: PaymentId,
    pub(crate) caller: api_keys::Caller,
    /// The write quota, charged once the request is known not to be a retry (S3.8).
    pub(crate) writes: WriteQuota,
    pub(crate) order: Order,
    /// Fingerprint of the request.
    pub(crate) request_hash: [u8; 32],
    /// Position of the request in its trace.
    pub(crate) trace_parent: Option<TraceParent>,
}

/// The effect that accepts payments.
#[derive(Debug)]
pub(crate) struct PaymentAcceptance {
    pub(crate) switches: CheckedSwitches,
}

/// A batch could not be accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptanceError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("a response of the payments API could not be serialized as JSON; this is a software defect")]
    Serialize(#[from] serde_json::Error),
}

impl From<AcceptanceError> for IdempotencyError {
    fn from(error: AcceptanceError) -> Self {
        match error {
            AcceptanceError::Ledger(LedgerError::Unavailable(error)) => Self::Database(error),
            other => Self::BatchEffect(Box::new(other)),
        }
    }
}

impl BatchEffect for PaymentAcceptance {
    type Request = AcceptanceRequest;
    type Refusal = Problem;
    type Error = AcceptanceError;

    async fn apply(
        &self,
        tx: &mut Connection,
        claimed_at: Timestamp,
        requests: &[&AcceptanceRequest],
    ) -> Result<Vec<EffectOutcome<Problem>>, AcceptanceError> {
        let sources: Vec<_> =
            requests.iter().map(|request| (&request.caller.tenant, &request.order.source_account)).collect();
        let currencies = accounts::account_currencies(tx, &sources).await?;
        let kill_switches = kill_switches::active(tx).await?;
        let exhausted = self.claims_exhausted(tx, requests).await?;
        let checked: Vec<Result<&SwitchProfile, Problem>> = requests
            .iter()
            .zip(currencies)
            .map(|(request, currency)| {
                request.writes.admit()?;
                self.check(&request.order, currency.as_deref(), &kill_switches, &exhausted)
            })
            .collect();

        let mut new = Vec::new();
        let mut refused = Vec::new();
        for (request, checked) in requests.iter().zip(&checked) {
            match checked {
                Ok(profile) => new.push(request.payment(profile, claimed_at)?),
                Err(_) => refused.push(&request.payment_id),
            }
        }
        let accepted = accept::accept(tx, &new).await?;
        let mut accepted: HashMap<PaymentId, (AcceptOutcome, Vec<u8>)> = new
            .into_iter()
            .zip(accepted)
            .map(|(payment, accepted)| (payment.payment_id, (accepted, payment.response_body)))
            .collect();
        // A request that is refused today may have been accepted before its key was pruned.
        for (id, earlier) in accept::stored_requests(tx, &refused).await? {
            accepted.insert(id, (earlier, Vec::new()));
        }
        Ok(requests
            .iter()
            .zip(checked)
            .map(|(request, checked)| match (accepted.remove(&request.payment_id), checked) {
                (Some((AcceptOutcome::New, body)), _) => EffectOutcome::Applied(created(body)),
                // The key was pruned; the payment row never is.
                (Some((AcceptOutcome::Existing { request_hash, .. }, _)), _)
                    if request_hash != request.request_hash =>
                {
                    EffectOutcome::Mismatch
                }
                (Some((AcceptOutcome::Existing { response_body, .. }, _)), _) => {
                    EffectOutcome::AppliedEarlier(created(response_body))
                }
                (None, Err(problem)) => EffectOutcome::Refused(problem),
                (None, Ok(_)) => EffectOutcome::Refused(Problem::internal()),
            })
            .collect())
    }
}

fn created(body: Vec<u8>) -> StoredResponse {
    StoredResponse::new(StatusCode::CREATED.as_u16(), body)
}

impl PaymentAcceptance {
    /// The switches and currencies of these requests whose open claims of the bank have reached their limit.
    async fn claims_exhausted(
        &self,
        tx: &mut Connection,
        requests: &[&AcceptanceRequest],
    ) -> Result<HashSet<(&SwitchName, Currency)>, AcceptanceError> {
        let limited: HashMap<_, _> = requests
            .iter()
            .filter_map(|request| {
                let profile = self.switches.route(&request.order.destination_account)?;
                let limit_minor = self.switches.claims_limit_minor(&profile.switch)?;
                Some(((&profile.switch, request.order.money.currency()), limit_minor))
            })
            .collect();
        let mut exhausted = HashSet::new();
        for ((switch, currency), limit_minor) in limited {
            if claims::open_minor(tx, switch, currency).await? >= limit_minor {
                exhausted.insert((switch, currency));
            }
        }
        Ok(exhausted)
    }

    /// Checks an order against the configuration and the ledger. `currency` is that of the source account; `None` if the
    /// account does not exist.
    ///
    /// # Errors
    /// The first that applies: 422 `no_route`, `over_limit`, `unknown_account` or `wrong_currency`; 503 `switch_stopped` or
    /// `corridor_stopped`.
    fn check(
        &self,
        order: &Order,
        currency: Option<&str>,
        kill_switches: &[KillSwitchView],
        claims_exhausted: &HashSet<(&SwitchName, Currency)>,
    ) -> Result<&SwitchProfile, Problem> {
        let refused = |code: &'static str, detail: String| Err(Problem::unprocessable(code, detail));
        let Some(profile) = self.switches.route(&order.destination_account) else {
            return refused(
                "no_route",
                format!(
                    "no switch serves the account {}; check destination_account",
                    order.destination_account
                ),
            );
        };
        if order.money.amount_minor() > profile.amount_limit_minor {
            let limit = format_major(profile.amount_limit_minor, order.money.currency());
            let code = order.money.currency().code();
            return refused(
                "over_limit",
                format!(
                    "the switch {} accepts at most {limit} {code} per payment; send a smaller amount",
                    profile.switch
                ),
            );
        }
        let account = &order.source_account;
        match currency {
            None => refused(
                "unknown_account",
                format!("no account {} exists; check source_account", excerpt(account.as_str())),
            ),
            Some(currency) if currency != order.money.currency().code() => refused(
                "wrong_currency",
                format!("the currency of account {account} is {currency}; send the payment in {currency}"),
            ),
            Some(_) => match kill_switches.iter().find(|kill_switch| {
                kill_switch.covers(&profile.switch, order.money.currency(), &order.destination_account)
            }) {
                Some(kill_switch) => Err(suspended(kill_switch.into())),
                None if claims_exhausted.contains(&(&profile.switch, order.money.currency())) => {
                    Err(suspended(Stopped::Switch))
                }
                None => Ok(profile),
            },
        }
    }
}

/// What takes no new payments.
#[derive(Clone, Copy)]
enum Stopped {
    Switch,
    Corridor,
}

impl From<&KillSwitchView> for Stopped {
    fn from(kill_switch: &KillSwitchView) -> Self {
        if kill_switch.switch.is_some() { Self::Switch } else { Self::Corridor }
    }
}

/// 503: a kill switch covers the payment, or the bank's claims of the switch have reached their limit. Reason and end are not disclosed.
fn suspended(stopped: Stopped) -> Problem {
    let (code, title) = match stopped {
        Stopped::Switch => ("switch_stopped", "The switch accepts no new payments"),
        Stopped::Corridor => ("corridor_stopped", "The corridor accepts no new payments"),
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, title)
        .detail("the bank has suspended new payments to the switch or corridor of destination_account and nothing was done; retry the request later with the same Idempotency-Key")
        .retry_after(SUSPENDED_RETRY_AFTER)
}

impl AcceptanceRequest {
    fn payment(
        &self,
        profile: &SwitchProfile,
        accepted_at: Timestamp,
    ) -> Result<NewPayment, AcceptanceError> {
        let order = &self.order;
        Ok(NewPayment {
            payment_id: self.payment_id.clone(),
            tenant: self.caller.tenant.clone(),
            client: self.caller.client.clone(),
            source_account: order.source_account.clone(),
            destination_account: order.destination_account.clone(),
            end_to_end_id: order.end_to_end_id.clone(),
            money: order.money,
            profile: profile.clone(),
            request_hash: self.request_hash.to_vec(),
            response_body: self.acceptance(accepted_at)?,
            accepted_at,
            trace_parent: self.trace_parent.as_ref().map(TraceParent::to_string),
        })
    }

    fn acceptance(&self, created_at: Timestamp) -> Result<Vec<u8>, AcceptanceError> {
        let order = &self.order;
        Ok(serde_json::to_vec(&Acceptance {
            payment_id: self.payment_id.as_str(),
            transaction_id: TxId::derive(&self.payment_id).as_str(),
            status: "accepted",
            amount: format_major(order.money.amount_minor(), order.money.currency()),
            currency: order.money.currency().code(),
            source_account: order.source_account.as_str(),
            destination_account: order.destination_account.as_str(),
            end_to_end_id: order.end_to_end_id.as_deref(),
            created_at,
        })?)
    }
}
