//! `payctl ledger`: over a database in which somebody has tampered.

use payment_ledger::Ledger;
use payment_ledger::seal::{BatchSize, Sealed};
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
    assert_eq!(sealed, Sealed::Batch { entries: 2, is_full: false });
    (scratch, pool)
}

#[tokio::test]
async fn r36_what_was_tampered_with_is_named() {
    let (scratch, pool) = sealed().await;
    let verify = ["ledger", "verify", "--database-url", scratch.url()];
    let said = payctl(&verify).await.done();
    let (counts, head) = said.trim_end().split_once("\nhead ").unwrap();
    assert_eq!(counts, "2 entries in 1 batches, 0 waiting, 0 findings");
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
