//! A Temporal client that connects on first use, and the reasons why a workflow cannot take a message.

use std::sync::Arc;

use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, UntypedWorkflow, UntypedWorkflowHandle, WorkflowDescribeOptions, WorkflowExecutionStatus,
};
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

    pub(crate) async fn workflow(&self, workflow_id: &str) -> Result<UntypedWorkflowHandle<Client>, String> {
        Ok(self.client().await?.get_workflow_handle::<UntypedWorkflow>(workflow_id))
    }
}

/// Describes the workflow: "not found" alone does not distinguish a closed workflow from one that is not started.
pub(crate) async fn not_found_reason(handle: &UntypedWorkflowHandle<Client>) -> NotFoundReason {
    match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(description) => match description.status() {
            WorkflowExecutionStatus::Running => NotFoundReason::Transient("the workflow is being replaced".into()),
            // An empty answer, for example of a proxy, has no status.
            WorkflowExecutionStatus::Unspecified => {
                NotFoundReason::Transient("Temporal described the workflow without its status".into())
            }
            _ => NotFoundReason::Closed,
        },
        Err(WorkflowInteractionError::NotFound(status)) if is_missing_workflow(&status) => {
            NotFoundReason::Unknown
        }
        Err(error) => NotFoundReason::Transient(error.to_string()),
    }
}
