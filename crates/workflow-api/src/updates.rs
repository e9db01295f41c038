//! Tells a workflow what people decided, as an Update whose id is the decision's: told twice, it is
//! carried out once.

use std::time::Duration;

use payment_protocol::decision::{Decision, DecisionOutcome};
use temporalio_client::errors::WorkflowUpdateError;
use temporalio_client::{
    Client, RpcOptions, UntypedUpdate, WorkflowStartUpdateOptions, WorkflowUpdateHandle,
};
use temporalio_common::data_converters::{PayloadConverter, RawValue};

use crate::reach::{Missing, Reach, missing};
use crate::{DECIDE, TemporalOptions};

/// Time to be taken, connecting included: the worker looks at it first.
const TAKEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a decision that was not refused is known to be taken: a refusal comes at once.
pub(crate) const REFUSED_AT_ONCE: Duration = Duration::from_millis(100);
/// Time that a taken decision is waited for. Carrying it out asks the switch, which may take long.
const CARRIED_OUT_TIMEOUT: Duration = Duration::from_secs(30);

/// How the workflow's validator begins its refusal of an action that the reason does not allow. It will
/// not become allowed for that reason.
pub const NOT_ALLOWED: &str = "not_allowed: ";
/// How the validator begins its refusal while nothing stands, or another decision is being carried out.
pub const NOT_NOW: &str = "not_now: ";

/// A decision that the workflow took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// Taken, and not yet carried out.
    Taken,
    /// What came of it.
    CarriedOut(DecisionOutcome),
}

/// A decision that the workflow did not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// Temporal or the worker did not answer, or the workflow is not there yet: try again.
    #[error("not told: {detail}")]
    Unreachable {
        /// Why.
        detail: String,
    },
    /// The payment does not stand before a person now, or another decision is being carried out: try
    /// again.
    #[error("not now: {detail}")]
    NotNow {
        /// Why.
        detail: String,
    },
    /// The workflow is closed. Unless the payment has ended another one follows.
    #[error("the workflow is closed")]
    Closed,
    /// The payment's reason does not allow the action.
    #[error("refused: {detail}")]
    Refused {
        /// Why.
        detail: String,
    },
}

/// Sends decisions to workflows. Cheap to clone.
#[derive(Clone)]
pub struct UpdateSender {
    reach: Reach,
}

impl UpdateSender {
    /// Does not connect yet.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        Self { reach: Reach::new(options, identity) }
    }

    pub(crate) fn over(reach: Reach) -> Self {
        Self { reach }
    }

    /// Tells the workflow and waits for what comes of it, 35 seconds at most. Dropped meanwhile, it
    /// leaves a decision that was taken to the workflow.
    ///
    /// # Errors
    /// [`Undelivered`]: the workflow has not taken it, as far as is known.
    pub async fn decide(&self, workflow_id: &str, decision: &Decision) -> Result<Delivered, Undelivered> {
        self.tell(workflow_id, decision, CARRIED_OUT_TIMEOUT).await
    }

    /// Tells the workflow, and once it is taken waits for at most `wait` for what comes of it.
    pub(crate) async fn tell(
        &self,
        workflow_id: &str,
        decision: &Decision,
        wait: Duration,
    ) -> Result<Delivered, Undelivered> {
        let told = tokio::time::timeout(TAKEN_TIMEOUT, self.start(workflow_id, decision)).await;
        let taken = told.map_err(|_| unreachable("no answer within five seconds".into()))??;
        match tokio::time::timeout(wait, taken.get_result(RpcOptions::default())).await {
            Ok(Ok(said)) => Ok(carried_out(&said).map_or(Delivered::Taken, Delivered::CarriedOut)),
            // A validator's refusal is the outcome of an update that was never taken.
            Ok(Err(WorkflowUpdateError::Failed(failure))) => Err(refusal(&failure.message)),
            Ok(Err(WorkflowUpdateError::NotFound(_))) => Err(Undelivered::Closed),
            // Taken it was; what comes of it is in the ledger.
            Ok(Err(_)) | Err(_) => Ok(Delivered::Taken),
        }
    }

    async fn start(
        &self,
        workflow_id: &str,
        decision: &Decision,
    ) -> Result<WorkflowUpdateHandle<Client, RawValue>, Undelivered> {
        let handle = self.reach.workflow(workflow_id).await.map_err(unreachable)?;
        let input = RawValue::from_value(decision, &PayloadConverter::default());
        let update_id = decision.decision_id.to_string();
        let options = WorkflowStartUpdateOptions::builder().update_id(update_id).build();
        match handle.start_update(UntypedUpdate::new(DECIDE), input, options).await {
            Ok(taken) => Ok(taken),
            Err(WorkflowUpdateError::NotFound(_)) => Err(match missing(&handle).await {
                Missing::Closed => Undelivered::Closed,
                Missing::Unknown => unreachable("the workflow is not started".into()),
                Missing::NotYet(detail) => unreachable(detail),
            }),
            Err(WorkflowUpdateError::Failed(failure)) => Err(refusal(&failure.message)),
            Err(other) => Err(unreachable(other.to_string())),
        }
    }
}

fn unreachable(detail: String) -> Undelivered {
    Undelivered::Unreachable { detail }
}

/// What the workflow, or Temporal in its place, said against an update.
fn refusal(message: &str) -> Undelivered {
    if let Some(detail) = message.strip_prefix(NOT_ALLOWED) {
        Undelivered::Refused { detail: detail.to_owned() }
    } else if let Some(detail) = message.strip_prefix(NOT_NOW) {
        Undelivered::NotNow { detail: detail.to_owned() }
    } else {
        unreachable(message.to_owned())
    }
}

fn carried_out(said: &RawValue) -> Option<DecisionOutcome> {
    said.payloads.first().and_then(|payload| serde_json::from_slice(&payload.data).ok())
}
