//! The workflow's side: the payment's questions to its world, and their answers.

use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::pay::pay;
use payment_protocol::payment::InvalidPayment;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::{Payment, PaymentError, PaymentState};

use crate::script::{Came, Exchange, Interned, Number, Script};

/// A question of the payment to its world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `reject`
    Reject,
    /// `reserve`
    Reserve,
    /// `fence_reserve`
    Fence,
    /// `submit`
    Submit,
    /// `reconcile_submission`
    Reconcile,
    /// `lock_account`
    Lock,
    /// `unlock_account`
    Unlock,
    /// `cancel`
    Cancel(Cause),
    /// `settle`
    Debit,
    /// `recall`
    Recall,
    /// `release`
    Release(Cause),
    /// `wait_within_sla`
    WaitWithinSla,
    /// `wait_until_event`
    WaitUntilEvent,
    /// `apply_decision`
    ApplyDecision(Decision, OperatorReason),
    /// `needs_operator`
    NeedsOperator(OperatorReason),
    /// `alert`
    Alert,
}

/// The world's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Done.
    Done,
    /// To reserve.
    Reserve(ReserveOutcome),
    /// To fence.
    Fence(FenceOutcome),
    /// To submit.
    Submit(SubmitOutcome),
    /// To reconcile.
    Reconcile(ReconcileOutcome),
    /// To lock.
    Lock(AccountLockOutcome),
    /// To ask to cancel.
    Cancel(CancelOutcome),
    /// To settle.
    Debit(DebitOutcome),
    /// To recall.
    Recall(RecallOutcome),
    /// To release.
    Release(ReleaseOutcome),
    /// To both waits.
    Wait(WaitOutcome),
    /// To carry out.
    ApplyDecision(DecisionOutcome),
    /// To needs_operator.
    NeedsOperator(NeedsOperatorOutcome),
}

/// All exchanges between payments and their world that were met.
pub type Exchanges = Interned<Exchange<Step, Answer>>;

struct Scripted<'a>(Script<'a, Step, Answer>);

/// A recorded answer has the form of its question: they were stored together.
macro_rules! answer {
    ($world:expr, $step:expr, $form:ident) => {
        match $world.0.ask($step).await {
            Answer::$form(said) => said,
            _ => std::future::pending().await,
        }
    };
}

impl PaymentPort for Scripted<'_> {
    async fn reject(&self, _invalid: &InvalidPayment) {
        self.0.ask(Step::Reject).await;
    }

    async fn reserve(&self) -> ReserveOutcome {
        answer!(self, Step::Reserve, Reserve)
    }

    async fn fence_reserve(&self) -> FenceOutcome {
        answer!(self, Step::Fence, Fence)
    }

    async fn submit(&self) -> SubmitOutcome {
        answer!(self, Step::Submit, Submit)
    }

    async fn reconcile_submission(&self) -> ReconcileOutcome {
        answer!(self, Step::Reconcile, Reconcile)
    }

    async fn lock_account(&self) -> AccountLockOutcome {
        answer!(self, Step::Lock, Lock)
    }

    async fn unlock_account(&self) {
        self.0.ask(Step::Unlock).await;
    }

    async fn cancel(&self, cause: &Cause) -> CancelOutcome {
        answer!(self, Step::Cancel(cause.clone()), Cancel)
    }

    async fn debit(&self) -> DebitOutcome {
        answer!(self, Step::Debit, Debit)
    }

    async fn recall(&self) -> RecallOutcome {
        answer!(self, Step::Recall, Recall)
    }

    async fn release(&self, cause: &Cause) -> ReleaseOutcome {
        answer!(self, Step::Release(cause.clone()), Release)
    }

    async fn wait_within_sla(&self) -> WaitOutcome {
        answer!(self, Step::WaitWithinSla, Wait)
    }

    async fn wait_until_event(&self) -> WaitOutcome {
        answer!(self, Step::WaitUntilEvent, Wait)
    }

    async fn apply_decision(&self, decision: &Decision, reason: OperatorReason) -> DecisionOutcome {
        answer!(self, Step::ApplyDecision(decision.clone(), reason), ApplyDecision)
    }

    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome {
        answer!(self, Step::NeedsOperator(reason), NeedsOperator)
    }

    async fn alert(&self, _alert: OperatorAlert) {
        self.0.ask(Step::Alert).await;
    }

    fn show(&self, _state: PaymentState, _detail: &str) {}

    fn patched(&self, _change: &str) -> bool {
        true
    }
}

/// Where a run stands after these answers.
#[must_use]
pub fn advance(
    known: &Exchanges,
    past: &[Number],
    payment: &Payment,
) -> Came<Step, Result<(), PaymentError>> {
    let world = Scripted(Script::new(known, past));
    world.0.run(pay(&world, payment))
}
