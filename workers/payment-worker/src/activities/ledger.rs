//! Activities that are steps of our ledger.
//!
//! The first step of a run takes the workflow's payment and compares it with the ledger's; every other step takes the payment id.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;

use payment_ledger::Ledger;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::Payment;
use payment_protocol::alert::AlertKind;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::{DecisionId, PaymentId, RunId};
use payment_protocol::port::{
    FenceOutcome, NeedsOperatorOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome,
};
use serde::{Deserialize, Serialize};
use service_kit::error_chain;
use service_kit::task::Trigger;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::{ledger_failure, retryable};

/// Input of release.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReleaseInput {
    /// The payment.
    pub payment_id: PaymentId,
    /// Why the payment is compensated.
    pub cause: Cause,
}

/// Input of needs_operator.
#[derive(Debug, Serialize, Deserialize)]
pub struct NeedsOperatorInput {
    /// The payment.
    pub payment_id: PaymentId,
    /// Why the payment needs an operator.
    pub reason: OperatorReason,
}

/// Input of alert.
#[derive(Debug, Serialize, Deserialize)]
pub struct AlertInput {
    /// The payment.
    pub payment_id: PaymentId,
    /// Kind of alert.
    pub kind: AlertKind,
    /// Details for the operator.
    pub detail: String,
}

/// Input of close_decision.
#[derive(Debug, Serialize, Deserialize)]
pub struct CloseDecisionInput {
    /// The decision.
    pub decision_id: DecisionId,
    /// Its outcome.
    pub outcome: DecisionOutcome,
    /// The outcome in words, for the operator.
    pub detail: String,
}

/// Dependencies of the ledger activities, shared by all activities of this process.
pub struct LedgerActivities {
    /// The ledger.
    pub ledger: Ledger,
    /// Wakes the outbox relay after a step that may have written an event.
    pub wake_relay: Trigger,
}

/// The workflow run that this activity belongs to.
pub(super) fn run_id(ctx: &ActivityContext) -> Result<RunId, ActivityError> {
    let run = ctx.info().workflow_run_id.clone().unwrap_or_default();
    RunId::new(run).map_err(|error| retryable("no_run_id", &error.to_string(), None))
}

impl LedgerActivities {
    /// Reserves the amount. If the database refuses the reserve for good, its outcome is unknown; the release that
    /// follows fences it.
    pub(super) async fn try_reserve(
        &self,
        payment: &Payment,
        run: &RunId,
    ) -> Result<ReserveOutcome, ActivityError> {
        let reserved = self.ledger.reserve(payment, run).await;
        self.wake_relay.fire();
        match reserved {
            Err(error) if error.is_final() => {
                tracing::error!(payment.id = %payment.payment_id, error = error_chain(&error), "the ledger's database refused the reserve of a payment; the workflow treats the outcome as unknown and compensates");
                Ok(ReserveOutcome::Unknown)
            }
            outcome => outcome.map_err(ledger_failure),
        }
    }
}

#[activities]
impl LedgerActivities {
    /// Reserves the amount.
    #[activity(name = "reserve")]
    pub async fn reserve(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment: Payment,
    ) -> Result<ReserveOutcome, ActivityError> {
        self.try_reserve(&payment, &run_id(&ctx)?).await
    }

    /// Ends a payment that failed the workflow's validation.
    #[activity(name = "reject")]
    pub async fn reject(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment: Payment,
    ) -> Result<(), ActivityError> {
        let rejected = self.ledger.reject(&payment).await;
        self.wake_relay.fire();
        rejected.map_err(ledger_failure)
    }

    /// Records a refusal under the reserve step's key, so that a late reserve has no effect.
    #[activity(name = "fence_reserve")]
    pub async fn fence_reserve(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment: Payment,
    ) -> Result<FenceOutcome, ActivityError> {
        match self.ledger.fence_reserve(&payment).await {
            Err(error) if error.is_final() => Ok(FenceOutcome::Failed { detail: error_chain(&error) }),
            outcome => outcome.map_err(ledger_failure),
        }
    }

    /// Reads from our own ledger whether the switch has reported an end of a submit that had no answer.
    #[activity(name = "reconcile")]
    pub async fn reconcile(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<ReconcileOutcome, ActivityError> {
        self.ledger.reconcile_submission(&payment_id).await.map_err(ledger_failure)
    }

    /// Closes a decision that can no longer be applied. An outcome that is already recorded stays.
    #[activity(name = "close_decision")]
    pub async fn close_decision(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: CloseDecisionInput,
    ) -> Result<(), ActivityError> {
        let CloseDecisionInput { decision_id, outcome, detail } = input;
        self.ledger.close_decision(&decision_id, &outcome, &detail).await.map_err(ledger_failure)
    }

    /// Releases the hold and ends the payment.
    #[activity(name = "release")]
    pub async fn release(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: ReleaseInput,
    ) -> Result<ReleaseOutcome, ActivityError> {
        let ReleaseInput { payment_id, cause } = input;
        let released = self.ledger.release(&payment_id, &cause).await;
        self.wake_relay.fire();
        match released {
            Ok(ReleaseStepOutcome::Done(first)) => {
                metrics::counter!("payments_ended_total", "state" => first.end().as_str()).increment(1);
                Ok(ReleaseOutcome::Done(first))
            }
            Ok(ReleaseStepOutcome::Ended(end)) => Ok(ReleaseOutcome::Ended(end)),
            Ok(ReleaseStepOutcome::Refused(refusal)) => {
                Ok(ReleaseOutcome::Failed { detail: refusal.to_string() })
            }
            Err(error) if error.is_final() => Ok(ReleaseOutcome::Failed { detail: error_chain(&error) }),
            Err(error) => Err(ledger_failure(error)),
        }
    }

    /// Records that the payment needs an operator.
    #[activity(name = "needs_operator")]
    pub async fn needs_operator(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: NeedsOperatorInput,
    ) -> Result<NeedsOperatorOutcome, ActivityError> {
        metrics::counter!("payments_needs_operator_total", "reason" => input.reason.as_str()).increment(1);
        let outcome = self.ledger.needs_operator(&input.payment_id, input.reason).await;
        self.wake_relay.fire();
        if let Err(error) = &outcome
            && error.is_final()
        {
            // The state cannot say it, so the alert does.
            let detail = error_chain(error);
            self.ledger
                .alert(&input.payment_id, AlertKind::NeedsOperator, &detail)
                .await
                .map_err(ledger_failure)?;
        }
        outcome.map_err(ledger_failure)
    }

    /// Raises an alert.
    #[activity(name = "alert")]
    pub async fn alert(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: AlertInput,
    ) -> Result<(), ActivityError> {
        metrics::counter!("payments_alerts_total", "kind" => input.kind.as_str()).increment(1);
        self.ledger.alert(&input.payment_id, input.kind, &input.detail).await.map_err(ledger_failure)
    }
}
