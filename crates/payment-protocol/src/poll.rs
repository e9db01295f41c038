//! One poll of a switch that does not call back: a query, or a reading of its statement.
//!
//! Runs once per poll while the payment waits for its confirmation; the caller repeats it. A poll concludes no
//! more than a callback would: a FAILURE only leads to a cancel, unless the profile says that this reject is final.

use crate::cancel::{CancelPort, VoidReason};
use crate::look::look;
use crate::payment::Payment;
use crate::submit::QueryAnswer;

/// Outcome of one poll.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PollOutcome {
    /// The switch reported SUCCESS, and the report is recorded, as a callback would be.
    SuccessReported,
    /// The switch reported that the money came back; recorded.
    ReturnReported,
    /// The switch reported that the transfer will never settle, which counts as a callback with FAILURE.
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// The switch has not decided: poll again.
    Retry {
        /// Why the poll is undecided.
        detail: String,
    },
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
        QueryAnswer::Settled(report) => {
            port.record_settled(&report).await?;
            PollOutcome::SuccessReported
        }
        QueryAnswer::Returned(report) => {
            port.record_returned(&report).await?;
            PollOutcome::ReturnReported
        }
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
