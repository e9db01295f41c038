//! The port of applying an operator decision: a cancel port that also writes under the decision's id.

use payment_ledger::LedgerError;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cause::Cause;
use payment_protocol::decision::{Decision, DecisionOutcome, DecisionPort};
use payment_protocol::facts::RecallRecord;
use payment_protocol::port::SubmitProgress;
use payment_protocol::rules::{DebitByDecisionRuling, ReleaseByDecisionRuling};

use super::cancel::CancelAdapter;
use super::session::SwitchSession;

impl<'a> CancelAdapter<'a, &'a Decision> {
    /// The port of applying `decision`. `accepted`: the switch accepted the transfer, as the workflow knows.
    pub(crate) fn for_decision(session: SwitchSession<'a>, decision: &'a Decision, accepted: bool) -> Self {
        let submit = if accepted { SubmitProgress::Accepted } else { SubmitProgress::Scheduled };
        Self::new(session, decision, Cause::ReleasedByDecision, submit, FinalStatusSource::Query)
    }
}

impl DecisionPort for CancelAdapter<'_, &Decision> {
    async fn recorded(&self) -> Result<Option<DecisionOutcome>, LedgerError> {
        self.session.ledger.decision_outcome(&self.decision.decision_id).await
    }

    async fn record_recall(&self, answer: RecallRecord) -> Result<(), LedgerError> {
        let (ledger, payment) = (self.session.ledger, self.session.payment);
        let reason = "answered before the decision";
        ledger.record_recall(&payment.payment_id, answer, reason).await.map(|_| ())
    }

    async fn debit_by_decision(&self) -> Result<DebitByDecisionRuling, LedgerError> {
        let (ledger, payment) = (self.session.ledger, self.session.payment);
        ledger.debit_by_decision(&payment.payment_id, &self.decision.decision_id).await
    }

    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), LedgerError> {
        let (ledger, payment) = (self.session.ledger, self.session.payment);
        ledger.release_by_decision(&payment.payment_id, &self.decision.decision_id).await
    }

    async fn close(&self, outcome: &DecisionOutcome, detail: &str) -> Result<(), LedgerError> {
        self.session.ledger.close_decision(&self.decision.decision_id, outcome, detail).await
    }
}
