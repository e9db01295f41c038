//! One recall attempt: asks the switch to return money that left (Path C). Only the switch's own recorded
//! answer decides; any other answer is unknown, and the caller repeats the attempt.

use crate::cancel::SwitchResponse;
use crate::facts::RecallRecord;
use crate::keys::{self, Reference, StepKey};
use crate::payment::Payment;
use crate::port::RecallOutcome;
use crate::rules::retention_expired;

/// The switch's answer to a recall.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecallAnswer {
    /// The switch returned the money.
    Recalled,
    /// The switch recorded that it will not return the money.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// The switch does not support recalls.
    RecallUnsupported,
    /// Any other answer, or none.
    Unknown {
        /// The switch's words, or what happened instead of an answer.
        detail: String,
    },
}

/// Outcome of one recall attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RecallAttemptOutcome {
    /// Decided and recorded.
    Decided(RecallOutcome),
    /// Undecided: attempt again.
    Retry {
        /// Why the attempt is undecided.
        detail: String,
    },
}

/// The actions of one recall attempt.
#[allow(async_fn_in_trait, reason = "driven in place, never spawned through the trait")]
pub trait RecallPort {
    /// The adapter's own error: the ledger did not answer.
    type Error;
    /// The outcome recorded under recall's key; `None` without a record.
    async fn recorded(&self) -> Result<Option<RecallRecord>, Self::Error>;
    /// Sends the recall to the switch, under recall's own key.
    async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchResponse<RecallAnswer>, Self::Error>;
    /// Records a definite answer under the key. Returns the record that is valid, which is the first one.
    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, Self::Error>;
}

/// Makes one recall attempt.
///
/// # Errors
/// The port's own error: nothing is known, and the caller repeats the attempt.
pub async fn attempt<P: RecallPort>(port: &P, payment: &Payment) -> Result<RecallAttemptOutcome, P::Error> {
    const UNSUPPORTED: &str = "the switch does not support recalls";
    if let Some(record) = port.recorded().await? {
        return Ok(decided(record));
    }
    if !payment.profile.can_recall {
        return Ok(decided(port.record(RecallRecord::RecallUnsupported, UNSUPPORTED).await?));
    }
    let response = port.recall(&payment.reference(), &keys::recall(&payment.tx_id)).await?;
    Ok(match response.answer {
        RecallAnswer::Recalled => decided(port.record(RecallRecord::Recalled, "").await?),
        RecallAnswer::Refused { reason } => decided(port.record(RecallRecord::Refused, &reason).await?),
        RecallAnswer::RecallUnsupported => {
            decided(port.record(RecallRecord::RecallUnsupported, UNSUPPORTED).await?)
        }
        // After its retention the switch cannot return the money, and it would never say so.
        RecallAnswer::Unknown { .. }
            if retention_expired(response.first_attempt_age_ms, &payment.profile) =>
        {
            let reason = "the switch's retention of the transfer has expired";
            decided(port.record(RecallRecord::RecallUnsupported, reason).await?)
        }
        RecallAnswer::Unknown { detail } => RecallAttemptOutcome::Retry { detail },
    })
}

fn decided(record: RecallRecord) -> RecallAttemptOutcome {
    RecallAttemptOutcome::Decided(match record {
        RecallRecord::Recalled => RecallOutcome::Recalled,
        RecallRecord::Refused => RecallOutcome::Refused,
        RecallRecord::RecallUnsupported => RecallOutcome::RecallUnsupported,
    })
}
