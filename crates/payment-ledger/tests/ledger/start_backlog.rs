//! `steps::start` with a large backlog: what a claim reads does not grow with the payments that it does not claim, and no
//! payment waits behind others for ever.

use std::collections::BTreeSet;

use crate::support::{Bank, OTHER_SWITCH, SWITCH, Sample, Stage};
use futures::future::join_all;
use payment_ledger::steps::start::{IdlePayment, StartablePayment};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const LEASE_MS: i64 = 60_000;
const IDLE_MS: i64 = 60_000;
const BATCH: i64 = 50;
const MAX_IN_FLIGHT: i64 = 200;

/// Payments in a large backlog.
const BACKLOG: i64 = 100_000;
/// Database pages that a claim may read and write in all: a few thousand rows and index entries. The backlog has more.
const PAGES_MAX: i64 = 3_000;

/// Inserts `count` payments as copies of `template`, in `state` and accepted a minute ago and earlier, at `switch`.
async fn insert_copies(bank: &Bank, template: &Sample, prefix: &str, count: i64, state: &str, switch: &str) {
    bank.sql(&format!(
        "INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, amount_minor,
                               currency, switch, profile_hash, needs_account_lock, request_hash, response_body, state, workflow_id, accepted_at,
                               valid_until, updated_at)
         SELECT '{prefix}' || n, 'tx_{prefix}' || n, tenant_id, client_id, source_account, destination_account, amount_minor,
                currency, '{switch}', profile_hash, needs_account_lock, request_hash, response_body, '{state}', '{prefix}' || n,
                now() - interval '1 minute' - ({count} - n) * interval '1 millisecond', valid_until,
                now() - interval '1 hour' - ({count} - n) * interval '1 millisecond'
         FROM payments, generate_series(1, {count}) AS n WHERE payment_id = '{}'",
        template.id
    ))
    .await;
}

/// Lets `interval` pass for every payment.
async fn age_all(bank: &Bank, interval: &str) {
    bank.sql(&format!(
        "UPDATE payments SET updated_at = updated_at - interval '{interval}',
                             liveness_checked_at = liveness_checked_at - interval '{interval}'"
    ))
    .await;
}

/// Pages of `payments` and its indexes that were used since the last call. Requires a pool of one connection, which flushes
/// its own statistics.
async fn used_pages(bank: &Bank) -> i64 {
    bank.sql("SELECT pg_stat_force_next_flush()").await;
    let pages = bank
        .number(
            "SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables
             WHERE relname = 'payments'",
        )
        .await;
    bank.sql("SELECT pg_stat_reset()").await;
    pages
}

async fn one_connection(connect: PgConnectOptions) -> Bank {
    Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap())
}

fn names(idle: &[IdlePayment]) -> Vec<&str> {
    idle.iter().map(|payment| payment.payment_id.as_str()).collect()
}

fn started(claimed: &[StartablePayment]) -> Vec<&str> {
    claimed.iter().map(|claimed| claimed.payment.payment_id.as_str()).collect()
}

/// A healthy payment that waits for an operator stays idle for days. Within each idle time two batches are checked, fewer
/// than the healthy payments.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_young_lost_payment_is_checked_although_older_ones_are_idle(pool: PgPool) {
    let bank = Bank::new(pool);
    let template = bank.payment_at(Stage::Accepted, "template").await;
    insert_copies(&bank, &template, "waiting-", 120, "needs_operator", SWITCH).await;
    let lost = bank.payment_at(Stage::Sent, "lost").await;
    age_all(&bank, "61 s").await;
    let mut checked = vec![];
    for _ in 0..2 {
        for _ in 0..2 {
            let batch = bank.ledger.claim_idle(BATCH, IDLE_MS).await.unwrap();
            checked.extend(names(&batch).into_iter().map(str::to_owned));
        }
        age_all(&bank, "61 s").await;
    }
    assert_eq!(checked.len(), 200);
    assert_eq!(
        checked[..121].iter().collect::<BTreeSet<_>>().len(),
        121,
        "a payment was checked again before others"
    );
    assert!(checked[..121].contains(&lost.id.to_string()), "the lost payment was not checked");
}

/// A row that this version cannot parse is left out, and the others of its batch are checked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_an_unreadable_idle_payment_does_not_block_the_others(pool: PgPool) {
    let bank = Bank::new(pool);
    let template = bank.payment_at(Stage::Accepted, "template").await;
    insert_copies(&bank, &template, "no payment id ", 1, "needs_operator", SWITCH).await;
    insert_copies(&bank, &template, "sound-", 2, "needs_operator", SWITCH).await;
    let idle = bank.ledger.claim_idle(BATCH, IDLE_MS).await.unwrap();
    assert_eq!(names(&idle).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["sound-1", "sound-2"]));
}

/// Eight concurrent liveness checks describe each payment once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_liveness_checks_claim_each_payment_once(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 8).await;
    let template = bank.payment_at(Stage::Accepted, "template").await;
    insert_copies(&bank, &template, "idle-", 80, "submitted", SWITCH).await;
    let mut claimed = vec![];
    // More rounds than necessary, since a claim skips rows that another one has locked.
    for _ in 0..8 {
        let round = join_all((0..8).map(|_| bank.ledger.claim_idle(7, IDLE_MS))).await;
        for batch in round {
            claimed.extend(names(&batch.unwrap()).into_iter().map(str::to_owned));
        }
    }
    assert_eq!((claimed.len(), claimed.iter().collect::<BTreeSet<_>>().len()), (80, 80));
    bank.close().await;
}

