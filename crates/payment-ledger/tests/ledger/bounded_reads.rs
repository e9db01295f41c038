//! Lists, gauges and the hold audit cost the same with ten times as many stored payments. The blocks that PostgreSQL touches are
//! counted, those in its cache included. PostgreSQL is configured to prefer any index to a sequential scan, as it does with millions
//! of rows.

use crate::support::Bank;
use payment_ledger::reads::queues::OperatorPaymentFilter;
use payment_ledger::reads::view::PaymentFilter;
use payment_protocol::drift::Tolerance;
use payment_protocol::ids::{PaymentId, SwitchName, TenantId, TxId};
use payment_protocol::keys;
use payment_protocol::port::SubmitProgress;
use payment_protocol::{Cause, PaymentState};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Stored payments of the smaller bank; half of them are open.
const STORED: i64 = 5_000;
/// How much larger the larger bank is.
const GROWTH: i64 = 10;

/// Stores payments `from` to `to` of five tenants. Every second one is open; of the others, the first ten failed. One in a hundred
/// is being cancelled, all of one tenant.
async fn store(bank: &Bank, from: i64, to: i64) {
    let mut connection = bank.pool.acquire().await.unwrap();
    let payments = "
        INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id,
                              amount_minor, currency, switch, profile_hash, needs_account_lock, request_hash, response_body, workflow_id, state,
                              accepted_at, updated_at, ended_at, valid_until)
        SELECT 'pay_' || n, 'tx_' || n, 'tenant-' || n % 5, 'client', 'source-' || n, 'destination', 'invoice-' || n,
               100, 'EUR', 'mock', '', false, '', '', 'pay_' || n,
               CASE WHEN n % 100 = 0 THEN 'cancelling' WHEN n % 2 = 0 THEN 'accepted' WHEN n <= 20 THEN 'failed' ELSE 'settled' END,
               now() - 1000000 * interval '1 second' + n * interval '1 second', now(),
               CASE WHEN n % 2 > 0 THEN now() END, now()
        FROM generate_series($1, $2) AS n";
    let timeline = "
        INSERT INTO timeline (payment_id, state, detail) SELECT 'pay_' || n, 'accepted', '' FROM generate_series($1, $2) AS n";
    for statement in [payments, timeline] {
        sqlx::query(statement).bind(from).bind(to).execute(&mut *connection).await.unwrap();
    }
    sqlx::query("VACUUM ANALYZE").execute(&mut *connection).await.unwrap();
}

/// Blocks of all tables and indexes touched since the last call. Requires a pool of one connection, which flushes its own
/// statistics.
async fn blocks(bank: &Bank) -> i64 {
    bank.sql("SELECT pg_stat_force_next_flush()").await;
    let blocks = bank
        .number(
            "SELECT (SELECT sum(heap_blks_hit + heap_blks_read) FROM pg_statio_user_tables)::bigint
                    + (SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_user_indexes)::bigint",
        )
        .await;
    bank.sql("SELECT pg_stat_reset()").await;
    blocks
}

