//! `switch::final_status`: the first definite answer of the switch is kept, later ones are exceptions if they contradict it; and
//! the truth table of callbacks: stage x (SUCCESS | FAILURE | another amount or currency | another switch), each sent twice.

use crate::support::{AMOUNT_MINOR, Bank, OTHER_SWITCH, Sample, Stage, event, failure, report, success};
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cancel::VoidReason;
use payment_protocol::ids::SwitchName;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::FinalStatusRuling;
use sqlx::PgPool;

/// The kinds of callback that the test stores in the name of a switch.
#[derive(Clone, Copy, Debug)]
enum Sent {
    Success,
    Failure,
    OtherAmount,
    OtherCurrency,
    OtherSwitchSuccess,
    OtherSwitchFailure,
}

impl Sent {
    fn callback(self, p: &Sample) -> Callback {
        let name = event(p, &format!("{self:?}"));
        let other = || SwitchName::new(OTHER_SWITCH).unwrap();
        match self {
            Self::Success => success(p, &name),
            Self::Failure => failure(p, &name),
            Self::OtherAmount => Callback { amount_minor: AMOUNT_MINOR - 1, ..success(p, &name) },
            Self::OtherCurrency => Callback { currency: "USD".into(), ..success(p, &name) },
            Self::OtherSwitchSuccess => Callback { switch: other(), ..success(p, &name) },
            Self::OtherSwitchFailure => Callback { switch: other(), ..failure(p, &name) },
        }
    }
}

/// Stage, callback, whether the workflow is notified, exception, final status and state afterwards.
#[rustfmt::skip]
const TRUTH_TABLE: &[(Stage, Sent, bool, &str, &str, &str)] = &[
    (Stage::Accepted,   Sent::Success,             false, "settled_without_attempt",      "",        "accepted"),
    (Stage::Accepted,   Sent::Failure,             true,  "",                             "",        "accepted"),
    (Stage::Accepted,   Sent::OtherAmount,         false, "settled_without_attempt",      "",        "accepted"),
    (Stage::Accepted,   Sent::OtherCurrency,       false, "settled_without_attempt",      "",        "accepted"),
    (Stage::Accepted,   Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "",        "accepted"),
    (Stage::Accepted,   Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "",        "accepted"),
    (Stage::Reserved,   Sent::Success,             false, "settled_without_attempt",      "",        "reserved"),
    (Stage::Reserved,   Sent::Failure,             true,  "",                             "",        "reserved"),
    (Stage::Reserved,   Sent::OtherAmount,         false, "settled_without_attempt",      "",        "reserved"),
    (Stage::Reserved,   Sent::OtherCurrency,       false, "settled_without_attempt",      "",        "reserved"),
    (Stage::Reserved,   Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "",        "reserved"),
    (Stage::Reserved,   Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "",        "reserved"),
    (Stage::Sent,       Sent::Success,             true,  "",                             "settled", "confirmed"),
    (Stage::Sent,       Sent::Failure,             true,  "",                             "",        "reserved"),
    (Stage::Sent,       Sent::OtherAmount,         true,  "confirmation_mismatch",        "",        "reserved"),
    (Stage::Sent,       Sent::OtherCurrency,       true,  "confirmation_mismatch",        "",        "reserved"),
    (Stage::Sent,       Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "",        "reserved"),
    (Stage::Sent,       Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "",        "reserved"),
    (Stage::Cancelling, Sent::Success,             true,  "",                             "settled", "confirmed"),
    (Stage::Cancelling, Sent::Failure,             true,  "",                             "",        "cancelling"),
    (Stage::Cancelling, Sent::OtherAmount,         true,  "confirmation_mismatch",        "",        "cancelling"),
    (Stage::Cancelling, Sent::OtherCurrency,       true,  "confirmation_mismatch",        "",        "cancelling"),
    (Stage::Cancelling, Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "",        "cancelling"),
    (Stage::Cancelling, Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "",        "cancelling"),
    (Stage::Confirmed,  Sent::Success,             true,  "",                             "settled", "confirmed"),
    (Stage::Confirmed,  Sent::Failure,             false, "contradictory_final_status",   "settled", "confirmed"),
    (Stage::Confirmed,  Sent::OtherAmount,         true,  "confirmation_mismatch",        "settled", "confirmed"),
    (Stage::Confirmed,  Sent::OtherCurrency,       true,  "confirmation_mismatch",        "settled", "confirmed"),
    (Stage::Confirmed,  Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "settled", "confirmed"),
    (Stage::Confirmed,  Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "settled", "confirmed"),
    (Stage::Void,       Sent::Success,             false, "contradictory_final_status",   "void",    "cancelling"),
    (Stage::Void,       Sent::Failure,             true,  "",                             "void",    "cancelling"),
    (Stage::Void,       Sent::OtherAmount,         true,  "confirmation_mismatch",        "void",    "cancelling"),
    (Stage::Void,       Sent::OtherCurrency,       true,  "confirmation_mismatch",        "void",    "cancelling"),
    (Stage::Void,       Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "void",    "cancelling"),
    (Stage::Void,       Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "void",    "cancelling"),
    (Stage::Settled,    Sent::Success,             false, "",                             "settled", "settled"),
    (Stage::Settled,    Sent::Failure,             false, "contradictory_final_status",   "settled", "settled"),
    (Stage::Settled,    Sent::OtherAmount,         false, "confirmation_mismatch",        "settled", "settled"),
    (Stage::Settled,    Sent::OtherCurrency,       false, "confirmation_mismatch",        "settled", "settled"),
    (Stage::Settled,    Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "settled", "settled"),
    (Stage::Settled,    Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "settled", "settled"),
    (Stage::Released,   Sent::Success,             false, "late_confirmation",            "void",    "timed_out"),
    (Stage::Released,   Sent::Failure,             false, "",                             "void",    "timed_out"),
    (Stage::Released,   Sent::OtherAmount,         false, "confirmation_mismatch",        "void",    "timed_out"),
    (Stage::Released,   Sent::OtherCurrency,       false, "confirmation_mismatch",        "void",    "timed_out"),
    (Stage::Released,   Sent::OtherSwitchSuccess,  false, "callback_from_other_switch",   "void",    "timed_out"),
    (Stage::Released,   Sent::OtherSwitchFailure,  false, "callback_from_other_switch",   "void",    "timed_out"),
    (Stage::Rejected,   Sent::Success,             false, "settled_without_attempt",      "",        "rejected"),
    (Stage::Rejected,   Sent::Failure,             false, "",                             "",        "rejected"),
];

