//! `payctl audit`: what operators did with payctl, and in the database beside it.

use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use serde_json::Value;
use sqlx::PgPool;

use crate::run::payctl;
use crate::scratch_database::ScratchDatabase;

#[tokio::test]
async fn payctl_audit_lists_what_operators_did_with_payctl_and_without() {
    let scratch = ScratchDatabase::migrated().await;
    let database = ["--database-url", scratch.url()];
    let audit = |options: &[&'static str]| {
        let arguments = [&["audit"], &database[..], options].concat();
        async move { payctl(&arguments).await.success() }
    };
    assert_eq!(audit(&[]).await, "no entry of the audit log matches\n");

    payctl(&[&["accounts", "open", "A-1", "--currency", "EUR"], &database[..]].concat()).await.success();
    payctl(&[&["accounts", "freeze", "A-1"], &database[..]].concat()).await.success();
    let stop = ["kill-switch", "stop", "--switch", "mock", "--by", "Ann", "--reason", "it hangs"];
    payctl(&[&stop, &database[..]].concat()).await.success();
    let pool = PgPool::connect(scratch.url()).await.unwrap();
    sqlx::query("UPDATE accounts SET status = 'active'").execute(&pool).await.unwrap();

    let output = audit(&[]).await;
    let lines: Vec<&str> = output.lines().collect();
    // Newest first, below the heading.
    assert!(
        lines[1].contains("update accounts A-1") && lines[1].contains("status: frozen -> active"),
        "{output}"
    );
    assert!(!lines[1].contains("payctl"), "{output}");
    assert!(lines[2].contains("Ann") && lines[2].contains("it hangs"), "{output}");
    assert!(lines[3].contains("status: active -> frozen") && lines[3].contains("payctl "), "{output}");
    assert!(lines[4].contains("insert accounts A-1"), "{output}");

    let document: Value = serde_json::from_str(&audit(&["--by", "ann", "--json"]).await).unwrap();
    let entries = document["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{document}");
    assert_eq!(entries[0]["after"]["switch"], "mock");
    assert_eq!(entries[0]["is_sealed"], false);
    let program = entries[0]["program"].as_str().unwrap();
    assert!(program.starts_with("payctl ") && program.contains('@'), "{program}");
    assert_eq!(audit(&["--subject", "A-1", "--since", "1h"]).await.lines().count(), 4);

    let sealed = Ledger::new(pool.clone()).seal_audit_log(BatchSize::new(10)).await.unwrap();
    assert_eq!(sealed, SealOutcome::Batch { entries: 4, is_full: false });
    let verify = [&["ledger", "verify"], &database[..]].concat();
    let output = payctl(&verify).await.success();
    assert!(output.contains("verified 4 sealed entries of the audit log; not sealed yet: 0"), "{output}");
    let (_, head) = output.trim_end().split_once("head of the audit log ").unwrap();
    let with_head = [&verify[..], &["--expect-head", head]].concat();
    payctl(&with_head).await.success();

    let forged = "SET LOCAL session_replication_role = replica; UPDATE audit_log SET operator = 'Bob' WHERE operator = 'Ann'";
    sqlx::raw_sql(forged).execute(&pool).await.unwrap();
    let output = payctl(&with_head).await.check_failed();
    assert!(output.contains("audit_log_entry_changed"), "{output}");
    let options = ["audit", "--since", "tomorrow"];
    let output = payctl(&[&options, &database[..]].concat()).await.refused();
    assert!(output.contains("48h"), "{output}");
}
