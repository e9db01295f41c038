//! Operator decisions that arrive while the payment ends.

use payment_protocol::decision::DecisionOutcome;
use payment_protocol::state::FinalState;

use super::TemporalPaymentPort;
use super::events::detached_wait;
use crate::activities::ledger::{CloseDecisionInput, LedgerActivities};
use crate::workflow::InterBankPaymentWorkflow;

impl TemporalPaymentPort<'_> {
    /// Closes the pending decision and answers its update, until no decision is pending and every update
    /// handler has finished: only then may the workflow complete. `end`: the final state, if the run ended the payment.
    pub(crate) async fn close_pending_decisions(&self, end: Option<FinalState>) {
        loop {
            self.ctx.state_mut(|workflow| workflow.operator_reason = None);
            if let Some(decision_id) = self.ctx.state(InterBankPaymentWorkflow::pending_decision) {
                let detail = match end {
                    Some(end) => {
                        format!(
                            "the payment had already ended in the state {end}, so the decision was not applied"
                        )
                    }
                    None => "the workflow's payment is not the ledger's, so the decision was not applied"
                        .to_owned(),
                };
                let outcome =
                    end.map_or(DecisionOutcome::Refused { detail: detail.clone() }, DecisionOutcome::Ended);
                let input = || CloseDecisionInput {
                    decision_id: decision_id.clone(),
                    outcome: outcome.clone(),
                    detail: detail.clone(),
                };
                let step = || LedgerActivities::close_decision;
                self.ledger_step(step, input, "Close the operator decision").await;
                self.ctx.state_mut(|workflow| {
                    workflow.record_decision_outcome(decision_id.clone(), outcome.clone());
                });
            }
            let ctx = self.ctx.clone();
            let pending_or_finished = |workflow: &InterBankPaymentWorkflow| {
                workflow.pending_decision().is_some() || ctx.all_handlers_finished()
            };
            let _ = self.ctx.wait_condition_with_options(pending_or_finished, detached_wait()).await;
            if self.ctx.state(InterBankPaymentWorkflow::pending_decision).is_none() {
                return;
            }
        }
    }
}