/// The last batch of 100,000 idle payments costs as much as the first one, and so does a claim when all have been checked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_cost_of_a_liveness_batch_does_not_grow(_: PgPoolOptions, connect: PgConnectOptions) {
    let bank = one_connection(connect).await;
    let template = bank.payment_at(Stage::Accepted, "template").await;
    insert_copies(&bank, &template, "idle-", BACKLOG, "needs_operator", SWITCH).await;
    bank.sql("VACUUM ANALYZE payments").await;
    used_pages(&bank).await;
    assert_eq!(bank.ledger.claim_idle(BATCH, IDLE_MS).await.unwrap().len(), 50);
    let first = used_pages(&bank).await;
    // In parts: the ledger limits the time of a statement.
    let mut rest = BACKLOG - 2 * BATCH;
    while rest > 0 {
        let part = rest.min(BACKLOG / 10);
        let claimed = bank.ledger.claim_idle(part, IDLE_MS).await.unwrap();
        assert_eq!(claimed.len(), usize::try_from(part).unwrap());
        rest -= part;
    }
    bank.sql("VACUUM ANALYZE payments").await;
    used_pages(&bank).await;
    assert_eq!(bank.ledger.claim_idle(BATCH, IDLE_MS).await.unwrap().len(), 50);
    let last = used_pages(&bank).await;
    assert_eq!(bank.ledger.claim_idle(BATCH, IDLE_MS).await.unwrap(), []);
    let none = used_pages(&bank).await;
    assert!(first <= PAGES_MAX && last <= 2 * first && none <= first, "pages: {first}, {last}, {none}");
    bank.close().await;
}

/// A hung switch at its in-flight limit has 100,000 accepted payments; those of another switch are younger.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_backlog_of_a_hung_switch_costs_other_switches_nothing(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = one_connection(connect).await;
    let template = bank.payment_at(Stage::Settled, "template").await;
    insert_copies(&bank, &template, "hung-", BACKLOG, "accepted", SWITCH).await;
    insert_copies(&bank, &template, "in-flight-", MAX_IN_FLIGHT, "reserved", SWITCH).await;
    insert_copies(&bank, &template, "other-", 3, "accepted", OTHER_SWITCH).await;
    bank.sql("VACUUM ANALYZE payments").await;
    used_pages(&bank).await;
    let claimed = bank.ledger.claim_accepted(BATCH, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
    assert_eq!(started(&claimed), ["other-1", "other-2", "other-3"]);
    let first = used_pages(&bank).await;
    assert_eq!(bank.ledger.claim_accepted(BATCH, LEASE_MS, MAX_IN_FLIGHT).await.unwrap(), []);
    let none = used_pages(&bank).await;
    assert!(first.max(none) <= PAGES_MAX, "pages: {first}, {none}");
    bank.close().await;
}

/// One in-flight payment more or less changes neither the cost nor the order, and leased payments count as in flight.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_claim_never_exceeds_the_in_flight_limit_of_a_switch(_: PgPoolOptions, connect: PgConnectOptions) {
    let bank = one_connection(connect).await;
    let template = bank.payment_at(Stage::Settled, "template").await;
    insert_copies(&bank, &template, "waiting-", BACKLOG, "accepted", SWITCH).await;
    insert_copies(&bank, &template, "in-flight-", MAX_IN_FLIGHT - 7, "started", SWITCH).await;
    bank.sql("VACUUM ANALYZE payments").await;
    used_pages(&bank).await;
    let claimed = bank.ledger.claim_accepted(5, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
    assert_eq!(started(&claimed), ["waiting-1", "waiting-2", "waiting-3", "waiting-4", "waiting-5"]);
    let claimed = bank.ledger.claim_accepted(5, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
    assert_eq!(started(&claimed), ["waiting-6", "waiting-7"]);
    bank.ledger.mark_started(&claimed[0].payment.payment_id).await.unwrap();
    assert_eq!(bank.ledger.claim_accepted(5, LEASE_MS, MAX_IN_FLIGHT).await.unwrap(), []);
    let pages = used_pages(&bank).await;
    assert!(pages <= PAGES_MAX, "pages: {pages}");
    bank.close().await;
}

/// A batch holds payments of every switch that has some, the oldest of each.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_backlog_of_one_switch_leaves_places_in_a_batch_to_others(pool: PgPool) {
    let bank = Bank::new(pool);
    let template = bank.payment_at(Stage::Settled, "template").await;
    insert_copies(&bank, &template, "other-", 3, "accepted", OTHER_SWITCH).await;
    bank.sql("UPDATE payments SET accepted_at = accepted_at + interval '1 s'").await;
    insert_copies(&bank, &template, "many-", 20, "accepted", SWITCH).await;
    let claimed = bank.ledger.claim_accepted(6, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
    assert_eq!(started(&claimed), ["many-1", "many-2", "many-3", "other-1", "other-2", "other-3"]);
    let claimed = bank.ledger.claim_accepted(6, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
    assert_eq!(started(&claimed), ["many-4", "many-5", "many-6", "many-7", "many-8", "many-9"]);
}

/// R23: unreadable payments take no places of their switch's in-flight limit, however many they are.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_unreadable_payments_do_not_use_up_the_in_flight_limit(pool: PgPool) {
    let bank = Bank::new(pool);
    let template = bank.payment_at(Stage::Settled, "template").await;
    insert_copies(&bank, &template, "unreadable-", 5, "accepted", SWITCH).await;
    bank.sql("UPDATE payments SET profile_hash = '', accepted_at = accepted_at - interval '1 h' WHERE state = 'accepted'").await;
    insert_copies(&bank, &template, "sound-", 1, "accepted", SWITCH).await;
    let mut claimed = vec![];
    for _ in 0..3 {
        claimed.extend(bank.ledger.claim_accepted(BATCH, LEASE_MS, 3).await.unwrap());
    }
    assert_eq!(started(&claimed), ["sound-1"]);
}
