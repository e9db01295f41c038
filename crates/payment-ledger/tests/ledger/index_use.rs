//! The cost of a payment does not grow with the number of payments: each step, each view and each comparison of a reconciliation
//! run reads its rows by a suitable index. PostgreSQL is configured to prefer any index to a sequential scan, as it does with
//! millions of rows, and the rows it reads are counted.

use std::time::Duration;

use crate::support::{AMOUNT_MINOR, Bank, SWITCH, Stage, event, failure, profile, return_part};
use payment_ledger::audit::reconcile::payments::Sources;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::steps::accept::NewPayment;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::Cause;
use payment_protocol::drift::Tolerance;
use payment_protocol::ids::{PaymentId, SwitchName};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use uuid::Uuid;

/// Tables that grow with the number of payments.
const GROWING: &[&str] = &[
    "alerts",
    "claims",
    "decisions",
    "exceptions",
    "holds",
    "inbox",
    "journal",
    "journal_seals",
    "notifications",
    "operations",
    "outbox",
    "outbox_keys",
    "payments",
    "recalls",
    "reconciled_payments",
    "returns",
    "running_workflows",
    "statement_lines",
    "submissions",
    "switch_callbacks",
    "timeline",
];

/// Settled payments whose rows must not be read.
const OTHERS: usize = 100;
/// Rows of one table that a step of one payment may read, at most.
const ROWS_MAX: i64 = 30;

/// Tables with more rows read since the last call than a step of `payments` payments may read. Requires a pool of one
/// connection, which flushes its own statistics.
async fn excessive_reads(bank: &Bank, payments: i64) -> Vec<String> {
    bank.sql("SELECT pg_stat_force_next_flush()").await;
    let excessive = format!(
        "SELECT relname || ': ' || seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
         WHERE relname IN ('{}') AND seq_tup_read + idx_tup_fetch > {ROWS_MAX} * {payments} ORDER BY 1",
        GROWING.join("', '")
    );
    let read = bank.words(&excessive).await;
    bank.sql("SELECT pg_stat_reset()").await;
    read
}

/// Planning the read of a payment costs several times the reading itself: where a step runs alone, too, its connection keeps the plan.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_connection_keeps_its_plan_of_the_read_of_a_payment(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 1).await;
    let p = bank.payment_at(Stage::Settled, "one").await;
    for _ in 0..10 {
        bank.debit(&p).await;
    }
    let planned = "SELECT CASE WHEN generic_plans > 0 THEN 'kept' ELSE custom_plans || ' plans' END FROM pg_prepared_statements
         WHERE statement LIKE 'SELECT p.payment_id AS \"payment_id!\", p.tenant_id%'";
    assert_eq!(bank.words(planned).await, ["kept"]);
    bank.close().await;
}