/// Blocks touched by each read, by its name.
async fn blocks_by_read(bank: &Bank) -> Vec<(&'static str, i64)> {
    let tenant = TenantId::new("tenant-1").unwrap();
    let page = || PaymentFilter { limit: 10, ..PaymentFilter::default() };
    let tenant_lists = [
        ("newest of a tenant", page()),
        ("end-to-end id", PaymentFilter { end_to_end_id: Some("invoice-1".into()), ..page() }),
        ("unknown end-to-end id", PaymentFilter { end_to_end_id: Some("unknown".into()), ..page() }),
        ("failed of a tenant", PaymentFilter { state: Some(PaymentState::Failed), ..page() }),
        ("cancelled of a tenant", PaymentFilter { state: Some(PaymentState::Cancelled), ..page() }),
        ("cancelling of a tenant", PaymentFilter { state: Some(PaymentState::Cancelling), ..page() }),
        ("oldest of a tenant", PaymentFilter { older_than_s: Some(999_990), ..page() }),
    ];
    let list = || OperatorPaymentFilter { limit: 10, ..OperatorPaymentFilter::default() };
    let lists = [
        ("newest", list()),
        ("cancelling", OperatorPaymentFilter { state: Some(PaymentState::Cancelling), ..list() }),
        ("failed", OperatorPaymentFilter { state: Some(PaymentState::Failed), ..list() }),
        ("cancelled", OperatorPaymentFilter { state: Some(PaymentState::Cancelled), ..list() }),
    ];
    let mut read = Vec::new();
    blocks(bank).await;
    // More executions than PostgreSQL plans for the values of the parameters.
    for repeat in 0..7 {
        for (name, filter) in &tenant_lists {
            bank.ledger.payments(&tenant, filter).await.unwrap();
            let blocks = blocks(bank).await;
            if repeat == 6 {
                read.push((*name, blocks));
            }
        }
        for (name, filter) in &lists {
            bank.ledger.list(filter).await.unwrap();
            let blocks = blocks(bank).await;
            if repeat == 6 {
                read.push((*name, blocks));
            }
        }
        bank.ledger.last_reconciliation_run().await.unwrap();
        let blocks = blocks(bank).await;
        if repeat == 6 {
            read.push(("last reconciliation run", blocks));
        }
    }
    read
}

/// Rows of payments and holds that a hold audit reads for each open payment.
async fn audited_rows(bank: &Bank, open: i64) -> i64 {
    blocks(bank).await;
    let report = bank.ledger.audit_holds(Tolerance::default()).await.unwrap();
    assert_eq!((i64::try_from(report.payments).unwrap(), report.findings.len()), (open, 0));
    bank.sql("SELECT pg_stat_force_next_flush()").await;
    let rows = "SELECT sum(seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables
                WHERE relname IN ('payments', 'holds')";
    bank.number(rows).await / open
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_lists_and_audits_do_not_grow_with_history(_: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    store(&bank, 1, STORED).await;
    let small = blocks_by_read(&bank).await;
    let small_audit = audited_rows(&bank, STORED / 2).await;
    store(&bank, STORED + 1, GROWTH * STORED).await;
    let large = blocks_by_read(&bank).await;
    let large_audit = audited_rows(&bank, GROWTH * STORED / 2).await;
    println!("{small:?}\n{large:?}\nrows of an audited payment: {small_audit}, {large_audit}");
    let grown: Vec<_> =
        small.iter().zip(&large).filter(|((_, small), (_, large))| *large > 2 * small.max(&20)).collect();
    assert!(grown.is_empty(), "blocks touched, with {STORED} and {GROWTH} times as many payments: {grown:?}");
    assert!(small_audit > 0 && large_audit <= 2 * small_audit, "audit: {small_audit} to {large_audit} rows");
    bank.close().await;
}

/// The payments of a rare switch are searched in parts, and none is missed between two of them.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_search_for_a_switch_continues_where_it_ended(pool: PgPool) {
    let bank = Bank::new(pool);
    store(&bank, 1, 120_000).await;
    // Of another tenant with few payments, older than all: the search for it ends at once, that of the others does not.
    for (payment, change) in
        [(3, "tenant_id = 'few', accepted_at = accepted_at - interval '1 day'"), (6, ""), (70_001, "")]
    {
        let change =
            [change, "switch = 'rare'"].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
        bank.sql(&format!("UPDATE payments SET {} WHERE payment_id = 'pay_{payment}'", change.join(", ")))
            .await;
    }
    let switch = Some(SwitchName::new("rare").unwrap());
    let mut filter = OperatorPaymentFilter { switch, limit: 10, ..OperatorPaymentFilter::default() };
    let mut pages = Vec::new();
    loop {
        let page = bank.ledger.list(&filter).await.unwrap();
        pages.push(page.payments.into_iter().map(|payment| payment.payment_id).collect::<Vec<_>>());
        assert!(pages.len() < 10, "{pages:?}");
        let Some(next) = page.next else { break };
        filter.after = Some(next);
    }
    assert!(pages.len() > 1, "{pages:?}");
    assert_eq!(pages.concat(), ["pay_70001", "pay_6", "pay_3"], "{pages:?}");
}

