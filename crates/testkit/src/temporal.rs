//! Temporal operations of a test: a payment's workflow, its history, reset and deletion.

use std::time::Duration;

use anyhow::Context as _;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{
    Client, UntypedWorkflow, UntypedWorkflowHandle, WorkflowDescribeOptions, WorkflowFetchHistoryOptions,
    WorkflowTerminateOptions,
};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::failure::v1::Failure;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    DeleteWorkflowExecutionRequest, ResetWorkflowExecutionRequest,
};
use uuid::Uuid;
use workflow_api::{PayloadKeys, TemporalOptions};

pub use temporalio_common::protos::temporal::api::enums::v1::EventType;
pub use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;

use crate::System;
use crate::wait::until;

/// Namespace of all tests.
const NAMESPACE: &str = "default";
/// Key of the payloads of every system: the demo's, so that its codec server reads those of the playground's bank too.
pub const PAYLOAD_KEY: &str = "ZGVtby1vbmx5LXBheWxvYWQta2V5LW5vdC1zZWNyZXQ=";

/// Time limit for Temporal to record an event or a deletion.
const WITHIN: Duration = Duration::from_secs(60);

/// The workflow task that a reset goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// The first completed task: the run repeats everything.
    First,
    /// The last completed task: the run keeps what was recorded before it.
    Last,
}

/// The message of a failure from a history, where it is encrypted.
///
/// # Errors
/// If it is not encrypted, or cannot be decrypted.
pub fn failure_message(failure: &Failure) -> anyhow::Result<String> {
    anyhow::ensure!(failure.encoded_attributes.is_some(), "the failure is stored in clear: {failure:?}");
    Ok(PayloadKeys::read(&[PAYLOAD_KEY.into()])?.failure_message(failure)?)
}

impl System {
    /// The test's own Temporal client, connected on first use.
    ///
    /// # Errors
    /// If Temporal does not answer.
    pub async fn temporal(&self) -> anyhow::Result<&Client> {
        let connect = || async {
            let options = TemporalOptions {
                address: self.temporal_address.clone(),
                namespace: NAMESPACE.to_owned(),
                payload_keys: vec![PAYLOAD_KEY.into()],
                ..TemporalOptions::default()
            };
            anyhow::Ok(options.connect("system-test").await?)
        };
        self.temporal.get_or_try_init(connect).await
    }

    /// Handle of a workflow's latest run. The Workflow ID of a payment's first workflow is the payment id.
    ///
    /// # Errors
    /// If Temporal does not answer.
    pub async fn workflow(&self, workflow_id: &str) -> anyhow::Result<UntypedWorkflowHandle<Client>> {
        Ok(self.temporal().await?.get_workflow_handle::<UntypedWorkflow>(workflow_id))
    }

    /// The recorded events of a workflow's latest run, oldest first.
    ///
    /// # Errors
    /// If Temporal does not answer, or has no such workflow.
    pub async fn history(&self, workflow_id: &str) -> anyhow::Result<Vec<HistoryEvent>> {
        let handle = self.workflow(workflow_id).await?;
        Ok(handle.fetch_history(WorkflowFetchHistoryOptions::default()).into_events().await?)
    }

    /// Waits for an event of this type in a workflow's latest run; returns the first.
    ///
    /// # Errors
    /// If it is not recorded in time.
    pub async fn wait_for_event(
        &self,
        workflow_id: &str,
        event_type: EventType,
    ) -> anyhow::Result<HistoryEvent> {
        until(&format!("{workflow_id} has an event {event_type:?}"), WITHIN, || async {
            // The workflow may not have started yet.
            let history = self.history(workflow_id).await.unwrap_or_default();
            Ok(history.into_iter().find(|event| event.event_type() == event_type))
        })
        .await
    }

    /// Waits until the server has counted this many attempts of an open activity, named by its type.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn wait_for_attempt(
        &self,
        workflow_id: &str,
        activity: &str,
        attempt: i32,
    ) -> anyhow::Result<()> {
        until(&format!("{activity} of {workflow_id} has made {attempt} attempts"), WITHIN, || async {
            let handle = self.workflow(workflow_id).await?;
            // The workflow may not have started yet.
            let Ok(described) = handle.describe(WorkflowDescribeOptions::default()).await else {
                return Ok(None);
            };
            let reached = described.raw().pending_activities.iter().any(|pending| {
                let is_named = pending.activity_type.as_ref().is_some_and(|kind| kind.name == activity);
                is_named && pending.attempt >= attempt
            });
            Ok(reached.then_some(()))
        })
        .await
    }

    /// Resets a running workflow, as an operator does: the run ends, and a new run continues from an earlier task.
    ///
    /// # Errors
    /// If Temporal refuses, or no workflow task has completed yet.
    pub async fn reset(&self, workflow_id: &str, to: ResetTo) -> anyhow::Result<()> {
        let history = self.history(workflow_id).await?;
        let mut completed =
            history.iter().filter(|event| event.event_type() == EventType::WorkflowTaskCompleted);
        let point = match to {
            ResetTo::First => completed.next(),
            ResetTo::Last => completed.next_back(),
        };
        let request = ResetWorkflowExecutionRequest {
            namespace: NAMESPACE.to_owned(),
            workflow_execution: Some(WorkflowExecution {
                workflow_id: workflow_id.to_owned(),
                run_id: String::new(),
            }),
            reason: "system-test".to_owned(),
            workflow_task_finish_event_id: point
                .context("the workflow has completed no workflow task yet")?
                .event_id,
            request_id: Uuid::new_v4().to_string(),
            ..Default::default()
        };
        let mut service = self.temporal().await?.connection().workflow_service();
        service.reset_workflow_execution(request.into_request()).await?;
        Ok(())
    }

    /// Has [`System::audit`] expect no history of a workflow: it was deleted, or the server that was restored does not have it.
    pub fn expect_no_history(&self, workflow_id: &str) {
        self.histories.was_deleted(workflow_id);
    }

    /// Terminates a workflow, as an operator does, perhaps while a step of it ends the payment.
    ///
    /// # Errors
    /// If Temporal refuses or does not answer; it may have terminated the workflow even so.
    pub async fn terminate_workflow(&self, workflow_id: &str) -> anyhow::Result<()> {
        // First: the caller may give up before the answer.
        self.histories.was_terminated(workflow_id);
        let workflow = self.workflow(workflow_id).await?;
        workflow.terminate(WorkflowTerminateOptions::default()).await?;
        Ok(())
    }

    /// Deletes a workflow and its history, open or closed, and waits until Temporal no longer finds it.
    ///
    /// # Errors
    /// If Temporal refuses, or still finds the workflow after the time limit.
    pub async fn delete_workflow(&self, workflow_id: &str) -> anyhow::Result<()> {
        let request = DeleteWorkflowExecutionRequest {
            namespace: NAMESPACE.to_owned(),
            workflow_execution: Some(WorkflowExecution {
                workflow_id: workflow_id.to_owned(),
                run_id: String::new(),
            }),
        };
        let mut service = self.temporal().await?.connection().workflow_service();
        service.delete_workflow_execution(request.into_request()).await?;
        self.expect_no_history(workflow_id);
        until(&format!("Temporal no longer finds {workflow_id}"), WITHIN, || async {
            let handle = self.workflow(workflow_id).await?;
            let described = handle.describe(WorkflowDescribeOptions::default()).await;
            Ok(matches!(described, Err(WorkflowInteractionError::NotFound(_))).then_some(()))
        })
        .await
    }
}
