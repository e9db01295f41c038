//! The switch's first definite answer: which one stands, what the others become, and the truth
//! table of the design: (our state) x (SUCCESS | FAILURE | other amount | duplicate | other switch).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::cancel::VoidReason;
use payment_protocol::ids::SwitchName;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::FinalStatusRuling;
use sqlx::PgPool;
use support::{AMOUNT_MINOR, Bank, OTHER_SWITCH, Sample, Stage, event, failure, report, success};

/// What a callback says.
#[derive(Clone, Copy, Debug)]
enum Said {
    Success,
    Failure,
    OtherAmount,
    OtherCurrency,
    OtherSwitchSuccess,
    OtherSwitchFailure,
}

impl Said {
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

/// The truth table. "told" says that the workflow is told; the state is the one after. Each callback
/// is sent twice: the duplicate changes nothing.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_callback_has_its_documented_effect_at_each_stage(pool: PgPool) {
    use Said::*;
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage              said                told   exception            final_status    state after
        (Stage::Accepted,   Success,            false, "settled_without_attempt",          "",        "accepted"),
        (Stage::Accepted,   Failure,            true,  "",                  "",        "accepted"),
        (Stage::Accepted,   OtherAmount,        false, "settled_without_attempt",          "",        "accepted"),
        (Stage::Accepted,   OtherCurrency,      false, "settled_without_attempt",          "",        "accepted"),
        (Stage::Accepted,   OtherSwitchSuccess, false, "callback_from_other_switch",      "",        "accepted"),
        (Stage::Accepted,   OtherSwitchFailure, false, "callback_from_other_switch",      "",        "accepted"),
        (Stage::Reserved,   Success,            false, "settled_without_attempt",          "",        "reserved"),
        (Stage::Reserved,   Failure,            true,  "",                  "",        "reserved"),
        (Stage::Reserved,   OtherAmount,        false, "settled_without_attempt",          "",        "reserved"),
        (Stage::Reserved,   OtherCurrency,      false, "settled_without_attempt",          "",        "reserved"),
        (Stage::Reserved,   OtherSwitchSuccess, false, "callback_from_other_switch",      "",        "reserved"),
        (Stage::Reserved,   OtherSwitchFailure, false, "callback_from_other_switch",      "",        "reserved"),
        (Stage::Sent,       Success,            true,  "",                  "settled", "confirmed"),
        (Stage::Sent,       Failure,            true,  "",                  "",        "reserved"),
        (Stage::Sent,       OtherAmount,        true,  "confirmation_mismatch",    "",        "reserved"),
        (Stage::Sent,       OtherCurrency,      true,  "confirmation_mismatch",    "",        "reserved"),
        (Stage::Sent,       OtherSwitchSuccess, false, "callback_from_other_switch",      "",        "reserved"),
        (Stage::Sent,       OtherSwitchFailure, false, "callback_from_other_switch",      "",        "reserved"),
        (Stage::Cancelling, Success,            true,  "",                  "settled", "confirmed"),
        (Stage::Cancelling, Failure,            true,  "",                  "",        "cancelling"),
        (Stage::Cancelling, OtherAmount,        true,  "confirmation_mismatch",    "",        "cancelling"),
        (Stage::Cancelling, OtherCurrency,      true,  "confirmation_mismatch",    "",        "cancelling"),
        (Stage::Cancelling, OtherSwitchSuccess, false, "callback_from_other_switch",      "",        "cancelling"),
        (Stage::Cancelling, OtherSwitchFailure, false, "callback_from_other_switch",      "",        "cancelling"),
        (Stage::Confirmed,  Success,            true,  "",                  "settled", "confirmed"),
        (Stage::Confirmed,  Failure,            false, "contradictory_final_status",     "settled", "confirmed"),
        (Stage::Confirmed,  OtherAmount,        true,  "confirmation_mismatch",    "settled", "confirmed"),
        (Stage::Confirmed,  OtherCurrency,      true,  "confirmation_mismatch",    "settled", "confirmed"),
        (Stage::Confirmed,  OtherSwitchSuccess, false, "callback_from_other_switch",      "settled", "confirmed"),
        (Stage::Confirmed,  OtherSwitchFailure, false, "callback_from_other_switch",      "settled", "confirmed"),
        (Stage::Void,       Success,            false, "contradictory_final_status",     "void",    "cancelling"),
        (Stage::Void,       Failure,            true,  "",                  "void",    "cancelling"),
        (Stage::Void,       OtherAmount,        true,  "confirmation_mismatch",    "void",    "cancelling"),
        (Stage::Void,       OtherCurrency,      true,  "confirmation_mismatch",    "void",    "cancelling"),
        (Stage::Void,       OtherSwitchSuccess, false, "callback_from_other_switch",      "void",    "cancelling"),
        (Stage::Void,       OtherSwitchFailure, false, "callback_from_other_switch",      "void",    "cancelling"),
        (Stage::Settled,    Success,            false, "",                  "settled", "settled"),
        (Stage::Settled,    Failure,            false, "contradictory_final_status",     "settled", "settled"),
        (Stage::Settled,    OtherAmount,        false, "confirmation_mismatch",    "settled", "settled"),
        (Stage::Settled,    OtherCurrency,      false, "confirmation_mismatch",    "settled", "settled"),
        (Stage::Settled,    OtherSwitchSuccess, false, "callback_from_other_switch",      "settled", "settled"),
        (Stage::Settled,    OtherSwitchFailure, false, "callback_from_other_switch",      "settled", "settled"),
        (Stage::Released,   Success,            false, "late_confirmation", "void",    "timed_out"),
        (Stage::Released,   Failure,            false, "",                  "void",    "timed_out"),
        (Stage::Released,   OtherAmount,        false, "confirmation_mismatch",    "void",    "timed_out"),
        (Stage::Released,   OtherCurrency,      false, "confirmation_mismatch",    "void",    "timed_out"),
        (Stage::Released,   OtherSwitchSuccess, false, "callback_from_other_switch",      "void",    "timed_out"),
        (Stage::Released,   OtherSwitchFailure, false, "callback_from_other_switch",      "void",    "timed_out"),
        (Stage::Rejected,   Success,            false, "settled_without_attempt",          "",        "rejected"),
        (Stage::Rejected,   Failure,            false, "",                  "",        "rejected"),
    ];
    for (stage, said, told, exception, final_status, state) in table {
        let row = format!("{stage:?} x {said:?}");
        let p = bank.payment_at(stage, &row).await;
        let callback = said.callback(&p);
        let (hold, available) = (bank.hold(&p).await, bank.available(&p).await);
        match bank.ledger.store_callback(&callback).await.unwrap() {
            StoreCallbackOutcome::New(message) => assert_eq!(message.is_some(), told, "{row}: told"),
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
            "{row}: no money moves"
        );
    }
    bank.audit().await;
}

