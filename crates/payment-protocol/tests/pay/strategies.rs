//! The submit strategies that change the order of the calls.

use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::port::{AccountLockOutcome, ReconcileOutcome, ReserveOutcome, SubmitOutcome};
use payment_protocol::profile::Strategy;
use payment_protocol::rules::NotSent;
use payment_protocol::{Payment, SwitchProfile};

use crate::script::*;
use crate::support::payment;

fn run_with(strategy: Strategy, replies: Vec<Reply>) -> (String, String) {
    let payment = payment(0);
    let profile = SwitchProfile { strategy, ..payment.profile.clone() };
    let (end, calls, _) = run(&Payment { profile, ..payment }, replies);
    (end, calls)
}

#[test]
fn s0_11_at_most_once_reconciles_a_submit_without_an_answer() {
    let unknown = || Reply::Submit(SubmitOutcome::Unknown);
    let fenced = || Reply::Submit(SubmitOutcome::NotSent(NotSent::SecondAttemptForbidden));
    let failed = || Reply::Reconcile(ReconcileOutcome::Failed { reason: "closed".into() });
    let closed = || Cause::FailureReported { reason: "closed".into() };
    const NO_REPORT: Reply = Reply::Reconcile(ReconcileOutcome::Unknown);
    #[rustfmt::skip]
    let table: Vec<Row> = vec![
        (vec![HELD, unknown(), Reply::Reconcile(ReconcileOutcome::Settled), DEBITED], "settled", "reserve submit reconcile debit"),
        (vec![HELD, unknown(), NO_REPORT, SUCCESS, DEBITED],                          "settled", "reserve submit reconcile wait debit"),
        (vec![HELD, fenced(), NO_REPORT, SLA, VOID, released(Cause::SlaExpired)], "compensated:sla_expired",
            "reserve submit reconcile wait cancel:sla_expired release:sla_expired"),
        // A FAILURE only leads to a cancel.
        (vec![HELD, unknown(), failed(), VOID, released(closed())], "compensated:failure_reported",
            "reserve submit reconcile cancel:failure_reported release:failure_reported"),
    ];
    for (replies, end, calls) in table {
        assert_eq!(run_with(Strategy::AtMostOnce, replies), (end.into(), calls.into()));
    }
    // With a strategy that allows more attempts, the exhausted budget compensates the payment.
    let replies = vec![HELD, unknown(), VOID, released(Cause::SubmitUnknown)];
    let calls = "reserve submit cancel:submit_unknown release:submit_unknown";
    assert_eq!(run_with(Strategy::WriteAhead, replies), ("compensated:submit_unknown".into(), calls.into()));
}

/// Only where a second attempt is safe is the first one sent together with the reserve.
#[test]
fn an_unknown_reserve_may_have_sent_the_transfer_only_where_a_second_attempt_is_safe() {
    for (strategy, cancel) in [
        (Strategy::Reference, "cancel:reserve_unknown"),
        (Strategy::AtMostOnce, "cancel:reserve_unknown:unsent"),
        (Strategy::Validate, "cancel:reserve_unknown:unsent"),
    ] {
        let replies = vec![Reply::Reserve(ReserveOutcome::Unknown), VOID, released(Cause::ReserveUnknown)];
        let (end, calls) = run_with(strategy, replies);
        assert_eq!(end, "compensated:reserve_unknown");
        let unlock = if strategy == Strategy::Validate { " unlock" } else { "" };
        assert_eq!(calls, format!("reserve {cancel} release:reserve_unknown{unlock}"), "{strategy:?}");
    }
}

#[test]
fn s1_5_a_switch_without_references_needs_the_account_lock() {
    let lock = Reply::Lock;
    let busy = || Cause::NotSent { reason: "account_busy".into() };
    #[rustfmt::skip]
    let table: Vec<Row> = vec![
        (vec![HELD, lock(AccountLockOutcome::Held), ACCEPTED, SUCCESS, DEBITED],       "settled",                "reserve lock submit wait debit unlock"),
        (vec![HELD, lock(AccountLockOutcome::NotGranted), VOID, released(busy())], "compensated:not_sent",
            "reserve lock cancel:not_sent:unsent release:not_sent unlock"),
        (vec![HELD, lock(AccountLockOutcome::CustomerCancel), VOID, released(Cause::CustomerCancel)], "compensated:customer_cancel",
            "reserve lock cancel:customer_cancel:unsent release:customer_cancel unlock"),
        (vec![Reply::Reserve(ReserveOutcome::Refused(ReserveRefusal::FrozenAccount))], "refused:frozen_account", "reserve unlock"),
        // Another payment than the ledger's must not release the lock of its account.
        (vec![Reply::Reserve(ReserveOutcome::Differs)], "differs", "reserve"),
    ];
    for (replies, end, calls) in table {
        assert_eq!(run_with(Strategy::Validate, replies), (end.into(), calls.into()));
    }
}
