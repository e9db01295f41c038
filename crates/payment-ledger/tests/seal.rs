//! Sealing: every committed entry is sealed once, whatever else goes on, and internal balances are exact meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use iso_currency::Currency;
use payment_ledger::LedgerError;
use payment_ledger::accounts::{InternalAccount, internal_balance};
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::steps::accept::NewPayment;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor as _, PgConnection, PgPool};
use support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage};

/// All that waits, in batches of `size`.
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

/// Asserts that a verification finds nothing, and that nothing waits.
async fn assert_sound(bank: &Bank) {
    let verified = bank.ledger.verify(None).await.unwrap();
    assert_eq!(verified.findings, []);
    assert_eq!((verified.unsealed, verified.entries), (0, bank.number("SELECT count(*) FROM journal").await));
}

/// Internal balances as the ledger gives them and as all entries give them, on one connection.
async fn balances(connection: &mut PgConnection) -> Vec<(String, i64, i64)> {
    let mut balances = vec![];
    for account in [InternalAccount::Holding, InternalAccount::Escrow, InternalAccount::Funding] {
        let given = internal_balance(&mut *connection, account, Currency::EUR).await.unwrap();
        let id = account.account(Currency::EUR);
        let summed = sqlx::query_scalar(
            "SELECT coalesce(sum(CASE WHEN credit_account = $1 THEN amount_minor ELSE -amount_minor END), 0)::bigint
             FROM journal WHERE $1 IN (credit_account, debit_account)",
        )
        .bind(&id)
        .fetch_one(&mut *connection)
        .await
        .unwrap();
        balances.push((id, given, summed));
    }
    balances
}

/// The chain by PostgreSQL's own SHA-256, from what decision 0013 says of it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_hash_chain_is_as_documented(pool: PgPool) {
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
    assert_eq!(verified.findings, [], "a head that was noted earlier is a link of the chain");
    assert_eq!(verified.head.unwrap().to_string(), heads[1]);
}

/// An entry that is committed after a later one was sealed is sealed next.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_an_entry_committed_late_is_sealed_next(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.open("purse", 0).await;
    let pay_in = |key: &str| {
        format!(
            "INSERT INTO operations (operation_key, outcome) VALUES ('{key}', 'done');
             INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('{key}', 'fund', 'internal:funding:EUR', 'purse-{key}', 1, 'EUR')"
        )
    };
    bank.open("purse-late", 0).await;
    bank.open("purse-soon", 0).await;
    let mut late = bank.pool.begin().await.unwrap();
    late.execute(sqlx::AssertSqlSafe(pay_in("late"))).await.unwrap();
    bank.sql(&pay_in("soon")).await;
    assert_eq!(seal_all(&bank, 10).await, 1, "what is committed");
    late.commit().await.unwrap();
    assert_eq!(seal_all(&bank, 10).await, 1);
    let order = "SELECT operation_key FROM journal_seals JOIN journal USING (entry_id) ORDER BY position";
    assert_eq!(bank.words(order).await, ["soon", "late"]);
    assert_sound(&bank).await;
}

/// R34, R36: 64 writers on one holding and one escrow account beside three sealers: all is sealed once, nobody waits, and the
/// balances are exact in every snapshot.
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
        let mut looks = 0;
        while writing.load(Ordering::Relaxed) {
            let mut look = bank.pool.begin().await.unwrap();
            look.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ").await.unwrap();
            for (account, given, summed) in balances(&mut look).await {
                assert_eq!(given, summed, "{account}");
            }
            looks += 1;
        }
        looks
    };
    let ((), (batches, looks)) = join(writers, join(sealers, reader)).await;
    assert!(
        batches.iter().sum::<usize>() > 1 && looks > 1,
        "they ran beside each other: {batches:?}, {looks}"
    );
    seal_all(&bank, 1_000).await;
    assert_sound(&bank).await;
    bank.audit().await;
    bank.close().await;
}