/// Payments of the backlog that is younger than the statistics of the tables.
const BACKLOG: i64 = 20_000;

/// Blocks touched by each step about one payment, or about a few.
async fn blocks_by_step(bank: &Bank) -> Vec<(&'static str, i64)> {
    let id = |n: i64| PaymentId::new(format!("pay_{n}")).unwrap();
    let mut touched = Vec::new();
    blocks(bank).await;
    for n in STORED + 1..STORED + 8 {
        touched.clear();
        let claimed = bank.ledger.claim_accepted(10, 60_000, 100).await.unwrap();
        assert_eq!(claimed.len(), 10);
        touched.push(("claim ten accepted payments", blocks(bank).await));
        bank.ledger.mark_started(&id(n)).await.unwrap();
        touched.push(("mark a payment as started", blocks(bank).await));
        bank.ledger.first_attempt(&id(n)).await.unwrap();
        touched.push(("the first attempt", blocks(bank).await));
        bank.ledger.lookup_key(&id(n), &keys::submit(&TxId::derive(&id(n))).to_string()).await.unwrap();
        touched.push(("the lookup key", blocks(bank).await));
        bank.ledger.begin_cancel(&id(n), &Cause::CustomerCancel, SubmitProgress::NotScheduled).await.unwrap();
        touched.push(("begin a cancel", blocks(bank).await));
    }
    touched
}

/// The planner takes an index of open rows for nearly empty while the statistics say that nothing is. A condition that fits it
/// must not send the lookup of one payment there.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_steps_cost_the_same_with_statistics_from_before_a_backlog(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    store(&bank, 1, STORED).await;
    // Without foreign keys: a closed exception needs no decision here.
    bank.sql("SET session_replication_role = replica").await;
    bank.sql("UPDATE payments SET ended_at = now(), state = 'settled' WHERE ended_at IS NULL").await;
    for (table, rows) in [
        (
            "exceptions",
            "(payment_id, kind, origin, detail, closed_at, closed_by) SELECT payment_id, 'late_confirmation', payment_id, '', now(), 'x'",
        ),
        (
            "submissions",
            "(payment_id, attempt, outcome, answered_at) SELECT payment_id, 1, 'accepted', now()",
        ),
    ] {
        bank.sql(&format!("INSERT INTO {table} {rows} FROM payments")).await;
    }
    bank.sql("VACUUM ANALYZE").await;
    bank.sql("ALTER TABLE payments SET (autovacuum_enabled = off)").await;
    let profile = serde_json::to_value(&bank.order("backlog").profile).unwrap();
    let profile_hash = bank.store_profile(&profile).await;
    let backlog = format!(
        "INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, amount_minor, currency,
                               switch, profile_hash, needs_account_lock, request_hash, response_body, workflow_id, valid_until)
         SELECT 'pay_' || n, 'tx_' || n, 'tenant-1', 'client', 'source', 'destination', 100, 'EUR', 'mock', {profile_hash}, false, '', '', 'pay_' || n,
                now() + interval '1 day'
         FROM generate_series({}, {}) AS n",
        STORED + 1,
        STORED + BACKLOG,
    );
    bank.sql(&backlog).await;
    for (table, rows) in [
        (
            "exceptions",
            "(payment_id, kind, origin, detail) SELECT payment_id, 'late_confirmation', payment_id, ''",
        ),
        (
            "submissions",
            "(payment_id, attempt, outcome, answered_at, transfer_id) SELECT payment_id, 1, 'accepted', now(), payment_id",
        ),
    ] {
        bank.sql(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await;
        bank.sql(&format!("INSERT INTO {table} {rows} FROM payments WHERE state = 'accepted'")).await;
    }
    bank.sql("RESET session_replication_role").await;
    let touched = blocks_by_step(&bank).await;
    println!("{touched:?}");
    // A step reads a few rows of some tables, a claim the hundred first payments of the queue.
    let many: Vec<_> = touched.iter().filter(|(_, blocks)| *blocks > 500).collect();
    assert!(many.is_empty(), "blocks touched beside a backlog of {BACKLOG}: {many:?}");
    bank.close().await;
}
