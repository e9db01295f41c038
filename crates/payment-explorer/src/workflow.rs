//! The workflow: the payment's calls of its port, and their replies.

use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::pay::pay;
use payment_protocol::payment::InvalidPayment;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome,
    SubmitProgress, WaitOutcome,
};
use payment_protocol::{FinalState, Payment, PaymentError, PaymentState};

use crate::replay::{Exchange, Index, Interner, Progress, Replay};

/// A call of the payment port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortCall {
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
    /// `cancel`, and how far submit got.
    Cancel(Cause, SubmitProgress),
    /// `debit`
    Debit,
    /// `recall`
    Recall,
    /// `release`
    Release(Cause),
    /// `wait_within_sla`
    WaitWithinSla,
    /// `wait_until_event`
    WaitUntilEvent,
    /// `apply_decision`, and how far submit got.
    ApplyDecision(Decision, OperatorReason, SubmitProgress),
    /// `needs_operator`
    NeedsOperator(OperatorReason),
    /// `alert`
    Alert,
}

/// The reply to a call of the payment port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PortReply {
    /// The reply to a call without a result.
    Done,
    /// The reply to `reserve`.
    Reserve(ReserveOutcome),
    /// The reply to `fence_reserve`.
    Fence(FenceOutcome),
    /// The reply to `submit`.
    Submit(SubmitOutcome),
    /// The reply to `reconcile_submission`.
    Reconcile(ReconcileOutcome),
    /// The reply to `lock_account`.
    Lock(AccountLockOutcome),
    /// The reply to `cancel`.
    Cancel(CancelOutcome),
    /// The reply to `debit`.
    Debit(DebitOutcome),
    /// The reply to `recall`.
    Recall(RecallOutcome),
    /// The reply to `release`.
    Release(ReleaseOutcome),
    /// The reply to both waits.
    Wait(WaitOutcome),
    /// The reply to `apply_decision`.
    ApplyDecision(DecisionOutcome),
    /// The reply to `needs_operator`.
    NeedsOperator(NeedsOperatorOutcome),
}

/// All exchanges between payments and their port.
pub type Exchanges = Interner<Exchange<PortCall, PortReply>>;

/// The error of a closed workflow, in its stable words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WorkflowError {
    /// The final state that the error names; `None` if the run did not end the payment.
    pub end: Option<FinalState>,
    /// The word of the error.
    pub code: &'static str,
}

impl From<&PaymentError> for WorkflowError {
    fn from(error: &PaymentError) -> Self {
        Self { end: error.end(), code: error.code() }
    }
}

struct ReplayedPort<'a>(Replay<'a, PortCall, PortReply>);

/// A recorded reply has the form of its call: the two were stored together.
macro_rules! reply {
    ($port:expr, $call:expr, $form:ident) => {
        match $port.0.call($call).await {
            PortReply::$form(outcome) => outcome,
            _ => std::future::pending().await,
        }
    };
}

impl PaymentPort for ReplayedPort<'_> {
    async fn reject(&self, _invalid: &InvalidPayment) {
        self.0.call(PortCall::Reject).await;
    }

    async fn reserve(&self) -> ReserveOutcome {
        reply!(self, PortCall::Reserve, Reserve)
    }

    async fn fence_reserve(&self) -> FenceOutcome {
        reply!(self, PortCall::Fence, Fence)
    }

    async fn submit(&self) -> SubmitOutcome {
        reply!(self, PortCall::Submit, Submit)
    }

    async fn reconcile_submission(&self) -> ReconcileOutcome {
        reply!(self, PortCall::Reconcile, Reconcile)
    }

    async fn lock_account(&self) -> AccountLockOutcome {
        reply!(self, PortCall::Lock, Lock)
    }

    async fn unlock_account(&self) {
        self.0.call(PortCall::Unlock).await;
    }

    async fn cancel(&self, cause: &Cause, submit: SubmitProgress) -> CancelOutcome {
        reply!(self, PortCall::Cancel(cause.clone(), submit), Cancel)
    }

    async fn debit(&self) -> DebitOutcome {
        reply!(self, PortCall::Debit, Debit)
    }

    async fn recall(&self) -> RecallOutcome {
        reply!(self, PortCall::Recall, Recall)
    }

    async fn release(&self, cause: &Cause) -> ReleaseOutcome {
        reply!(self, PortCall::Release(cause.clone()), Release)
    }

    async fn wait_within_sla(&self) -> WaitOutcome {
        reply!(self, PortCall::WaitWithinSla, Wait)
    }

    async fn wait_until_event(&self) -> WaitOutcome {
        reply!(self, PortCall::WaitUntilEvent, Wait)
    }

    async fn apply_decision(
        &self,
        decision: &Decision,
        reason: OperatorReason,
        submit: SubmitProgress,
    ) -> DecisionOutcome {
        reply!(self, PortCall::ApplyDecision(decision.clone(), reason, submit), ApplyDecision)
    }

    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome {
        reply!(self, PortCall::NeedsOperator(reason), NeedsOperator)
    }

    async fn alert(&self, _alert: OperatorAlert) {
        self.0.call(PortCall::Alert).await;
    }

    fn report_status(&self, _state: PaymentState, _detail: &str) {}

    fn patched(&self, _change: &str) -> bool {
        true
    }
}

/// The position of a workflow after this history.
#[must_use]
pub fn advance(
    exchanges: &Exchanges,
    history: &[Index],
    payment: &Payment,
) -> Progress<PortCall, Result<(), PaymentError>> {
    let port = ReplayedPort(Replay::new(exchanges, history));
    port.0.run(pay(&port, payment))
}
