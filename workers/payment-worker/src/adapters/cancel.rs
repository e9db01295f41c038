//! The port of one cancel attempt, or of one poll.

use std::sync::atomic::{AtomicBool, Ordering};

use crash_point::crash_point;
use jiff::Timestamp;
use payment_ledger::LedgerError;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cancel::{CancelAnswer, CancelContext, CancelPort, SwitchResponse, VoidReason};
use payment_protocol::cause::Cause;
use payment_protocol::keys::{CompensationKey, Reference};
use payment_protocol::port::SubmitProgress;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{AskRuling, FinalStatusRuling};
use payment_protocol::submit::QueryAnswer;

use super::session::SwitchSession;

/// The port of one cancel attempt or one poll; `D` is the operator decision that is applied, if any.
pub(crate) struct CancelAdapter<'a, D = ()> {
    pub(crate) session: SwitchSession<'a>,
    pub(crate) decision: D,
    /// Why the payment is compensated, if a cancel begins.
    cause: Cause,
    /// How far submit got, as the workflow knows.
    submit: SubmitProgress,
    /// The source with which a SUCCESS is recorded.
    source: FinalStatusSource,
    /// Whether the statement was read last, and not the query.
    read_statement: AtomicBool,
}

impl<'a> CancelAdapter<'a> {
    /// The port of one cancel attempt.
    pub(crate) fn for_cancel(session: SwitchSession<'a>, cause: Cause, submit: SubmitProgress) -> Self {
        Self::new(session, (), cause, submit, FinalStatusSource::Cancel)
    }

    /// The port of one poll, which compensates nothing and does not know what the workflow sent.
    pub(crate) fn for_poll(session: SwitchSession<'a>) -> Self {
        Self::new(session, (), Cause::Interrupted, SubmitProgress::Scheduled, FinalStatusSource::Query)
    }
}

impl<'a, D> CancelAdapter<'a, D> {
    pub(super) fn new(
        session: SwitchSession<'a>,
        decision: D,
        cause: Cause,
        submit: SubmitProgress,
        source: FinalStatusSource,
    ) -> Self {
        Self { session, decision, cause, submit, source, read_statement: AtomicBool::new(false) }
    }

    /// The source of the report that is recorded now.
    fn source(&self) -> FinalStatusSource {
        match self.source {
            FinalStatusSource::Query if self.read_statement.load(Ordering::Relaxed) => {
                FinalStatusSource::Statement
            }
            source => source,
        }
    }
}

impl<D> CancelPort for CancelAdapter<'_, D> {
    type Error = LedgerError;

    async fn begin(&self) -> Result<CancelContext, LedgerError> {
        let id = &self.session.payment.payment_id;
        self.session.ledger.begin_cancel(id, &self.cause, self.submit).await
    }

    async fn bound_deadline(&self, latest_ms: i64) -> Result<i64, LedgerError> {
        let latest = Timestamp::from_millisecond(latest_ms).unwrap_or(Timestamp::MAX);
        let recorded = self.session.ledger.bound_deadline(&self.session.payment.payment_id, latest).await?;
        Ok(recorded.as_millisecond())
    }

    async fn cancel(
        &self,
        _reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, LedgerError> {
        crash_point("before sending a cancel");
        let reply = self.session.cancel(key).await?;
        crash_point("after the answer to a cancel");
        self.session.response(reply).await
    }

    async fn begin_query(&self) -> Result<AskRuling, LedgerError> {
        self.session.begin_query().await
    }

    async fn query(&self, _reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, LedgerError> {
        let reply = self.session.query().await?;
        crash_point("after the answer to a query");
        self.session.response(reply).await
    }

    async fn statement(&self, _reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, LedgerError> {
        self.read_statement.store(true, Ordering::Relaxed);
        self.session.response(self.session.statement().await?).await
    }

    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, LedgerError> {
        self.session.ledger.record_void(&self.session.payment.payment_id, reason).await
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, LedgerError> {
        let id = &self.session.payment.payment_id;
        self.session.ledger.record_settled(id, report, self.source()).await
    }

    async fn record_returned(&self, report: &SettledReport) -> Result<FinalStatusRuling, LedgerError> {
        let id = &self.session.payment.payment_id;
        self.session.ledger.record_returned(id, report, self.source()).await
    }
}
