//! `switch::submission_log`: attempts with their answers, reconciliation with callbacks, and the lookup key for a switch without
//! references.

use crate::support::{
    AMOUNT_MINOR, Bank, OTHER_SWITCH, SWITCH, SWITCH_NOW_MS, Sample, Stage, at, eur, event, failure,
    first_run, success,
};
use futures::future::join_all;
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::switch::submission_log::LookupKey;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::Cause;
use payment_protocol::ids::{AccountId, TxId};
use payment_protocol::keys;
use payment_protocol::port::{ReconcileOutcome, SubmitProgress};
use payment_protocol::profile::Strategy;
use payment_protocol::reject::Reject;
use payment_protocol::rules::{AttemptRuling, NotSent};
use payment_protocol::submit::{LoggedSubmission, SendAnswer};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The transfer's name in the switch's messages.
fn name(p: &Sample) -> String {
    keys::submit(&p.tx).to_string()
}

/// A payment at a switch without references.
fn without_references(bank: &Bank, key: &str, destination: &str) -> NewPayment {
    let mut order = bank.order(key);
    order.destination_account = AccountId::new(destination).unwrap();
    order.profile.strategy = Strategy::Validate;
    (order.profile.deduplicates, order.profile.tombstones, order.profile.has_callback) =
        (false, false, false);
    order
}

/// S0.11, write_ahead: the log returns the result of the last attempt; without a known answer it is pending.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_11_the_submission_log_returns_the_last_attempt(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    assert_eq!(bank.ledger.last_submission(&p.id).await.unwrap(), None);
    #[rustfmt::skip]
    let table = [
        // answer                                               logged
        (None,                                                  LoggedSubmission::Pending),
        (Some(SendAnswer::Unknown { detail: "cut".into() }),    LoggedSubmission::Pending),
        (Some(SendAnswer::Refused { reject: Reject::uncoded("limit") }),  LoggedSubmission::Refused { reason: "limit".into() }),
        (Some(SendAnswer::Accepted),                            LoggedSubmission::Accepted),
    ];
    for (n, (answer, logged)) in (1..).zip(table) {
        assert_eq!(bank.attempt(&p).await, AttemptRuling::Send(n));
        assert_eq!(
            bank.ledger.last_submission(&p.id).await.unwrap(),
            Some(LoggedSubmission::Pending),
            "the log before the answer"
        );
        if let Some(answer) = answer {
            bank.ledger.record_answer(&p.id, n, &answer, None, at(SWITCH_NOW_MS)).await.unwrap();
        }
        assert_eq!(bank.ledger.last_submission(&p.id).await.unwrap(), Some(logged), "attempt {n}");
    }
    bank.audit().await;
}

/// S0.11, at_most_once: the final status, else a FAILURE from the payment's own switch, else unknown.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_11_a_pending_submission_is_resolved_from_stored_callbacks(pool: PgPool) {
    let bank = Bank::new(pool);
    let failed = || ReconcileOutcome::Failed { reason: "account closed".into() };
    #[rustfmt::skip]
    let table = [
        // stage             FAILURE from      outcome
        (Stage::Sent,        None,             ReconcileOutcome::Unknown),
        (Stage::Sent,        Some("our own"),  failed()),
        (Stage::Sent,        Some("another"),  ReconcileOutcome::Unknown),
        (Stage::Differing,   None,             ReconcileOutcome::Unknown),
        (Stage::Confirmed,   None,             ReconcileOutcome::Settled),
        (Stage::Confirmed,   Some("our own"),  ReconcileOutcome::Settled),
        (Stage::Void,        None,             ReconcileOutcome::Unknown),
        (Stage::Void,        Some("our own"),  failed()),
    ];
    for (n, (stage, failure_of, outcome)) in table.into_iter().enumerate() {
        let p = bank.payment_at(stage, &format!("row {n}")).await;
        if let Some(switch) = failure_of {
            let mut callback = failure(&p, &event(&p, "f"));
            if switch == "another" {
                callback.switch = payment_protocol::ids::SwitchName::new(OTHER_SWITCH).unwrap();
            }
            bank.ledger.store_callback(&callback).await.unwrap();
        }
        assert_eq!(bank.ledger.reconcile_submission(&p.id).await.unwrap(), outcome, "row {n}");
    }
    // FAILURE and then SUCCESS is settled.
    let p = bank.payment_at(Stage::Sent, "both").await;
    bank.ledger.store_callback(&failure(&p, &event(&p, "f"))).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "s"))).await.unwrap();
    assert_eq!(bank.ledger.reconcile_submission(&p.id).await.unwrap(), ReconcileOutcome::Settled);
    bank.audit().await;
}

