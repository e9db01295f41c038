//! A payment port that follows a script.

use std::cell::RefCell;
use std::collections::VecDeque;

use futures::FutureExt as _;
use payment_protocol::Payment;
use payment_protocol::cause::{Cause, OperatorReason, PaymentError};
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::pay::pay;
use payment_protocol::payment::InvalidPayment;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome,
    SubmitProgress, WaitOutcome,
};
use payment_protocol::state::PaymentState;

use crate::support::payment;

/// The port's next reply.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Reserve(ReserveOutcome),
    Fence(FenceOutcome),
    Submit(SubmitOutcome),
    Reconcile(ReconcileOutcome),
    Lock(AccountLockOutcome),
    ApplyDecision(DecisionOutcome),
    Wait(WaitOutcome),
    Cancel(CancelOutcome),
    Debit(DebitOutcome),
    Recall(RecallOutcome),
    Release(ReleaseOutcome),
    /// The ledger's reply to marking the payment as needing an operator. A script may leave it out: the payment then awaits an operator.
    NeedsOperator(NeedsOperatorOutcome),
}

/// A port that follows a script. A call out of order panics; a wait after the last reply never ends.
#[derive(Default)]
pub(crate) struct Script {
    replies: RefCell<VecDeque<Reply>>,
    pub(crate) calls: RefCell<Vec<String>>,
    reported: RefCell<Vec<PaymentState>>,
}

macro_rules! next {
    ($port:expr, $variant:ident, $call:expr) => {{
        $port.calls.borrow_mut().push($call);
        match $port.replies.borrow_mut().pop_front() {
            Some(Reply::$variant(reply)) => reply,
            other => panic!("unexpected call {}: the next reply is {other:?}", stringify!($variant)),
        }
    }};
}

impl PaymentPort for Script {
    async fn reject(&self, invalid: &InvalidPayment) {
        self.calls.borrow_mut().push(format!("reject: {invalid}"));
    }

    async fn reserve(&self) -> ReserveOutcome {
        next!(self, Reserve, "reserve".into())
    }

    async fn fence_reserve(&self) -> FenceOutcome {
        next!(self, Fence, "fence".into())
    }

    async fn submit(&self) -> SubmitOutcome {
        next!(self, Submit, "submit".into())
    }

    async fn reconcile_submission(&self) -> ReconcileOutcome {
        next!(self, Reconcile, "reconcile".into())
    }

    async fn lock_account(&self) -> AccountLockOutcome {
        next!(self, Lock, "lock".into())
    }

    async fn unlock_account(&self) {
        self.calls.borrow_mut().push("unlock".into());
    }

    async fn apply_decision(
        &self,
        decision: &Decision,
        reason: OperatorReason,
        _: SubmitProgress,
    ) -> DecisionOutcome {
        next!(self, ApplyDecision, format!("decision:{}:{reason}", decision.action))
    }

    async fn cancel(&self, cause: &Cause, submit: SubmitProgress) -> CancelOutcome {
        // The compensations show how far submit got.
        let mark = match submit {
            SubmitProgress::NotScheduled => ":unsent",
            SubmitProgress::Scheduled => "",
            SubmitProgress::Accepted => ":accepted",
        };
        next!(self, Cancel, format!("cancel:{}{mark}", cause.code()))
    }

    async fn debit(&self) -> DebitOutcome {
        next!(self, Debit, "debit".into())
    }

    async fn recall(&self) -> RecallOutcome {
        next!(self, Recall, "recall".into())
    }

    async fn release(&self, cause: &Cause) -> ReleaseOutcome {
        next!(self, Release, format!("release:{}", cause.code()))
    }

    async fn wait_within_sla(&self) -> WaitOutcome {
        if self.replies.borrow().is_empty() {
            std::future::pending::<()>().await;
        }
        next!(self, Wait, "wait".into())
    }

    async fn wait_until_event(&self) -> WaitOutcome {
        if self.replies.borrow().is_empty() {
            std::future::pending::<()>().await;
        }
        next!(self, Wait, "await".into())
    }

    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome {
        self.calls.borrow_mut().push(format!("operator:{reason}"));
        let mut replies = self.replies.borrow_mut();
        match replies.front() {
            Some(Reply::NeedsOperator(outcome)) => {
                let outcome = *outcome;
                replies.pop_front();
                outcome
            }
            _ => NeedsOperatorOutcome::AwaitsOperator,
        }
    }