/// A sealer whose connection dies has sealed nothing; the next one seals all of it, once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_killed_sealer_leaves_no_partial_batch(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 4).await;
    bank.payment_at(Stage::Settled, "k").await;
    // It is held up where it has written its seals and not yet the batch.
    let mut gate = bank.pool.begin().await.unwrap();
    gate.execute("LOCK TABLE seal_batches IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let killer = async {
        let deadline = Instant::now() + Duration::from_secs(30);
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO seal_batches%' AND datname = current_database()";
        while bank.number(kill).await == 0 {
            assert!(Instant::now() < deadline, "the sealer never came to the gate");
        }
    };
    let (sealed, ()) = join(bank.ledger.seal(BatchSize::new(10)), killer).await;
    assert!(matches!(sealed, Err(LedgerError::Unavailable(_))), "{sealed:?}");
    gate.rollback().await.unwrap();
    assert_eq!(bank.number("SELECT count(*) FROM journal_seals").await, 0);
    assert_eq!(seal_all(&bank, 10).await, 3);
    assert_sound(&bank).await;
    bank.close().await;
}

/// What waits is counted, with the age of the oldest.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_unsealed_entries_are_counted_with_their_age(pool: PgPool) {
    let bank = Bank::new(pool);
    let waits = async || {
        let unsealed = bank.ledger.unsealed().await.unwrap();
        (unsealed.count, unsealed.oldest_s >= 60)
    };
    assert_eq!(waits().await, (0, false));
    bank.payment_at(Stage::Settled, "k").await;
    assert_eq!(waits().await, (3, false));
    tamper(&bank, "UPDATE journal SET posted_at = posted_at - interval '1 minute'").await;
    assert_eq!(waits().await, (3, true));
    seal_all(&bank, 2).await;
    assert_eq!(waits().await, (0, false));
}

/// Seals are as the journal is: written once. An entry waits until it is sealed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_the_database_rejects_changes_to_seals(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.payment_at(Stage::Settled, "sealed").await;
    seal_all(&bank, 10).await;
    bank.payment_at(Stage::Reserved, "waits").await;
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

/// What a tamperer may lay hands on.
const TABLES: [&str; 9] = [
    "journal",
    "journal_seals",
    "seal_batches",
    "journal_unsealed",
    "sealed_balances",
    "sealed_hours",
    "accounts",
    "operations",
    "holds",
];

/// Changes what the database itself does not let anybody change: its triggers are off.
async fn tamper(bank: &Bank, sql: &str) {
    bank.sql(&format!("SET LOCAL session_replication_role = replica; {sql}")).await;
}

async fn save(bank: &Bank) {
    for table in TABLES {
        bank.sql(&format!("CREATE TABLE saved_{table} AS TABLE {table}")).await;
    }
}

async fn restore(bank: &Bank) {
    for table in TABLES {
        let back =
            format!("DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE saved_{table}");
        tamper(bank, &back).await;
    }
}

