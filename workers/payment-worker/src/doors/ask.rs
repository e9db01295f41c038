//! One asking to cancel, or one look without touching anything.

use std::sync::OnceLock;

use payment_ledger::LedgerError;
use payment_ledger::verdict::Source;
use payment_protocol::cancel::{Begun, CancelAnswer, CancelDoor, Death, Heard};
use payment_protocol::cause::Cause;
use payment_protocol::keys::{Reference, UndoKey};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::VerdictRuling;
use payment_protocol::submit::QueryAnswer;

use super::line::Line;

/// Door of one asking; `D` is the decision that it is carried out for, if any.
pub(crate) struct AskDoor<'a, D = ()> {
    pub(crate) line: Line<'a>,
    pub(crate) decision: D,
    /// Why the payment is turned round, if it is to be.
    cause: Cause,
    /// As what a SUCCESS is recorded.
    source: Source,
    /// How a SUCCESS was ruled.
    ruled: OnceLock<VerdictRuling>,
}

impl<'a> AskDoor<'a> {
    /// A door of one asking to cancel.
    pub(crate) fn to_cancel(line: Line<'a>, cause: Cause) -> Self {
        Self::new(line, (), cause, Source::Cancel)
    }

    /// A door of one look, which turns nothing round.
    pub(crate) fn to_look(line: Line<'a>) -> Self {
        Self::new(line, (), Cause::Interrupted, looked_up(line))
    }
}

/// As what a SUCCESS that was looked up is recorded.
pub(super) fn looked_up(line: Line<'_>) -> Source {
    if line.reads_statement() { Source::Statement } else { Source::Query }
}

impl<'a, D> AskDoor<'a, D> {
    pub(super) fn new(line: Line<'a>, decision: D, cause: Cause, source: Source) -> Self {
        Self { line, decision, cause, source, ruled: OnceLock::new() }
    }

    /// How the SUCCESS that was found was ruled; none when none was.
    pub(crate) fn ruled(&self) -> Option<VerdictRuling> {
        self.ruled.get().copied()
    }
}

impl<D> CancelDoor for AskDoor<'_, D> {
    type Error = LedgerError;

    async fn begin(&self) -> Result<Begun, LedgerError> {
        self.line.ledger.begin_cancel(&self.line.payment.payment_id, &self.cause).await
    }

    async fn cancel(&self, reference: &Reference, key: &UndoKey) -> Result<Heard<CancelAnswer>, LedgerError> {
        self.line.heard(self.line.cancel(reference, key).await?).await
    }

    async fn query(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, LedgerError> {
        self.line.heard(self.line.query(reference).await?).await
    }

    async fn statement(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, LedgerError> {
        self.line.heard(self.line.statement(reference).await?).await
    }

    async fn record_dead(&self, death: Death) -> Result<VerdictRuling, LedgerError> {
        self.line.ledger.record_dead(&self.line.payment.payment_id, death).await
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, LedgerError> {
        let id = &self.line.payment.payment_id;
        let ruling = self.line.ledger.record_settled(id, report, self.source).await?;
        let _ = self.ruled.set(ruling);
        Ok(ruling)
    }
}
