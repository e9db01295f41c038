//! One debit attempt. At a switch whose callbacks are not believed alone ([`crate::profile::ConfirmByQuery`]) it begins with a query.
//!
//! The query is sent once: a switch that has not settled the transfer, or does not answer at once, is polled while the payment waits.

use crate::keys::Reference;
use crate::payment::Payment;
use crate::port::DebitOutcome;
use crate::report::SettledReport;
use crate::submit::QueryAnswer;

/// The actions of one debit attempt.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait DebitPort {
    /// The adapter's own error: the ledger did not answer.
    type Error;
    /// Whether the switch must be queried first ([`crate::rules::needs_query`]).
    async fn needs_query(&self) -> Result<bool, Self::Error>;
    /// Queries the status of the transfer.
    async fn query(&self, reference: &Reference) -> Result<QueryAnswer, Self::Error>;
    /// Debits the hold, together with the record of the SUCCESS that the query returned, if one was sent.
    async fn debit(&self, confirmed: Option<&SettledReport>) -> Result<DebitOutcome, Self::Error>;
}

/// Makes one debit attempt. Of the answers to the query, only a SUCCESS is followed here: the polls of the waiting payment follow the
/// others.
///
/// # Errors
/// The port's own error: nothing is known, and the caller repeats the attempt.
pub async fn attempt<P: DebitPort>(port: &P, payment: &Payment) -> Result<DebitOutcome, P::Error> {
    if !port.needs_query().await? {
        return port.debit(None).await;
    }
    let confirmed = match port.query(&payment.reference()).await? {
        QueryAnswer::Settled(report) => Some(report),
        // Nothing is debited; the ledger says whether a report is on record that differs from the payment.
        QueryAnswer::Returned(_)
        | QueryAnswer::Void { .. }
        | QueryAnswer::Pending
        | QueryAnswer::NotFound
        | QueryAnswer::NotListed { .. }
        | QueryAnswer::Ambiguous { .. }
        | QueryAnswer::OurFault { .. }
        | QueryAnswer::NoAnswer { .. } => None,
    };
    port.debit(confirmed.as_ref()).await
}
