//! Step 4: a timer. A payment does not wait for ever; the timer is in Temporal, not in a process, and survives every restart.

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

/// A payment that waits until its SLA expires.
#[workflow]
#[derive(Default)]
pub struct TimedPayment {
    is_confirmed: bool,
}

#[workflow_methods]
impl TimedPayment {
    #[run(name = "TimedPayment")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        ctx.execute_activity(BankActivities::submit, order.clone(), options()).await?;
        let sla =
            TimerOptions::builder(Duration::from_millis(order.sla_ms)).summary("SLA".to_owned()).build();
        let mut sla = pin!(ctx.timer(sla));
        let mut confirmed = pin!(ctx.wait_condition(|payment: &Self| payment.is_confirmed));
        let is_confirmed = select! {
            _ = confirmed => true,
            _ = sla => false,
        };
        if is_confirmed {
            sla.cancel();
            return Ok("settled".to_owned());
        }
        // Unknown is not failed: the transfer may still settle. Step 5 finds out.
        Ok("unknown".to_owned())
    }

    /// The switch settled the transfer.
    #[signal(name = "confirm")]
    pub fn confirm(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _transfer_id: String) {
        self.is_confirmed = true;
    }
}
