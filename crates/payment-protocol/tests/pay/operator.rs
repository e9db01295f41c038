//! Payments that need an operator, and the decisions that move them.

use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, Decision, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::{
    CancelOutcome, DebitOutcome, NeedsOperatorOutcome, RecallOutcome, ReserveOutcome, WaitOutcome,
};
use payment_protocol::state::{FinalState, PaymentState};

use crate::script::*;

/// After a SUCCESS that differs the payment needs an operator; a matching SUCCESS still debits it.
#[test]
fn a_payment_with_a_differing_success_needs_an_operator_until_a_match() {
    let differs = |then: Vec<Reply>| [vec![HELD, ACCEPTED, SUCCESS, DIFFERS], then].concat();
    const CALLS: &str = "reserve submit wait debit operator:confirmation_mismatch";
    let rows: Vec<(Vec<Reply>, &str, &str)> = vec![
        (differs(vec![]), "waits", ""),
        (differs(vec![SUCCESS, DEBITED]), "settled", " await debit"),
        (differs(vec![failure(), CANCEL, SUCCESS, DEBITED]), "settled", " await await await debit"),
        (differs(vec![SUCCESS, DIFFERS, SUCCESS, DEBITED]), "settled", " await debit await debit"),
        (differs(vec![SUCCESS, UNCONFIRMED]), "waits", " await debit"),
        // A matching SUCCESS, but the bank cannot debit: Path C, without a cancel.
        (
            differs(vec![SUCCESS, debit_refused(), RECALLED, released(account_frozen())]),
            "compensated:debit_refused",
            " await debit recall release:debit_refused",
        ),
        (
            differs(vec![SUCCESS, debit_refused(), Reply::Recall(RecallOutcome::Refused), SUCCESS]),
            "waits",
            " await debit recall operator:recall_refused await",
        ),
        (
            differs(vec![SUCCESS, debit_refused(), RECALLED, release_failed(), SUCCESS]),
            "waits",
            " await debit recall release:debit_refused alert:no operator:compensation_failed await",
        ),
    ];
    for (replies, end, then) in rows {
        let (ended, called, reported) = run_script(0, replies);
        assert_eq!((ended.as_str(), called), (end, format!("{CALLS}{then}")));
        assert!(reported.contains(&PaymentState::NeedsOperator));
    }
}

/// A payment that no answer of the switch can decide keeps its hold; a matching SUCCESS debits it.
#[test]
fn an_undecidable_cancel_keeps_the_hold_and_needs_an_operator() {
    for reason in [
        OperatorReason::SwitchRetentionExpired,
        OperatorReason::NotFoundIsInconclusive,
        OperatorReason::NoCancelOrQuery,
    ] {
        let undecidable = vec![HELD, ACCEPTED, SLA, cancel(CancelOutcome::Undecidable(reason))];
        let calls = format!("reserve submit wait cancel:sla_expired:accepted operator:{reason}");
        let (end, called, _) = run_script(0, undecidable.clone());
        assert_eq!((end.as_str(), &called), ("waits", &calls));
        let (end, called, _) = run_script(0, [undecidable, vec![failure(), SUCCESS, DEBITED]].concat());
        assert_eq!((end.as_str(), called), ("settled", format!("{calls} await await debit")));
    }
    let differs = vec![HELD, ACCEPTED, SLA, cancel(CancelOutcome::Differs)];
    let (end, called, _) = run_script(0, differs);
    assert_eq!(
        (end.as_str(), called.as_str()),
        ("waits", "reserve submit wait cancel:sla_expired:accepted operator:confirmation_mismatch")
    );
}

/// A final status that is recorded before or while the payment needs an operator is followed: no payment waits
/// for an operator if the switch has decided.
#[test]
fn a_late_final_status_advances_a_payment_that_needs_an_operator() {
    let recorded = |final_status| Reply::NeedsOperator(NeedsOperatorOutcome::FinalStatus(final_status));
    let undecidable = || cancel(CancelOutcome::Undecidable(OperatorReason::SwitchRetentionExpired));
    let written = || Reply::Wait(WaitOutcome::FinalStatusRecorded);
    let call_due = || Reply::Wait(WaitOutcome::OperatorCallDue);
    let needs_operator = |rest: Vec<Reply>| [vec![HELD, ACCEPTED, SLA, undecidable()], rest].concat();
    const BEFORE: &str = "reserve submit wait cancel:sla_expired:accepted operator:switch_retention_expired";
    let debited = || Reply::Debit(DebitOutcome::Done);
    let back = || released(Cause::SlaExpired);
    let ended = Reply::NeedsOperator(NeedsOperatorOutcome::Ended(FinalState::Failed));
    for (replies, end, calls) in [
        (needs_operator(vec![recorded(FinalStatus::Settled), debited()]), "settled", " debit"),
        (
            needs_operator(vec![recorded(FinalStatus::Void), back()]),
            "compensated:sla_expired",
            " release:interrupted",
        ),
        (needs_operator(vec![ended]), "ended:failed", ""),
        (
            needs_operator(vec![written(), recorded(FinalStatus::Void), back()]),
            "compensated:sla_expired",
            " await operator:switch_retention_expired release:interrupted",
        ),
        (
            needs_operator(vec![written(), recorded(FinalStatus::Settled), debited()]),
            "settled",
            " await operator:switch_retention_expired debit",
        ),
        (needs_operator(vec![written()]), "waits", " await operator:switch_retention_expired"),
        // The database may have lost the call of the operator: it is repeated, and what is recorded meanwhile is followed.
        (
            needs_operator(vec![call_due(), call_due()]),
            "waits",
            " await operator:switch_retention_expired await operator:switch_retention_expired",
        ),
        (
            needs_operator(vec![call_due(), recorded(FinalStatus::Settled), debited()]),
            "settled",
            " await operator:switch_retention_expired debit",
        ),
    ] {
        let (ended_as, called, _) = run_script(0, replies);
        assert_eq!((ended_as.as_str(), called), (end, format!("{BEFORE}{calls}")));
    }
    // Path C, recall refused: the recorded settlement changes nothing, and a return releases the hold.
    let confirmed = |rest: Vec<Reply>| {
        let refused = Reply::Debit(DebitOutcome::Refused { reason: "frozen".into() });
        [vec![HELD, ACCEPTED, SUCCESS, refused, Reply::Recall(RecallOutcome::Refused)], rest].concat()
    };
    assert_eq!(run_script(0, confirmed(vec![recorded(FinalStatus::Settled)])).0, "waits");
    let returned = vec![recorded(FinalStatus::Returned), released(Cause::Returned)];
    assert_eq!(run_script(0, confirmed(returned)).0, "compensated:returned");
    // The database refused the release for good: what is recorded does not repeat it, and only an operator does.
    for final_status in [FinalStatus::Void, FinalStatus::Returned] {
        let rest = vec![VOID, release_failed(), recorded(final_status), written()];
        let (end, calls, _) = run_script(0, [vec![HELD, ACCEPTED, SLA], rest].concat());
        assert_eq!(end, "waits");
        assert_eq!(
            calls,
            "reserve submit wait cancel:sla_expired:accepted release:sla_expired alert:no operator:compensation_failed await operator:compensation_failed"
        );
    }
}

