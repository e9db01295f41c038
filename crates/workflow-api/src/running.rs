//! Which payment workflows run, as Temporal's visibility has them: right but for the last moments.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::Fuse;
use temporalio_client::{ListWorkflowsStream, RpcOptions, WorkflowListOptions};
use tokio::time::timeout;

use crate::reach::Reach;
use crate::{TemporalOptions, WORKFLOW_TYPE};

/// Time for one page, connecting included.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks which payment workflows run. Connects when first needed.
#[derive(Clone)]
pub struct RunningWorkflows {
    reach: Reach,
    /// What tells this bank's workflows from another's in the same namespace.
    task_queue: String,
}

/// The ids of all that run, a page at a time.
pub struct Running {
    /// Fused: it may be asked again at its end.
    stream: Fuse<ListWorkflowsStream>,
}

impl RunningWorkflows {
    /// Does not connect yet. `identity` is shown in the UI.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        let task_queue = options.task_queue.clone();
        Self { reach: Reach::new(options, identity), task_queue }
    }

    /// Begins to list.
    ///
    /// # Errors
    /// Why Temporal cannot be asked now.
    pub async fn list(&self) -> Result<Running, String> {
        let client = timeout(PAGE_TIMEOUT, self.reach.client())
            .await
            .map_err(|_| "Temporal does not answer".to_owned())??;
        let queue = self.task_queue.replace(['\\', '\''], "");
        let query = format!(
            "WorkflowType = '{WORKFLOW_TYPE}' AND ExecutionStatus = 'Running' AND TaskQueue = '{queue}'"
        );
        let rpc = RpcOptions::builder().timeout(PAGE_TIMEOUT).build();
        let options = WorkflowListOptions::builder().rpc_options(rpc).build();
        Ok(Running { stream: client.list_workflows(query, options).fuse() })
    }
}

impl Running {
    /// At most `limit` more ids; fewer, or none, at the end.
    ///
    /// # Errors
    /// Why Temporal did not say: what was listed before is not all.
    pub async fn page(&mut self, limit: usize) -> Result<Vec<String>, String> {
        let mut ids = Vec::with_capacity(limit);
        while ids.len() < limit {
            let next = timeout(PAGE_TIMEOUT, self.stream.next())
                .await
                .map_err(|_| "Temporal stopped answering".to_owned())?;
            match next {
                Some(Ok(found)) => ids.push(found.id().to_owned()),
                Some(Err(error)) => return Err(error.to_string()),
                None => break,
            }
        }
        Ok(ids)
    }
}
