//! Step 3: a signal. The switch confirms later; its callback wakes the payment.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{SyncWorkflowContext, WorkflowContext, WorkflowResult};

use crate::order::Order;
use crate::step_2_activity::{BankActivities, options};

/// A payment that waits for the switch's confirmation.
#[workflow]
#[derive(Default)]
pub struct ConfirmedPayment {
    is_confirmed: bool,
}

#[workflow_methods]
impl ConfirmedPayment {
    #[run(name = "ConfirmedPayment")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        ctx.execute_activity(BankActivities::reserve, order.clone(), options()).await?;
        ctx.execute_activity(BankActivities::submit, order.clone(), options()).await?;
        // The signal may have come before this line, even before `run`: the state remembers it.
        ctx.wait_condition(|payment| payment.is_confirmed).await?;
        ctx.execute_activity(BankActivities::debit, order, options()).await?;
        Ok("settled".to_owned())
    }

    /// The switch settled the transfer. A second callback changes nothing.
    #[signal(name = "confirm")]
    pub fn confirm(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _transfer_id: String) {
        self.is_confirmed = true;
    }
}
