//! Recalls: the switch is asked to return money that left, and that the account cannot be debited for (Path C).
//!
//! A switch that answers at once returns the money with its agreement: the hold stays open until then, and one [`attempt`] after the
//! other is made. Only the switch's own recorded answer decides; any other answer is unknown, and the caller repeats the attempt.
//!
//! On a rail the answer takes days ([`SwitchProfile::recalls_after_end`](crate::SwitchProfile::recalls_after_end)). The payment then ends
//! without it, charged to the bank; the recall has a [`RecallStatus`] of its own, and no answer moves money: what comes back is a
//! [return](crate::returns).

use crate::cancel::SwitchResponse;
use crate::facts::RecallRecord;
use crate::keys::{self, Reference, StepKey};
use crate::payment::Payment;
use crate::port::RecallOutcome;
use crate::rules::retention_expired;
use crate::state::text_enum;

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
    /// The receiving bank agreed: the money will come back.
    Promised,
    /// The switch has the recall, and the receiving bank has not answered it.
    Pending,
    /// The recall has certainly not reached the rail: it may be sent as if it had not been.
    NotReceived {
        /// Why.
        detail: String,
    },
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
    let detail = match response.answer {
        RecallAnswer::Recalled => return Ok(decided(port.record(RecallRecord::Recalled, "").await?)),
        RecallAnswer::Refused { reason } => {
            return Ok(decided(port.record(RecallRecord::Refused, &reason).await?));
        }
        RecallAnswer::RecallUnsupported => {
            return Ok(decided(port.record(RecallRecord::RecallUnsupported, UNSUPPORTED).await?));
        }
        // The money is not back.
        RecallAnswer::Promised => "the receiving bank agreed, and the money is not back".into(),
        RecallAnswer::Pending => "the receiving bank has not answered the recall".into(),
        RecallAnswer::NotReceived { detail } | RecallAnswer::Unknown { detail } => detail,
    };
    // After its retention the switch cannot return the money, and it would never say so.
    if retention_expired(response.first_attempt_age_ms, &payment.profile) {
        let reason = "the switch's retention of the transfer has expired";
        return Ok(decided(port.record(RecallRecord::RecallUnsupported, reason).await?));
    }
    Ok(RecallAttemptOutcome::Retry { detail })
}

text_enum!(
    /// How a recall stands that goes on after the end of its payment.
    RecallStatus {
        /// It is to be sent.
        Due = "due",
        /// It was sent, and no answer of the switch is recorded.
        Sent = "sent",
        /// The switch has it, and the receiving bank has not answered.
        Pending = "pending",
        /// The receiving bank agreed: the money will come back as a return.
        Promised = "promised",
        /// The receiving bank refused.
        Refused = "refused",
        /// The switch does not support recalls, or knows no such transfer.
        Unsupported = "unsupported",
        /// The bank's claim is closed: the money came back, was collected or was written off.
        Closed = "closed",
    }
);

impl RecallStatus {
    /// The status after an answer, whichever message carried it. The last decision counts: what a bank decides it may decide anew, and
    /// no money depends on it. An acknowledgement takes no decision back.
    #[must_use]
    pub fn after(self, answer: &RecallAnswer) -> Self {
        match (answer, self) {
            (_, Self::Closed) => self,
            // The receiving bank's agreement is no return, whatever the switch calls it.
            (RecallAnswer::Recalled | RecallAnswer::Promised, _) => Self::Promised,
            (RecallAnswer::Refused { .. }, _) => Self::Refused,
            (RecallAnswer::RecallUnsupported, Self::Due | Self::Sent | Self::Pending) => Self::Unsupported,
            (RecallAnswer::Pending, Self::Due | Self::Sent) => Self::Pending,
            (
                RecallAnswer::RecallUnsupported
                | RecallAnswer::Pending
                | RecallAnswer::NotReceived { .. }
                | RecallAnswer::Unknown { .. },
                _,
            ) => self,
        }
    }

    /// Whether nothing more is awaited: the receiving bank keeps the money, or the bank's claim is closed.
    #[must_use]
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Refused | Self::Unsupported | Self::Closed)
    }

    /// Whether the switch may be sent the recall, for the first time or again.
    #[must_use]
    pub fn may_be_sent(self) -> bool {
        matches!(self, Self::Due | Self::Sent)
    }
}

/// An answer to a recall that the switch sends by itself, in the switch's words: authentic, and not yet compared with the payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallReport {
    /// The reported reference.
    pub reference: String,
    /// The answer: pending, promised or refused.
    pub answer: RecallAnswer,
    /// The transfer's amount, in minor units.
    pub amount_minor: i64,
    /// The transfer's currency.
    pub currency: String,
}

fn decided(record: RecallRecord) -> RecallAttemptOutcome {
    RecallAttemptOutcome::Decided(match record {
        RecallRecord::Recalled => RecallOutcome::Recalled,
        RecallRecord::Refused => RecallOutcome::Refused,
        RecallRecord::RecallUnsupported => RecallOutcome::RecallUnsupported,
    })
}