/// R6: a release that fails permanently raises an alert, the payment needs an operator, and the first cause
/// remains the error.
#[test]
fn r6_a_failed_release_raises_an_alert_and_needs_an_operator() {
    #[rustfmt::skip]
    check(0, vec![
        (vec![Reply::Reserve(ReserveOutcome::Unknown), VOID, release_failed()], "waits", "reserve cancel:reserve_unknown release:reserve_unknown alert:no operator:compensation_failed"),
        (vec![HELD, submit_refused(), VOID, release_failed()],                  "waits", "reserve submit cancel:submit_refused release:submit_refused alert:no operator:compensation_failed"),
        (vec![HELD, ACCEPTED, SLA, VOID, release_failed(), SUCCESS],            "waits", "reserve submit wait cancel:sla_expired:accepted release:sla_expired alert:no operator:compensation_failed await"),
    ]);
}

#[test]
fn an_operator_decision_applies_while_the_payment_needs_an_operator() {
    let decided = |action| {
        let decision_id = DecisionId::new("dec_1").unwrap();
        Reply::Wait(WaitOutcome::Decided(Decision { decision_id, action }))
    };
    let undecidable = || {
        vec![HELD, ACCEPTED, SLA, cancel(CancelOutcome::Undecidable(OperatorReason::NotFoundIsInconclusive))]
    };
    let applied = Reply::ApplyDecision;
    let before = "reserve submit wait cancel:sla_expired:accepted operator:not_found_is_inconclusive await";
    #[rustfmt::skip]
    let table = [
        (vec![decided(Action::Debit), applied(DecisionOutcome::Settled)], "settled", "decision:debit:not_found_is_inconclusive"),
        (vec![decided(Action::Release), applied(DecisionOutcome::Released(Cause::SlaExpired))], "compensated:sla_expired",
            "decision:release:not_found_is_inconclusive"),
        // The switch has an answer after all: the answer is followed.
        (vec![decided(Action::Release), applied(DecisionOutcome::FinalStatus(FinalStatus::Settled)), DEBITED], "settled",
            "decision:release:not_found_is_inconclusive debit"),
        (vec![decided(Action::Debit), applied(DecisionOutcome::FinalStatus(FinalStatus::Void)), released(Cause::SlaExpired)],
            "compensated:sla_expired", "decision:debit:not_found_is_inconclusive release:interrupted"),
        (vec![decided(Action::RetryCancel), applied(DecisionOutcome::RetryCancel), VOID, released(Cause::SlaExpired)],
            "compensated:sla_expired", "decision:retry_cancel:not_found_is_inconclusive cancel:cancel_retried_by_decision:accepted release:cancel_retried_by_decision"),
        // Refused: the payment needs an operator as before, and a SUCCESS still moves it.
        (vec![decided(Action::Debit), applied(DecisionOutcome::Refused { detail: "pending".into() }), SUCCESS, DEBITED],
            "settled", "decision:debit:not_found_is_inconclusive operator:not_found_is_inconclusive await debit"),
        (vec![decided(Action::Release), applied(DecisionOutcome::Ended(FinalState::Settled))], "settled",
            "decision:release:not_found_is_inconclusive"),
    ];
    for (then, end, calls) in table {
        let replies = undecidable().into_iter().chain(then).collect();
        let (ended, called, _) = run_script(0, replies);
        assert_eq!((ended.as_str(), called.as_str()), (end, format!("{before} {calls}").as_str()));
    }
    // A payment that does not need an operator ignores a decision.
    let (end, calls, _) = run_script(0, vec![HELD, ACCEPTED, decided(Action::Release), SUCCESS, DEBITED]);
    assert_eq!((end.as_str(), calls.as_str()), ("settled", "reserve submit wait wait debit"));
}
