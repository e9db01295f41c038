//! The payment as straight-line code, over a port that follows a script: which calls are made, in
//! which order, and what the payment ends with.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;
use std::collections::VecDeque;

use futures::FutureExt as _;
use payment_protocol::Payment;
use payment_protocol::cause::{Cause, OperatorReason, PaymentError, ReserveRefusal};
use payment_protocol::decision::{Action, Decision, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::pay::pay;
use payment_protocol::payment::InvalidPayment;
use payment_protocol::port::{
    AccountLockOutcome, CancelOutcome, DebitOutcome, FenceOutcome, NeedsOperatorOutcome, OperatorAlert,
    PaymentPort, RecallOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::profile::Strategy;
use payment_protocol::rules::NotSent;
use payment_protocol::state::{FinalState, PaymentState};
use support::payment;

/// What the port answers next.
#[derive(Clone, Debug)]
enum Says {
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
    /// Left out, a payment that stands simply stands.
    NeedsOperator(NeedsOperatorOutcome),
}

/// A port that follows a script. A call out of turn panics; at the end of the script waiting waits.
struct Script {
    says: RefCell<VecDeque<Says>>,
    calls: RefCell<Vec<String>>,
    shown: RefCell<Vec<PaymentState>>,
}

macro_rules! next {
    ($port:expr, $variant:ident, $call:expr) => {{
        $port.calls.borrow_mut().push($call);
        match $port.says.borrow_mut().pop_front() {
            Some(Says::$variant(said)) => said,
            other => panic!("{} is out of turn: {other:?} is next", stringify!($variant)),
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

    async fn apply_decision(&self, decision: &Decision, reason: OperatorReason) -> DecisionOutcome {
        next!(self, ApplyDecision, format!("decided:{}:{reason}", decision.action))
    }

    async fn cancel(&self, cause: &Cause) -> CancelOutcome {
        next!(self, Cancel, format!("cancel:{}", cause.code()))
    }

    async fn debit(&self) -> DebitOutcome {
        next!(self, Debit, "settle".into())
    }

    async fn recall(&self) -> RecallOutcome {
        next!(self, Recall, "recall".into())
    }

    async fn release(&self, cause: &Cause) -> ReleaseOutcome {
        next!(self, Release, format!("release:{}", cause.code()))
    }

    async fn wait_within_sla(&self) -> WaitOutcome {
        if self.says.borrow().is_empty() {
            std::future::pending::<()>().await;
        }
        next!(self, Wait, "wait".into())
    }

    async fn wait_until_event(&self) -> WaitOutcome {
        if self.says.borrow().is_empty() {
            std::future::pending::<()>().await;
        }
        next!(self, Wait, "listen".into())
    }

    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome {
        self.calls.borrow_mut().push(format!("person:{reason}"));
        let mut says = self.says.borrow_mut();
        match says.front() {
            Some(Says::NeedsOperator(standing)) => {
                let standing = *standing;
                says.pop_front();
                standing
            }
            _ => NeedsOperatorOutcome::Stands,
        }
    }

    async fn alert(&self, alert: OperatorAlert) {
        let OperatorAlert::CompensationFailed { detail } = alert;
        self.calls.borrow_mut().push(format!("alert:{detail}"));
    }

    fn show(&self, state: PaymentState, _detail: &str) {
        self.shown.borrow_mut().push(state);
    }

    fn patched(&self, _change: &str) -> bool {
        true
    }
}

/// Runs a payment through a script: its end in a word, the calls, the states shown.
fn follow(resume: u32, says: Vec<Says>) -> (String, String, Vec<PaymentState>) {
    run(&payment(resume), says)
}

fn run(payment: &Payment, says: Vec<Says>) -> (String, String, Vec<PaymentState>) {
    let port =
        Script { says: RefCell::new(says.into()), calls: RefCell::default(), shown: RefCell::default() };
    let end = match pay(&port, payment).now_or_never() {
        None => "waits".into(),
        Some(Ok(())) => "settled".into(),
        Some(Err(error)) => word(&error),
    };
    assert!(port.says.borrow().is_empty(), "left of the script: {:?}", port.says);
    (end, port.calls.take().join(" "), port.shown.take())
}

/// What a payment ended with, in a word.
fn word(error: &PaymentError) -> String {
    match error {
        PaymentError::Invalid(_) => "invalid".into(),
        PaymentError::ReserveRefused(refusal) => format!("refused:{refusal}"),
        PaymentError::Compensated(cause) => format!("undone:{}", cause.code()),
        PaymentError::AlreadyEnded(end) => format!("ended:{end}"),
    }
}

/// One row: what the port says, how the payment ends, and the calls.
type Row = (Vec<Says>, &'static str, &'static str);

fn check(resume: u32, table: Vec<Row>) {
    for (n, (says, end, calls)) in table.into_iter().enumerate() {
        let told = format!("row {n}: {says:?}");
        let (ended, called, _) = follow(resume, says);
        assert_eq!((ended.as_str(), called.as_str()), (end, calls), "{told}");
    }
}

const HELD: Says = Says::Reserve(ReserveOutcome::Held);
const ACCEPTED: Says = Says::Submit(SubmitOutcome::Accepted);
const SUCCESS: Says = Says::Wait(WaitOutcome::SuccessReported);
const SLA: Says = Says::Wait(WaitOutcome::SlaExpired);
const CANCEL: Says = Says::Wait(WaitOutcome::CustomerCancel);
const DEBITED: Says = Says::Debit(DebitOutcome::Done);
const UNCONFIRMED: Says = Says::Debit(DebitOutcome::NotConfirmed);
const DIFFERS: Says = Says::Debit(DebitOutcome::Differs);
const DEAD: Says = Says::Cancel(CancelOutcome::Void);
const RECALLED: Says = Says::Recall(RecallOutcome::Recalled);
const OPEN: Says = Says::Fence(FenceOutcome::Open(None));

fn failure() -> Says {
    Says::Wait(WaitOutcome::FailureReported { reason: "closed".into() })
}

fn barred() -> Says {
    Says::Debit(DebitOutcome::Refused { reason: "frozen".into() })
}

fn refused() -> Says {
    Says::Submit(SubmitOutcome::Refused { reason: "limit".into() })
}

fn released(cause: Cause) -> Says {
    Says::Release(ReleaseOutcome::Done(cause))
}

fn stuck() -> Says {
    Says::Release(ReleaseOutcome::Failed { detail: "no".into() })
}

fn asked(said: CancelOutcome) -> Says {
    Says::Cancel(said)
}

fn frozen() -> Cause {
    Cause::DebitRefused { reason: "frozen".into() }
}

#[test]
fn the_straight_way() {
    let (end, calls, shown) = follow(0, vec![HELD, ACCEPTED, SUCCESS, DEBITED]);
    assert_eq!((end.as_str(), calls.as_str()), ("settled", "reserve submit wait settle"));
    assert_eq!(shown, [PaymentState::Reserved, PaymentState::Submitted, PaymentState::Settled]);
}

/// Not valid: nothing is called outside (S0.2).
#[test]
fn s0_2_an_invalid_payment_calls_nothing() {
    let port = Script { says: RefCell::default(), calls: RefCell::default(), shown: RefCell::default() };
    let mut foreign = payment(0);
    foreign.tx_id = payment_protocol::ids::TxId::new("tx_foreign").unwrap();
    let mut large = payment(0);
    large.profile.amount_limit_minor = 999;
    for (invalid, why) in [
        (foreign, "reject: the transaction id does not belong to the payment id"),
        (large, "reject: the amount is over the switch's limit of 999 minor units"),
    ] {
        let error = pay(&port, &invalid).now_or_never().unwrap().unwrap_err();
        assert_eq!((word(&error).as_str(), error.end()), ("invalid", FinalState::Rejected));
        assert_eq!(port.calls.take(), [why]);
    }
}

#[test]
fn what_reserve_says() {
    let says = |said| vec![Says::Reserve(said)];
    let refused = |refusal| says(ReserveOutcome::Refused(refusal));
    let unknown = vec![Says::Reserve(ReserveOutcome::Unknown), DEAD, released(Cause::ReserveUnknown)];
    let another = vec![Says::Reserve(ReserveOutcome::AnotherRun), OPEN, DEAD, released(Cause::Interrupted)];
    #[rustfmt::skip]
    check(0, vec![
        // the port says                                  end                          calls
        (refused(ReserveRefusal::InsufficientFunds),       "refused:insufficient_funds", "reserve"),
        (refused(ReserveRefusal::CustomerCancel),          "refused:customer_cancel",    "reserve"),
        (refused(ReserveRefusal::Fenced),                  "refused:fenced",             "reserve"),
        (says(ReserveOutcome::Ended(FinalState::Failed)),               "ended:failed",               "reserve"),
        // A run that comes too late for a payment that has settled has nothing to complain of.
        (says(ReserveOutcome::Ended(FinalState::Settled)),              "settled",                    "reserve"),
        // The undo was registered before the step: an unknown reserve is released, which fences it.
        (unknown,                                          "undone:reserve_unknown",     "reserve cancel:reserve_unknown release:reserve_unknown"),
        // Another run has it: the resume way, and no submit.
        (another,                                          "undone:interrupted",         "reserve fence cancel:interrupted release:interrupted"),
    ]);
}

/// Path A (S0.8): a refused, unknown or unsent submit only leads to asking to cancel. The undo was
/// registered before the step, and compensations run last-in first-out.
#[test]
fn s0_8_path_a_submit_fails() {
    let unknown = || Says::Submit(SubmitOutcome::Unknown);
    let unsent = |reason| Says::Submit(SubmitOutcome::NotSent(reason));
    let limit = || Cause::SubmitRefused { reason: "limit".into() };
    let because = |reason: NotSent| Cause::NotSent { reason: reason.to_string() };
    let row = |said, cause: Cause| vec![HELD, said, DEAD, released(cause)];
    #[rustfmt::skip]
    check(0, vec![
        (row(refused(), limit()),                                                    "undone:submit_refused",  "reserve submit cancel:submit_refused release:submit_refused"),
        (row(unknown(), Cause::SubmitUnknown),                                       "undone:submit_unknown",  "reserve submit cancel:submit_unknown release:submit_unknown"),
        (row(unsent(NotSent::SecondAttemptForbidden), Cause::SubmitUnknown),                 "undone:submit_unknown",  "reserve submit cancel:submit_unknown release:submit_unknown"),
        (row(unsent(NotSent::CustomerCancel), Cause::CustomerCancel),                "undone:customer_cancel", "reserve submit cancel:customer_cancel release:customer_cancel"),
        (row(unsent(NotSent::AnotherRun), Cause::Interrupted),                       "undone:interrupted",     "reserve submit cancel:interrupted release:interrupted"),
        (row(unsent(NotSent::NoOpenHold), because(NotSent::NoOpenHold)),             "undone:not_sent",        "reserve submit cancel:not_sent release:not_sent"),
        (row(unsent(NotSent::CancelStarted), because(NotSent::CancelStarted)),           "undone:not_sent",        "reserve submit cancel:not_sent release:not_sent"),
        (row(unsent(NotSent::SwitchRetentionExpired), because(NotSent::SwitchRetentionExpired)),   "undone:not_sent",        "reserve submit cancel:not_sent release:not_sent"),
        // The switch has already said that it settled.
        (vec![HELD, Says::Submit(SubmitOutcome::Settled), DEBITED],                      "settled",                "reserve submit settle"),
        // Refused, and yet it settled: the answer to the cancel decides.
        (vec![HELD, refused(), asked(CancelOutcome::Settled), DEBITED],                      "settled",                "reserve submit cancel:submit_refused settle"),
    ]);
}

/// Path B (S0.9) and its likes: the SLA, a FAILURE and a customer's cancel ask, and obey.
#[test]
fn s0_9_path_b_no_confirmation() {
    let closed = || Cause::FailureReported { reason: "closed".into() };
    let waited = |heard, then: Vec<Says>| [vec![HELD, ACCEPTED, heard], then].concat();
    #[rustfmt::skip]
    check(0, vec![
        (waited(SLA, vec![DEAD, released(Cause::SlaExpired)]),            "undone:sla_expired",       "reserve submit wait cancel:sla_expired release:sla_expired"),
        (waited(failure(), vec![DEAD, released(closed())]),              "undone:failure_reported", "reserve submit wait cancel:failure_reported release:failure_reported"),
        (waited(CANCEL, vec![DEAD, released(Cause::CustomerCancel)]),    "undone:customer_cancel",  "reserve submit wait cancel:customer_cancel release:customer_cancel"),
        // Settled there: settle here, forward.
        (waited(SLA, vec![asked(CancelOutcome::Settled), DEBITED]),              "settled",                 "reserve submit wait cancel:sla_expired settle"),
        (waited(CANCEL, vec![asked(CancelOutcome::SuccessReported), DEBITED]),   "settled",                 "reserve submit wait cancel:customer_cancel settle"),
        (waited(failure(), vec![asked(CancelOutcome::Settled), DEBITED]),        "settled",                 "reserve submit wait cancel:failure_reported settle"),
        // A SUCCESS that is not the payment's changes nothing: the asking goes on.
        (waited(SLA, vec![asked(CancelOutcome::SuccessReported), UNCONFIRMED, DEAD, released(Cause::SlaExpired)]),
                                                                         "undone:sla_expired",       "reserve submit wait cancel:sla_expired settle cancel:sla_expired release:sla_expired"),
        // The payment has ended meanwhile.
        (waited(SLA, vec![asked(CancelOutcome::Ended(FinalState::Settled))]),           "settled",                 "reserve submit wait cancel:sla_expired"),
        (waited(SLA, vec![asked(CancelOutcome::Ended(FinalState::Failed))]),            "ended:failed",            "reserve submit wait cancel:sla_expired"),
        // The ledger has the first cause on record; it names the end.
        (waited(SLA, vec![DEAD, released(Cause::CustomerCancel)]),       "undone:customer_cancel",  "reserve submit wait cancel:sla_expired release:sla_expired"),
    ]);
}

/// A false SUCCESS changes nothing: the SLA runs on.
#[test]
fn a_false_success_goes_on_waiting() {
    #[rustfmt::skip]
    check(0, vec![
        (vec![HELD, ACCEPTED, SUCCESS, UNCONFIRMED],                                   "waits",             "reserve submit wait settle"),
        (vec![HELD, ACCEPTED, SUCCESS, UNCONFIRMED, SUCCESS, DEBITED],                 "settled",           "reserve submit wait settle wait settle"),
        (vec![HELD, ACCEPTED, SUCCESS, UNCONFIRMED, SLA, DEAD, released(Cause::SlaExpired)],
                                                                                       "undone:sla_expired", "reserve submit wait settle wait cancel:sla_expired release:sla_expired"),
        (vec![HELD, Says::Submit(SubmitOutcome::Settled), UNCONFIRMED, SUCCESS, DEBITED],  "settled",           "reserve submit settle wait settle"),
    ]);
}

/// Path C (S0.10): the bank cannot debit. Recalled releases, and asks no cancel; the rest is for a
/// person, and no answer is asked again.
#[test]
fn s0_10_path_c_debit_fails() {
    let no = || Says::Recall(RecallOutcome::Refused);
    let cannot = || Says::Recall(RecallOutcome::RecallUnsupported);
    let confirmed = |then: Vec<Says>| [vec![HELD, ACCEPTED, SUCCESS, barred()], then].concat();
    let cancelling =
        |then: Vec<Says>| [vec![HELD, ACCEPTED, SLA, asked(CancelOutcome::Settled), barred()], then].concat();
    #[rustfmt::skip]
    check(0, vec![
        (confirmed(vec![RECALLED, released(frozen())]),            "undone:debit_refused", "reserve submit wait settle recall release:debit_refused"),
        (confirmed(vec![no()]),                                    "waits",                 "reserve submit wait settle recall person:recall_refused"),
        (confirmed(vec![cannot()]),                                "waits",                 "reserve submit wait settle recall person:recall_unsupported"),
        // The switch's last word is known: nothing that comes in moves the payment.
        (confirmed(vec![no(), SUCCESS, failure(), CANCEL]),        "waits",                 "reserve submit wait settle recall person:recall_refused listen listen listen"),
        (confirmed(vec![cannot(), SUCCESS]),                       "waits",                 "reserve submit wait settle recall person:recall_unsupported listen"),
        // While cancelling: the first cause names the end.
        (cancelling(vec![RECALLED, released(Cause::SlaExpired)]),   "undone:sla_expired",     "reserve submit wait cancel:sla_expired settle recall release:sla_expired"),
        (cancelling(vec![no()]),                                   "waits",                 "reserve submit wait cancel:sla_expired settle recall person:recall_refused"),
    ]);
}

/// A SUCCESS that differs stands before a person, and keeps listening for the matching one.
#[test]
fn a_differing_success_stands_and_listens() {
    let stands = |then: Vec<Says>| [vec![HELD, ACCEPTED, SUCCESS, DIFFERS], then].concat();
    const CALLS: &str = "reserve submit wait settle person:confirmation_mismatch";
    let rows: Vec<(Vec<Says>, &str, &str)> = vec![
        (stands(vec![]), "waits", ""),
        (stands(vec![SUCCESS, DEBITED]), "settled", " listen settle"),
        (stands(vec![failure(), CANCEL, SUCCESS, DEBITED]), "settled", " listen listen listen settle"),
        (stands(vec![SUCCESS, DIFFERS, SUCCESS, DEBITED]), "settled", " listen settle listen settle"),
        (stands(vec![SUCCESS, UNCONFIRMED]), "waits", " listen settle"),
        // Matching at last, but the bank cannot debit: Path C, and no cancel.
        (
            stands(vec![SUCCESS, barred(), RECALLED, released(frozen())]),
            "undone:debit_refused",
            " listen settle recall release:debit_refused",
        ),
        (
            stands(vec![SUCCESS, barred(), Says::Recall(RecallOutcome::Refused), SUCCESS]),
            "waits",
            " listen settle recall person:recall_refused listen",
        ),
        (
            stands(vec![SUCCESS, barred(), RECALLED, stuck(), SUCCESS]),
            "waits",
            " listen settle recall release:debit_refused alert:no person:compensation_failed listen",
        ),
    ];
    for (says, end, then) in rows {
        let (ended, called, shown) = follow(0, says);
        assert_eq!((ended.as_str(), called), (end, format!("{CALLS}{then}")));
        assert!(shown.contains(&PaymentState::NeedsOperator));
    }
}

/// What no answer of the switch can decide stands and keeps its hold; a matching SUCCESS moves it.
#[test]
fn what_cannot_be_decided_keeps_its_hold() {
    for reason in [
        OperatorReason::SwitchRetentionExpired,
        OperatorReason::NotFoundIsInconclusive,
        OperatorReason::NoCancelOrQuery,
    ] {
        let stands = vec![HELD, ACCEPTED, SLA, asked(CancelOutcome::Undecidable(reason))];
        let calls = format!("reserve submit wait cancel:sla_expired person:{reason}");
        let (end, called, _) = follow(0, stands.clone());
        assert_eq!((end.as_str(), &called), ("waits", &calls));
        let (end, called, _) = follow(0, [stands, vec![failure(), SUCCESS, DEBITED]].concat());
        assert_eq!((end.as_str(), called), ("settled", format!("{calls} listen listen settle")));
    }
    let differs = vec![HELD, ACCEPTED, SLA, asked(CancelOutcome::Differs)];
    let (end, called, _) = follow(0, differs);
    assert_eq!(
        (end.as_str(), called.as_str()),
        ("waits", "reserve submit wait cancel:sla_expired person:confirmation_mismatch")
    );
}

/// An answer that is on record when the payment comes to stand, or that is written while it stands, is
/// obeyed: nobody waits for a person where the switch has decided.
#[test]
fn a_verdict_that_comes_late_is_obeyed() {
    let on_record = |final_status| Says::NeedsOperator(NeedsOperatorOutcome::Verdict(final_status));
    let undecidable = || asked(CancelOutcome::Undecidable(OperatorReason::SwitchRetentionExpired));
    let written = || Says::Wait(WaitOutcome::FinalStatusRecorded);
    let stood = |rest: Vec<Says>| [vec![HELD, ACCEPTED, SLA, undecidable()], rest].concat();
    const STOOD: &str = "reserve submit wait cancel:sla_expired person:switch_retention_expired";
    let debited = || Says::Debit(DebitOutcome::Done);
    let back = || released(Cause::SlaExpired);
    let ended = Says::NeedsOperator(NeedsOperatorOutcome::Ended(FinalState::Failed));
    for (says, end, calls) in [
        (stood(vec![on_record(FinalStatus::Settled), debited()]), "settled", " settle"),
        (stood(vec![on_record(FinalStatus::Void), back()]), "undone:sla_expired", " release:interrupted"),
        (stood(vec![ended]), "ended:failed", ""),
        (
            stood(vec![written(), on_record(FinalStatus::Void), back()]),
            "undone:sla_expired",
            " listen person:switch_retention_expired release:interrupted",
        ),
        (
            stood(vec![written(), on_record(FinalStatus::Settled), debited()]),
            "settled",
            " listen person:switch_retention_expired settle",
        ),
        (stood(vec![written()]), "waits", " listen person:switch_retention_expired"),
    ] {
        let (came, called, _) = follow(0, says);
        assert_eq!((came.as_str(), called), (end, format!("{STOOD}{calls}")));
    }
    // Where the switch's last word is known, its final_status changes nothing: Path C, refused.
    let confirmed = vec![
        HELD,
        ACCEPTED,
        SUCCESS,
        Says::Debit(DebitOutcome::Refused { reason: "frozen".into() }),
        Says::Recall(RecallOutcome::Refused),
        on_record(FinalStatus::Settled),
    ];
    assert_eq!(follow(0, confirmed).0, "waits");
}

/// R6: a release that fails for good is alerted, the payment stands, and no other error replaces the
/// one that turned it round.
#[test]
fn r6_a_failing_release_is_alerted_and_stands() {
    #[rustfmt::skip]
    check(0, vec![
        (vec![Says::Reserve(ReserveOutcome::Unknown), DEAD, stuck()], "waits", "reserve cancel:reserve_unknown release:reserve_unknown alert:no person:compensation_failed"),
        (vec![HELD, refused(), DEAD, stuck()],               "waits", "reserve submit cancel:submit_refused release:submit_refused alert:no person:compensation_failed"),
        (vec![HELD, ACCEPTED, SLA, DEAD, stuck(), SUCCESS],  "waits", "reserve submit wait cancel:sla_expired release:sla_expired alert:no person:compensation_failed listen"),
    ]);
}

/// The resume form calls neither reserve nor submit: it fences, asks, obeys.
#[test]
fn the_resume_form_fences_asks_and_obeys() {
    let found = |cause| Says::Fence(FenceOutcome::Open(Some(cause)));
    let ended = |end| vec![Says::Fence(FenceOutcome::Ended(end))];
    let stands = vec![OPEN, asked(CancelOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive))];
    #[rustfmt::skip]
    check(2, vec![
        (vec![OPEN, DEAD, released(Cause::Interrupted)],                       "undone:interrupted",  "fence cancel:interrupted release:interrupted"),
        (vec![found(Cause::SlaExpired), DEAD, released(Cause::SlaExpired)],      "undone:sla_expired",   "fence cancel:sla_expired release:sla_expired"),
        (vec![OPEN, asked(CancelOutcome::Settled), DEBITED],                           "settled",             "fence cancel:interrupted settle"),
        (vec![OPEN, asked(CancelOutcome::Settled), barred(), RECALLED, released(Cause::Interrupted)],
                                                                               "undone:interrupted",  "fence cancel:interrupted settle recall release:interrupted"),
        (stands,                                                               "waits",               "fence cancel:interrupted person:not_found_is_inconclusive"),
        (ended(FinalState::Settled),                                                  "settled",             "fence"),
        (ended(FinalState::TimedOut),                                                 "ended:timed_out",     "fence"),
        (ended(FinalState::Rejected),                                                 "ended:rejected",      "fence"),
    ]);
}

/// Every error has the end of its cause.
#[test]
fn an_error_names_the_end_of_its_cause() {
    #[rustfmt::skip]
    let table = [
        (PaymentError::Compensated(Cause::SlaExpired),                                 FinalState::TimedOut,  "sla_expired"),
        (PaymentError::Compensated(Cause::CustomerCancel),                            FinalState::Cancelled, "customer_cancel"),
        (PaymentError::Compensated(Cause::Interrupted),                               FinalState::Failed,    "interrupted"),
        (PaymentError::Compensated(frozen()),                                         FinalState::Failed,    "debit_refused"),
        (PaymentError::ReserveRefused(ReserveRefusal::InsufficientFunds),        FinalState::Rejected,  "insufficient_funds"),
        (PaymentError::ReserveRefused(ReserveRefusal::CustomerCancel),           FinalState::Cancelled, "customer_cancel"),
        (PaymentError::ReserveRefused(ReserveRefusal::Fenced),                   FinalState::Failed,    "fenced"),
        (PaymentError::AlreadyEnded(FinalState::TimedOut),                              FinalState::TimedOut,  "already_ended"),
    ];
    for (error, end, code) in table {
        assert_eq!((error.end(), error.code()), (end, code));
    }
}

fn at(strategy: Strategy, says: Vec<Says>) -> (String, String) {
    let plain = payment(0);
    let profile = payment_protocol::SwitchProfile { strategy, ..plain.profile.clone() };
    let (end, calls, _) = run(&Payment { profile, ..plain }, says);
    (end, calls)
}

#[test]
fn s0_11_at_most_one_attempt_without_an_answer_is_reconciled_and_waited_for() {
    let unknown = || Says::Submit(SubmitOutcome::Unknown);
    let fenced = || Says::Submit(SubmitOutcome::NotSent(NotSent::SecondAttemptForbidden));
    let failed = || Says::Reconcile(ReconcileOutcome::Failed { reason: "closed".into() });
    let closed = || Cause::FailureReported { reason: "closed".into() };
    const NOTHING: Says = Says::Reconcile(ReconcileOutcome::Unknown);
    #[rustfmt::skip]
    let table: Vec<Row> = vec![
        (vec![HELD, unknown(), Says::Reconcile(ReconcileOutcome::Settled), DEBITED], "settled", "reserve submit reconcile settle"),
        (vec![HELD, unknown(), NOTHING, SUCCESS, DEBITED], "settled", "reserve submit reconcile wait settle"),
        (vec![HELD, fenced(), NOTHING, SLA, DEAD, released(Cause::SlaExpired)], "undone:sla_expired",
            "reserve submit reconcile wait cancel:sla_expired release:sla_expired"),
        // FAILURE only leads to asking.
        (vec![HELD, unknown(), failed(), DEAD, released(closed())], "undone:failure_reported",
            "reserve submit reconcile cancel:failure_reported release:failure_reported"),
    ];
    for (says, end, calls) in table {
        assert_eq!(at(Strategy::AtMostOnce, says), (end.into(), calls.into()));
    }
    // Where more attempts may be made, the budget that ran out turns the payment round.
    let says = vec![HELD, unknown(), DEAD, released(Cause::SubmitUnknown)];
    let calls = "reserve submit cancel:submit_unknown release:submit_unknown";
    assert_eq!(at(Strategy::WriteAhead, says), ("undone:submit_unknown".into(), calls.into()));
}

#[test]
fn s1_5_a_switch_without_references_is_sent_to_under_the_account_lock() {
    let lock = Says::Lock;
    let busy = || Cause::NotSent { reason: "account_busy".into() };
    #[rustfmt::skip]
    let table: Vec<Row> = vec![
        (vec![HELD, lock(AccountLockOutcome::Held), ACCEPTED, SUCCESS, DEBITED], "settled", "reserve lock submit wait settle unlock"),
        (vec![HELD, lock(AccountLockOutcome::NotGranted), DEAD, released(busy())], "undone:not_sent",
            "reserve lock cancel:not_sent release:not_sent unlock"),
        (vec![HELD, lock(AccountLockOutcome::CustomerCancel), DEAD, released(Cause::CustomerCancel)], "undone:customer_cancel",
            "reserve lock cancel:customer_cancel release:customer_cancel unlock"),
        (vec![Says::Reserve(ReserveOutcome::Refused(ReserveRefusal::FrozenAccount))], "refused:frozen_account", "reserve unlock"),
    ];
    for (says, end, calls) in table {
        assert_eq!(at(Strategy::Validate, says), (end.into(), calls.into()));
    }
}

#[test]
fn what_people_decide_is_carried_out_where_the_payment_stands() {
    let decided = |action| {
        let decision_id = DecisionId::new("dec_1").unwrap();
        Says::Wait(WaitOutcome::Decided(Decision { decision_id, action }))
    };
    let stands = || {
        vec![HELD, ACCEPTED, SLA, asked(CancelOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive))]
    };
    let came = Says::ApplyDecision;
    let way = "reserve submit wait cancel:sla_expired person:not_found_is_inconclusive listen";
    #[rustfmt::skip]
    let table = [
        (vec![decided(Action::Debit), came(DecisionOutcome::Settled)], "settled", "decided:settle:not_found_is_inconclusive"),
        (vec![decided(Action::Release), came(DecisionOutcome::Released(Cause::SlaExpired))], "undone:sla_expired",
            "decided:release:not_found_is_inconclusive"),
        // Asked first, the switch had an answer after all: it is followed as ever.
        (vec![decided(Action::Release), came(DecisionOutcome::Verdict(FinalStatus::Settled)), DEBITED], "settled",
            "decided:release:not_found_is_inconclusive settle"),
        (vec![decided(Action::Debit), came(DecisionOutcome::Verdict(FinalStatus::Void)), released(Cause::SlaExpired)],
            "undone:sla_expired", "decided:settle:not_found_is_inconclusive release:interrupted"),
        (vec![decided(Action::RetryCancel), came(DecisionOutcome::RetryCancel), DEAD, released(Cause::SlaExpired)],
            "undone:sla_expired", "decided:retry_cancel:not_found_is_inconclusive cancel:cancel_retried_by_decision release:cancel_retried_by_decision"),
        // Refused: it stands as before, and follows_switch.
        (vec![decided(Action::Debit), came(DecisionOutcome::Refused { detail: "pending".into() }), SUCCESS, DEBITED],
            "settled", "decided:settle:not_found_is_inconclusive person:not_found_is_inconclusive listen settle"),
        (vec![decided(Action::Release), came(DecisionOutcome::Ended(FinalState::Settled))], "settled",
            "decided:release:not_found_is_inconclusive"),
    ];
    for (then, end, calls) in table {
        let says = stands().into_iter().chain(then).collect();
        let (ended, called, _) = follow(0, says);
        assert_eq!((ended.as_str(), called.as_str()), (end, format!("{way} {calls}").as_str()));
    }
    // SwitchResponse anywhere else, a decision changes nothing.
    let (end, calls, _) = follow(0, vec![HELD, ACCEPTED, decided(Action::Release), SUCCESS, DEBITED]);
    assert_eq!((end.as_str(), calls.as_str()), ("settled", "reserve submit wait wait settle"));
}
