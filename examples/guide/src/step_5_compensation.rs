//! Step 5: compensation. After the SLA the payment cancels at the switch and obeys the answer: settled is debited, void is
//! released. It never releases on its own opinion.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::pin::pin;
use std::time::Duration;

use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::workflows::select;
use temporalio_sdk::{
    CancellableFuture as _, SyncWorkflowContext, TimerOptions, WorkflowContext, WorkflowResult,
};

use crate::order::Order;
use crate::step_2_activity::{BankActivities, options};

/// A payment that ends with the money where it belongs.
#[workflow]
#[derive(Default)]
pub struct CompensatedPayment {
    is_confirmed: bool,
}

#[workflow_methods]
impl CompensatedPayment {
    #[run(name = "CompensatedPayment")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        ctx.execute_activity(BankActivities::reserve, order.clone(), options()).await?;
        ctx.execute_activity(BankActivities::submit, order.clone(), options()).await?;
        let has_settled = Self::confirmed_within_sla(ctx, order.sla_ms).await
            || ctx.execute_activity(BankActivities::cancel, order.clone(), options()).await?;
        if has_settled {
            ctx.execute_activity(BankActivities::debit, order, options()).await?;
            return Ok("settled".to_owned());
        }
        ctx.execute_activity(BankActivities::release, order, options()).await?;
        Ok("timed_out".to_owned())
    }

    async fn confirmed_within_sla(ctx: &WorkflowContext<Self>, sla_ms: u64) -> bool {
        let sla = TimerOptions::builder(Duration::from_millis(sla_ms)).summary("SLA".to_owned()).build();
        let mut sla = pin!(ctx.timer(sla));
        let mut confirmed = pin!(ctx.wait_condition(|payment: &Self| payment.is_confirmed));
        let is_confirmed = select! {
            _ = confirmed => true,
            _ = sla => false,
        };
        if is_confirmed {
            sla.cancel();
        }
        is_confirmed
    }

    /// The switch settled the transfer.
    #[signal(name = "confirm")]
    pub fn confirm(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _transfer_id: String) {
        self.is_confirmed = true;
    }
}