/// The marker is recorded with the attempt, before it is sent; the first recorded transfer id is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_lookup_key_is_recorded_before_the_submit_attempt_is_sent(pool: PgPool) {
    let bank = Bank::new(pool);
    let lookup_key = |marker: Option<&str>, transfer_id: Option<&str>| LookupKey {
        marker: marker.map(str::to_owned),
        transfer_id: transfer_id.map(str::to_owned),
        destination_account: "DE-1".into(),
        money: eur(AMOUNT_MINOR),
    };
    let answered = bank.order_at(Stage::Reserved, without_references(&bank, "answered", "DE-1")).await;
    assert_eq!(bank.ledger.lookup_key(&answered.id, &name(&answered)).await.unwrap(), lookup_key(None, None));
    bank.ledger.record_transfer_id(&answered.id, "t-0").await.unwrap();
    let (ruling, _) = bank
        .ledger
        .record_attempt(&answered.id, &first_run(), at(SWITCH_NOW_MS), false, Some("t-6"))
        .await
        .unwrap();
    assert_eq!(ruling, AttemptRuling::Send(1));
    assert_eq!(
        bank.ledger.lookup_key(&answered.id, &name(&answered)).await.unwrap(),
        lookup_key(Some("t-6"), None)
    );
    // Where the payment's end may be lost, another payment may have sent to the account since.
    for (is_marked, marker) in [(true, None), (false, Some("t-6"))] {
        bank.sql(&format!("UPDATE payments SET attempts_uncertain = {is_marked}")).await;
        assert_eq!(
            bank.ledger.lookup_key(&answered.id, &name(&answered)).await.unwrap(),
            lookup_key(marker, None)
        );
    }
    bank.ledger
        .record_answer(&answered.id, 1, &SendAnswer::Accepted, Some("t-7"), at(SWITCH_NOW_MS))
        .await
        .unwrap();
    bank.ledger.record_transfer_id(&answered.id, "t-8").await.unwrap();
    assert_eq!(
        bank.ledger.lookup_key(&answered.id, &name(&answered)).await.unwrap(),
        lookup_key(Some("t-6"), Some("t-7"))
    );
    bank.settle_by_query(&answered).await;

    let found = bank.order_at(Stage::Sent, without_references(&bank, "found", "DE-1")).await;
    assert_eq!(bank.ledger.lookup_key(&found.id, &name(&found)).await.unwrap(), lookup_key(None, None));
    for transfer_id in ["t-9", "t-9", "t-10"] {
        bank.ledger.record_transfer_id(&found.id, transfer_id).await.unwrap();
    }
    assert_eq!(
        bank.ledger.lookup_key(&found.id, &name(&found)).await.unwrap(),
        lookup_key(None, Some("t-9"))
    );
    assert_eq!(bank.number("SELECT count(*) FROM timeline WHERE detail LIKE 'found at %'").await, 1);
    bank.audit().await;
}

