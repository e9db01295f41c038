//! Carrying out what people decided: the doors of asking, and what is written in the decision's name.

use payment_ledger::LedgerError;
use payment_protocol::cause::Cause;
use payment_protocol::decision::{CarriedOut, Decision, DecisionDoor};
use payment_protocol::rules::{ReleaseByDecisionRuling, SettleByDecisionRuling};

use super::ask::{AskDoor, looked_up};
use super::line::Line;

impl<'a> AskDoor<'a, &'a Decision> {
    /// A door of carrying a decision out.
    pub(crate) fn to_carry_out(line: Line<'a>, decision: &'a Decision) -> Self {
        Self::new(line, decision, Cause::ReleasedByDecision, looked_up(line))
    }
}

impl DecisionDoor for AskDoor<'_, &Decision> {
    async fn recorded(&self) -> Result<Option<CarriedOut>, LedgerError> {
        self.line.ledger.decision_outcome(&self.decision.decision_id).await
    }

    async fn settle_by_decision(&self) -> Result<SettleByDecisionRuling, LedgerError> {
        let (ledger, payment) = (self.line.ledger, self.line.payment);
        ledger.settle_by_decision(&payment.payment_id, &self.decision.decision_id).await
    }

    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), LedgerError> {
        let (ledger, payment) = (self.line.ledger, self.line.payment);
        ledger.release_by_decision(&payment.payment_id, &self.decision.decision_id).await
    }

    async fn close(&self, came: &CarriedOut, detail: &str) -> Result<(), LedgerError> {
        self.line.ledger.close_decision(&self.decision.decision_id, came, detail).await
    }
}
