//! The forward steps, and the Paths A, B and C.

use futures::FutureExt as _;
use payment_protocol::cause::{Cause, PaymentError, ReserveRefusal};
use payment_protocol::pay::pay;
use payment_protocol::port::{
    CancelOutcome, DebitOutcome, RecallOutcome, ReserveOutcome, SubmitOutcome, WaitOutcome,
};
use payment_protocol::rules::NotSent;
use payment_protocol::state::{FinalState, PaymentState};

use crate::script::*;
use crate::support::payment;

#[test]
fn a_confirmed_payment_is_reserved_submitted_and_debited() {
    let (end, calls, reported) = run_script(0, vec![HELD, ACCEPTED, SUCCESS, DEBITED]);
    assert_eq!((end.as_str(), calls.as_str()), ("settled", "reserve submit wait debit"));
    assert_eq!(reported, [PaymentState::Reserved, PaymentState::Submitted, PaymentState::Settled]);
}

#[test]
fn s0_2_an_invalid_payment_is_rejected_before_any_step() {
    let port = Script::default();
    let mut foreign = payment(0);
    foreign.tx_id = payment_protocol::ids::TxId::new("tx_foreign").unwrap();
    let mut large = payment(0);
    large.profile.amount_limit_minor = 999;
    for (invalid, call) in [
        (foreign, "reject: the payment's transaction id is not derived from its payment id"),
        (large, "reject: the payment's amount exceeds the switch's limit of 999 minor units"),
    ] {
        let error = pay(&port, &invalid).now_or_never().unwrap().unwrap_err();
        assert_eq!((word(&error).as_str(), error.end()), ("invalid", Some(FinalState::Rejected)));
        assert_eq!(port.calls.take(), [call]);
    }
}

#[test]
fn each_outcome_of_reserve_leads_to_its_next_step() {
    let replies = |outcome| vec![Reply::Reserve(outcome)];
    let refused = |refusal| replies(ReserveOutcome::Refused(refusal));
    let unknown = vec![Reply::Reserve(ReserveOutcome::Unknown), VOID, released(Cause::ReserveUnknown)];
    let another = vec![Reply::Reserve(ReserveOutcome::AnotherRun), OPEN, VOID, released(Cause::Interrupted)];
    #[rustfmt::skip]
    check(0, vec![
        // replies                                            end                            calls
        (refused(ReserveRefusal::InsufficientFunds),          "refused:insufficient_funds",  "reserve"),
        (refused(ReserveRefusal::CustomerCancel),             "refused:customer_cancel",     "reserve"),
        (refused(ReserveRefusal::Fenced),                     "refused:fenced",              "reserve"),
        (replies(ReserveOutcome::Ended(FinalState::Failed)),  "ended:failed",                "reserve"),
        // The payment has settled: a late run succeeds.
        (replies(ReserveOutcome::Ended(FinalState::Settled)), "settled",                     "reserve"),
        // A payment that is not the ledger's: the run does nothing more.
        (replies(ReserveOutcome::Differs),                    "differs",                     "reserve"),
        // The compensation was registered before the step: an unknown reserve is released, which fences it. The first attempt may
        // have been sent with it.
        (unknown,                                             "compensated:reserve_unknown", "reserve cancel:reserve_unknown release:reserve_unknown"),
        // Another run owns the payment: recover, and no submit.
        (another,                                             "compensated:interrupted",     "reserve fence cancel:interrupted release:interrupted"),
    ]);
}

