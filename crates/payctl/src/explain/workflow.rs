//! What Temporal says of a payment's workflow.

use std::time::Duration;

use payment_protocol::PaymentState;
use serde::{Deserialize, Serialize};
use temporalio_client::Client;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    UntypedQuery, UntypedWorkflow, UntypedWorkflowHandle, WorkflowDescribeOptions, WorkflowExecutionStatus,
    WorkflowQueryOptions,
};
use temporalio_common::data_converters::{PayloadConverter, RawValue};
use tokio::time::timeout;
use workflow_api::PAYMENT_STATUS;

use crate::bank::Bank;

/// Time for the connection and the description together.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the query, which a worker has to answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// A workflow as it was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkflowSays {
    /// The run that is or was last.
    pub(crate) run_id: String,
    /// Its status in Temporal's words.
    pub(crate) status: &'static str,
    /// The state that the workflow itself tells.
    pub(crate) state: Option<PaymentState>,
    /// Why the workflow did not tell.
    pub(crate) not_told: Option<String>,
}

/// Answer of the query, as far as it is shown.
#[derive(Debug, Deserialize)]
struct PaymentStatus {
    state: PaymentState,
}

/// Asks Temporal, within six seconds.
///
/// # Errors
/// Why Temporal could not be asked, in words.
pub(super) async fn ask(bank: &Bank, workflow_id: &str) -> Result<WorkflowSays, String> {
    let described = timeout(DESCRIBE_TIMEOUT, describe(bank, workflow_id)).await;
    let (handle, run_id, status) =
        described.map_err(|_| "Temporal gave no answer within 3 s".to_owned())??;
    let told = match timeout(QUERY_TIMEOUT, query(&handle)).await {
        Ok(told) => told,
        Err(_) => Err("no worker answered the query within 3 s".into()),
    };
    let (state, not_told) = match told {
        Ok(state) => (Some(state), None),
        Err(detail) => (None, Some(detail)),
    };
    Ok(WorkflowSays { run_id, status, state, not_told })
}

async fn describe(
    bank: &Bank,
    workflow_id: &str,
) -> Result<(UntypedWorkflowHandle<Client>, String, &'static str), String> {
    let client = bank.temporal.connect("payctl").await.map_err(|error| error.to_string())?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(workflow_id);
    match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(found) => {
            let (run_id, status) = (found.run_id().to_owned(), word(found.status()));
            Ok((handle, run_id, status))
        }
        Err(WorkflowInteractionError::NotFound(_)) => Err("Temporal knows no such workflow".into()),
        Err(error) => Err(error.to_string()),
    }
}

async fn query(handle: &UntypedWorkflowHandle<Client>) -> Result<PaymentState, String> {
    let input = RawValue::from_value(&(), &PayloadConverter::default());
    let query = UntypedQuery::new(PAYMENT_STATUS);
    let answer = handle.query(query, input, WorkflowQueryOptions::default()).await;
    let answer = answer.map_err(|error| error.to_string())?;
    let payload = answer.payloads.first().map(|payload| payload.data.as_slice()).unwrap_or_default();
    let status: PaymentStatus =
        serde_json::from_slice(payload).map_err(|_| "the answer to the query cannot be read".to_owned())?;
    Ok(status.state)
}

fn word(status: WorkflowExecutionStatus) -> &'static str {
    match status {
        WorkflowExecutionStatus::Running => "running",
        WorkflowExecutionStatus::Completed => "completed",
        WorkflowExecutionStatus::Failed => "failed",
        WorkflowExecutionStatus::Canceled => "cancelled",
        WorkflowExecutionStatus::Terminated => "terminated",
        WorkflowExecutionStatus::ContinuedAsNew => "continued as new",
        WorkflowExecutionStatus::TimedOut => "timed out",
        WorkflowExecutionStatus::Paused => "paused",
        _ => "unknown",
    }
}
