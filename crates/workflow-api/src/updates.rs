//! Sends operator decisions to workflows as Updates. The Update ID is the decision's id, so that a repeated
//! Update is applied once.

use std::time::Duration;

use payment_protocol::decision::{Decision, DecisionOutcome};
use temporalio_client::errors::WorkflowUpdateError;
use temporalio_client::{
    Client, RpcOptions, UntypedUpdate, WorkflowStartUpdateOptions, WorkflowUpdateHandle,
};
use temporalio_common::data_converters::{PayloadConverter, RawValue};
use temporalio_common::protos::temporal::api::failure::v1::Failure;

use crate::client::{LazyClient, NotFoundReason, not_found_reason};
use crate::{DECIDE, TemporalOptions, is_missing_workflow};

/// Time until the Update is accepted, connecting included: the worker validates it first.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);
/// A rejection arrives within this time; an Update without one is accepted.
pub(crate) const REJECTION_WAIT: Duration = Duration::from_millis(100);
/// Time to wait for the outcome of an accepted Update. The workflow queries the switch first.
const OUTCOME_TIMEOUT: Duration = Duration::from_secs(30);

/// Prefix of the validator's rejection when the operator reason does not allow the action. Permanent for
/// that reason.
pub const NOT_ALLOWED: &str = "not_allowed: ";
/// Prefix of the validator's rejection while the payment does not await an operator, or while another
/// decision is applied. Temporary.
pub const NOT_NOW: &str = "not_now: ";

/// Outcome of an Update that the workflow accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// Accepted; the decision is not applied yet.
    Accepted,
    /// Completed: the decision's outcome.
    Completed(DecisionOutcome),
}

/// The workflow did not accept the Update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// Temporal or the worker did not answer, or the workflow is not started yet: retry.
    #[error(
        "the payment's workflow did not confirm the decision; the background-worker delivers the decision again, and it is applied once: {detail}"
    )]
    Unreachable {
        /// Why no confirmation arrived.
        detail: String,
    },
    /// The payment does not await an operator at the moment, or another decision is being applied: retry.
    #[error(
        "the payment's workflow cannot accept the decision now; the background-worker delivers the decision again: {detail}"
    )]
    NotNow {
        /// Why the decision cannot be applied at the moment.
        detail: String,
    },
    /// The workflow is closed. Another run follows unless the payment has ended.
    #[error(
        "the payment's workflow is closed and cannot accept the decision; a recovery workflow receives the decision unless the payment has ended"
    )]
    Closed,
    /// The operator reason does not allow the action: do not retry.
    #[error("the payment's workflow rejected the decision for good and nothing was applied: {detail}")]
    Rejected {
        /// Why the action is not allowed.
        detail: String,
    },
}

/// Sends operator decisions to workflows. Connects on first use. Cheap to clone.
#[derive(Clone)]
pub struct UpdateSender {
    client: LazyClient,
}

impl UpdateSender {
    /// A sender that connects on first use. The Temporal UI shows `identity`.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        Self { client: LazyClient::new(options, identity) }
    }

    pub(crate) fn with_client(client: LazyClient) -> Self {
        Self { client }
    }

    /// Sends the decision and waits for its outcome, 35 seconds at most. Dropping the future does not
    /// withdraw an accepted decision.
    ///
    /// # Errors
    /// [`UpdateError`]: as far as known, the workflow has not accepted the decision.
    pub async fn decide(&self, workflow_id: &str, decision: &Decision) -> Result<UpdateOutcome, UpdateError> {
        self.send(workflow_id, decision, OUTCOME_TIMEOUT).await
    }

    /// Sends the decision and, once it is accepted, waits at most `wait` for its outcome.
    pub(crate) async fn send(
        &self,
        workflow_id: &str,
        decision: &Decision,
        wait: Duration,
    ) -> Result<UpdateOutcome, UpdateError> {
        let started = tokio::time::timeout(ACCEPT_TIMEOUT, self.start(workflow_id, decision)).await;
        let update = started.map_err(|_| unreachable("no answer within 5 s".into()))??;
        match tokio::time::timeout(wait, update.get_result(RpcOptions::default())).await {
            Ok(Ok(result)) => {
                Ok(read_outcome(&result).map_or(UpdateOutcome::Accepted, UpdateOutcome::Completed))
            }
            // Temporal reports a validator's rejection as the result of the Update.
            Ok(Err(WorkflowUpdateError::Failed(failure))) => Err(self.rejection(&failure)),
            Ok(Err(WorkflowUpdateError::NotFound(status))) if is_missing_workflow(&status) => {
                Err(UpdateError::Closed)
            }
            // The Update was accepted; the ledger records the decision's outcome.
            Ok(Err(_)) | Err(_) => Ok(UpdateOutcome::Accepted),
        }
    }

    async fn start(
        &self,
        workflow_id: &str,
        decision: &Decision,
    ) -> Result<WorkflowUpdateHandle<Client, RawValue>, UpdateError> {
        let handle = self.client.workflow(workflow_id).await.map_err(unreachable)?;
        let input = RawValue::from_value(decision, &PayloadConverter::default());
        let update_id = decision.decision_id.to_string();
        let options = WorkflowStartUpdateOptions::builder().update_id(update_id).build();
        match handle.start_update(UntypedUpdate::new(DECIDE), input, options).await {
            Ok(update) => Ok(update),
            Err(WorkflowUpdateError::NotFound(_)) => Err(match not_found_reason(&handle).await {
                NotFoundReason::Closed => UpdateError::Closed,
                NotFoundReason::Unknown => unreachable("the workflow is not started".into()),
                NotFoundReason::Transient(detail) => unreachable(detail),
            }),
            Err(WorkflowUpdateError::Failed(failure)) => Err(self.rejection(&failure)),
            Err(other) => Err(unreachable(other.to_string())),
        }
    }

    /// Reads the failure of the workflow's validator, or of Temporal in its place.
    fn rejection(&self, failure: &Failure) -> UpdateError {
        match self.client.failure_message(failure) {
            Ok(message) => rejection(&message),
            Err(detail) => unreachable(detail),
        }
    }
}

fn unreachable(detail: String) -> UpdateError {
    UpdateError::Unreachable { detail }
}

fn rejection(message: &str) -> UpdateError {
    if let Some(detail) = message.strip_prefix(NOT_ALLOWED) {
        UpdateError::Rejected { detail: detail.to_owned() }
    } else if let Some(detail) = message.strip_prefix(NOT_NOW) {
        UpdateError::NotNow { detail: detail.to_owned() }
    } else {
        unreachable(message.to_owned())
    }
}

fn read_outcome(result: &RawValue) -> Option<DecisionOutcome> {
    result.payloads.first().and_then(|payload| serde_json::from_slice(&payload.data).ok())
}
