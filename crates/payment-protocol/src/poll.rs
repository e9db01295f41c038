//! One look at a switch that does not call back: by query, or in its statement.
//!
//! Run once per look while the payment waits for its confirmation; the repetition is the implementer's. It
//! concludes no more than a callback would: FAILURE only leads to asking to cancel.

use crate::cancel::{CancelDoor, look};
use crate::payment::Payment;
use crate::submit::QueryAnswer;

/// Outcome of one look.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Polled {
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
/// The door's own: nothing is known, the look is repeated.
pub async fn poll<D: CancelDoor>(door: &D, payment: &Payment) -> Result<Polled, D::Error> {
    let Some(heard) = look(door, payment).await? else {
        return Ok(Polled::Again { detail: "the switch can be asked nothing".into() });
    };
    Ok(match heard.answer {
        QueryAnswer::Settled(report) => {
            door.record_settled(&report).await?;
            Polled::SuccessReported
        }
        QueryAnswer::Dead { reason } => Polled::FailureReported { reason },
        QueryAnswer::Pending => Polled::Again { detail: "the switch has not decided".into() },
        QueryAnswer::NotFound => Polled::Again { detail: "the switch knows nothing of it".into() },
        QueryAnswer::OurFault { detail } | QueryAnswer::NoAnswer { detail } => Polled::Again { detail },
    })
}
