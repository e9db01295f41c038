//! `payctl ledger`, including a database that was changed manually.

use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::audit::seal::heads::HeadsKey;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::Money;
use serde_json::Value;
use sqlx::PgPool;

use crate::run::payctl;
use crate::scratch_database::ScratchDatabase;

/// A ledger with two sealed deposits.
async fn sealed() -> (ScratchDatabase, PgPool) {
    let scratch = ScratchDatabase::migrated().await;
    let pool = PgPool::connect(scratch.url()).await.unwrap();
    let ledger = Ledger::new(pool.clone());
    let tenant = TenantId::new("demo").unwrap();
    for (account, amount_minor) in [("A-1", 100), ("A-2", 200)] {
        let account = AccountId::new(account).unwrap();
        ledger.open_account(&tenant, &account, Currency::EUR).await.unwrap();
        let money = Money::from_minor(amount_minor, Currency::EUR).unwrap();
        ledger.fund(&account, money, &format!("fund:{account}:1")).await.unwrap();
    }
    let sealed = Ledger::new(pool.clone()).seal(BatchSize::new(10)).await.unwrap();
    assert_eq!(sealed, SealOutcome::Batch { entries: 2, is_full: false });
    (scratch, pool)
}

/// Who may write all tables changes an entry and rebuilds the chain: nothing but the exported heads shows it.
#[tokio::test]
async fn exported_heads_find_a_rebuilt_chain_and_a_forged_line() {
    let (scratch, pool) = sealed().await;
    let ledger = Ledger::new(pool.clone());
    let key = |digit: &str| HeadsKey::parse(&format!("{}=", digit.repeat(43)).into()).unwrap();
    let heads = ledger.chain_heads().await.unwrap();
    let file = std::env::temp_dir().join(format!("heads-{}", uuid::Uuid::new_v4().simple()));
    let file_name = file.display().to_string();
    let public_key = key("A").public().unwrap().to_string();
    let verify = [
        "ledger",
        "verify",
        "--database-url",
        &scratch.reading_url(),
        "--heads",
        &file_name,
        "--heads-public-key",
        &public_key,
    ];
    let line = key("A").sign(&heads).unwrap();
    std::fs::write(&file, format!("{line}\n{line}\n")).unwrap();
    let output = payctl(&verify).await.success();
    assert!(output.contains("findings: 0"), "{output}");

    let forged = key("E").sign(&heads).unwrap();
    std::fs::write(&file, format!("{line}\n{forged}\n")).unwrap();
    let output = payctl(&verify).await.check_failed();
    assert!(output.contains("heads_line_invalid") && output.contains("line 2"), "{output}");

    std::fs::write(&file, format!("{line}\n")).unwrap();
    let rebuilt = "SET LOCAL session_replication_role = replica;
        UPDATE operations SET operation_key = 'other' WHERE operation_key = (SELECT operation_key FROM journal WHERE entry_id = 2);
        UPDATE journal SET operation_key = 'other' WHERE entry_id = 2;
        DELETE FROM journal_seals; DELETE FROM seal_batches; DELETE FROM sealed_balances; DELETE FROM sealed_hours;
        INSERT INTO journal_unsealed SELECT entry_id FROM journal";
    sqlx::raw_sql(rebuilt).execute(&pool).await.unwrap();
    assert!(matches!(ledger.seal(BatchSize::new(10)).await.unwrap(), SealOutcome::Batch { entries: 2, .. }));
    assert_eq!(ledger.verify(None).await.unwrap().findings, [], "the chain is whole");
    let output = payctl(&verify).await.check_failed();
    let head = heads.journal.unwrap().hash;
    assert!(output.contains(&format!("head_unknown   {head}")), "{output}");
    std::fs::remove_file(&file).unwrap();
    let output = payctl(&verify).await.refused();
    assert!(output.contains("cannot be read"), "{output}");
}

