//! One poll of a switch that does not call back: a query, or a reading of its statement.
//!
//! Runs once per poll while the payment waits for its confirmation; the caller repeats it. A poll concludes no
//! more than a callback would: a FAILURE only leads to a cancel, unless the profile says that this reject is final.

use crate::cancel::{CancelPort, VoidReason};
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

impl PollOutcome {
    /// What the waiting workflow receives; `None` if the poll is to be repeated. `needs_operator`: the payment waits for an operator, and
    /// gains nothing from a FAILURE, or from a SUCCESS that is recorded as an exception.
    #[must_use]
    pub fn wait_outcome(&self, needs_operator: bool) -> Option<WaitOutcome> {
        match self {
            Self::SuccessReported => Some(WaitOutcome::SuccessReported),
            Self::ReturnReported => Some(WaitOutcome::FinalStatusRecorded),
            // The debit says that it differs, and calls an operator.
            Self::Differs if !needs_operator => Some(WaitOutcome::SuccessReported),
            Self::FailureReported { reason } if !needs_operator => {
                Some(WaitOutcome::FailureReported { reason: reason.clone() })
            }
            Self::Differs | Self::FailureReported { .. } | Self::Retry { .. } => None,
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