/// Path A (S0.8): a refused, unknown or unsent submit only leads to a cancel. The compensation was registered
/// before the step, and compensations run last-in first-out.
#[test]
fn s0_8_path_a_an_unsuccessful_submit_follows_the_cancel_answer() {
    let unknown = || Reply::Submit(SubmitOutcome::Unknown);
    let unsent = |reason| Reply::Submit(SubmitOutcome::NotSent(reason));
    let limit = || Cause::SubmitRefused { reason: "limit".into() };
    let because = |reason: NotSent| Cause::NotSent { reason: reason.to_string() };
    let row = |submit, cause: Cause| vec![HELD, submit, VOID, released(cause)];
    #[rustfmt::skip]
    check(0, vec![
        (row(submit_refused(), limit()),                                                         "compensated:submit_refused",  "reserve submit cancel:submit_refused release:submit_refused"),
        (row(unknown(), Cause::SubmitUnknown),                                                   "compensated:submit_unknown",  "reserve submit cancel:submit_unknown release:submit_unknown"),
        (row(unsent(NotSent::SecondAttemptForbidden), Cause::SubmitUnknown),                     "compensated:submit_unknown",  "reserve submit cancel:submit_unknown release:submit_unknown"),
        (row(unsent(NotSent::CustomerCancel), Cause::CustomerCancel),                            "compensated:customer_cancel", "reserve submit cancel:customer_cancel release:customer_cancel"),
        (row(unsent(NotSent::AnotherRun), Cause::Interrupted),                                   "compensated:interrupted",     "reserve submit cancel:interrupted release:interrupted"),
        (row(unsent(NotSent::NoOpenHold), because(NotSent::NoOpenHold)),                         "compensated:not_sent",        "reserve submit cancel:not_sent release:not_sent"),
        (row(unsent(NotSent::CancelStarted), because(NotSent::CancelStarted)),                   "compensated:not_sent",        "reserve submit cancel:not_sent release:not_sent"),
        (row(unsent(NotSent::SwitchRetentionExpired), because(NotSent::SwitchRetentionExpired)), "compensated:not_sent",        "reserve submit cancel:not_sent release:not_sent"),
        // The switch has already reported settled.
        (vec![HELD, Reply::Submit(SubmitOutcome::Settled), DEBITED],                             "settled",                     "reserve submit debit"),
        // The switch refused the transfer but settled it: the answer to the cancel decides.
        (vec![HELD, submit_refused(), cancel(CancelOutcome::Settled), DEBITED],                  "settled",                     "reserve submit cancel:submit_refused debit"),
    ]);
}

/// Path B (S0.9): the SLA, a FAILURE and a customer's cancel lead to a cancel, whose answer is followed.
#[test]
fn s0_9_path_b_a_missing_confirmation_follows_the_cancel_answer() {
    let closed = || Cause::FailureReported { reason: "closed".into() };
    let waited = |event, then: Vec<Reply>| [vec![HELD, ACCEPTED, event], then].concat();
    #[rustfmt::skip]
    check(0, vec![
        (waited(SLA, vec![VOID, released(Cause::SlaExpired)]),                  "compensated:sla_expired",      "reserve submit wait cancel:sla_expired:accepted release:sla_expired"),
        (waited(failure(), vec![VOID, released(closed())]),                     "compensated:failure_reported", "reserve submit wait cancel:failure_reported:accepted release:failure_reported"),
        (waited(CANCEL, vec![VOID, released(Cause::CustomerCancel)]),           "compensated:customer_cancel",  "reserve submit wait cancel:customer_cancel:accepted release:customer_cancel"),
        // Settled at the switch: debit.
        (waited(SLA, vec![cancel(CancelOutcome::Settled), DEBITED]),            "settled",                      "reserve submit wait cancel:sla_expired:accepted debit"),
        (waited(CANCEL, vec![cancel(CancelOutcome::SuccessReported), DEBITED]), "settled",                      "reserve submit wait cancel:customer_cancel:accepted debit"),
        (waited(failure(), vec![cancel(CancelOutcome::Settled), DEBITED]),      "settled",                      "reserve submit wait cancel:failure_reported:accepted debit"),
        // A SUCCESS of another transfer changes nothing: cancel again.
        (waited(SLA, vec![cancel(CancelOutcome::SuccessReported), UNCONFIRMED, VOID, released(Cause::SlaExpired)]),
                                                                         "compensated:sla_expired",       "reserve submit wait cancel:sla_expired:accepted debit cancel:sla_expired:accepted release:sla_expired"),
        // The payment has ended in the meantime.
        (waited(SLA, vec![cancel(CancelOutcome::Ended(FinalState::Settled))]),  "settled",                      "reserve submit wait cancel:sla_expired:accepted"),
        (waited(SLA, vec![cancel(CancelOutcome::Ended(FinalState::Failed))]),   "ended:failed",                 "reserve submit wait cancel:sla_expired:accepted"),
        // The ledger recorded an earlier cause, which names the final state.
        (waited(SLA, vec![VOID, released(Cause::CustomerCancel)]),              "compensated:customer_cancel",  "reserve submit wait cancel:sla_expired:accepted release:sla_expired"),
    ]);
}

/// A SUCCESS of another transfer changes nothing: the SLA continues.
#[test]
fn a_success_of_another_transfer_does_not_stop_the_sla_timer() {
    #[rustfmt::skip]
    check(0, vec![
        (vec![HELD, ACCEPTED, SUCCESS, UNCONFIRMED],                                       "waits",   "reserve submit wait debit"),
        (vec![HELD, ACCEPTED, SUCCESS, UNCONFIRMED, SUCCESS, DEBITED],                     "settled", "reserve submit wait debit wait debit"),
        (vec![HELD, ACCEPTED, SUCCESS, UNCONFIRMED, SLA, VOID, released(Cause::SlaExpired)],
                                                                                       "compensated:sla_expired", "reserve submit wait debit wait cancel:sla_expired:accepted release:sla_expired"),
        (vec![HELD, Reply::Submit(SubmitOutcome::Settled), UNCONFIRMED, SUCCESS, DEBITED], "settled", "reserve submit debit wait debit"),
    ]);
}