/// Also where the database does not plan for the batch: its plans of an inequality then expect a third of all seals.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_sealing_reads_the_entries_of_its_batch(_: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("plan_cache_mode", "force_generic_plan")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    bank.payment_at(Stage::Settled, "one").await;
    bank.sql(
        "SET session_replication_role = replica;
         INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT operation_key || n, payment_id || n, kind, debit_account, credit_account, amount_minor, currency
             FROM journal, generate_series(1, 20000) n WHERE kind = 'debit';
         INSERT INTO journal_seals (position, entry_id, hash)
             SELECT -n, -n, sha256(n::text::bytea) FROM generate_series(1, 20000) n;
         RESET session_replication_role;
         ANALYZE",
    )
    .await;
    excessive_reads(&bank, 1).await;
    let sealed = bank.ledger.seal(BatchSize::new(BatchSize::MAX)).await.unwrap();
    assert_eq!(sealed, SealOutcome::Batch { entries: 3, is_full: false }, "a deposit, a reserve and a debit");
    assert_eq!(excessive_reads(&bank, 1).await, Vec::<String>::new());
    bank.close().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_no_step_of_a_payment_scans_a_whole_table(_: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    for n in 0..OTHERS {
        let p = bank.payment_at(Stage::Settled, &format!("other {n}")).await;
        bank.ledger.store_callback(&failure(&p, &event(&p, "late"))).await.unwrap();
    }
    while let SealOutcome::Batch { .. } = bank.ledger.seal(BatchSize::new(BatchSize::MAX)).await.unwrap() {}
    bank.sql("ANALYZE").await;
    excessive_reads(&bank, 1).await;
    bank.sql("SELECT count(*) FROM journal WHERE amount_minor > 0").await;
    assert_eq!(
        excessive_reads(&bank, 1).await,
        [format!("journal: {}", 3 * OTHERS)],
        "a table scan was not detected"
    );

    let mut ids: Vec<PaymentId> = Vec::new();
    for stage in [
        Stage::Settled,
        Stage::Released,
        Stage::Rejected,
        Stage::Recalled,
        Stage::RecallRefused,
        Stage::Differing,
    ] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "advancing to {stage:?}");
        bank.ledger.store_callback(&failure(&p, &event(&p, "late"))).await.unwrap();
        assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "a callback after {stage:?}");
        bank.ledger.explain(&p.id, 100).await.unwrap().unwrap();
        assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "explain after {stage:?}");
        return_part(&bank, &p, "r", 1).await;
        assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "a return after {stage:?}");
        ids.push(p.id);
    }
    let (run, _) = bank.ledger.begin_reconciliation_run(None).await.unwrap();
    let sources = Sources { statements: vec![SwitchName::new(SWITCH).unwrap()], workflows: Some(run) };
    assert_eq!(bank.ledger.compare(&sources, &ids).await.unwrap().len(), ids.len());
    assert_eq!(excessive_reads(&bank, 6).await, [""; 0], "compare");
    bank.ledger.unmatched_statement_lines(0, 3).await.unwrap();
    bank.ledger.unmatched_callbacks(None, Tolerance::default(), 3).await.unwrap();
    bank.ledger.unmatched_workflows(run, None, Tolerance::default(), 3).await.unwrap();
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "unmatched");
    // The window begins after the others, in which nothing is open.
    let last = bank.number("SELECT max(entry_id) FROM journal WHERE payment_id IN (SELECT payment_id FROM payments ORDER BY accepted_at LIMIT 100)").await;
    bank.damage(format!(
        "UPDATE journal SET posted_at = posted_at - interval '1 day' WHERE entry_id <= {last}"
    ))
    .await;
    excessive_reads(&bank, 1).await;
    let (run, window) = bank.ledger.begin_reconciliation_run(Some(3_600)).await.unwrap();
    let window = window.unwrap();
    assert_eq!(excessive_reads(&bank, 6).await, [""; 0], "the beginning of a window");
    assert_eq!(window.after_entry_id, last);
    bank.ledger.payments_of_entries(run, &window, last, 3).await.unwrap();
    bank.ledger.listed_payments(run, None, 3).await.unwrap();
    bank.ledger.payments_of_lines(run, &window, 0, 3).await.unwrap();
    assert_eq!(excessive_reads(&bank, 6).await, [""; 0], "a window");
    let since = jiff::Timestamp::UNIX_EPOCH;
    assert!(!bank.ledger.ended_without_attempt(since, 3).await.unwrap().is_empty());
    bank.ledger.first_line_since(since).await.unwrap();
    bank.ledger.transfers_without_attempt(0, 3).await.unwrap();
    bank.ledger.ended_workflows_without_payment(&[ids[0].to_string()]).await.unwrap();
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "after lost commits");
    bank.ledger.audit_holds(Tolerance::default()).await.unwrap();
    assert_eq!(excessive_reads(&bank, 6).await, [""; 0], "hold audit");
    bank.close().await;
}

/// A plan that was made while the tables were empty is kept as long as their statistics are: an index must not be read as a whole either.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_no_step_scans_a_table_that_was_empty_when_it_was_planned(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    for table in GROWING {
        bank.sql(&format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await;
    }
    bank.sql("VACUUM ANALYZE").await;
    for n in 0..OTHERS {
        bank.payment_at(Stage::Settled, &format!("other {n}")).await;
    }
    excessive_reads(&bank, 1).await;
    bank.payment_at(Stage::Settled, "one more").await;
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0]);
    bank.close().await;
}

