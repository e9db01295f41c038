//! `payctl audit`: what operators did with payctl, and in the database beside it.

use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use serde_json::Value;

use crate::run::payctl;
use crate::staff::Staff;

#[tokio::test]
async fn payctl_audit_lists_what_operators_did_with_payctl_and_without() {
    let staff = Staff::open().await;
    let url = staff.scratch.reading_url();
    let database = ["--database-url", url.as_str()];
    let audit = |options: &[&'static str]| {
        let arguments = [&["audit"], &database[..], options].concat();
        async move { payctl(&arguments).await.success() }
    };
    assert_eq!(audit(&["--subject", "nobody"]).await, "no entry of the audit log matches\n");

    staff.account("A-1").await;
    let freeze = ["accounts", "freeze", "A-1", "--tenant", "acme", "--reason", "a court order"];
    staff.ann(&freeze).await.success();
    let stop = ["kill-switch", "stop", "--switch", "mock", "--reason", "it hangs"];
    staff.ann(&stop).await.success();
    let pool = staff.pool.clone();
    sqlx::query("UPDATE accounts SET status = 'active'").execute(&pool).await.unwrap();

    let output = audit(&["--subject", "A-1"]).await;
    let lines: Vec<&str> = output.lines().collect();
    // Newest first, below the heading.
    assert!(
        lines[1].contains("update accounts A-1") && lines[1].contains("status: frozen -> active"),
        "{output}"
    );
    assert!(!lines[1].contains("ann"), "{output}");
    assert!(lines[2].contains("status: active -> frozen") && lines[2].contains("ann"), "{output}");
    assert!(lines[3].contains("insert accounts A-1") && lines[3].contains("ann"), "{output}");
    let output = audit(&[]).await;
    assert!(output.contains("it hangs") && output.contains("a court order"), "{output}");

    let stops = audit(&["--by", "ann", "--object", "kill_switches", "--json"]).await;
    let document: Value = serde_json::from_str(&stops).unwrap();
    let entries = document["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{document}");
    assert_eq!(entries[0]["after"]["switch"], "mock");
    assert_eq!(entries[0]["is_sealed"], false);
    // The owner's own program names its user and machine.
    let disable = ["operators", "disable", "bob", "--as-owner", "--database-url"];
    let refused = payctl(&[&disable[..], &[url.as_str()]].concat()).await.refused();
    assert!(refused.contains("reset-password that of the database's owner"), "{refused}");
    payctl(&[&disable[..], &[staff.scratch.url()]].concat()).await.success();
    let disabled: Value =
        serde_json::from_str(&audit(&["--object", "operators", "--limit", "1", "--json"]).await).unwrap();
    let program = disabled["entries"][0]["program"].as_str().unwrap();
    assert!(program.starts_with("payctl ") && program.contains('@'), "{program}");
    assert_eq!(audit(&["--subject", "A-1", "--since", "1h"]).await.lines().count(), 4);

    let entries: i64 = sqlx::query_scalar("SELECT count(*) FROM audit_log").fetch_one(&pool).await.unwrap();
    let sealed = Ledger::new(pool.clone()).seal_audit_log(BatchSize::new(100)).await.unwrap();
    assert_eq!(sealed, SealOutcome::Batch { entries: entries.try_into().unwrap(), is_full: false });
    let verify = [&["ledger", "verify"], &database[..]].concat();
    let output = payctl(&verify).await.success();
    let verified = format!("verified {entries} sealed entries of the audit log; not sealed yet: 0");
    assert!(output.contains(&verified), "{output}");
    let (_, head) = output.trim_end().split_once("head of the audit log ").unwrap();
    let with_head = [&verify[..], &["--expect-head", head]].concat();
    payctl(&with_head).await.success();

    let forged = "SET LOCAL session_replication_role = replica; UPDATE audit_log SET operator = 'bob' WHERE operator = 'ann'";
    sqlx::raw_sql(forged).execute(&pool).await.unwrap();
    let output = payctl(&with_head).await.check_failed();
    assert!(output.contains("audit_log_entry_changed"), "{output}");
    let options = ["audit", "--since", "tomorrow"];
    let output = payctl(&[&options, &database[..]].concat()).await.refused();
    assert!(output.contains("48h"), "{output}");
}
