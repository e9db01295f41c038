//! One asking for money back that left (Path C). Its answers decide only in the switch's own
//! recorded form; anything else is unknown and asked again.

use crate::facts::RecallRecord;
use crate::profile::SwitchProfile;
use crate::world::Recalled;

/// The switch's answer to a recall.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Asks the switch, under key `{tx_id}:recall`.
    async fn recall(&self) -> RecallAnswer;
    /// Records a definite answer under the key; the first one stands and is returned.
    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, Self::Error>;
}

/// Asks once.
///
/// # Errors
/// The door's own: nothing is known, the asking is repeated.
pub async fn ask<D: RecallDoor>(door: &D, profile: &SwitchProfile) -> Result<Recalling, D::Error> {
    if let Some(record) = door.recorded().await? {
        return Ok(decided(record));
    }
    if !profile.can_recall {
        return Ok(Recalling::Decided(Recalled::CannotRecall));
    }
    Ok(match door.recall().await {
        RecallAnswer::Recalled => decided(door.record(RecallRecord::Recalled, "").await?),
        RecallAnswer::Refused { reason } => decided(door.record(RecallRecord::Refused, &reason).await?),
        RecallAnswer::CannotRecall => Recalling::Decided(Recalled::CannotRecall),
        RecallAnswer::Unknown { detail } => Recalling::Again { detail },
    })
}

fn decided(record: RecallRecord) -> Recalling {
    Recalling::Decided(match record {
        RecallRecord::Recalled => Recalled::Recalled,
        RecallRecord::Refused => Recalled::Refused,
    })
}
