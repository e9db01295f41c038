//! Recall, as our books see it: the first definite answer is recorded under `{tx_id}:recall`.

use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;

use crate::row_lock::lock;
use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// What is recorded under recall's key.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn recall_record(&self, payment_id: &PaymentId) -> Result<Option<RecallRecord>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        Ok(lock(&mut tx, payment_id).await?.facts.recall)
    }

    /// Records a definite answer under recall's key; returns the one that stands.
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
        let locked = lock(&mut tx, payment_id).await?;
        if let Some(first) = locked.facts.recall {
            return Ok(first);
        }
        let key = keys::recall(&locked.tx_id);
        let detail = match answer {
            RecallRecord::Recalled => {
                writes::done(&mut tx, key.as_str(), payment_id).await?;
                "the switch gave the money back".to_owned()
            }
            RecallRecord::Refused => {
                writes::refused(&mut tx, key.as_str(), payment_id, reason).await?;
                format!("the switch refused to give the money back: {reason}")
            }
            RecallRecord::RecallUnsupported => {
                writes::impossible(&mut tx, key.as_str(), payment_id, reason).await?;
                format!("the switch cannot give the money back: {reason}")
            }
        };
        writes::timeline(&mut tx, payment_id, locked.facts.state, &detail).await?;
        tx.commit().await?;
        Ok(answer)
    }
}