/// The truth table: whether the workflow is notified, the exception, the final status, and the state afterwards. A duplicate
/// changes nothing, and no money moves.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_callback_has_its_documented_effect_at_each_payment_stage(pool: PgPool) {
    let bank = Bank::new(pool);
    for &(stage, sent, is_notified, exception, final_status, state) in TRUTH_TABLE {
        let row = format!("{stage:?} x {sent:?}");
        let p = bank.payment_at(stage, &row).await;
        let callback = sent.callback(&p);
        let (hold, available) = (bank.hold(&p).await, bank.available(&p).await);
        match bank.ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => {
                assert_eq!(message.is_some(), is_notified, "{row}: notified")
            }
            other => panic!("{row}: {other:?}"),
        }
        assert_eq!(
            bank.ledger.store_callback(&callback).await.unwrap(),
            StoreCallbackOutcome::Duplicate,
            "{row}"
        );
        assert_eq!(bank.exceptions(&p).await.join("+"), exception, "{row}: exception");
        assert_eq!(
            bank.column(&p, "final_status").await.unwrap_or_default(),
            final_status,
            "{row}: final_status"
        );
        assert_eq!(bank.state(&p).await, state, "{row}: state");
        assert_eq!(
            (bank.hold(&p).await, bank.available(&p).await),
            (hold, available),
            "{row}: hold and balance"
        );
    }
    bank.audit().await;
}

/// A report of `settled` has the same effect from each source, and the first one is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_first_final_status_of_a_transfer_is_kept_from_each_source(pool: PgPool) {
    let bank = Bank::new(pool);
    for (source, name) in [
        (FinalStatusSource::Callback, "callback"),
        (FinalStatusSource::Query, "query"),
        (FinalStatusSource::Cancel, "cancel"),
    ] {
        let p = bank.payment_at(Stage::Cancelling, name).await;
        let ruling = bank.ledger.record_settled(&p.id, &report(&p), source).await.unwrap();
        assert_eq!(ruling, FinalStatusRuling::First);
        for repeated in [FinalStatusSource::Callback, FinalStatusSource::Query, FinalStatusSource::Cancel] {
            let ruling = bank.ledger.record_settled(&p.id, &report(&p), repeated).await.unwrap();
            assert_eq!(ruling, FinalStatusRuling::Same);
        }
        let void = bank.ledger.record_void(&p.id, VoidReason::Cancelled).await.unwrap();
        assert_eq!(void, FinalStatusRuling::Contradicts);
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"));
        assert_eq!(bank.column(&p, "final_status_source").await.as_deref(), Some(name));
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    }
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_void_final_status_is_kept_for_each_reason(pool: PgPool) {
    let bank = Bank::new(pool);
    let reasons = [
        (VoidReason::Cancelled, "cancelled"),
        (VoidReason::Rejected, "rejected"),
        (VoidReason::DeadlinePassed, "deadline"),
    ];
    for (reason, source) in reasons {
        let p = bank.payment_at(Stage::Cancelling, source).await;
        assert_eq!(bank.ledger.record_void(&p.id, reason).await.unwrap(), FinalStatusRuling::First);
        assert_eq!(
            bank.ledger.record_void(&p.id, VoidReason::Rejected).await.unwrap(),
            FinalStatusRuling::Same
        );
        let ruling = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Cancel).await.unwrap();
        assert_eq!(ruling, FinalStatusRuling::Contradicts);
        assert_eq!(bank.column(&p, "final_status_source").await.as_deref(), Some(source));
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    }
    bank.audit().await;
}

