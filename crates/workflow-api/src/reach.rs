//! A connection that is made when first needed, and what a workflow that does not take a word is told
//! apart by.

use std::sync::Arc;

use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, UntypedWorkflow, UntypedWorkflowHandle, WorkflowDescribeOptions, WorkflowExecutionStatus,
};
use tokio::sync::Mutex;

use crate::TemporalOptions;

/// Temporal, as soon as it is needed. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reach {
    options: TemporalOptions,
    identity: &'static str,
    client: Arc<Mutex<Option<Client>>>,
}

/// Why a workflow was not found to take a word.
pub(crate) enum Missing {
    /// It is closed.
    Closed,
    /// Temporal knows of none: not started yet, or forgotten.
    Unknown,
    /// It may take it later.
    NotYet(String),
}

impl Reach {
    /// Does not connect yet.
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

/// Temporal said "not found": not there any more, or not there yet. Only the second is worth another
/// try.
pub(crate) async fn missing(handle: &UntypedWorkflowHandle<Client>) -> Missing {
    match handle.describe(WorkflowDescribeOptions::default()).await {
        Ok(found) if found.status() != WorkflowExecutionStatus::Running => Missing::Closed,
        Ok(_) => Missing::NotYet("the workflow is being replaced".into()),
        Err(WorkflowInteractionError::NotFound(_)) => Missing::Unknown,
        Err(error) => Missing::NotYet(error.to_string()),
    }
}
