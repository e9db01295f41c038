//! One submit attempt: query the switch, record the attempt in our ledger, send the transfer.
//!
//! Runs once per attempt; the caller repeats it within the profile's time budget.

use crate::cancel::VoidReason;
use crate::keys::Reference;
use crate::payment::Payment;
use crate::profile::{Strategy, SwitchProfile};
use crate::reject::Reject;
use crate::report::SettledReport;
use crate::rules::{AskRuling, AttemptRuling, FinalStatusRuling, NotSent};

/// The switch's answer to a query by our reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QueryAnswer {
    /// The switch has the transfer and has not decided.
    Pending,
    /// The transfer settled.
    Settled(SettledReport),
    /// The transfer settled, and the money came back.
    Returned(SettledReport),
    /// The transfer is finally rejected or cancelled.
    Void {
        /// The switch's reject.
        reject: Reject,
    },
    /// The switch does not know the reference.
    NotFound,
    /// The statement has no entry of the transfer.
    NotListed {
        /// Everything that finished before this time of the switch is in the statement, in milliseconds since the epoch; `None` if
        /// the statement does not say.
        complete_until_ms: Option<i64>,
    },
    /// A switch without references has several transfers that may be this one: it cannot say which.
    Ambiguous {
        /// The switch's transfers, in words.
        detail: String,
    },
    /// The switch refused the query: our fault (400, 401, 403, 404 of the endpoint).
    OurFault {
        /// The switch's words.
        detail: String,
    },
    /// No answer, or an unreadable one.
    NoAnswer {
        /// The reason why no answer was read.
        detail: String,
    },
}

/// The switch's answer to a transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SendAnswer {
    /// The switch accepted the transfer.
    Accepted,
    /// The switch refused the transfer. A refusal releases nothing, unless the profile says that this reject is final
    /// ([`SwitchProfile::is_final`]).
    Refused {
        /// The switch's reject.
        reject: Reject,
    },
    /// The switch may or may not have the transfer.
    Unknown {
        /// The reason why no answer was read.
        detail: String,
    },
}

/// Outcome of one submit attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SubmitAttemptOutcome {
    /// The switch accepted the transfer.
    Accepted,
    /// The switch refused the transfer.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// The switch has already reported that the transfer settled.
    Settled,
    /// Our own ledger refused the attempt.
    NotSent(NotSent),
    /// The outcome is unknown; the attempt may be repeated.
    Unknown {
        /// Why the outcome is unknown.
        detail: String,
    },
}

/// The last attempt in our own submission log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LoggedSubmission {
    /// Written before sending, and without an answer: the transfer may have been sent and may have arrived.
    Pending,
    /// The switch accepted the transfer.
    Accepted,
    /// The switch refused the transfer.
    Refused {
        /// The switch's words.
        reason: String,
    },
}

/// The actions of one submit attempt. If the ledger does not answer, the outcome of the attempt is unknown.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait SubmitPort {
    /// The adapter's own error: the ledger did not answer.
    type Error;
    /// The last attempt in the submission log; `None` if no attempt is recorded.
    async fn logged(&self) -> Result<Option<LoggedSubmission>, Self::Error>;
    /// Counts a query before it is sent, under the payment row's lock. Called only where the profile limits queries.
    async fn begin_query(&self) -> Result<AskRuling, Self::Error>;
    /// Queries the status of the transfer.
    async fn query(&self, reference: &Reference) -> QueryAnswer;
    /// Records the attempt under the payment row's lock, before anything is sent.
    async fn record_attempt(&self) -> Result<AttemptRuling, Self::Error>;
    /// Sends the transfer with this reference and the recorded deadline.
    async fn send(&self, reference: &Reference) -> SendAnswer;
    /// Records the answer to attempt `n` (from 1); a final reject also as the final status `void`.
    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), Self::Error>;
    /// Records that the switch has the transfer, without a new attempt. Without a recorded attempt this is an
    /// exception, and the result is [`NotSent::ReportedWithoutAttempt`].
    async fn record_found(&self) -> Result<Option<NotSent>, Self::Error>;
    /// Records a SUCCESS that a query returned.
    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, Self::Error>;
    /// Records that the money came back, as a query returned.
    async fn record_returned(&self, report: &SettledReport) -> Result<FinalStatusRuling, Self::Error>;
    /// Records that the transfer is void, as a final reject says.
    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, Self::Error>;
}

/// Makes one submit attempt.
///
/// # Errors
/// The port's own error: nothing is known, and the attempt may be repeated.
pub async fn attempt<P: SubmitPort>(port: &P, payment: &Payment) -> Result<SubmitAttemptOutcome, P::Error> {
    match known_outcome(port, payment).await? {
        Some(known) => Ok(known),
        None => first_attempt(port, payment).await,
    }
}

