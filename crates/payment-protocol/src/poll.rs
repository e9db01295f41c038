//! One look at a switch that does not call back: by query, or in its statement.
//!
//! Run once per look while the payment waits for its confirmation; the repetition is the implementer's. It
//! concludes no more than a callback would: FAILURE only leads to asking to cancel.

use crate::cancel::{CancelPort, look};
use crate::payment::Payment;
use crate::submit::QueryAnswer;

/// Outcome of one look.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PollOutcome {
    /// The switch reported SUCCESS, and what it said is on record: as a callback.
    SuccessReported,
    /// The switch says that it is dead: as a callback with FAILURE.
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// Not decided: look again.
    Again {
        /// Why.
        detail: String,
    },
}

/// Looks once.
///
/// # Errors
/// The port's own: nothing is known, the look is repeated.
pub async fn poll<D: CancelPort>(port: &D, payment: &Payment) -> Result<PollOutcome, D::Error> {
    let Some(heard) = look(port, payment).await? else {
        return Ok(PollOutcome::Again { detail: "the switch can be asked nothing".into() });
    };
    Ok(match heard.answer {
        QueryAnswer::Settled(report) => {
            port.record_settled(&report).await?;
            PollOutcome::SuccessReported
        }
        QueryAnswer::Void { reason } => PollOutcome::FailureReported { reason },
        QueryAnswer::Pending => PollOutcome::Again { detail: "the switch has not decided".into() },
        QueryAnswer::NotFound => PollOutcome::Again { detail: "the switch knows nothing of it".into() },
        QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail } => PollOutcome::Again { detail },
    })
}