/// Whoever owns the tables can switch their triggers off; each thing they can then do has its name.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_each_tampering_is_found(pool: PgPool) {
    let bank = Bank::new(pool);
    // Entries 1 to 10, in batches of two: 1-3 and 4-6 are settled payments, 7-8 a held one, 9-10 were paid in.
    bank.payment_at(Stage::Settled, "one").await;
    bank.payment_at(Stage::Settled, "two").await;
    bank.payment_at(Stage::Reserved, "held").await;
    bank.open("three", FUNDS_MINOR).await;
    bank.open("four", FUNDS_MINOR).await;
    assert_eq!(seal_all(&bank, 2).await, 10);
    let head = bank.ledger.verify(None).await.unwrap().head.unwrap();
    save(&bank).await;
    let insert =
        "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
                  VALUES ('forged', 'fund', 'internal:funding:EUR', 'four', 1, 'EUR')";
    #[rustfmt::skip]
    let table: &[(&str, &[(&str, &str)])] = &[
        ("UPDATE journal SET amount_minor = 1 WHERE entry_id = 9",
         &[("entry_changed", "entry 9"), ("sealed_balance_differs", "internal:funding:EUR"), ("balance_differs", "three")]),
        ("UPDATE journal SET posted_at = posted_at + interval '1 microsecond' WHERE entry_id = 4", &[("entry_changed", "entry 4")]),
        ("UPDATE journal SET operation_key = 'fund:four2' WHERE entry_id = 10",
         &[("entry_changed", "entry 10"), ("operation_differs", "entry 10")]),
        ("DELETE FROM journal WHERE entry_id = 10",
         &[("entry_missing", "entry 10"), ("sealed_balance_differs", "internal:funding:EUR"), ("balance_differs", "four")]),
        (insert, &[("entry_inserted", "entry 11"), ("operation_differs", "entry 11"), ("balance_differs", "four")]),
        ("DELETE FROM journal_seals WHERE entry_id = 9",
         &[("seal_missing", "position 9"), ("batch_broken", "batch 5"), ("entry_inserted", "entry 9")]),
        ("INSERT INTO journal_seals VALUES (11, 11, sha256('x'))", &[("seal_inserted", "position 11")]),
        ("UPDATE journal_seals SET position = 100 WHERE position = 9; UPDATE journal_seals SET position = 9 WHERE position = 10;
          UPDATE journal_seals SET position = 10 WHERE position = 100",
         &[("entry_moved", "position 10"), ("batch_broken", "batch 5")]),
        ("UPDATE journal_seals SET hash = sha256('x') WHERE entry_id = 4",
         &[("entry_changed", "entry 4"), ("batch_broken", "batch 2")]),
        ("UPDATE seal_batches SET hash = sha256('x') WHERE batch = 2",
         &[("batch_broken", "batch 2"), ("chain_broken", "batch 3")]),
        ("DELETE FROM seal_batches WHERE batch = 3", &[("chain_broken", "batch 4")]),
        ("UPDATE seal_batches SET last_position = 9000000000000000000 WHERE batch = 5", &[("batch_broken", "batch 5")]),
        ("UPDATE seal_batches SET first_position = 10 WHERE batch = 5", &[("chain_broken", "batch 5"), ("batch_broken", "batch 5")]),
        // The end of the chain cut off, with its entries waiting anew: what was noted elsewhere tells.
        ("DELETE FROM seal_batches WHERE batch = 5; DELETE FROM journal_seals WHERE position > 8;
          INSERT INTO journal_unsealed VALUES (9), (10);
          UPDATE sealed_balances SET balance_minor = balance_minor + 20000 WHERE account_id = 'internal:funding:EUR';
          UPDATE sealed_hours SET moved_minor = moved_minor + 20000 WHERE account_id = 'internal:funding:EUR'",
         &[("head_unknown", "HEAD")]),
        ("DELETE FROM seal_batches WHERE batch = 5", &[("head_unknown", "HEAD"), ("seal_inserted", "position 9")]),
        ("INSERT INTO journal_unsealed VALUES (9), (12)", &[("entry_waits_sealed", "entry 9"), ("entry_missing", "entry 12")]),
        ("UPDATE sealed_balances SET balance_minor = 1 WHERE account_id = 'internal:escrow:EUR'",
         &[("sealed_balance_differs", "internal:escrow:EUR")]),
        ("DELETE FROM sealed_balances WHERE account_id = 'internal:escrow:EUR'", &[("sealed_balance_differs", "internal:escrow:EUR")]),
        ("UPDATE sealed_hours SET moved_minor = 1 WHERE account_id = 'internal:escrow:EUR'", &[("sealed_hour_differs", "internal:escrow:EUR")]),
        ("UPDATE accounts SET available_minor = 7 WHERE account_id = 'three'", &[("balance_differs", "three")]),
        ("DELETE FROM operations WHERE operation_key = 'fund:three'", &[("operation_differs", "entry 9")]),
        ("UPDATE operations SET outcome = 'refused', reason = 'x' WHERE operation_key = 'fund:three'", &[("operation_differs", "entry 9")]),
        ("UPDATE holds SET status = 'released', closed_at = now() WHERE status = 'open'",
         &[("hold_differs", "pay_"), ("holding_differs", "internal:holding:EUR")]),
        ("UPDATE holds SET amount_minor = 1 WHERE status = 'open'",
         &[("hold_differs", "pay_"), ("holding_differs", "internal:holding:EUR")]),
        ("UPDATE accounts SET currency = 'USD' WHERE account_id = 'three'", &[("currency_does_not_balance", "EUR")]),
    ];
    for (tampering, expected) in table {
        tamper(&bank, tampering).await;
        let verified = bank.ledger.verify(Some(head)).await.unwrap();
        for (kind, of) in *expected {
            let of = of.replace("HEAD", &head.to_string());
            let named = verified
                .findings
                .iter()
                .any(|finding| finding.kind == *kind && finding.subject.starts_with(&of));
            assert!(named, "{tampering}\n{kind} {of} is not among {:#?}", verified.findings);
        }
        let blamed = verified.findings.iter().filter(|finding| finding.kind.starts_with("entry_"));
        for finding in blamed {
            let meant = expected.contains(&(finding.kind, finding.subject.as_str()));
            assert!(meant, "{tampering}\nnobody touched {finding:?}");
        }
        restore(&bank).await;
    }
    assert_eq!(bank.ledger.verify(Some(head)).await.unwrap().findings, [], "the original is as it was");
}
