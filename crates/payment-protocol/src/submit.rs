//! One attempt at submit: the switch is asked, our ledger lets the attempt out, it is sent.
//!
//! Run once per attempt; the repetition is the implementer's, within the profile's budget.

use crate::keys::Reference;
use crate::payment::Payment;
use crate::profile::{Strategy, SwitchProfile};
use crate::report::SettledReport;
use crate::rules::{AttemptRuling, FinalStatusRuling, NotSent};

/// The switch's answer to a query by our reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QueryAnswer {
    /// It has the transfer and has not decided.
    Pending,
    /// It settled.
    Settled(SettledReport),
    /// It is finally rejected or cancelled.
    Void {
        /// The switch's words.
        reason: String,
    },
    /// It knows no such reference.
    NotFound,
    /// It understood us and refused to talk: our fault (400, 401, 403, 404 of the endpoint).
    OurFault {
        /// What it said.
        detail: String,
    },
    /// No answer, or none that can be read.
    NoAnswer {
        /// What happened instead.
        detail: String,
    },
}

/// The switch's answer to a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SendAnswer {
    /// It has it.
    Accepted,
    /// It says no. This releases nothing by itself.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// It may or may not have it.
    Unknown {
        /// What happened instead of an answer.
        detail: String,
    },
}

/// Outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SubmitAttemptOutcome {
    /// The switch has the transfer.
    Accepted,
    /// The switch refused it.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// The switch has already said that it settled.
    Settled,
    /// Our own ledger let nothing out.
    NotSent(NotSent),
    /// Not known; may be attempted again.
    Unknown {
        /// What happened.
        detail: String,
    },
}

/// What our own log says of the last attempt at the switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoggedSubmission {
    /// Written before it was sent, and no answer: it may have been sent, and it may have arrived.
    Pending,
    /// Answered: the switch has it.
    Accepted,
    /// Answered: refused.
    Refused {
        /// The switch's words.
        reason: String,
    },
}

/// What one attempt can do. Errors are the implementer's: an attempt whose ledger does not answer
/// is simply not known.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait SubmitPort {
    /// The implementer's own failure: the ledger did not answer.
    type Error;
    /// What the log says of the last attempt; none when none is on record.
    async fn logged(&self) -> Result<Option<LoggedSubmission>, Self::Error>;
    /// Asks the switch for the transfer.
    async fn query(&self, reference: &Reference) -> QueryAnswer;
    /// Records the attempt under the payment row's lock, before anything is sent.
    async fn record_attempt(&self) -> Result<AttemptRuling, Self::Error>;
    /// Sends the transfer with this reference and the recorded deadline.
    async fn send(&self, reference: &Reference) -> SendAnswer;
    /// Records what attempt `n` brought.
    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), Self::Error>;
    /// Records that the switch has the transfer, without a new attempt. Where no attempt is on record
    /// this is an exception, and [`NotSent::ReportedWithoutAttempt`].
    async fn record_found(&self) -> Result<Option<NotSent>, Self::Error>;
    /// Records a SUCCESS that a query brought.
    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, Self::Error>;
}

/// Runs one attempt.
///
/// # Errors
/// The port's own: nothing is known, the attempt may be repeated.
pub async fn attempt<D: SubmitPort>(port: &D, payment: &Payment) -> Result<SubmitAttemptOutcome, D::Error> {
    if let Some(known) = check_and_skip(port, payment).await? {
        return Ok(known);
    }
    let n = match port.record_attempt().await? {
        AttemptRuling::Send(n) => n,
        AttemptRuling::Settled => return Ok(SubmitAttemptOutcome::Settled),
        AttemptRuling::NotSent(reason) => return Ok(SubmitAttemptOutcome::NotSent(reason)),
    };
    let answer = port.send(&payment.reference()).await;
    port.record_answer(n, &answer).await?;
    Ok(match answer {
        SendAnswer::Accepted => SubmitAttemptOutcome::Accepted,
        SendAnswer::Refused { reason } => SubmitAttemptOutcome::Refused { reason },
        SendAnswer::Unknown { detail } => SubmitAttemptOutcome::Unknown { detail },
    })
}

/// Looks for an outcome that is there already (S0.4, S1.4), as the strategy says; none means send. The race
/// this leaves, a zombie attempt that lands between this look and our send, is closed by the switch's
/// deduplication, and where there is none by the single attempt that the ledger lets out.
async fn check_and_skip<D: SubmitPort>(
    port: &D,
    payment: &Payment,
) -> Result<Option<SubmitAttemptOutcome>, D::Error> {
    let SwitchProfile { strategy, has_query, .. } = payment.profile;
    let pending = if strategy.uses_submission_log() {
        match port.logged().await? {
            None => return Ok(None),
            Some(LoggedSubmission::Accepted) => return Ok(Some(SubmitAttemptOutcome::Accepted)),
            Some(LoggedSubmission::Refused { reason }) => {
                return Ok(Some(SubmitAttemptOutcome::Refused { reason }));
            }
            // Ambiguous: the switch is asked, or its deduplication.
            Some(LoggedSubmission::Pending) => true,
        }
    } else {
        false
    };
    if !(strategy == Strategy::Query || pending && has_query) {
        return Ok(None);
    }
    match port.query(&payment.reference()).await {
        QueryAnswer::Pending => Ok(Some(match port.record_found().await? {
            None => SubmitAttemptOutcome::Accepted,
            Some(reason) => SubmitAttemptOutcome::NotSent(reason),
        })),
        QueryAnswer::Settled(report) => Ok(Some(match port.record_settled(&report).await? {
            FinalStatusRuling::First | FinalStatusRuling::Same => SubmitAttemptOutcome::Settled,
            // The wait decides: settle sees the difference on record.
            FinalStatusRuling::Differs(_) => SubmitAttemptOutcome::Settled,
            FinalStatusRuling::NoAttempt => SubmitAttemptOutcome::NotSent(NotSent::ReportedWithoutAttempt),
            // Void was on record first, so a cancel was asked: no attempt goes out after it.
            FinalStatusRuling::Contradicts => SubmitAttemptOutcome::NotSent(NotSent::CancelStarted),
        })),
        QueryAnswer::Void { reason } => Ok(Some(SubmitAttemptOutcome::Refused { reason })),
        QueryAnswer::NotFound => Ok(None),
        QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail } => {
            Ok(Some(SubmitAttemptOutcome::Unknown { detail }))
        }
    }
}
