//! `audit::seal::verify`: each way to tamper with the ledger is found.

use crate::support::{Bank, FUNDS_MINOR, Stage};
use payment_ledger::audit::reconcile::window::ReconciliationWindow;
use payment_ledger::audit::seal::verify::VerificationFinding;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use sqlx::PgPool;

/// The tables that are tampered with.
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

async fn save(bank: &Bank) {
    for table in TABLES {
        bank.sql(&format!("CREATE TABLE saved_{table} AS TABLE {table}")).await;
    }
}

async fn restore(bank: &Bank) {
    for table in TABLES {
        let back =
            format!("DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE saved_{table}");
        bank.damage(back).await;
    }
}

/// A statement that tampers, and the expected findings: their kind and the beginning of their object. `HEAD` is the recorded head.
type Tampering = (&'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const TAMPERINGS: &[Tampering] = &[
    ("UPDATE journal SET amount_minor = 1 WHERE entry_id = 9",
     &[("entry_changed", "entry 9"), ("sealed_balance_differs", "internal:funding:EUR"), ("balance_differs", "three")]),
    ("UPDATE journal SET posted_at = posted_at + interval '1 microsecond' WHERE entry_id = 4", &[("entry_changed", "entry 4")]),
    ("UPDATE journal SET operation_key = 'fund:four2' WHERE entry_id = 10",
     &[("entry_changed", "entry 10"), ("operation_differs", "entry 10")]),
    ("DELETE FROM journal WHERE entry_id = 10",
     &[("entry_missing", "entry 10"), ("sealed_balance_differs", "internal:funding:EUR"), ("balance_differs", "four")]),
    ("INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
      VALUES ('forged', 'fund', 'internal:funding:EUR', 'four', 1, 'EUR')",
     &[("entry_inserted", "entry 11"), ("operation_differs", "entry 11"), ("balance_differs", "four")]),
    ("INSERT INTO journal (entry_id, operation_key, kind, debit_account, credit_account, amount_minor, currency)
      OVERRIDING SYSTEM VALUE VALUES (-1, 'forged', 'fund', 'internal:funding:EUR', 'four', 1, 'EUR')",
     &[("entry_inserted", "entry -1"), ("operation_differs", "entry -1"), ("balance_differs", "four")]),
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
    // The last batch removed and its entries unsealed: found by the head that was recorded elsewhere.
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

/// The verification of a window finds what the whole one finds of the entries in it, besides sums over all entries.
async fn check_window(
    bank: &Bank,
    statement: &str,
    expected: &[(&str, &str)],
    whole: &[VerificationFinding],
) {
    const SUMS: &str = "sealed_balance_differs sealed_hour_differs balance_differs hold_differs holding_differs \
                        currency_does_not_balance head_unknown";
    for (after_entry_id, after_batch) in [(0, 0), (8, 4)] {
        let window = ReconciliationWindow {
            since: jiff::Timestamp::UNIX_EPOCH,
            after_entry_id,
            last_entry_id: i64::MAX,
            after_line_id: 0,
            after_batch,
        };
        let is_in = |kind: &str, subject: &str| {
            let (object, number) = subject.split_once(' ').unwrap_or((subject, "0"));
            let first = if object == "batch" { after_batch } else { after_entry_id };
            !SUMS.split(' ').any(|sum| sum == kind) && number.parse::<i64>().unwrap() > first
        };
        let found = bank.ledger.verify_window(&window).await.unwrap().findings;
        for (kind, subject) in expected.iter().filter(|(kind, subject)| is_in(kind, subject)) {
            let is_found = found.iter().any(|finding| finding.kind == *kind && finding.subject == *subject);
            assert!(
                is_found,
                "{statement}\nafter entry {after_entry_id}: {kind} {subject} not in {found:#?}"
            );
        }
        let unexpected: Vec<_> = found.iter().filter(|finding| !whole.contains(finding)).collect();
        assert!(unexpected.is_empty(), "{statement}\nafter entry {after_entry_id}: {unexpected:#?}");
    }
}

/// The owner of the tables can disable the triggers; each change that this allows has its own finding.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_journal_verification_finds_each_kind_of_tampering(pool: PgPool) {
    let bank = Bank::new(pool);
    // Entries 1 to 10, in batches of two: 1-3 and 4-6 are settled payments, 7-8 a reserved one, 9 and 10 fund entries.
    bank.payment_at(Stage::Settled, "one").await;
    bank.payment_at(Stage::Settled, "two").await;
    bank.payment_at(Stage::Reserved, "held").await;
    bank.open("three", FUNDS_MINOR).await;
    bank.open("four", FUNDS_MINOR).await;
    let mut sealed = 0;
    while let SealOutcome::Batch { entries, .. } = bank.ledger.seal(BatchSize::new(2)).await.unwrap() {
        sealed += entries;
    }
    assert_eq!(sealed, 10);
    let head = bank.ledger.verify(None).await.unwrap().head.unwrap();
    save(&bank).await;
    for (statement, expected) in TAMPERINGS {
        bank.damage((*statement).to_owned()).await;
        let verified = bank.ledger.verify(Some(head)).await.unwrap();
        for (kind, of) in *expected {
            let of = of.replace("HEAD", &head.to_string());
            let is_found = verified
                .findings
                .iter()
                .any(|finding| finding.kind == *kind && finding.subject.starts_with(&of));
            assert!(is_found, "{statement}\n{kind} {of} is not among {:#?}", verified.findings);
        }
        for finding in verified.findings.iter().filter(|finding| finding.kind.starts_with("entry_")) {
            let is_expected = expected.contains(&(finding.kind, finding.subject.as_str()));
            assert!(is_expected, "{statement}\nunexpected finding {finding:?}");
        }
        check_window(&bank, statement, expected, &verified.findings).await;
        restore(&bank).await;
    }
    assert_eq!(
        bank.ledger.verify(Some(head)).await.unwrap().findings,
        [],
        "the restored ledger has findings"
    );
}