    async fn alert(&self, alert: OperatorAlert) {
        let (OperatorAlert::CompensationFailed { detail } | OperatorAlert::DebitFailed { detail }) = alert;
        self.calls.borrow_mut().push(format!("alert:{detail}"));
    }

    fn report_status(&self, state: PaymentState, _detail: &str) {
        self.reported.borrow_mut().push(state);
    }

    fn patched(&self, _change: &str) -> bool {
        true
    }
}

/// Runs a payment through a script. Returns its result in a word, the calls, and the reported states.
pub(crate) fn run_script(resume: u32, replies: Vec<Reply>) -> (String, String, Vec<PaymentState>) {
    run(&payment(resume), replies)
}

pub(crate) fn run(payment: &Payment, replies: Vec<Reply>) -> (String, String, Vec<PaymentState>) {
    let port = Script { replies: RefCell::new(replies.into()), ..Script::default() };
    let end = match pay(&port, payment).now_or_never() {
        None => "waits".into(),
        Some(Ok(())) => "settled".into(),
        Some(Err(error)) => word(&error),
    };
    assert!(port.replies.borrow().is_empty(), "replies that no call used: {:?}", port.replies);
    (end, port.calls.take().join(" "), port.reported.take())
}

/// The error of a payment, in a word.
pub(crate) fn word(error: &PaymentError) -> String {
    match error {
        PaymentError::Invalid(_) => "invalid".into(),
        PaymentError::ReserveRefused(refusal) => format!("refused:{refusal}"),
        PaymentError::Compensated(cause) => format!("compensated:{}", cause.code()),
        PaymentError::AlreadyEnded(end) => format!("ended:{end}"),
        PaymentError::InputDiffers => "differs".into(),
    }
}

/// One row: the port's replies, the payment's result, and the calls.
pub(crate) type Row = (Vec<Reply>, &'static str, &'static str);

pub(crate) fn check(resume: u32, table: Vec<Row>) {
    for (n, (replies, end, calls)) in table.into_iter().enumerate() {
        let row = format!("row {n}: {replies:?}");
        let (ended, called, _) = run_script(resume, replies);
        assert_eq!((ended.as_str(), called.as_str()), (end, calls), "{row}");
    }
}

pub(crate) const HELD: Reply = Reply::Reserve(ReserveOutcome::Held);
pub(crate) const ACCEPTED: Reply = Reply::Submit(SubmitOutcome::Accepted);
pub(crate) const SUCCESS: Reply = Reply::Wait(WaitOutcome::SuccessReported);
pub(crate) const SLA: Reply = Reply::Wait(WaitOutcome::SlaExpired);
pub(crate) const CANCEL: Reply = Reply::Wait(WaitOutcome::CustomerCancel);
pub(crate) const DEBITED: Reply = Reply::Debit(DebitOutcome::Done);
pub(crate) const UNCONFIRMED: Reply = Reply::Debit(DebitOutcome::NotConfirmed);
pub(crate) const DIFFERS: Reply = Reply::Debit(DebitOutcome::Differs);
pub(crate) const VOID: Reply = Reply::Cancel(CancelOutcome::Void);
pub(crate) const RECALLED: Reply = Reply::Recall(RecallOutcome::Recalled);
pub(crate) const OPEN: Reply = Reply::Fence(FenceOutcome::Open(None));

pub(crate) fn failure() -> Reply {
    Reply::Wait(WaitOutcome::FailureReported { reason: "closed".into() })
}

pub(crate) fn debit_refused() -> Reply {
    Reply::Debit(DebitOutcome::Refused { reason: "frozen".into() })
}

pub(crate) fn submit_refused() -> Reply {
    Reply::Submit(SubmitOutcome::Refused { reason: "limit".into() })
}

pub(crate) fn released(cause: Cause) -> Reply {
    Reply::Release(ReleaseOutcome::Done(cause))
}

pub(crate) fn release_failed() -> Reply {
    Reply::Release(ReleaseOutcome::Failed { detail: "no".into() })
}

pub(crate) fn cancel(outcome: CancelOutcome) -> Reply {
    Reply::Cancel(outcome)
}

pub(crate) fn account_frozen() -> Cause {
    Cause::DebitRefused { reason: "frozen".into() }
}