/// Every field is compared; the ruling names the first difference, and the hold stays open.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_differing_settlement_report_is_an_exception_and_moves_no_money(pool: PgPool) {
    let bank = Bank::new(pool);
    type Change = fn(&mut SettledReport);
    #[rustfmt::skip]
    let table: [(Change, Difference, &str); 6] = [
        (|r| r.switch = SwitchName::new(OTHER_SWITCH).unwrap(), Difference::Switch,    "callback_from_other_switch"),
        (|r| r.reference = "tx_other:submit".into(),            Difference::Reference, "confirmation_mismatch"),
        (|r| r.amount_minor -= 1,                               Difference::Amount,    "confirmation_mismatch"),
        (|r| r.amount_minor = i64::MIN,                         Difference::Amount,    "confirmation_mismatch"),
        (|r| r.currency = "eur".into(),                         Difference::Currency,  "confirmation_mismatch"),
        (|r| { r.amount_minor = 1; r.currency = "USD".into() }, Difference::Amount,    "confirmation_mismatch"),
    ];
    for (n, (change, difference, exception)) in table.into_iter().enumerate() {
        let p = bank.payment_at(Stage::Sent, &format!("row {n}")).await;
        let mut differing = report(&p);
        change(&mut differing);
        for _ in 0..2 {
            let ruling =
                bank.ledger.record_settled(&p.id, &differing, FinalStatusSource::Query).await.unwrap();
            assert_eq!(ruling, FinalStatusRuling::Differs(difference), "row {n}");
        }
        assert_eq!(bank.exceptions(&p).await, [exception], "row {n}");
        assert_eq!(
            (bank.column(&p, "final_status").await, bank.hold(&p).await),
            (None, "open".into()),
            "row {n}"
        );
    }
    bank.audit().await;
}

/// R20: FAILURE is never definite, so SUCCESS is the final status in both orders, and FAILURE an exception.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r20_contradictory_callbacks_in_both_orders_are_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    for order in ["failure first", "success first"] {
        let p = bank.payment_at(Stage::Sent, order).await;
        let mut callbacks = vec![failure(&p, &event(&p, "f")), success(&p, &event(&p, "s"))];
        if order == "success first" {
            callbacks.reverse();
        }
        for callback in &callbacks {
            bank.ledger.store_callback(callback).await.unwrap();
        }
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"), "{order}");
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"], "{order}");
    }
    bank.audit().await;
}

/// Event ids are unique per switch, so the same id of two switches are two events.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_callback_event_id_used_by_two_switches_opens_two_exceptions(pool: PgPool) {
    let bank = Bank::new(pool);
    let northern = bank.payment_at(Stage::Confirmed, "north").await;
    let mut order = bank.order("south");
    order.profile.switch = SwitchName::new(OTHER_SWITCH).unwrap();
    let southern = bank.order_at(Stage::Sent, order).await;
    let from_south =
        |callback: Callback| Callback { switch: SwitchName::new(OTHER_SWITCH).unwrap(), ..callback };
    bank.ledger.store_callback(&from_south(success(&southern, "evt-1"))).await.unwrap();

    bank.ledger.store_callback(&failure(&northern, "evt-2")).await.unwrap();
    bank.ledger.store_callback(&from_south(failure(&southern, "evt-2"))).await.unwrap();
    assert_eq!(bank.exceptions(&northern).await, ["contradictory_final_status"]);
    assert_eq!(bank.exceptions(&southern).await, ["contradictory_final_status"]);
    bank.audit().await;
}

/// A FAILURE from another switch does not contradict a SUCCESS.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_failure_callback_from_another_switch_does_not_contradict_a_success(pool: PgPool) {
    let bank = Bank::new(pool);
    for order in ["failure first", "success first"] {
        let p = bank.payment_at(Stage::Sent, order).await;
        let mut callbacks = vec![Sent::OtherSwitchFailure.callback(&p), Sent::Success.callback(&p)];
        if order == "success first" {
            callbacks.reverse();
        }
        for callback in &callbacks {
            bank.ledger.store_callback(callback).await.unwrap();
        }
        assert_eq!(bank.exceptions(&p).await, ["callback_from_other_switch"], "{order}");
    }
    bank.audit().await;
}

/// A SUCCESS without an attempt is an exception, also after the release.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_without_a_recorded_submit_attempt_is_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    for stage in [Stage::Fenced, Stage::Reserved, Stage::ReleasedUnreserved, Stage::Rejected] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let ruling = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(ruling, FinalStatusRuling::NoAttempt, "{stage:?}");
        assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"], "{stage:?}");
    }
    bank.audit().await;
}