/// Makes a submit attempt without a look for an earlier one: the first attempt of a payment, recorded in the transaction that reserves
/// its amount. Nothing can have been sent before it, and the reserve's key is what says so. Only for a switch that deduplicates
/// ([`SwitchProfile::forbids_second_attempt`]): a database that lost both records would send again.
///
/// # Errors
/// The port's own error: nothing is known, and [`attempt`] repeats it.
pub async fn first_attempt<P: SubmitPort>(
    port: &P,
    payment: &Payment,
) -> Result<SubmitAttemptOutcome, P::Error> {
    let n = match port.record_attempt().await? {
        AttemptRuling::Send(n) => n,
        AttemptRuling::Settled => return Ok(SubmitAttemptOutcome::Settled),
        AttemptRuling::NotSent(reason) => return Ok(SubmitAttemptOutcome::NotSent(reason)),
    };
    let answer = payment.profile.read_send_answer(port.send(&payment.reference()).await);
    port.record_answer(n, &answer).await?;
    Ok(match answer {
        SendAnswer::Accepted => SubmitAttemptOutcome::Accepted,
        SendAnswer::Refused { reject } => SubmitAttemptOutcome::Refused { reason: reject.to_string() },
        SendAnswer::Unknown { detail } => SubmitAttemptOutcome::Unknown { detail },
    })
}

/// The outcome that is known without sending (S0.4, S1.4), as the strategy prescribes; `None` means send. A
/// zombie attempt can still arrive between this check and our send. The switch's deduplication handles that; at
/// a switch without deduplication, the ledger allows a single attempt.
async fn known_outcome<P: SubmitPort>(
    port: &P,
    payment: &Payment,
) -> Result<Option<SubmitAttemptOutcome>, P::Error> {
    let profile = &payment.profile;
    let SwitchProfile { strategy, has_query, .. } = *profile;
    let pending = if strategy.uses_submission_log() {
        match port.logged().await? {
            None => return Ok(None),
            Some(LoggedSubmission::Accepted) => return Ok(Some(SubmitAttemptOutcome::Accepted)),
            Some(LoggedSubmission::Refused { reason }) => {
                return Ok(Some(SubmitAttemptOutcome::Refused { reason }));
            }
            // Ambiguous: the switch's query or its deduplication decides.
            Some(LoggedSubmission::Pending) => true,
        }
    } else {
        false
    };
    if !(strategy == Strategy::Query || pending && has_query) {
        return Ok(None);
    }
    if profile.limits_queries() && port.begin_query().await? != AskRuling::Ask {
        // The ledger refuses a second attempt, and the payment waits; otherwise the caller repeats this one.
        return Ok((!profile.forbids_second_attempt()).then(|| SubmitAttemptOutcome::Unknown {
            detail: "an attempt is on record, and the switch may not be queried now".into(),
        }));
    }
    let ruling = match profile.read_query_answer(port.query(&payment.reference()).await) {
        QueryAnswer::Settled(report) => port.record_settled(&report).await?,
        QueryAnswer::Returned(report) => port.record_returned(&report).await?,
        QueryAnswer::Pending => {
            return Ok(Some(match port.record_found().await? {
                None => SubmitAttemptOutcome::Accepted,
                Some(reason) => SubmitAttemptOutcome::NotSent(reason),
            }));
        }
        QueryAnswer::Void { reject } => {
            if profile.is_final(&reject) {
                port.record_void(VoidReason::Rejected).await?;
            }
            return Ok(Some(SubmitAttemptOutcome::Refused { reason: reject.to_string() }));
        }
        QueryAnswer::NotFound | QueryAnswer::NotListed { .. } => return Ok(None),
        QueryAnswer::Ambiguous { detail }
        | QueryAnswer::OurFault { detail }
        | QueryAnswer::NoAnswer { detail } => {
            return Ok(Some(SubmitAttemptOutcome::Unknown { detail }));
        }
    };
    Ok(Some(match ruling {
        // The debit reads what is recorded: a settlement, a return, or a difference.
        FinalStatusRuling::First | FinalStatusRuling::Same | FinalStatusRuling::Differs(_) => {
            SubmitAttemptOutcome::Settled
        }
        FinalStatusRuling::NoAttempt => SubmitAttemptOutcome::NotSent(NotSent::ReportedWithoutAttempt),
        // `void` was recorded first, so a cancel was sent: no attempt may follow.
        FinalStatusRuling::Contradicts => SubmitAttemptOutcome::NotSent(NotSent::CancelStarted),
    }))
}