/// The rounds of restores run five times a second, and the claims are measured every few seconds.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_no_round_of_restores_reads_what_is_not_due(_: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    let due_after = async |ms, key: String| {
        let profile = SwitchProfile { restore_customer_after_ms: Some(ms), ..profile() };
        let order = NewPayment { profile, ..bank.order(&key) };
        bank.order_at(Stage::Sent, order).await
    };
    for n in 0..OTHERS {
        due_after(3_600_000, format!("later {n}")).await;
        let paid_back = due_after(0, format!("paid back {n}")).await;
        bank.ledger.restore(&paid_back.id).await.unwrap();
        bank.ledger.record_void(&paid_back.id, VoidReason::Rejected).await.unwrap();
        bank.ledger.release(&paid_back.id, &Cause::SlaExpired).await.unwrap();
    }
    bank.sql("ALTER TABLE claims DISABLE TRIGGER USER").await;
    bank.sql("UPDATE claims SET closed_at = closed_at - interval '2 days'").await;
    bank.sql("ALTER TABLE claims ENABLE TRIGGER USER").await;
    bank.sql("ANALYZE").await;
    excessive_reads(&bank, 1).await;

    due_after(0, "due".into()).await;
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "an attempt");
    assert_eq!(bank.ledger.overdue_restores().await.unwrap().count, 1);
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "the overdue restores");
    assert_eq!(bank.ledger.restore_all_due(Duration::ZERO).await.unwrap().restored, 1);
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "a round of restores");
    assert_eq!(bank.ledger.claims_by_switch().await.unwrap()[0].count, 1);
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "the claims by switch");
    bank.close().await;
}

/// Each payment-worker looks every second for the recalls that are due, and the unfinished ones are measured.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_no_round_of_recalls_reads_what_is_not_due(_: PgPoolOptions, connect: PgConnectOptions) {
    let connect = connect.options([("enable_seqscan", "off")]);
    let bank = Bank::new(PgPoolOptions::new().max_connections(1).connect_with(connect).await.unwrap());
    let charged_to_the_bank = async |key: String| {
        let profile = SwitchProfile { can_recall: true, recall_answer_within_s: 1_000, ..profile() };
        let p = bank.order_at(Stage::Confirmed, NewPayment { profile, ..bank.order(&key) }).await;
        bank.freeze(&p).await;
        bank.debit(&p).await;
        p
    };
    for n in 0..OTHERS {
        let later = charged_to_the_bank(format!("later {n}")).await;
        bank.ledger.begin_recall_after_end(&later.id, Uuid::new_v4()).await.unwrap();
        let returned = charged_to_the_bank(format!("returned {n}")).await;
        return_part(&bank, &returned, "r", AMOUNT_MINOR).await;
    }
    bank.sql("UPDATE recalls SET updated_at = updated_at - interval '2 days' WHERE status = 'closed'").await;
    // A busy machine takes longer for the loop than a recall waits.
    bank.sql(
        "UPDATE recalls SET next_attempt_at = now() + interval '1 hour' WHERE next_attempt_at IS NOT NULL",
    )
    .await;
    bank.sql("ANALYZE").await;
    excessive_reads(&bank, 1).await;

    let due = charged_to_the_bank("due".into()).await;
    bank.ledger.begin_recall_after_end(&due.id, Uuid::new_v4()).await.unwrap();
    bank.sql(&format!("UPDATE recalls SET next_attempt_at = now() WHERE payment_id = '{}'", due.id)).await;
    excessive_reads(&bank, 1).await;
    let switch = SwitchName::new(SWITCH).unwrap();
    assert_eq!(bank.ledger.due_recalls(&switch, 10).await.unwrap(), [due.id]);
    assert_eq!(excessive_reads(&bank, 1).await, [""; 0], "the due recalls");
    assert_eq!(bank.ledger.recalls_by_switch().await.unwrap()[0].unfinished, OTHERS as i64 + 1);
    assert_eq!(
        excessive_reads(&bank, 1).await,
        [format!("recalls: {}", OTHERS + 1)],
        "the recalls by switch: those that are not finished"
    );
    bank.close().await;
}