#[tokio::test]
async fn r36_payctl_ledger_verify_names_changed_entries_and_balances() {
    let (scratch, pool) = sealed().await;
    let url = scratch.reading_url();
    let verify = ["ledger", "verify", "--database-url", &url];
    let output = payctl(&verify).await.success();
    let mut lines = output.lines();
    let counts = lines.next().unwrap();
    let head = lines.next().unwrap().strip_prefix("head ").unwrap();
    assert_eq!(counts, "verified 2 entries in 1 sealed batch; not sealed yet: 0; findings: 0");
    let with_head = [&verify[..], &["--expect-head", head]].concat();
    assert_eq!(payctl(&with_head).await.success(), output);

    let other = "7".repeat(64);
    let output = payctl(&[&verify[..], &["--expect-head", &other]].concat()).await.check_failed();
    assert!(output.contains(&format!("head_unknown   {other}")), "{output}");
    let output = payctl(&[&verify[..], &["--expect-head", "7"]].concat()).await.refused();
    assert!(output.contains("64 hexadecimal digits"), "{output}");

    let change = "SET LOCAL session_replication_role = replica; UPDATE journal SET amount_minor = 300 WHERE entry_id = 2";
    sqlx::raw_sql(change).execute(&pool).await.unwrap();
    let output = payctl(&[&with_head[..], &["--json"]].concat()).await.check_failed();
    let document: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["head"], head, "expected the head of the unchanged hash chain");
    let named: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| ["finding", "subject"].map(|field| finding[field].as_str().unwrap()).join(" "))
        .filter(|named| !named.contains("_hour_"))
        .collect();
    let expected =
        ["entry_changed entry 2", "sealed_balance_differs internal:funding:EUR", "balance_differs A-2"];
    assert_eq!(named, expected);
}

#[tokio::test]
async fn r10_payctl_reads_account_balances_and_statements_at_an_instant() {
    let (scratch, pool) = sealed().await;
    let move_to = "SET LOCAL session_replication_role = replica;
                   UPDATE journal SET posted_at = '2026-01-31T23:00:00Z'::timestamptz + entry_id * interval '1 hour';
                   DELETE FROM sealed_hours;
                   INSERT INTO sealed_hours VALUES ('internal:funding:EUR', '2026-02-01T00:00:00Z', -100),
                                                   ('internal:funding:EUR', '2026-02-01T01:00:00Z', -200)";
    sqlx::raw_sql(move_to).execute(&pool).await.unwrap();
    let ledger = async |args: &[&str]| {
        payctl(&[&["ledger"], args, &["--database-url", &scratch.reading_url()]].concat()).await
    };

    let output = ledger(&["trial-balance", "--at", "2026-02-01T00:30:00Z"]).await.success();
    let expected = "\
account                   debit     credit
customers                         1.00 EUR
internal:claims:EUR               0.00 EUR
internal:escrow:EUR               0.00 EUR
internal:funding:EUR   1.00 EUR
internal:holding:EUR              0.00 EUR
internal:losses:EUR               0.00 EUR
sum in EUR                        0.00 EUR
";
    assert_eq!(output, expected);
    let output = ledger(&["balance", "internal:funding:EUR", "--at", "2026-02-01T00:00:00Z"]).await.success();
    assert!(
        output.contains("internal:funding:EUR   -1.00 EUR   0.00 EUR   -1.00 EUR   2026-02-01T00:00:00Z"),
        "{output}"
    );
    let from = ["--from", "2026-02-01T00:00:00Z"];
    let output =
        ledger(&[&["statement", "internal:funding:EUR", "--limit", "1"], &from[..]].concat()).await.success();
    assert!(
        output.contains("2026-02-01T00:00:00Z   2026-02-01   fund   -1.00 EUR         -1.00 EUR   A-1"),
        "{output}"
    );
    let next = output.split("--after ").nth(1).unwrap().trim();
    let rest = ["statement", "internal:funding:EUR", "--json", "--after", next];
    let output = ledger(&[&rest[..], &from[..]].concat()).await.success();
    let document: Value = serde_json::from_str(&output).unwrap();
    let entry = &document["entries"][0];
    assert_eq!(
        (&entry["amount_minor"], &entry["available_after_minor"]),
        (&(-200).into(), &(-300).into()),
        "{output}"
    );
    assert_eq!(
        (&document["next"], &document["closing"]["balance_minor"]),
        (&Value::Null, &(-300).into()),
        "{output}"
    );
    let output = ledger(&["balance", "nobody"]).await.refused();
    assert!(output.contains("the ledger has no account nobody"), "{output}");

    // A balance without an entry breaks the trial balance.
    let change = "SET LOCAL session_replication_role = replica; UPDATE accounts SET available_minor = 101 WHERE account_id = 'A-1'";
    sqlx::raw_sql(change).execute(&pool).await.unwrap();
    let output = ledger(&["trial-balance"]).await.check_failed();
    assert!(output.contains("sum in EUR                        0.01 EUR"), "{output}");
}
