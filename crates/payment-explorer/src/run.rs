//! The workflow's side: the payment's questions to its world, and their answers.

use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{CarriedOut, Decision};
use payment_protocol::pay::pay;
use payment_protocol::payment::InvalidPayment;
use payment_protocol::world::{
    AccountLock, Alert, Asked, Event, Fenced, Recalled, Reconciled, Released, Reserved, Settled, Standing,
    Submitted, World,
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
    /// `ask_to_cancel`
    AskToCancel(Cause),
    /// `settle`
    Settle,
    /// `recall`
    Recall,
    /// `release`
    Release(Cause),
    /// `wait_within_sla`
    WaitWithinSla,
    /// `wait_without_end`
    WaitWithoutEnd,
    /// `carry_out`
    CarryOut(Decision, OperatorReason),
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
    Reserved(Reserved),
    /// To fence.
    Fenced(Fenced),
    /// To submit.
    Submitted(Submitted),
    /// To reconcile.
    Reconciled(Reconciled),
    /// To lock.
    Lock(AccountLock),
    /// To ask to cancel.
    Asked(Asked),
    /// To settle.
    Settled(Settled),
    /// To recall.
    Recalled(Recalled),
    /// To release.
    Released(Released),
    /// To both waits.
    Event(Event),
    /// To carry out.
    CarriedOut(CarriedOut),
    /// To needs_operator.
    Standing(Standing),
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

impl World for Scripted<'_> {
    async fn reject(&self, _invalid: &InvalidPayment) {
        self.0.ask(Step::Reject).await;
    }

    async fn reserve(&self) -> Reserved {
        answer!(self, Step::Reserve, Reserved)
    }

    async fn fence_reserve(&self) -> Fenced {
        answer!(self, Step::Fence, Fenced)
    }

    async fn submit(&self) -> Submitted {
        answer!(self, Step::Submit, Submitted)
    }

    async fn reconcile_submission(&self) -> Reconciled {
        answer!(self, Step::Reconcile, Reconciled)
    }

    async fn lock_account(&self) -> AccountLock {
        answer!(self, Step::Lock, Lock)
    }

    async fn unlock_account(&self) {
        self.0.ask(Step::Unlock).await;
    }

    async fn ask_to_cancel(&self, cause: &Cause) -> Asked {
        answer!(self, Step::AskToCancel(cause.clone()), Asked)
    }

    async fn settle(&self) -> Settled {
        answer!(self, Step::Settle, Settled)
    }

    async fn recall(&self) -> Recalled {
        answer!(self, Step::Recall, Recalled)
    }

    async fn release(&self, cause: &Cause) -> Released {
        answer!(self, Step::Release(cause.clone()), Released)
    }

    async fn wait_within_sla(&self) -> Event {
        answer!(self, Step::WaitWithinSla, Event)
    }

    async fn wait_without_end(&self) -> Event {
        answer!(self, Step::WaitWithoutEnd, Event)
    }

    async fn carry_out(&self, decision: &Decision, reason: OperatorReason) -> CarriedOut {
        answer!(self, Step::CarryOut(decision.clone(), reason), CarriedOut)
    }

    async fn needs_operator(&self, reason: OperatorReason) -> Standing {
        answer!(self, Step::NeedsOperator(reason), Standing)
    }

    async fn alert(&self, _alert: Alert) {
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
