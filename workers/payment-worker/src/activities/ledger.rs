//! Steps of our own ledger.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;

use outbox::Nudge;
use payment_ledger::Ledger;
use payment_ledger::operator::alerts::AlertKind;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::ids::{DecisionId, PaymentId, RunId};
use payment_protocol::port::{
    DebitOutcome, FenceOutcome, NeedsOperatorOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome,
};
use serde::{Deserialize, Serialize};
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::{again, chain, no_outcome};

/// Input of release.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReleaseInput {
    /// Which payment.
    pub payment_id: PaymentId,
    /// Why it was turned round.
    pub cause: Cause,
}

/// Input of needs_operator.
#[derive(Debug, Serialize, Deserialize)]
pub struct OperatorInput {
    /// Which payment.
    pub payment_id: PaymentId,
    /// Why a person must look.
    pub reason: OperatorReason,
}

/// Input of alert.
#[derive(Debug, Serialize, Deserialize)]
pub struct AlertInput {
    /// Which payment.
    pub payment_id: PaymentId,
    /// Kind of alert.
    pub kind: AlertKind,
    /// What a person should know.
    pub detail: String,
}

/// Input of close_decision.
#[derive(Debug, Serialize, Deserialize)]
pub struct CloseDecisionInput {
    /// Which decision.
    pub decision_id: DecisionId,
    /// What came of it.
    pub came: DecisionOutcome,
    /// In words for people.
    pub detail: String,
}

/// The ledger, shared by all activities of this process.
pub struct LedgerActivities {
    /// Where the money is.
    pub ledger: Ledger,
    /// Tells the relay that a step may have written an event.
    pub nudge: Nudge,
}

/// The run that this activity works for.
pub(super) fn run_id(ctx: &ActivityContext) -> Result<RunId, ActivityError> {
    let run = ctx.info().workflow_run_id.clone().unwrap_or_default();
    RunId::new(run).map_err(|error| again("no_run_id", &error.to_string(), None))
}

#[activities]
impl LedgerActivities {
    /// Holds the amount. A reserve that the database refuses for good holds nothing it could not
    /// release: its outcome is unknown, and the release fences it.
    #[activity]
    pub async fn reserve(
        self: Arc<Self>,
        ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<ReserveOutcome, ActivityError> {
        let run = run_id(&ctx)?;
        let reserved = self.ledger.reserve(&payment_id, &run).await;
        self.nudge.ask();
        match reserved {
            Err(error) if error.is_final() => {
                tracing::error!(payment.id = %payment_id, error = chain(&error), "reserve has no outcome");
                Ok(ReserveOutcome::Unknown)
            }
            outcome => outcome.map_err(no_outcome),
        }
    }

    /// Ends a payment that the workflow found not valid.
    #[activity]
    pub async fn reject(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<(), ActivityError> {
        let rejected = self.ledger.refuse_unreserved(&payment_id, ReserveRefusal::Invalid).await;
        self.nudge.ask();
        rejected.map_err(no_outcome)
    }

    /// Makes a late reserve refuse.
    #[activity]
    pub async fn fence_reserve(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<FenceOutcome, ActivityError> {
        self.ledger.fence_reserve(&payment_id).await.map_err(no_outcome)
    }

    /// Looks for what became of a submit that gave no answer.
    #[activity]
    pub async fn reconcile_submission(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<ReconcileOutcome, ActivityError> {
        self.ledger.reconcile_submission(&payment_id).await.map_err(no_outcome)
    }

    /// Closes a decision that was not carried out any more. What came of it before stands.
    #[activity]
    pub async fn close_decision(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: CloseDecisionInput,
    ) -> Result<(), ActivityError> {
        let CloseDecisionInput { decision_id, came, detail } = input;
        self.ledger.close_decision(&decision_id, &came, &detail).await.map_err(no_outcome)
    }

    /// Debits what is held.
    #[activity]
    pub async fn debit(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<DebitOutcome, ActivityError> {
        let settled = self.ledger.debit(&payment_id).await.map_err(no_outcome)?;
        self.nudge.ask();
        if settled == DebitOutcome::Done {
            metrics::counter!("payments_ended_total", "state" => "settled").increment(1);
        }
        Ok(settled)
    }

    /// Gives back what is held, and ends the payment.
    #[activity]
    pub async fn release(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: ReleaseInput,
    ) -> Result<ReleaseOutcome, ActivityError> {
        let ReleaseInput { payment_id, cause } = input;
        let released = self.ledger.release(&payment_id, &cause).await;
        self.nudge.ask();
        match released {
            Ok(ReleaseStepOutcome::Done(first)) => {
                metrics::counter!("payments_ended_total", "state" => first.end().as_str()).increment(1);
                Ok(ReleaseOutcome::Done(first))
            }
            Ok(ReleaseStepOutcome::Ended(end)) => Ok(ReleaseOutcome::Ended(end)),
            Ok(ReleaseStepOutcome::Refused(refusal)) => {
                Ok(ReleaseOutcome::Failed { detail: refusal.to_string() })
            }
            Err(error) if error.is_final() => Ok(ReleaseOutcome::Failed { detail: chain(&error) }),
            Err(error) => Err(no_outcome(error)),
        }
    }

    /// Shows the payment as standing before a person.
    #[activity]
    pub async fn needs_operator(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: OperatorInput,
    ) -> Result<NeedsOperatorOutcome, ActivityError> {
        metrics::counter!("payments_needs_operator_total", "reason" => input.reason.as_str()).increment(1);
        let standing = self.ledger.needs_operator(&input.payment_id, input.reason).await;
        self.nudge.ask();
        standing.map_err(no_outcome)
    }

    /// Raises an alert.
    #[activity]
    pub async fn alert(
        self: Arc<Self>,
        _ctx: ActivityContext,
        input: AlertInput,
    ) -> Result<(), ActivityError> {
        metrics::counter!("payments_alerts_total", "kind" => input.kind.as_str()).increment(1);
        self.ledger.alert(&input.payment_id, input.kind, &input.detail).await.map_err(no_outcome)
    }
}
