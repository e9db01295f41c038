//! Accepting payments: many at once, in the transaction that holds their keys (S3.1).

use std::collections::HashMap;
use std::time::Duration;

use axum::http::StatusCode;
use idempotency::{Answer, Effect, IdempotencyError, Verdict};
use jiff::Timestamp;
use payment_ledger::admission::kill_switches::{self, KillSwitchView};
use payment_ledger::steps::accept::{self, AcceptOutcome, NewPayment};
use payment_ledger::{LedgerError, access::api_keys, accounts};
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::format_major;
use serde::Serialize;
use service_kit::problem::Problem;
use sqlx::PgConnection;
use switch_client::CheckedSwitches;
use utoipa::ToSchema;

use super::order::Order;
use crate::error::excerpt;
use crate::limits::Writes;

/// What is stopped is not lifted within seconds.
const STOPPED_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The acceptance of a payment; a repeat gets the same bytes.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Acceptance<'a> {
    /// The payment: ask for its state under this id.
    payment_id: &'a str,
    /// Its transaction.
    transaction_id: &'a str,
    /// Always `accepted`.
    status: &'a str,
    /// Decimal in major units, with all decimals of the currency.
    #[schema(example = "12.50")]
    amount: String,
    /// ISO 4217 code.
    currency: &'a str,
    /// The account that is charged.
    source_account: &'a str,
    /// The account that is paid.
    destination_account: &'a str,
    /// The payer's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    end_to_end_id: Option<&'a str>,
    /// When it was accepted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// An order, and whose.
pub(crate) struct Asked {
    pub(crate) payment_id: PaymentId,
    pub(crate) caller: api_keys::Caller,
    /// Asked here, where the request has turned out to be no repeat (S3.8).
    pub(crate) writes: Writes,
    pub(crate) order: Order,
    /// Fingerprint of the request.
    pub(crate) request_hash: [u8; 32],
}

/// Accepts payments.
#[derive(Debug)]
pub(crate) struct Acceptances {
    pub(crate) switches: CheckedSwitches,
}

/// None of a batch is accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotAccepted {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error("the answer cannot be written")]
    Unwritable(#[from] serde_json::Error),
}

impl From<NotAccepted> for IdempotencyError {
    fn from(error: NotAccepted) -> Self {
        match error {
            NotAccepted::Ledger(LedgerError::Unavailable(error)) => Self::Database(error),
            other => Self::Effect(Box::new(other)),
        }
    }
}

impl Effect for Acceptances {
    type Request = Asked;
    type Refusal = Problem;
    type Error = NotAccepted;

    async fn carry_out(
        &self,
        tx: &mut PgConnection,
        claimed_at: Timestamp,
        requests: &[&Asked],
    ) -> Result<Vec<Verdict<Problem>>, NotAccepted> {
        let sources: Vec<_> =
            requests.iter().map(|asked| (&asked.caller.tenant, &asked.order.source_account)).collect();
        let currencies = accounts::account_currencies(tx, &sources).await?;
        let kill_switches = kill_switches::active(tx).await?;
        let judged: Vec<Result<&SwitchProfile, Problem>> = requests
            .iter()
            .zip(currencies)
            .map(|(asked, currency)| {
                asked.writes.admit()?;
                self.judge(&asked.order, currency.as_deref(), &kill_switches)
            })
            .collect();

        let mut new = Vec::new();
        let mut refused = Vec::new();
        for (asked, judged) in requests.iter().zip(&judged) {
            match judged {
                Ok(profile) => new.push(asked.payment(profile, claimed_at)?),
                Err(_) => refused.push(&asked.payment_id),
            }
        }
        let accepted = accept::accept(tx, &new).await?;
        let mut accepted: HashMap<PaymentId, (AcceptOutcome, Vec<u8>)> = new
            .into_iter()
            .zip(accepted)
            .map(|(payment, accepted)| (payment.payment_id, (accepted, payment.response_body)))
            .collect();
        // What is refused today may have been accepted before its key was pruned.
        for (id, earlier) in accept::stored_requests(tx, &refused).await? {
            accepted.insert(id, (earlier, Vec::new()));
        }
        Ok(requests
            .iter()
            .zip(judged)
            .map(|(asked, judged)| match (accepted.remove(&asked.payment_id), judged) {
                (Some((AcceptOutcome::New, body)), _) => Verdict::Answered(created(body)),
                // The key was pruned, the payment never is.
                (Some((AcceptOutcome::Existing { request_hash, .. }, _)), _)
                    if request_hash != asked.request_hash =>
                {
                    Verdict::Mismatch
                }
                (Some((AcceptOutcome::Existing { response_body, .. }, _)), _) => {
                    Verdict::Before(created(response_body))
                }
                (None, Err(problem)) => Verdict::Refused(problem),
                (None, Ok(_)) => Verdict::Refused(Problem::internal()),
            })
            .collect())
    }
}

fn created(body: Vec<u8>) -> Answer {
    Answer::new(StatusCode::CREATED.as_u16(), body)
}

impl Acceptances {
    /// Judges an order by what is configured and stored now: 422 `no_route`, `over_limit`, `unknown_account` or
    /// `wrong_currency`, or 503 `switch_stopped` or `corridor_stopped`, the first that applies. `currency` is that of the
    /// source account, if there is one.
    fn judge(
        &self,
        order: &Order,
        currency: Option<&str>,
        kill_switches: &[KillSwitchView],
    ) -> Result<&SwitchProfile, Problem> {
        let refused = |code: &'static str, detail: String| Err(Problem::unprocessable(code, detail));
        let Some(profile) = self.switches.route(&order.destination_account) else {
            return refused("no_route", format!("no switch serves {}", order.destination_account));
        };
        if order.money.amount_minor() > profile.amount_limit_minor {
            let limit = format_major(profile.amount_limit_minor, order.money.currency());
            let code = order.money.currency().code();
            return refused("over_limit", format!("{} takes at most {limit} {code}", profile.switch));
        }
        let account = &order.source_account;
        match currency {
            None => refused("unknown_account", format!("you have no account {}", excerpt(account.as_str()))),
            Some(currency) if currency != order.money.currency().code() => {
                refused("wrong_currency", format!("{account} is an account in {currency}"))
            }
            Some(_) => match kill_switches
                .iter()
                .find(|stop| stop.covers(&profile.switch, order.money.currency(), &order.destination_account))
            {
                Some(stop) => Err(stopped(stop)),
                None => Ok(profile),
            },
        }
    }
}

/// 503: people have stopped what the payment would go through, and nobody knows until when. Why is theirs to tell.
fn stopped(stop: &KillSwitchView) -> Problem {
    let (code, title) = match stop.switch {
        Some(_) => ("switch_stopped", "The switch takes no new payments"),
        None => ("corridor_stopped", "No new payments are taken to this destination in this currency"),
    };
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, code, title)
        .detail("the bank has stopped it; payments that were accepted go on; repeat the request later, under the same key")
        .retry_after(STOPPED_RETRY_AFTER)
}

impl Asked {
    fn payment(&self, profile: &SwitchProfile, accepted_at: Timestamp) -> Result<NewPayment, NotAccepted> {
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
        })
    }

    fn acceptance(&self, created_at: Timestamp) -> Result<Vec<u8>, NotAccepted> {
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
