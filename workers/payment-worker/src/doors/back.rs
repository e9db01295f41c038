//! One asking for the money back.

use payment_ledger::LedgerError;
use payment_protocol::cancel::Heard;
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{Reference, StepKey};
use payment_protocol::recall::{RecallAnswer, RecallDoor};

use super::line::Line;

/// Door of one asking for the money back.
pub(crate) struct BackDoor<'a> {
    pub(crate) line: Line<'a>,
}

impl RecallDoor for BackDoor<'_> {
    type Error = LedgerError;

    async fn recorded(&self) -> Result<Option<RecallRecord>, LedgerError> {
        self.line.ledger.recall_record(&self.line.payment.payment_id).await
    }

    async fn recall(&self, reference: &Reference, key: &StepKey) -> Result<Heard<RecallAnswer>, LedgerError> {
        self.line.heard(self.line.recall(reference, key).await?).await
    }

    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, LedgerError> {
        self.line.ledger.record_recall(&self.line.payment.payment_id, record, reason).await
    }
}