/// A lookup in a statement starts at the newest position that is on record from before the first attempt, never after it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_16_a_statement_lookup_starts_at_the_newest_recorded_position(pool: PgPool) {
    let bank = Bank::new(pool);
    let attempt = async |key: &str, marker: Option<&str>| {
        let mut order = bank.order(key);
        (order.profile.has_query, order.profile.has_statement) = (false, true);
        let p = bank.order_at(Stage::Reserved, order).await;
        let sent =
            bank.ledger.record_attempt(&p.id, &first_run(), at(SWITCH_NOW_MS), false, marker).await.unwrap();
        assert_eq!(sent.0, AttemptRuling::Send(1));
        p
    };
    let read_lines = async |numbers: std::ops::RangeInclusive<i32>| {
        sqlx::query(
            "INSERT INTO statement_lines (switch, cursor, transfer_id, status, amount_minor, currency, finished_at)
             SELECT switch, 'c-' || n, 't-' || n, 'SETTLED', 1, 'EUR', now()
             FROM generate_series($2, $3) AS n, (VALUES ($1), ($4)) AS of (switch) ORDER BY n",
        )
        .bind(SWITCH)
        .bind(numbers.start())
        .bind(numbers.end())
        .bind(OTHER_SWITCH)
        .execute(&bank.pool)
        .await
        .unwrap();
    };
    let mut expected = vec![
        (attempt("nothing on record", None).await, None),
        (attempt("not read yet", Some("c-3")).await, Some("c-3")),
    ];
    read_lines(1..=5).await;
    expected.extend([
        (attempt("read before", None).await, Some("c-5")),
        (attempt("read further before", Some("c-4")).await, Some("c-5")),
        (attempt("read later", Some("c-9")).await, Some("c-9")),
    ]);
    for lines in [6..=12, 13..=13] {
        for (p, start) in &expected {
            let marker = bank.ledger.lookup_key(&p.id, &name(p)).await.unwrap().marker;
            assert_eq!(marker.as_deref(), *start, "{:?}", p.id);
        }
        // Lines that were read after the attempts may be about them, so they move no start.
        read_lines(lines).await;
    }
    // The record of an earlier attempt may be lost, whatever is recorded of a later one.
    sqlx::query("UPDATE payments SET attempts_uncertain = true").execute(&bank.pool).await.unwrap();
    for ((p, _), start) in expected.iter().zip([None, None, Some("c-5"), Some("c-5"), Some("c-5")]) {
        let marker = bank.ledger.lookup_key(&p.id, &name(p)).await.unwrap().marker;
        assert_eq!(marker.as_deref(), start, "{:?}", p.id);
    }
}

/// A payment was lost with its attempt, and reconciliation read the entry of its transfer before the client's repeat was accepted: the lookup
/// starts before that entry, whether or not its absence would be a proof.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_16_a_payment_that_is_accepted_again_is_looked_up_before_its_first_entry(pool: PgPool) {
    let bank = Bank::new(pool);
    for (key, settled_within_ms) in [("absence decides nothing", None), ("absence decides", Some(1_000))] {
        let mut order = bank.order(key);
        (order.profile.has_statement, order.profile.settled_within_ms) = (true, settled_within_ms);
        let own = keys::submit(&TxId::derive(&order.payment_id)).to_string();
        for (n, reference) in [(1, "another"), (2, own.as_str()), (3, "another"), (4, own.as_str())] {
            sqlx::query(
                "INSERT INTO statement_lines (switch, cursor, transfer_id, reference, status, amount_minor, currency, finished_at)
                 VALUES ($1, $2, $2, $3, 'SETTLED', 1, 'EUR', now())",
            )
            .bind(SWITCH)
            .bind(format!("{key} {n}"))
            .bind(reference)
            .execute(&bank.pool)
            .await
            .unwrap();
        }
        order.accepted_at = jiff::Timestamp::now();
        let p = bank.order_at(Stage::Accepted, order).await;
        for is_marked in [false, true] {
            let mark =
                format!("UPDATE payments SET attempts_uncertain = {is_marked} WHERE payment_id = '{}'", p.id);
            bank.sql(&mark).await;
            let marker = bank.ledger.lookup_key(&p.id, &name(&p)).await.unwrap().marker;
            assert_eq!(marker, Some(format!("{key} 1")), "marked: {is_marked}");
        }
    }
}

