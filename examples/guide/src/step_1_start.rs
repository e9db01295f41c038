//! Step 1: start a workflow, at most once per payment.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{Client, WorkflowIdReusePolicy, WorkflowStartOptions};
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{WorkflowContext, WorkflowResult};

use crate::order::Order;

/// A payment that does nothing yet.
#[workflow]
#[derive(Default)]
pub struct StartedPayment;

#[workflow_methods]
impl StartedPayment {
    #[run(name = "StartedPayment")]
    pub async fn run(_ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        Ok(format!("{} to {}", order.amount_minor, order.destination))
    }
}

/// Starts the payment's workflow; `false` if it was started before. The Workflow ID is the payment's id and is never used
/// twice, so a repeated request starts nothing.
///
/// # Errors
/// Temporal did not confirm the start. It may have happened: start again, under the same id.
pub async fn start(client: &Client, queue: &str, order: Order) -> Result<bool, WorkflowStartError> {
    let options = WorkflowStartOptions::new(queue.to_owned(), order.payment_id.clone())
        .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
        .build();
    match client.start_workflow(StartedPayment::run, order, options).await {
        Ok(_) => Ok(true),
        Err(WorkflowStartError::AlreadyStarted { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
