//! Running and ended payment workflows, from Temporal's visibility store, which is eventually consistent: the last
//! seconds may be missing.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::Fuse;
use jiff::Timestamp;
use temporalio_client::{ListWorkflowsStream, RpcOptions, WorkflowListOptions};
use tokio::time::timeout;

use crate::client::LazyClient;
use crate::{TemporalOptions, WORKFLOW_TYPE};

/// Time for one page, connecting included.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Lists the running payment workflows, or those that have ended. Connects on first use. Cheap to clone.
#[derive(Clone)]
pub struct PaymentWorkflows {
    client: LazyClient,
    /// Prefix of the task queues, which distinguishes this bank's workflows from another's in the same namespace.
    task_queue: String,
}

/// One listing of workflow ids, page by page.
pub struct PaymentWorkflowPager {
    /// The stream of the listing, fused: the caller may request a page after the last one.
    stream: Fuse<ListWorkflowsStream>,
}

impl PaymentWorkflows {
    /// A lister that connects on first use. The Temporal UI shows `identity`.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        let task_queue = options.task_queue.clone();
        Self { client: LazyClient::new(options, identity), task_queue }
    }

    /// Starts a listing of the running workflows.
    ///
    /// # Errors
    /// Why Temporal cannot be reached.
    pub async fn list_running(&self) -> Result<PaymentWorkflowPager, String> {
        self.list_where("ExecutionStatus = 'Running'").await
    }

    /// Starts a listing of the workflows that started at or after `since` and have ended.
    ///
    /// # Errors
    /// Why Temporal cannot be reached.
    pub async fn list_ended(&self, since: Timestamp) -> Result<PaymentWorkflowPager, String> {
        self.list_where(&format!("ExecutionStatus != 'Running' AND StartTime >= '{since}'")).await
    }

    async fn list_where(&self, condition: &str) -> Result<PaymentWorkflowPager, String> {
        let client = timeout(PAGE_TIMEOUT, self.client.client())
            .await
            .map_err(|_| "Temporal gave no answer within 10 s".to_owned())??;
        let queue = self.task_queue.replace(['\\', '\''], "");
        let query = format!("WorkflowType = '{WORKFLOW_TYPE}' AND {condition} AND TaskQueue = '{queue}'");
        let rpc = RpcOptions::builder().timeout(PAGE_TIMEOUT).build();
        let options = WorkflowListOptions::builder().rpc_options(rpc).build();
        Ok(PaymentWorkflowPager { stream: client.list_workflows(query, options).fuse() })
    }
}

impl PaymentWorkflowPager {
    /// At most `limit` more workflow ids; fewer than `limit` only on the last page.
    ///
    /// # Errors
    /// Why Temporal stopped answering: the ids listed before are incomplete.
    pub async fn next_page(&mut self, limit: usize) -> Result<Vec<String>, String> {
        let mut ids = Vec::with_capacity(limit);
        while ids.len() < limit {
            let next = timeout(PAGE_TIMEOUT, self.stream.next())
                .await
                .map_err(|_| "Temporal stopped answering: no page within 10 s".to_owned())?;
            match next {
                Some(Ok(workflow)) => ids.push(workflow.id().to_owned()),
                Some(Err(error)) => return Err(error.to_string()),
                None => break,
            }
        }
        Ok(ids)
    }
}
