//! The port of one recall attempt.

use crash_point::crash_point;
use payment_ledger::LedgerError;
use payment_protocol::cancel::SwitchResponse;
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{Reference, StepKey};
use payment_protocol::recall::{RecallAnswer, RecallPort};

use super::session::SwitchSession;

/// The port of one recall attempt.
pub(crate) struct RecallAdapter<'a> {
    pub(crate) session: SwitchSession<'a>,
}

impl RecallPort for RecallAdapter<'_> {
    type Error = LedgerError;

    async fn recorded(&self) -> Result<Option<RecallRecord>, LedgerError> {
        self.session.ledger.begin_recall(&self.session.payment.payment_id).await
    }

    async fn recall(
        &self,
        _reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchResponse<RecallAnswer>, LedgerError> {
        crash_point("before sending a recall");
        let reply = self.session.recall(key).await?;
        crash_point("after the answer to a recall");
        self.session.response(reply).await
    }

    async fn record(&self, record: RecallRecord, reason: &str) -> Result<RecallRecord, LedgerError> {
        self.session.ledger.record_recall(&self.session.payment.payment_id, record, reason).await
    }
}
