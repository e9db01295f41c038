//! `payctl ledger`: over a database in which somebody has tampered.

use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use serde_json::Value;
use sqlx::PgPool;

use crate::run::payctl;
use crate::scratch::Scratch;

/// A book of two deposits, sealed.
async fn sealed() -> (Scratch, PgPool) {
    let scratch = Scratch::migrated().await;
    for (account, amount) in [("A-1", "1.00"), ("A-2", "2.00")] {
        let which = ["--database-url", scratch.url(), account];
        payctl(&[&["accounts", "open", "--currency", "EUR"], &which[..]].concat()).await.done();
        payctl(&[&["accounts", "fund", "--amount", amount], &which[..]].concat()).await.done();
    }
    let pool = PgPool::connect(scratch.url()).await.unwrap();
    let sealed = Ledger::new(pool.clone()).seal(BatchSize::new(10)).await.unwrap();
    assert_eq!(sealed, SealOutcome::Batch { entries: 2, is_full: false });
    (scratch, pool)
}

#[tokio::test]
async fn r36_what_was_tampered_with_is_named() {
    let (scratch, pool) = sealed().await;
    let verify = ["ledger", "verify", "--database-url", scratch.url()];
    let said = payctl(&verify).await.done();
    let (counts, head) = said.trim_end().split_once("\nhead ").unwrap();
    assert_eq!(counts, "2 entries in 1 batches, 0 unsealed, 0 findings");
    let expecting = [&verify[..], &["--expect-head", head]].concat();
    assert_eq!(payctl(&expecting).await.done(), said);

    let other = "7".repeat(64);
    let said = payctl(&[&verify[..], &["--expect-head", &other]].concat()).await.not_as_it_should_be();
    assert!(said.contains(&format!("head_unknown   {other}")), "{said}");
    let said = payctl(&[&verify[..], &["--expect-head", "7"]].concat()).await.refused();
    assert!(said.contains("64 hexadecimal digits"), "{said}");

    let tamper = "SET LOCAL session_replication_role = replica; UPDATE journal SET amount_minor = 300 WHERE entry_id = 2";
    sqlx::raw_sql(tamper).execute(&pool).await.unwrap();
    let said = payctl(&[&expecting[..], &["--json"]].concat()).await.not_as_it_should_be();
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["head"], head, "the chain is as it was, and the entry is not");
    let named: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| ["finding", "of"].map(|field| finding[field].as_str().unwrap()).join(" "))
        .filter(|named| !named.contains("_hour_"))
        .collect();
    let expected =
        ["entry_changed entry 2", "sealed_balance_differs internal:funding:EUR", "balance_differs A-2"];
    assert_eq!(named, expected);
}

#[tokio::test]
async fn r10_the_books_are_read_at_an_instant() {
    let (scratch, pool) = sealed().await;
    let move_to = "SET LOCAL session_replication_role = replica;
                   UPDATE journal SET posted_at = '2026-01-31T23:00:00Z'::timestamptz + entry_id * interval '1 hour';
                   DELETE FROM sealed_hours;
                   INSERT INTO sealed_hours VALUES ('internal:funding:EUR', '2026-02-01T00:00:00Z', -100),
                                                   ('internal:funding:EUR', '2026-02-01T01:00:00Z', -200)";
    sqlx::raw_sql(move_to).execute(&pool).await.unwrap();
    let ledger =
        async |args: &[&str]| payctl(&[&["ledger"], args, &["--database-url", scratch.url()]].concat()).await;

    let said = ledger(&["trial-balance", "--at", "2026-02-01T00:30:00Z"]).await.done();
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
    assert_eq!(said, expected);
    let said = ledger(&["balance", "internal:funding:EUR", "--at", "2026-02-01T00:00:00Z"]).await.done();
    assert!(
        said.contains("internal:funding:EUR   -1.00 EUR   0.00 EUR   -1.00 EUR   2026-02-01T00:00:00Z"),
        "{said}"
    );
    let from = ["--from", "2026-02-01T00:00:00Z"];
    let said =
        ledger(&[&["statement", "internal:funding:EUR", "--limit", "1"], &from[..]].concat()).await.done();
    assert!(said.contains("2026-02-01T00:00:00Z   fund   -1.00 EUR         -1.00 EUR   A-1"), "{said}");
    let next = said.split("--after ").nth(1).unwrap().trim();
    let rest = ["statement", "internal:funding:EUR", "--json", "--after", next];
    let said = ledger(&[&rest[..], &from[..]].concat()).await.done();
    let document: Value = serde_json::from_str(&said).unwrap();
    let entry = &document["entries"][0];
    assert_eq!(
        (&entry["amount_minor"], &entry["available_after_minor"]),
        (&(-200).into(), &(-300).into()),
        "{said}"
    );
    assert_eq!(
        (&document["next"], &document["closing"]["balance_minor"]),
        (&Value::Null, &(-300).into()),
        "{said}"
    );
    let said = ledger(&["balance", "nobody"]).await.refused();
    assert!(said.contains("there is no account nobody"), "{said}");

    // Money that came from nowhere does not add up.
    let tamper = "SET LOCAL session_replication_role = replica; UPDATE accounts SET available_minor = 101 WHERE account_id = 'A-1'";
    sqlx::raw_sql(tamper).execute(&pool).await.unwrap();
    let said = ledger(&["trial-balance"]).await.not_as_it_should_be();
    assert!(said.contains("sum in EUR                        0.01 EUR"), "{said}");
}