/// SUCCESS means the same from each source, and the first answer stands from each.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_first_final_status_is_kept_from_each_source(pool: PgPool) {
    let bank = Bank::new(pool);
    for (source, word) in [
        (FinalStatusSource::Callback, "callback"),
        (FinalStatusSource::Query, "query"),
        (FinalStatusSource::Cancel, "cancel"),
    ] {
        let p = bank.payment_at(Stage::Cancelling, word).await;
        let says = bank.ledger.record_settled(&p.id, &report(&p), source).await.unwrap();
        assert_eq!(says, FinalStatusRuling::First);
        for again in [FinalStatusSource::Callback, FinalStatusSource::Query, FinalStatusSource::Cancel] {
            let says = bank.ledger.record_settled(&p.id, &report(&p), again).await.unwrap();
            assert_eq!(says, FinalStatusRuling::Same);
        }
        let dead = bank.ledger.record_void(&p.id, VoidReason::Cancelled).await.unwrap();
        assert_eq!(dead, FinalStatusRuling::Contradicts);
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"));
        assert_eq!(bank.column(&p, "final_status_source").await.as_deref(), Some(word));
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    }
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn void_is_kept_for_each_reason(pool: PgPool) {
    let bank = Bank::new(pool);
    let deaths = [
        (VoidReason::Cancelled, "cancelled"),
        (VoidReason::Rejected, "rejected"),
        (VoidReason::DeadlinePassed, "deadline"),
    ];
    for (death, source) in deaths {
        let p = bank.payment_at(Stage::Cancelling, source).await;
        assert_eq!(bank.ledger.record_void(&p.id, death).await.unwrap(), FinalStatusRuling::First);
        assert_eq!(
            bank.ledger.record_void(&p.id, VoidReason::Rejected).await.unwrap(),
            FinalStatusRuling::Same
        );
        let says = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Cancel).await.unwrap();
        assert_eq!(says, FinalStatusRuling::Contradicts);
        assert_eq!(bank.column(&p, "final_status_source").await.as_deref(), Some(source));
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    }
    bank.audit().await;
}

/// Every field is compared, and the first that differs is named; the hold is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_differing_report_is_an_exception_and_moves_no_money(pool: PgPool) {
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
            let says = bank.ledger.record_settled(&p.id, &differing, FinalStatusSource::Query).await.unwrap();
            assert_eq!(says, FinalStatusRuling::Differs(difference), "row {n}");
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

/// R20: contradictory callbacks in both orders. FAILURE is never definite; the other is recorded.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r20_contradictory_callbacks_in_both_orders_are_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    for order in ["failure first", "success first"] {
        let p = bank.payment_at(Stage::Sent, order).await;
        let mut said = vec![failure(&p, &event(&p, "f")), success(&p, &event(&p, "s"))];
        if order == "success first" {
            said.reverse();
        }
        for callback in &said {
            bank.ledger.store_callback(callback).await.unwrap();
        }
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"), "{order}");
        assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"], "{order}");
    }
    bank.audit().await;
}

/// Event ids are unique per switch: two switches' events of one id are two contradictions.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn one_event_id_of_two_switches_is_two_contradictions(pool: PgPool) {
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

/// Another switch's word leaves the payment alone: its FAILURE contradicts no SUCCESS.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_failure_from_another_switch_contradicts_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    for order in ["failure first", "success first"] {
        let p = bank.payment_at(Stage::Sent, order).await;
        let mut said = vec![Said::OtherSwitchFailure.callback(&p), Said::Success.callback(&p)];
        if order == "success first" {
            said.reverse();
        }
        for callback in &said {
            bank.ledger.store_callback(callback).await.unwrap();
        }
        assert_eq!(bank.exceptions(&p).await, ["callback_from_other_switch"], "{order}");
    }
    bank.audit().await;
}

/// A SUCCESS of what was never sent is an exception even when the payment was released since.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_without_an_attempt_is_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    for stage in [Stage::Fenced, Stage::Reserved, Stage::ReleasedUnreserved, Stage::Rejected] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let says = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(says, FinalStatusRuling::NoAttempt, "{stage:?}");
        assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"], "{stage:?}");
    }
    bank.audit().await;
}
