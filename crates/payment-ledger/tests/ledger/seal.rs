//! `audit::seal`: every committed entry is sealed once, also under concurrency, and internal balances are exact at any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::{AMOUNT_MINOR, Bank, Stage};
use futures::future::{join, join_all};
use iso_currency::Currency;
use payment_ledger::LedgerError;
use payment_ledger::accounts::{InternalAccount, internal_balance};
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::steps::accept::NewPayment;
use postgres_kit::{Connection, Pool};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor as _, PgPool};

/// Seals all waiting entries in batches of `size`; returns their number.
async fn seal_all(bank: &Bank, size: i64) -> usize {
    let mut sealed = 0;
    loop {
        match bank.ledger.seal(BatchSize::new(size)).await.unwrap() {
            SealOutcome::Batch { entries, .. } => sealed += entries,
            SealOutcome::NothingToSeal => return sealed,
            SealOutcome::Busy => tokio::task::yield_now().await,
        }
    }
}

/// Asserts that the verification finds nothing and that every entry is sealed.
async fn assert_all_sealed(bank: &Bank) {
    let verified = bank.ledger.verify(None).await.unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!((verified.unsealed, verified.entries), (0, bank.number("SELECT count(*) FROM journal").await));
}

/// Internal balances from the ledger, and as the sum of all entries, on one connection.
async fn balances(connection: &mut Connection) -> Vec<(String, i64, i64)> {
    let mut balances = vec![];
    for account in [InternalAccount::Holding, InternalAccount::Escrow, InternalAccount::Funding] {
        let reported = internal_balance(&mut *connection, account, Currency::EUR).await.unwrap();
        let id = account.account(Currency::EUR);
        let summed = sqlx::query_scalar(
            "SELECT coalesce(sum(CASE WHEN credit_account = $1 THEN amount_minor ELSE -amount_minor END), 0)::bigint
             FROM journal WHERE $1 IN (credit_account, debit_account)",
        )
        .bind(&id)
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        balances.push((id, reported, summed));
    }
    balances
}

/// Computes the chain with PostgreSQL's SHA-256, following the description in decision 0013.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_hash_chain_of_the_journal_is_as_documented(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.payment_at(Stage::Settled, "k").await;
    assert_eq!(seal_all(&bank, 2).await, 3);
    bank.sql(
        "CREATE FUNCTION field(b bytea) RETURNS bytea LANGUAGE sql AS 'SELECT int8send(octet_length(b)) || b';
         CREATE FUNCTION field(n bigint) RETURNS bytea LANGUAGE sql AS 'SELECT field(int8send(n))';
         CREATE FUNCTION field(t text) RETURNS bytea LANGUAGE sql AS $$ SELECT field(convert_to(t, 'UTF8')) $$;
         CREATE FUNCTION entry(j journal) RETURNS bytea LANGUAGE sql AS $$
             SELECT sha256(field('journal-entry/1'::text) || field(j.entry_id) || field(j.operation_key)
                 || field((j.payment_id IS NOT NULL)::int::bigint) || field(coalesce(j.payment_id, '')) || field(j.kind)
                 || field(j.debit_account) || field(j.credit_account) || field(j.amount_minor) || field(j.currency)
                 || field((extract(epoch FROM j.posted_at) * 1000000)::bigint)) $$",
    )
    .await;
    let heads = bank
        .words(
            "WITH entries AS (SELECT row_number() OVER (ORDER BY entry_id) AS place, entry(journal) AS hash FROM journal),
                  one AS (SELECT sha256(field('journal-batch/1'::text) || field(1::bigint) || field(1::bigint)
                              || field(decode(repeat('00', 32), 'hex')) || string_agg(field(hash), '' ORDER BY place)) AS hash
                          FROM entries WHERE place <= 2),
                  two AS (SELECT sha256(field('journal-batch/1'::text) || field(2::bigint) || field(3::bigint)
                              || field((SELECT hash FROM one)) || string_agg(field(hash), '' ORDER BY place)) AS hash
                          FROM entries WHERE place > 2)
             SELECT encode(hash, 'hex') FROM one UNION ALL SELECT encode(hash, 'hex') FROM two",
        )
        .await;
    assert_eq!(bank.words("SELECT encode(hash, 'hex') FROM seal_batches ORDER BY batch").await, heads);
    let verified = bank.ledger.verify(Some(heads[0].parse().unwrap())).await.unwrap();
    assert_eq!(verified.findings, [], "an earlier head was not found in the chain");
    assert_eq!(verified.head.unwrap().to_string(), heads[1]);
}

/// An entry that is committed after a later one is sealed is sealed next.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_journal_entry_committed_late_is_sealed_next(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.open("purse", 0).await;
    let fund = |key: &str| {
        format!(
            "INSERT INTO operations (operation_key, outcome) VALUES ('{key}', 'done');
             INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('{key}', 'fund', 'internal:funding:EUR', 'purse-{key}', 1, 'EUR')"
        )
    };
    bank.open("purse-late", 0).await;
    bank.open("purse-soon", 0).await;
    let mut late = Pool::from(bank.pool.clone()).begin().await.unwrap();
    late.execute(sqlx::AssertSqlSafe(fund("late"))).await.unwrap();
    bank.sql(&fund("soon")).await;
    assert_eq!(seal_all(&bank, 10).await, 1, "expected only the committed entry");
    late.commit().await.unwrap();
    assert_eq!(seal_all(&bank, 10).await, 1);
    let order = "SELECT operation_key FROM journal_seals JOIN journal USING (entry_id) ORDER BY position";
    assert_eq!(bank.words(order).await, ["soon", "late"]);
    assert_all_sealed(&bank).await;
}