/// S1.5: an open payment with an attempt to the same account at the same switch fences other attempts until its end.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s1_5_without_references_an_account_has_one_transfer_in_flight(pool: PgPool) {
    let bank = Bank::new(pool);
    let busy = AttemptRuling::NotSent(NotSent::AccountBusy);
    let held = bank.order_at(Stage::Reserved, without_references(&bank, "held", "DE-1")).await;
    let first = bank.order_at(Stage::Reserved, without_references(&bank, "first", "DE-1")).await;
    assert_eq!(
        bank.attempt(&first).await,
        AttemptRuling::Send(1),
        "a payment without an attempt fenced another"
    );
    assert_eq!(bank.attempt(&held).await, busy);
    assert_eq!(
        bank.attempt(&first).await,
        AttemptRuling::NotSent(NotSent::SecondAttemptForbidden),
        "a payment fenced itself"
    );

    let other_account =
        bank.order_at(Stage::Reserved, without_references(&bank, "other account", "DE-2")).await;
    assert_eq!(bank.attempt(&other_account).await, AttemptRuling::Send(1));
    let mut order = without_references(&bank, "other switch", "DE-1");
    order.profile.switch = payment_protocol::ids::SwitchName::new(OTHER_SWITCH).unwrap();
    let other = bank.order_at(Stage::Reserved, order).await;
    assert_eq!(bank.attempt(&other).await, AttemptRuling::Send(1));
    let mut order = bank.order("with references");
    order.destination_account = AccountId::new("DE-1").unwrap();
    let with = bank.order_at(Stage::Reserved, order).await;
    assert_eq!(bank.attempt(&with).await, AttemptRuling::Send(1));

    bank.settle_by_query(&first).await;
    assert_eq!(bank.attempt(&held).await, AttemptRuling::Send(1));
    bank.audit().await;
}

/// S1.5: of sixteen concurrent attempts to one account one is allowed; row locks alone would allow all.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s1_5_of_sixteen_concurrent_submits_to_an_account_one_is_sent(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    for round in 0..4 {
        let mut payments = Vec::new();
        for n in 0..16 {
            let order = without_references(&bank, &format!("k{round}-{n}"), &format!("DE-{round}"));
            payments.push(bank.order_at(Stage::Reserved, order).await);
        }
        let rulings = join_all(payments.iter().map(|p| bank.attempt(p))).await;
        let busy = AttemptRuling::NotSent(NotSent::AccountBusy);
        assert_eq!(
            rulings.iter().filter(|ruling| **ruling == AttemptRuling::Send(1)).count(),
            1,
            "{rulings:?}"
        );
        assert_eq!(rulings.iter().filter(|ruling| **ruling == busy).count(), 15);
    }
    bank.audit().await;
    bank.close().await;
}

/// After the end of a payment the account is free: an attempt that was paused may find the transfer of a later payment.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_ended_payment_takes_no_listed_transfer_for_its_own(pool: PgPool) {
    let bank = Bank::new(pool);
    let ended = bank.order_at(Stage::Sent, without_references(&bank, "ended", "DE-1")).await;
    bank.ledger.begin_cancel(&ended.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    bank.ledger.record_void(&ended.id, VoidReason::DeadlinePassed).await.unwrap();
    bank.ledger.release(&ended.id, &Cause::SlaExpired).await.unwrap();
    let later = bank.order_at(Stage::Sent, without_references(&bank, "later", "DE-1")).await;
    bank.ledger.record_transfer_id(&ended.id, "t-1").await.unwrap();
    assert_eq!(bank.ledger.lookup_key(&ended.id, &name(&ended)).await.unwrap().transfer_id, None);
    bank.ledger.record_transfer_id(&later.id, "t-1").await.unwrap();
    assert_eq!(
        bank.ledger.lookup_key(&later.id, &name(&later)).await.unwrap().transfer_id.as_deref(),
        Some("t-1")
    );
    bank.audit().await;
}

/// A payment whose attempt's record was lost may have sent: no other payment sends to the account beside it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_that_may_have_sent_keeps_its_account_busy(pool: PgPool) {
    let bank = Bank::new(pool);
    let first = bank.order_at(Stage::Reserved, without_references(&bank, "first", "DE-1")).await;
    // The workflow scheduled a submit, and no attempt is recorded.
    bank.ledger.begin_cancel(&first.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    let second = bank.order_at(Stage::Reserved, without_references(&bank, "second", "DE-1")).await;
    assert_eq!(bank.attempt(&second).await, AttemptRuling::NotSent(NotSent::AccountBusy));
}
