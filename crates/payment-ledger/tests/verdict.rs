//! The switch's first definite answer: which one stands, what the others become, and the truth
//! table of the design: (our state) x (SUCCESS | FAILURE | other amount | duplicate | other switch).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_ledger::inbox::{Callback, Stored};
use payment_ledger::verdict::Source;
use payment_protocol::cancel::Death;
use payment_protocol::ids::SwitchName;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::VerdictRuling;
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
async fn the_truth_table_of_callbacks(pool: PgPool) {
    use Said::*;
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage              said                told   exception            verdict    state after
        (Stage::Accepted,   Success,            false, "not_sent",          "",        "accepted"),
        (Stage::Accepted,   Failure,            true,  "",                  "",        "accepted"),
        (Stage::Accepted,   OtherAmount,        false, "not_sent",          "",        "accepted"),
        (Stage::Accepted,   OtherCurrency,      false, "not_sent",          "",        "accepted"),
        (Stage::Accepted,   OtherSwitchSuccess, false, "other_switch",      "",        "accepted"),
        (Stage::Accepted,   OtherSwitchFailure, false, "other_switch",      "",        "accepted"),
        (Stage::Reserved,   Success,            false, "not_sent",          "",        "reserved"),
        (Stage::Reserved,   Failure,            true,  "",                  "",        "reserved"),
        (Stage::Reserved,   OtherAmount,        false, "not_sent",          "",        "reserved"),
        (Stage::Reserved,   OtherCurrency,      false, "not_sent",          "",        "reserved"),
        (Stage::Reserved,   OtherSwitchSuccess, false, "other_switch",      "",        "reserved"),
        (Stage::Reserved,   OtherSwitchFailure, false, "other_switch",      "",        "reserved"),
        (Stage::Sent,       Success,            true,  "",                  "settled", "confirmed"),
        (Stage::Sent,       Failure,            true,  "",                  "",        "reserved"),
        (Stage::Sent,       OtherAmount,        true,  "report_differs",    "",        "reserved"),
        (Stage::Sent,       OtherCurrency,      true,  "report_differs",    "",        "reserved"),
        (Stage::Sent,       OtherSwitchSuccess, false, "other_switch",      "",        "reserved"),
        (Stage::Sent,       OtherSwitchFailure, false, "other_switch",      "",        "reserved"),
        (Stage::Cancelling, Success,            true,  "",                  "settled", "confirmed"),
        (Stage::Cancelling, Failure,            true,  "",                  "",        "cancelling"),
        (Stage::Cancelling, OtherAmount,        true,  "report_differs",    "",        "cancelling"),
        (Stage::Cancelling, OtherCurrency,      true,  "report_differs",    "",        "cancelling"),
        (Stage::Cancelling, OtherSwitchSuccess, false, "other_switch",      "",        "cancelling"),
        (Stage::Cancelling, OtherSwitchFailure, false, "other_switch",      "",        "cancelling"),
        (Stage::Confirmed,  Success,            true,  "",                  "settled", "confirmed"),
        (Stage::Confirmed,  Failure,            false, "contradiction",     "settled", "confirmed"),
        (Stage::Confirmed,  OtherAmount,        true,  "report_differs",    "settled", "confirmed"),
        (Stage::Confirmed,  OtherCurrency,      true,  "report_differs",    "settled", "confirmed"),
        (Stage::Confirmed,  OtherSwitchSuccess, false, "other_switch",      "settled", "confirmed"),
        (Stage::Confirmed,  OtherSwitchFailure, false, "other_switch",      "settled", "confirmed"),
        (Stage::Dead,       Success,            false, "contradiction",     "dead",    "cancelling"),
        (Stage::Dead,       Failure,            true,  "",                  "dead",    "cancelling"),
        (Stage::Dead,       OtherAmount,        true,  "report_differs",    "dead",    "cancelling"),
        (Stage::Dead,       OtherCurrency,      true,  "report_differs",    "dead",    "cancelling"),
        (Stage::Dead,       OtherSwitchSuccess, false, "other_switch",      "dead",    "cancelling"),
        (Stage::Dead,       OtherSwitchFailure, false, "other_switch",      "dead",    "cancelling"),
        (Stage::Settled,    Success,            false, "",                  "settled", "settled"),
        (Stage::Settled,    Failure,            false, "contradiction",     "settled", "settled"),
        (Stage::Settled,    OtherAmount,        false, "report_differs",    "settled", "settled"),
        (Stage::Settled,    OtherCurrency,      false, "report_differs",    "settled", "settled"),
        (Stage::Settled,    OtherSwitchSuccess, false, "other_switch",      "settled", "settled"),
        (Stage::Settled,    OtherSwitchFailure, false, "other_switch",      "settled", "settled"),
        (Stage::Released,   Success,            false, "late_confirmation", "dead",    "timed_out"),
        (Stage::Released,   Failure,            false, "",                  "dead",    "timed_out"),
        (Stage::Released,   OtherAmount,        false, "report_differs",    "dead",    "timed_out"),
        (Stage::Released,   OtherCurrency,      false, "report_differs",    "dead",    "timed_out"),
        (Stage::Released,   OtherSwitchSuccess, false, "other_switch",      "dead",    "timed_out"),
        (Stage::Released,   OtherSwitchFailure, false, "other_switch",      "dead",    "timed_out"),
        (Stage::Rejected,   Success,            false, "not_sent",          "",        "rejected"),
        (Stage::Rejected,   Failure,            false, "",                  "",        "rejected"),
    ];
    for (stage, said, told, exception, verdict, state) in table {
        let row = format!("{stage:?} x {said:?}");
        let p = bank.payment_at(stage, &row).await;
        let callback = said.callback(&p);
        let (hold, available) = (bank.hold(&p).await, bank.available(&p).await);
        match bank.ledger.store_callback(&callback).await.unwrap() {
            Stored::New(notice) => assert_eq!(notice.is_some(), told, "{row}: told"),
            other => panic!("{row}: {other:?}"),
        }
        assert_eq!(bank.ledger.store_callback(&callback).await.unwrap(), Stored::Duplicate, "{row}");
        assert_eq!(bank.exceptions(&p).await.join("+"), exception, "{row}: exception");
        assert_eq!(bank.column(&p, "verdict").await.unwrap_or_default(), verdict, "{row}: verdict");
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
async fn the_first_answer_stands_from_each_source(pool: PgPool) {
    let bank = Bank::new(pool);
    for (source, word) in
        [(Source::Callback, "callback"), (Source::Query, "query"), (Source::Cancel, "cancel")]
    {
        let p = bank.payment_at(Stage::Cancelling, word).await;
        let says = bank.ledger.record_settled(&p.id, &report(&p), source).await.unwrap();
        assert_eq!(says, VerdictRuling::First);
        for again in [Source::Callback, Source::Query, Source::Cancel] {
            let says = bank.ledger.record_settled(&p.id, &report(&p), again).await.unwrap();
            assert_eq!(says, VerdictRuling::Same);
        }
        let dead = bank.ledger.record_dead(&p.id, Death::Cancelled).await.unwrap();
        assert_eq!(dead, VerdictRuling::Contradicts);
        assert_eq!(bank.column(&p, "verdict").await.as_deref(), Some("settled"));
        assert_eq!(bank.column(&p, "verdict_source").await.as_deref(), Some(word));
        assert_eq!(bank.exceptions(&p).await, ["contradiction"]);
    }
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn dead_stands_however_it_was_learnt(pool: PgPool) {
    let bank = Bank::new(pool);
    let deaths =
        [(Death::Cancelled, "cancelled"), (Death::Rejected, "rejected"), (Death::DeadlinePassed, "deadline")];
    for (death, source) in deaths {
        let p = bank.payment_at(Stage::Cancelling, source).await;
        assert_eq!(bank.ledger.record_dead(&p.id, death).await.unwrap(), VerdictRuling::First);
        assert_eq!(bank.ledger.record_dead(&p.id, Death::Rejected).await.unwrap(), VerdictRuling::Same);
        let says = bank.ledger.record_settled(&p.id, &report(&p), Source::Cancel).await.unwrap();
        assert_eq!(says, VerdictRuling::Contradicts);
        assert_eq!(bank.column(&p, "verdict_source").await.as_deref(), Some(source));
        assert_eq!(bank.exceptions(&p).await, ["contradiction"]);
    }
    bank.audit().await;
}

/// Every field is compared, and the first that differs is named; the hold is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_report_that_differs_is_an_exception_and_moves_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    type Change = fn(&mut SettledReport);
    #[rustfmt::skip]
    let table: [(Change, Difference, &str); 6] = [
        (|r| r.switch = SwitchName::new(OTHER_SWITCH).unwrap(), Difference::Switch,    "other_switch"),
        (|r| r.reference = "tx_other:submit".into(),            Difference::Reference, "report_differs"),
        (|r| r.amount_minor -= 1,                               Difference::Amount,    "report_differs"),
        (|r| r.amount_minor = i64::MIN,                         Difference::Amount,    "report_differs"),
        (|r| r.currency = "eur".into(),                         Difference::Currency,  "report_differs"),
        (|r| { r.amount_minor = 1; r.currency = "USD".into() }, Difference::Amount,    "report_differs"),
    ];
    for (n, (change, difference, exception)) in table.into_iter().enumerate() {
        let p = bank.payment_at(Stage::Sent, &format!("row {n}")).await;
        let mut differing = report(&p);
        change(&mut differing);
        for _ in 0..2 {
            let says = bank.ledger.record_settled(&p.id, &differing, Source::Query).await.unwrap();
            assert_eq!(says, VerdictRuling::Differs(difference), "row {n}");
        }
        assert_eq!(bank.exceptions(&p).await, [exception], "row {n}");
        assert_eq!((bank.column(&p, "verdict").await, bank.hold(&p).await), (None, "open".into()), "row {n}");
    }
    bank.audit().await;
}

/// R20: contradictory callbacks in both orders. FAILURE is never definite; the other is recorded.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r20_contradictory_callbacks_in_both_orders(pool: PgPool) {
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
        assert_eq!(bank.column(&p, "verdict").await.as_deref(), Some("settled"), "{order}");
        assert_eq!(bank.exceptions(&p).await, ["contradiction"], "{order}");
    }
    bank.audit().await;
}

/// Event ids are unique per switch: two switches' events of one id are two contradictions.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn two_switches_event_of_one_id_hides_no_contradiction(pool: PgPool) {
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
    assert_eq!(bank.exceptions(&northern).await, ["contradiction"]);
    assert_eq!(bank.exceptions(&southern).await, ["contradiction"]);
    bank.audit().await;
}

/// Another switch's word leaves the payment alone: its FAILURE contradicts no SUCCESS.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn another_switchs_failure_contradicts_nothing(pool: PgPool) {
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
        assert_eq!(bank.exceptions(&p).await, ["other_switch"], "{order}");
    }
    bank.audit().await;
}

/// A SUCCESS of what was never sent is an exception even when the payment was released since.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_of_what_was_never_sent_is_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    for stage in [Stage::Fenced, Stage::Reserved, Stage::ReleasedUnreserved, Stage::Rejected] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let says = bank.ledger.record_settled(&p.id, &report(&p), Source::Query).await.unwrap();
        assert_eq!(says, VerdictRuling::NoAttempt, "{stage:?}");
        assert_eq!(bank.exceptions(&p).await, ["not_sent"], "{stage:?}");
    }
    bank.audit().await;
}
