//! The payment's workflow as Temporal describes it, and the state that the workflow itself reports.

use std::time::Duration;

use payment_protocol::PaymentState;
use serde::{Deserialize, Serialize};
use temporalio_client::Client;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    UntypedQuery, UntypedWorkflow, UntypedWorkflowHandle, WorkflowDescribeOptions, WorkflowExecutionStatus,
    WorkflowFetchHistoryOptions, WorkflowQueryOptions,
};
use temporalio_common::data_converters::{PayloadConverter, RawValue};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use tokio::time::timeout;
use workflow_api::{PAYMENT_STATUS, described_status};

use crate::config::Config;

/// Time for connection and description together.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the history.
const HISTORY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the query, which a worker has to answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// A workflow's description and state.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkflowView {
    /// Run ID of the current or last run.
    pub(crate) run_id: String,
    /// Temporal's status of the execution.
    pub(crate) status: &'static str,
    /// The payment's state by the query; `None` if the query failed.
    pub(crate) state: Option<PaymentState>,
    /// Why the query failed.
    pub(crate) query_error: Option<String>,
    /// The worker that began the last workflow task; `None` before the first one, or if the history could not be read.
    pub(crate) worker: Option<String>,
}

/// Result of the query, restricted to the field that is shown.
#[derive(Debug, Deserialize)]
struct PaymentStatusResult {
    state: PaymentState,
}

/// Reads the workflow, within six seconds.
///
/// # Errors
/// Why Temporal could not be read.
pub(super) async fn describe(config: &Config, workflow_id: &str) -> Result<WorkflowView, String> {
    let description = timeout(DESCRIBE_TIMEOUT, describe_execution(config, workflow_id)).await;
    let (handle, run_id, status) =
        description.map_err(|_| "Temporal gave no answer within 3 s".to_owned())??;
    let history = timeout(HISTORY_TIMEOUT, last_worker(&handle));
    let (worker, queried) = tokio::join!(history, timeout(QUERY_TIMEOUT, query_state(&handle)));
    let worker = worker.ok().and_then(Result::ok).flatten();
    let queried = match queried {
        Ok(queried) => queried,
        Err(_) => Err("no worker answered the query within 3 s".into()),
    };
    let (state, query_error) = match queried {
        Ok(state) => (Some(state), None),
        Err(error) => (None, Some(error)),
    };
    Ok(WorkflowView { run_id, status, state, query_error, worker })
}

/// The worker that began the last workflow task, within six seconds; `None` before the first one.
///
/// # Errors
/// Why Temporal could not be read.
pub(super) async fn worker(config: &Config, workflow_id: &str) -> Result<Option<String>, String> {
    let description = timeout(DESCRIBE_TIMEOUT, describe_execution(config, workflow_id)).await;
    let (handle, ..) = description.map_err(|_| "Temporal gave no answer within 3 s".to_owned())??;
    timeout(HISTORY_TIMEOUT, last_worker(&handle))
        .await
        .map_err(|_| "Temporal gave no history within 3 s".to_owned())?
}

async fn describe_execution(
    config: &Config,
    workflow_id: &str,
) -> Result<(UntypedWorkflowHandle<Client>, String, &'static str), String> {
    let client = config.temporal.connect("payctl").await.map_err(|error| error.to_string())?;
    let handle = client.get_workflow_handle::<UntypedWorkflow>(workflow_id);
    match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(description) => {
            let status = described_status(&description).map_err(|error| error.to_string())?;
            Ok((handle, description.run_id().to_owned(), status_word(status)))
        }
        Err(WorkflowInteractionError::NotFound(_)) => Err(format!("Temporal has no workflow {workflow_id}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The identity of the worker that began the last workflow task, and that carries the workflow on.
async fn last_worker(handle: &UntypedWorkflowHandle<Client>) -> Result<Option<String>, String> {
    let history = handle.fetch_history(WorkflowFetchHistoryOptions::default());
    let events = history.into_events().await.map_err(|error| error.to_string())?;
    Ok(events.into_iter().rev().find_map(|event| match event.attributes {
        Some(Attributes::WorkflowTaskStartedEventAttributes(started)) => Some(started.identity),
        _ => None,
    }))
}

async fn query_state(handle: &UntypedWorkflowHandle<Client>) -> Result<PaymentState, String> {
    let input = RawValue::from_value(&(), &PayloadConverter::default());
    let query = UntypedQuery::new(PAYMENT_STATUS);
    let result = handle.query(query, input, WorkflowQueryOptions::default()).await;
    let result = result.map_err(|error| error.to_string())?;
    let payload = result.payloads.first().map(|payload| payload.data.as_slice()).unwrap_or_default();
    let status: PaymentStatusResult =
        serde_json::from_slice(payload).map_err(|_| "the query's result cannot be parsed".to_owned())?;
    Ok(status.state)
}

fn status_word(status: WorkflowExecutionStatus) -> &'static str {
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
