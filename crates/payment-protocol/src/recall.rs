//! One asking for money back that left (Path C). Its answers decide only in the switch's own
//! recorded form; anything else is unknown and asked again.

use crate::cancel::SwitchResponse;
use crate::facts::RecallRecord;
use crate::keys::{self, Reference, StepKey};
use crate::payment::Payment;
use crate::port::RecallOutcome;
use crate::rules::retention_expired;

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
    RecallUnsupported,
    /// Anything else.
    Unknown {
        /// What it said, or what happened instead.
        detail: String,
    },
}

/// Outcome of one asking.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecallAttemptOutcome {
    /// Decided and recorded.
    Decided(RecallOutcome),
    /// Ask again.
    Again {
        /// Why it is undecided.
        detail: String,
    },
}

/// What one asking can do.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait RecallPort {
    /// The implementer's own failure: the ledger did not answer.
    type Error;
    /// What is recorded under recall's key.
    async fn recorded(&self) -> Result<Option<RecallRecord>, Self::Error>;
    /// Asks the switch, under recall's own key.
    async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchResponse<RecallAnswer>, Self::Error>;
    /// Records a definite answer under the key; the first one stands and is returned.
    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, Self::Error>;
}

/// Asks once.
///
/// # Errors
/// The port's own: nothing is known, the asking is repeated.
pub async fn ask<D: RecallPort>(port: &D, payment: &Payment) -> Result<RecallAttemptOutcome, D::Error> {
    if let Some(record) = port.recorded().await? {
        return Ok(decided(record));
    }
    if !payment.profile.can_recall {
        return Ok(decided(port.record(RecallRecord::RecallUnsupported, "it has no recall").await?));
    }
    let heard = port.recall(&payment.reference(), &keys::recall(&payment.tx_id)).await?;
    Ok(match heard.answer {
        RecallAnswer::Recalled => decided(port.record(RecallRecord::Recalled, "").await?),
        RecallAnswer::Refused { reason } => decided(port.record(RecallRecord::Refused, &reason).await?),
        RecallAnswer::RecallUnsupported => {
            decided(port.record(RecallRecord::RecallUnsupported, "it has no recall").await?)
        }
        // What the switch has retention_expired it can give back no more; asked on, it would never say so.
        RecallAnswer::Unknown { .. } if retention_expired(heard.first_attempt_age_ms, &payment.profile) => {
            decided(
                port.record(RecallRecord::RecallUnsupported, "it has retention_expired the transfer").await?,
            )
        }
        RecallAnswer::Unknown { detail } => RecallAttemptOutcome::Again { detail },
    })
}

fn decided(record: RecallRecord) -> RecallAttemptOutcome {
    RecallAttemptOutcome::Decided(match record {
        RecallRecord::Recalled => RecallOutcome::Recalled,
        RecallRecord::Refused => RecallOutcome::Refused,
        RecallRecord::RecallUnsupported => RecallOutcome::RecallUnsupported,
    })
}