/// Path C (S0.10): the bank cannot debit. Returned money is released without a cancel; any other answer needs an
/// operator, and no request is repeated.
#[test]
fn s0_10_path_c_a_refused_debit_follows_the_recall_answer() {
    let no = || Reply::Recall(RecallOutcome::Refused);
    let cannot = || Reply::Recall(RecallOutcome::RecallUnsupported);
    let confirmed = |then: Vec<Reply>| [vec![HELD, ACCEPTED, SUCCESS, debit_refused()], then].concat();
    let cancelling = |then: Vec<Reply>| {
        [vec![HELD, ACCEPTED, SLA, cancel(CancelOutcome::Settled), debit_refused()], then].concat()
    };
    #[rustfmt::skip]
    check(0, vec![
        (confirmed(vec![RECALLED, released(account_frozen())]),   "compensated:debit_refused", "reserve submit wait debit recall release:debit_refused"),
        (confirmed(vec![no()]),                                   "waits",                     "reserve submit wait debit recall operator:recall_refused"),
        (confirmed(vec![cannot()]),                               "waits",                     "reserve submit wait debit recall operator:recall_unsupported"),
        // The switch's final answer is known: no event moves the payment.
        (confirmed(vec![no(), SUCCESS, failure(), CANCEL]),       "waits",                     "reserve submit wait debit recall operator:recall_refused await await await"),
        (confirmed(vec![cannot(), SUCCESS]),                      "waits",                     "reserve submit wait debit recall operator:recall_unsupported await"),
        // While cancelling: the first cause names the final state.
        (cancelling(vec![RECALLED, released(Cause::SlaExpired)]), "compensated:sla_expired",   "reserve submit wait cancel:sla_expired:accepted debit recall release:sla_expired"),
        (cancelling(vec![no()]),                                  "waits",                     "reserve submit wait cancel:sla_expired:accepted debit recall operator:recall_refused"),
    ]);
}

/// Money that came back before the debit is released without a recall, whatever the payment was doing.
#[test]
fn money_that_came_back_before_the_debit_is_released() {
    const RETURNED: Reply = Reply::Debit(DebitOutcome::Returned);
    let forward = vec![HELD, ACCEPTED, SUCCESS, RETURNED, released(Cause::Returned)];
    let recorded = vec![
        HELD,
        ACCEPTED,
        Reply::Wait(WaitOutcome::FinalStatusRecorded),
        RETURNED,
        released(Cause::Returned),
    ];
    let cancelling =
        vec![HELD, ACCEPTED, SLA, cancel(CancelOutcome::Settled), RETURNED, released(Cause::SlaExpired)];
    #[rustfmt::skip]
    check(0, vec![
        (forward,    "compensated:returned",    "reserve submit wait debit release:returned"),
        (recorded,   "compensated:returned",    "reserve submit wait debit release:returned"),
        (cancelling, "compensated:sla_expired", "reserve submit wait cancel:sla_expired:accepted debit release:sla_expired"),
    ]);
}

/// Every error has the final state of its cause.
#[test]
fn a_payment_error_has_the_final_state_of_its_cause() {
    #[rustfmt::skip]
    let table = [
        (PaymentError::Compensated(Cause::SlaExpired),                    FinalState::TimedOut,  "sla_expired"),
        (PaymentError::Compensated(Cause::CustomerCancel),                FinalState::Cancelled, "customer_cancel"),
        (PaymentError::Compensated(Cause::Interrupted),                   FinalState::Failed,    "interrupted"),
        (PaymentError::Compensated(account_frozen()),                     FinalState::Failed,    "debit_refused"),
        (PaymentError::ReserveRefused(ReserveRefusal::InsufficientFunds), FinalState::Rejected,  "insufficient_funds"),
        (PaymentError::ReserveRefused(ReserveRefusal::CustomerCancel),    FinalState::Cancelled, "customer_cancel"),
        (PaymentError::ReserveRefused(ReserveRefusal::Fenced),            FinalState::Failed,    "fenced"),
        (PaymentError::AlreadyEnded(FinalState::TimedOut),                FinalState::TimedOut,  "already_ended"),
    ];
    for (error, end, code) in table {
        assert_eq!((error.end(), error.code()), (Some(end), code));
    }
    assert_eq!(PaymentError::InputDiffers.end(), None);
}
