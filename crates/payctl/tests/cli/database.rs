//! `payctl migrate`, `demo` and `accounts`.

use std::process::Stdio;

use serde_json::Value;
use sqlx::PgPool;

use crate::run::{command, payctl};
use crate::scratch_database::ScratchDatabase;
use crate::staff::Staff;

#[tokio::test]
async fn payctl_migrate_creates_the_database_and_is_idempotent() {
    let scratch = ScratchDatabase::new();
    let migrate = ["migrate", "--wait", "10", "--database-url", scratch.url()];
    let first = payctl(&migrate).await.success();
    assert!(first.starts_with("created database payctl_"), "{first}");
    assert!(first.contains("payment-ledger: applied 0001 accounts and journal\n"), "{first}");
    assert!(first.contains("idempotency: applied 0001 idempotency keys\n"), "{first}");
    assert_eq!(payctl(&migrate).await.success(), "payment-ledger: up to date\nidempotency: up to date\n");
}

#[tokio::test]
async fn concurrent_payctl_migrate_runs_apply_each_migration_once() {
    let scratch = ScratchDatabase::new();
    let migrate = ["migrate", "--database-url", scratch.url()];
    let (one, two) = tokio::join!(payctl(&migrate), payctl(&migrate));
    let both = one.success() + &two.success();
    assert_eq!(both.matches("created database").count(), 1, "{both}");
    assert_eq!(both.matches("applied 0001 accounts and journal").count(), 1, "{both}");
}

#[tokio::test]
async fn payctl_names_an_unreachable_or_outdated_database() {
    let unreachable = "postgres://payments@127.0.0.1:1/payments";
    let output = payctl(&["migrate", "--wait", "1", "--database-url", unreachable]).await.refused();
    assert!(output.contains("database payments at 127.0.0.1:1 cannot be opened"), "{output}");
    let output = payctl(&["demo", "--database-url", unreachable]).await.refused();
    assert!(output.contains("check --database-url"), "{output}");

    let scratch = ScratchDatabase::migrated().await;
    let pool = PgPool::connect(scratch.url()).await.unwrap();
    // The newest migration creates this function.
    sqlx::query("DROP FUNCTION check_exception_of_reconcile CASCADE").execute(&pool).await.unwrap();
    let output = payctl(&["demo", "--database-url", scratch.url()]).await.refused();
    assert!(output.contains("run: payctl migrate"), "{output}");
}

#[tokio::test]
async fn a_repeated_payctl_demo_has_the_same_result() {
    let scratch = ScratchDatabase::migrated().await;
    let demo = ["demo", "--json", "--database-url", scratch.url()];
    let first = payctl(&demo).await.success();
    assert_eq!(payctl(&demo).await.success(), first);

    let document: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(document["api_key"], "demo-key-not-for-production");
    assert_eq!(document["source_account"], "DE-ALICE-EUR");
    assert_eq!(document["destination_account"], "FR-CAROL-EUR");
    let accounts = document["accounts"].as_array().unwrap();
    let balances: Vec<[&str; 4]> = accounts
        .iter()
        .map(|account| {
            ["account_id", "currency", "available", "held"].map(|field| account[field].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        balances,
        [
            ["DE-ALICE-EUR", "EUR", "10000.00", "0.00"],
            ["DE-BOB-EUR", "EUR", "500.00", "0.00"],
            ["DE-DAVE-EUR", "EUR", "5.00", "0.00"],
            ["JP-HANA-JPY", "JPY", "1000000", "0"],
            ["BH-OMAR-BHD", "BHD", "1000.000", "0.000"],
        ]
    );

    let expected = "\
account           available        held   status
DE-ALICE-EUR   10000.00 EUR    0.00 EUR   active
DE-BOB-EUR       500.00 EUR    0.00 EUR   active
DE-DAVE-EUR        5.00 EUR    0.00 EUR   active
JP-HANA-JPY     1000000 JPY       0 JPY   active
BH-OMAR-BHD    1000.000 BHD   0.000 BHD   active

tenant                demo
client                demo-app
API key               demo-key-not-for-production
example destination   FR-CAROL-EUR
operators             ann, bob
their password        demo-operator-not-for-production
";
    assert_eq!(payctl(&["demo", "--database-url", scratch.url()]).await.success(), expected);
}

#[tokio::test]
async fn payctl_opens_funds_and_freezes_an_account() {
    let staff = Staff::open().await;
    let words = |args: &[&'static str]| [&["accounts"], args, &["A-1", "--tenant", "acme"]].concat();
    let accounts = async |args: &[&'static str]| staff.ann(&words(args)).await;
    let head = "account   available       held   status\n";
    let output = accounts(&["show"]).await.refused();
    assert!(output.contains("tenant acme has no account A-1"), "{output}");

    let open = ["open", "--currency", "EUR", "--reason", "a new customer"];
    assert_eq!(accounts(&open).await.success(), format!("{head}A-1        0.00 EUR   0.00 EUR   active\n"));
    accounts(&open).await.success();
    let output = accounts(&["open", "--currency", "JPY", "--reason", "r"]).await.refused();
    assert!(output.contains("account A-1 exists already"), "{output}");

    let fund = ["fund", "--amount", "12.5", "--reason", "cash desk"];
    let row = format!("{head}A-1       12.50 EUR   0.00 EUR   active\n");
    let first = accounts(&fund).await.success();
    // A repeat is the same proposal: the answer may have been lost.
    assert_eq!(accounts(&fund).await.success(), first);
    staff.both(&words(&fund)).await;
    assert_eq!(accounts(&["show"]).await.success(), row);
    for (amount, reason) in [("-1", "greater than zero"), ("1.234", "EUR has 2 decimals"), ("1e3", "plain")] {
        let output = accounts(&["fund", "--amount", amount, "--reason", "r"]).await.refused();
        assert!(output.contains(reason), "{output}");
    }

    assert!(accounts(&["freeze", "--reason", "a court order"]).await.success().ends_with("   frozen\n"));
    staff.both(&words(&["unfreeze", "--reason", "the order has ended"])).await;
    assert_eq!(accounts(&["show"]).await.success(), row);
}

#[tokio::test]
async fn a_closed_output_pipe_ends_payctl_silently() {
    let scratch = ScratchDatabase::migrated().await;
    // Closed before the start, so that the first write fails.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command(&["demo", "--database-url", scratch.url()])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
