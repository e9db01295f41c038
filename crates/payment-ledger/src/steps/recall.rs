//! Recall: records the switch's first definite answer under `{tx_id}:recall`.

use payment_protocol::facts::{FinalStatus, HoldStatus, RecallRecord};
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;

use crate::row_lock::lock_payment;
use crate::{Ledger, LedgerError, switch::final_status, writes};

impl Ledger {
    /// Begins a recall: from now on the hold is not debited any more. Returns the recorded answer to the recall; `None` if no
    /// definite answer is recorded. Money that came back by itself needs no recall.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn begin_recall(&self, payment_id: &PaymentId) -> Result<Option<RecallRecord>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let facts = &locked.facts;
        if facts.final_status == Some(FinalStatus::Returned) {
            return Ok(Some(RecallRecord::Recalled));
        }
        // The database may have lost the refusal that leads to a recall: a late debit must not succeed beside it.
        if facts.debit_refused.is_none() && facts.hold == Some(HoldStatus::Open) {
            let key = keys::debit(&locked.tx_id);
            writes::record_refused(&mut tx, key.as_str(), payment_id, "recall_requested").await?;
            tx.commit().await?;
        }
        Ok(locked.facts.recall)
    }

    /// Records a definite answer to the recall. Returns the recorded one, which may be an earlier one.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_recall(
        &self,
        payment_id: &PaymentId,
        answer: RecallRecord,
        reason: &str,
    ) -> Result<RecallRecord, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        if let Some(first) = locked.facts.recall {
            return Ok(first);
        }
        let key = keys::recall(&locked.tx_id);
        let detail = match answer {
            RecallRecord::Recalled => {
                writes::record_done(&mut tx, key.as_str(), payment_id).await?;
                final_status::write(&mut tx, payment_id, FinalStatus::Returned, "recall").await?;
                "the switch returned the money".to_owned()
            }
            RecallRecord::Refused => {
                writes::record_refused(&mut tx, key.as_str(), payment_id, reason).await?;
                format!("the switch refused to return the money: {reason}")
            }
            RecallRecord::RecallUnsupported => {
                writes::record_unsupported(&mut tx, key.as_str(), payment_id, reason).await?;
                format!("the switch cannot return the money: {reason}")
            }
        };
        writes::append_timeline(&mut tx, payment_id, locked.facts.state, &detail).await?;
        tx.commit().await?;
        Ok(answer)
    }
}
