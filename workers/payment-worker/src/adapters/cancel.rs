//! One asking to cancel, or one look without touching anything.

use std::sync::OnceLock;

use payment_ledger::LedgerError;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cancel::{CancelAnswer, CancelContext, CancelPort, SwitchResponse, VoidReason};
use payment_protocol::cause::Cause;
use payment_protocol::keys::{CompensationKey, Reference};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::FinalStatusRuling;
use payment_protocol::submit::QueryAnswer;

use super::session::SwitchSession;

/// Door of one asking; `D` is the decision that it is carried out for, if any.
pub(crate) struct CancelAdapter<'a, D = ()> {
    pub(crate) session: SwitchSession<'a>,
    pub(crate) decision: D,
    /// Why the payment is turned round, if it is to be.
    cause: Cause,
    /// As what a SUCCESS is recorded.
    source: FinalStatusSource,
    /// How a SUCCESS was ruled.
    ruled: OnceLock<FinalStatusRuling>,
}

impl<'a> CancelAdapter<'a> {
    /// A adapter of one asking to cancel.
    pub(crate) fn for_cancel(session: SwitchSession<'a>, cause: Cause) -> Self {
        Self::new(session, (), cause, FinalStatusSource::Cancel)
    }

    /// A adapter of one look, which turns nothing round.
    pub(crate) fn for_poll(session: SwitchSession<'a>) -> Self {
        Self::new(session, (), Cause::Interrupted, status_source(session))
    }
}

/// As what a SUCCESS that was looked up is recorded.
pub(super) fn status_source(session: SwitchSession<'_>) -> FinalStatusSource {
    if session.reads_statement() { FinalStatusSource::Statement } else { FinalStatusSource::Query }
}

impl<'a, D> CancelAdapter<'a, D> {
    pub(super) fn new(
        session: SwitchSession<'a>,
        decision: D,
        cause: Cause,
        source: FinalStatusSource,
    ) -> Self {
        Self { session, decision, cause, source, ruled: OnceLock::new() }
    }

    /// How the SUCCESS that was found was ruled; none when none was.
    pub(crate) fn ruled(&self) -> Option<FinalStatusRuling> {
        self.ruled.get().copied()
    }
}

impl<D> CancelPort for CancelAdapter<'_, D> {
    type Error = LedgerError;

    async fn begin(&self) -> Result<CancelContext, LedgerError> {
        self.session.ledger.begin_cancel(&self.session.payment.payment_id, &self.cause).await
    }

    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, LedgerError> {
        self.session.response(self.session.cancel(reference, key).await?).await
    }

    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, LedgerError> {
        self.session.response(self.session.query(reference).await?).await
    }

    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, LedgerError> {
        self.session.response(self.session.statement(reference).await?).await
    }

    async fn record_void(&self, death: VoidReason) -> Result<FinalStatusRuling, LedgerError> {
        self.session.ledger.record_void(&self.session.payment.payment_id, death).await
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, LedgerError> {
        let id = &self.session.payment.payment_id;
        let ruling = self.session.ledger.record_settled(id, report, self.source).await?;
        let _ = self.ruled.set(ruling);
        Ok(ruling)
    }
}
