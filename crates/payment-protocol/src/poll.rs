//! One poll of a switch that does not call back, or whose callbacks a query must confirm: a query, or a reading of its statement.
//!
//! Runs once per poll while the payment waits for its confirmation; the caller repeats it. A poll concludes no
//! more than a callback would: a FAILURE only leads to a cancel, unless the profile says that this reject is final.

use crate::cancel::{CancelPort, VoidReason};
use crate::cause::OperatorReason;
use crate::look::look;
use crate::payment::Payment;
use crate::port::WaitOutcome;
use crate::rules::FinalStatusRuling;
use crate::submit::QueryAnswer;

const EXCEPTION: &str = "the switch's report is recorded as an exception";

/// Outcome of one poll.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PollOutcome {
    /// The switch reported SUCCESS, and it is the payment's final status.
    SuccessReported,
    /// The switch reported SUCCESS with other data than the payment's, which is recorded.
    Differs,
    /// The switch reported that the money came back, and it is the payment's final status.
    ReturnReported,
    /// The switch reported that the transfer will never settle, which counts as a callback with FAILURE.
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// The switch has not decided, or its report is an exception that changes nothing: poll again.
    Retry {
        /// Why the poll is undecided.
        detail: String,
    },
}

/// The answers that move a waiting payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The payment awaits its confirmation: each report.
    Confirmation,
    /// The payment awaits an operator, and follows the switch ([`OperatorReason::follows_switch`]): not a FAILURE, and not a SUCCESS that is
    /// recorded as an exception.
    FinalStatus,
    /// The payment awaits an operator, and its SUCCESS is known: a return alone.
    Return,
}

impl Awaited {
    /// What a payment awaits while it needs an operator for `reason`.
    #[must_use]
    pub fn with_operator(reason: OperatorReason) -> Self {
        if reason.follows_switch() { Self::FinalStatus } else { Self::Return }
    }
}

impl PollOutcome {
    /// What the waiting workflow receives; `None` if the poll is to be repeated.
    #[must_use]
    pub fn wait_outcome(&self, awaited: Awaited) -> Option<WaitOutcome> {
        match (self, awaited) {
            (Self::ReturnReported, _) => Some(WaitOutcome::FinalStatusRecorded),
            // If the report differs, the debit says so, and calls an operator.
            (Self::SuccessReported, Awaited::Confirmation | Awaited::FinalStatus)
            | (Self::Differs, Awaited::Confirmation) => Some(WaitOutcome::SuccessReported),
            (Self::FailureReported { reason }, Awaited::Confirmation) => {
                Some(WaitOutcome::FailureReported { reason: reason.clone() })
            }
            (
                Self::SuccessReported | Self::Differs | Self::FailureReported { .. } | Self::Retry { .. },
                _,
            ) => None,
        }
    }
}

/// Polls the switch once.
///
/// # Errors
/// The port's own error: nothing is known, and the caller repeats the poll.
pub async fn poll<P: CancelPort>(port: &P, payment: &Payment) -> Result<PollOutcome, P::Error> {
    let retry = |detail: &str| PollOutcome::Retry { detail: detail.to_owned() };
    let Some(response) = look(port, payment).await?.answer() else {
        return Ok(retry("the switch offers neither a query now nor a statement"));
    };
    Ok(match response.answer {
        QueryAnswer::Settled(report) => match port.record_settled(&report).await? {
            FinalStatusRuling::First | FinalStatusRuling::Same => PollOutcome::SuccessReported,
            FinalStatusRuling::Differs(_) => PollOutcome::Differs,
            FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts => retry(EXCEPTION),
        },
        QueryAnswer::Returned(report) => match port.record_returned(&report).await? {
            FinalStatusRuling::First | FinalStatusRuling::Same => PollOutcome::ReturnReported,
            FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts => {
                retry(EXCEPTION)
            }
        },
        QueryAnswer::Void { reject } => {
            if payment.profile.is_final(&reject) {
                port.record_void(VoidReason::Rejected).await?;
            }
            PollOutcome::FailureReported { reason: reject.to_string() }
        }
        QueryAnswer::Pending => retry("the switch has not decided"),
        QueryAnswer::NotFound => retry("the switch does not know the transfer"),
        QueryAnswer::NotListed { .. } => retry("the statement does not list the transfer"),
        QueryAnswer::Ambiguous { detail }
        | QueryAnswer::OurFault { detail }
        | QueryAnswer::NoAnswer { detail } => PollOutcome::Retry { detail },
    })
}
