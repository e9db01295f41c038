//! One asking for money back that left (Path C). Its answers decide only in the switch's own
//! recorded form; anything else is unknown and asked again.

use crate::cancel::Heard;
use crate::facts::RecallRecord;
use crate::keys::{self, Reference, StepKey};
use crate::payment::Payment;
use crate::rules::forgotten;
use crate::world::Recalled;

/// The switch's answer to a recall.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecallAnswer {
    /// It gave the money back.
    Recalled,
    /// It recorded that it will not.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// It has no recall.
    CannotRecall,
    /// Anything else.
    Unknown {
        /// What it said, or what happened instead.
        detail: String,
    },
}

/// Outcome of one asking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Recalling {
    /// Decided and recorded.
    Decided(Recalled),
    /// Ask again.
    Again {
        /// Why it is undecided.
        detail: String,
    },
}

/// What one asking can do.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait RecallDoor {
    /// The implementer's own failure: the ledger did not answer.
    type Error;
    /// What is recorded under recall's key.
    async fn recorded(&self) -> Result<Option<RecallRecord>, Self::Error>;
    /// Asks the switch, under recall's own key.
    async fn recall(&self, reference: &Reference, key: &StepKey) -> Result<Heard<RecallAnswer>, Self::Error>;
    /// Records a definite answer under the key; the first one stands and is returned.
    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, Self::Error>;
}

/// Asks once.
///
/// # Errors
/// The door's own: nothing is known, the asking is repeated.
pub async fn ask<D: RecallDoor>(door: &D, payment: &Payment) -> Result<Recalling, D::Error> {
    if let Some(record) = door.recorded().await? {
        return Ok(decided(record));
    }
    if !payment.profile.can_recall {
        return Ok(decided(door.record(RecallRecord::CannotRecall, "it has no recall").await?));
    }
    let heard = door.recall(&payment.reference(), &keys::recall(&payment.tx_id)).await?;
    Ok(match heard.answer {
        RecallAnswer::Recalled => decided(door.record(RecallRecord::Recalled, "").await?),
        RecallAnswer::Refused { reason } => decided(door.record(RecallRecord::Refused, &reason).await?),
        RecallAnswer::CannotRecall => {
            decided(door.record(RecallRecord::CannotRecall, "it has no recall").await?)
        }
        // What the switch has forgotten it can give back no more; asked on, it would never say so.
        RecallAnswer::Unknown { .. } if forgotten(heard.first_attempt_age_ms, &payment.profile) => {
            decided(door.record(RecallRecord::CannotRecall, "it has forgotten the transfer").await?)
        }
        RecallAnswer::Unknown { detail } => Recalling::Again { detail },
    })
}

fn decided(record: RecallRecord) -> Recalling {
    Recalling::Decided(match record {
        RecallRecord::Recalled => Recalled::Recalled,
        RecallRecord::Refused => Recalled::Refused,
        RecallRecord::CannotRecall => Recalled::CannotRecall,
    })
}
