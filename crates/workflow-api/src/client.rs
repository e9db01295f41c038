//! A Temporal client that connects on first use, and the reasons why a workflow cannot take a message.

use std::sync::Arc;

use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, UntypedWorkflow, UntypedWorkflowHandle, WorkflowDescribeOptions, WorkflowExecutionDescription,
    WorkflowExecutionStatus,
};
use temporalio_common::protos::temporal::api::failure::v1::Failure;
use tokio::sync::Mutex;

use crate::{TemporalOptions, is_missing_workflow};

/// Connects to Temporal on first use, so that no process needs Temporal to start. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LazyClient {
    options: TemporalOptions,
    identity: &'static str,
    client: Arc<Mutex<Option<Client>>>,
}

/// Why Temporal answered "not found" for a workflow.
pub(crate) enum NotFoundReason {
    /// The workflow is closed.
    Closed,
    /// Temporal has no such workflow: not started yet, or past its retention.
    Unknown,
    /// The workflow may take the message later.
    Transient(String),
}

impl LazyClient {
    /// A client that connects on first use.
    pub(crate) fn new(options: TemporalOptions, identity: &'static str) -> Self {
        Self { options, identity, client: Arc::default() }
    }

    pub(crate) async fn client(&self) -> Result<Client, String> {
        let mut slot = self.client.lock().await;
        if let Some(client) = slot.as_ref() {
            return Ok(client.clone());
        }
        let client = self.options.connect(self.identity).await.map_err(|error| error.to_string())?;
        *slot = Some(client.clone());
        Ok(client)
    }

    /// The message of a failure, which may be encrypted.
    pub(crate) fn failure_message(&self, failure: &Failure) -> Result<String, String> {
        let keys = self.options.keys().map_err(|error| error.to_string())?;
        keys.failure_message(failure).map_err(|error| error.to_string())
    }

    pub(crate) async fn workflow(&self, workflow_id: &str) -> Result<UntypedWorkflowHandle<Client>, String> {
        Ok(self.client().await?.get_workflow_handle::<UntypedWorkflow>(workflow_id))
    }
}

/// Temporal described a workflow without its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Temporal described the workflow without its status")]
pub struct NoStatus;

/// The status in a description. The description's own accessor panics if the answer is empty.
///
/// # Errors
/// [`NoStatus`].
pub fn described_status(
    description: &WorkflowExecutionDescription,
) -> Result<WorkflowExecutionStatus, NoStatus> {
    match description.raw().workflow_execution_info.as_ref().map(|_| description.status()) {
        None | Some(WorkflowExecutionStatus::Unspecified) => Err(NoStatus),
        Some(status) => Ok(status),
    }
}

/// Describes the workflow: "not found" alone does not distinguish a closed workflow from one that is not started.
pub(crate) async fn not_found_reason(handle: &UntypedWorkflowHandle<Client>) -> NotFoundReason {
    match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(description) => match described_status(&description) {
            Ok(WorkflowExecutionStatus::Running) => {
                NotFoundReason::Transient("the workflow is being replaced".into())
            }
            Ok(_) => NotFoundReason::Closed,
            Err(error) => NotFoundReason::Transient(error.to_string()),
        },
        Err(WorkflowInteractionError::NotFound(status)) if is_missing_workflow(&status) => {
            NotFoundReason::Unknown
        }
        Err(error) => NotFoundReason::Transient(error.to_string()),
    }
}