/// R34, R36: 64 writers on one holding and one escrow account with three sealers: every entry is sealed once, and the balances are
/// exact in every snapshot.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r34_r36_balances_are_exact_with_64_writers_and_3_sealers(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 80).await;
    let account = bank.open("purse", 64 * 2 * AMOUNT_MINOR).await;
    let writing = AtomicBool::new(true);
    let writers = async {
        join_all((0..64).map(async |n| {
            for round in 0..2 {
                let order = bank.order(&format!("k{n}-{round}"));
                let p = bank.accept(&NewPayment { source_account: account.clone(), ..order }).await;
                bank.advance(&p, if n % 4 == 0 { Stage::Released } else { Stage::Settled }).await;
            }
        }))
        .await;
        writing.store(false, Ordering::Relaxed);
    };
    let sealers = join_all((0..3).map(async |n: i64| {
        let mut batches = 0;
        while writing.load(Ordering::Relaxed) {
            let sealed = bank.ledger.seal(BatchSize::new(5 + n)).await.unwrap();
            batches += usize::from(matches!(sealed, SealOutcome::Batch { .. }));
        }
        batches
    }));
    let reader = async {
        let mut samples = 0;
        while writing.load(Ordering::Relaxed) {
            let mut snapshot = Pool::from(bank.pool.clone()).begin().await.unwrap();
            snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.unwrap();
            for (account, reported, summed) in balances(&mut snapshot).await {
                assert_eq!(reported, summed, "{account}");
            }
            samples += 1;
        }
        samples
    };
    let ((), (batches, samples)) = join(writers, join(sealers, reader)).await;
    assert!(
        batches.iter().sum::<usize>() > 1 && samples > 1,
        "sealers and reader did not run concurrently: {batches:?}, {samples}"
    );
    seal_all(&bank, 1_000).await;
    assert_all_sealed(&bank).await;
    bank.audit().await;
    bank.close().await;
}

/// A sealer whose session is terminated leaves no seals; the next one seals every entry once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_killed_sealer_leaves_no_partial_batch(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 4).await;
    bank.payment_at(Stage::Settled, "k").await;
    // The lock blocks the sealer after it has inserted the seals and before it inserts the batch.
    let mut lock = Pool::from(bank.pool.clone()).begin().await.unwrap();
    lock.execute("LOCK TABLE seal_batches IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let killer = async {
        let deadline = Instant::now() + Duration::from_secs(30);
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO seal_batches%' AND datname = current_database()";
        while bank.number(kill).await == 0 {
            assert!(Instant::now() < deadline, "the sealer did not wait for the lock");
        }
    };
    let (sealed, ()) = join(bank.ledger.seal(BatchSize::new(10)), killer).await;
    assert!(matches!(sealed, Err(LedgerError::Unavailable(_))), "{sealed:?}");
    lock.rollback().await.unwrap();
    assert_eq!(bank.number("SELECT count(*) FROM journal_seals").await, 0);
    assert_eq!(seal_all(&bank, 10).await, 3);
    assert_all_sealed(&bank).await;
    bank.close().await;
}

/// Unsealed entries are counted, with the age of the oldest.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_sealer_that_finds_nothing_does_not_hold_up_the_next(pool: PgPool) {
    let bank = Bank::new(pool);
    for _ in 0..500 {
        let size = BatchSize::new(10);
        let outcomes =
            [bank.ledger.seal(size).await.unwrap(), bank.ledger.seal_audit_log(size).await.unwrap()];
        assert_eq!(outcomes, [SealOutcome::NothingToSeal; 2]);
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_unsealed_journal_entries_are_counted_with_the_oldest_age(pool: PgPool) {
    let bank = Bank::new(pool);
    let unsealed = async || {
        let measured = bank.ledger.unsealed().await.unwrap();
        (measured.count, measured.oldest_s >= 60)
    };
    assert_eq!(unsealed().await, (0, false));
    bank.payment_at(Stage::Settled, "k").await;
    assert_eq!(unsealed().await, (3, false));
    bank.damage("UPDATE journal SET posted_at = posted_at - interval '1 minute'".into()).await;
    assert_eq!(unsealed().await, (3, true));
    seal_all(&bank, 2).await;
    assert_eq!(unsealed().await, (0, false));
}

/// Seals are append-only, as the journal is, and an entry can leave the queue only by being sealed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_database_rejects_changes_to_seals(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.payment_at(Stage::Settled, "sealed").await;
    seal_all(&bank, 10).await;
    bank.payment_at(Stage::Reserved, "unsealed").await;
    for sql in [
        "UPDATE journal_seals SET hash = hash",
        "DELETE FROM journal_seals",
        "TRUNCATE journal_seals",
        "UPDATE seal_batches SET batch = batch",
        "DELETE FROM seal_batches",
        "TRUNCATE seal_batches",
        "UPDATE journal_unsealed SET entry_id = 7",
        "DELETE FROM journal_unsealed",
        "TRUNCATE journal_unsealed",
    ] {
        assert_eq!(bank.refused(sql).await.0, "23001", "{sql}");
    }
    let fork = "INSERT INTO seal_batches (batch, first_position, last_position, previous_hash, hash)
                SELECT 9, 4, 4, previous_hash, decode(repeat('07', 32), 'hex') FROM seal_batches";
    assert_eq!(bank.refused(fork).await.1, "seal_batches_previous_hash_key");
    assert_eq!(bank.ledger.verify(None).await.unwrap().findings, []);
}
