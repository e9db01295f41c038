//! `payctl login`, `logout` and `changes`.

use std::os::unix::fs::PermissionsExt as _;

use crate::run::{CommandResult, payctl};
use crate::staff::{PASSWORD, Staff, proposed};

#[tokio::test]
async fn payctl_logs_in_acts_in_the_session_and_logs_out() {
    let staff = Staff::open().await;
    let mode = std::fs::metadata(staff.operators.session("ann")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "nobody else reads the session");
    let error = staff.operators.log_in("eve", PASSWORD).await.refused();
    assert!(error.contains("login_refused"), "{error}");
    let error = staff.ann(&["login", "ann"]).await.refused();
    assert!(error.contains("no password was given"), "{error}");
    let elsewhere = ["login", "ann", "--operator-api", "http://bank.example:8081"];
    let error = staff.ann(&elsewhere).await.refused();
    assert!(error.contains("is not encrypted; use https"), "{error}");

    assert_eq!(staff.ann(&["changes", "list"]).await.success(), "no change waits for another operator\n");
    assert_eq!(staff.ann(&["logout"]).await.success(), "ann is logged out\n");
    for command in [&["changes", "list"][..], &["logout"]] {
        let error = staff.ann(command).await.refused();
        assert!(error.contains("nobody is logged in") && error.contains("run: payctl login"), "{error}");
    }
    // A session that ended elsewhere.
    sqlx::query("UPDATE operator_sessions SET ended_at = clock_timestamp() WHERE ended_at IS NULL")
        .execute(&staff.pool)
        .await
        .unwrap();
    let error = staff.bob(&["changes", "list"]).await.refused();
    assert!(error.contains("the session is unknown or has ended; log in again (unauthorized)"), "{error}");
}

#[tokio::test]
async fn payctl_lists_shows_and_withdraws_changes_and_refuses_ones_own() {
    let staff = Staff::open().await;
    staff.account("A-1").await;
    let fund = ["accounts", "fund", "A-1", "--tenant", "acme", "--amount", "12.5", "--reason", "cash desk"];
    let output = staff.ann(&fund).await.success();
    let id = proposed(&output);
    let list = staff.bob(&["changes", "list"]).await.success();
    let row =
        "account_id=A-1 amount=12.50 EUR currency=EUR tenant_id=acme   ann           cash desk   proposed";
    assert!(list.contains(id) && list.contains(row), "{list}");
    let shown = staff.bob(&["changes", "show", id]).await.success();
    assert!(
        shown.contains("kind          fund_account") && shown.contains("status        proposed"),
        "{shown}"
    );
    let error = staff.ann(&["changes", "confirm", id, "--reason", "r"]).await.refused();
    assert!(error.contains("role_missing"), "{error}");
    let error = staff.bob(&["changes", "confirm", "../sessions", "--reason", "r"]).await.refused();
    assert!(error.contains("is not the id of a change"), "{error}");
    let withdrawn = staff.bob(&["changes", "withdraw", id, "--reason", "the wrong account"]).await.success();
    assert!(withdrawn.contains("withdrawn: the wrong account"), "{withdrawn}");
    let error = staff.bob(&["changes", "confirm", id, "--reason", "r"]).await.refused();
    assert!(error.contains("the change is withdrawn by bob (change_refused)"), "{error}");
    let all = staff.json(&["changes", "list", "--all"]).await;
    let kinds: Vec<_> =
        all["changes"].as_array().unwrap().iter().map(|change| change["kind"].clone()).collect();
    assert_eq!(kinds, ["fund_account", "open_account"], "newest first");
    // Without the owner's rights and without a session there is no other way.
    let error = payctl(&["accounts", "freeze", "A-1", "--reason", "r", "--session", "/nonexistent/s.json"])
        .await
        .refused();
    assert!(error.contains("nobody is logged in"), "{error}");
}

/// Two administrators create an operator; neither has the rights of the database's owner.
#[tokio::test]
async fn administrators_manage_operators_in_their_sessions() {
    let staff = Staff::open().await;
    let owner = ["--as-owner", "--database-url", staff.scratch.url()];
    for name in ["amy", "abe"] {
        let create = ["operators", "create", name, "--role", "administrator"];
        let output = payctl(&[&create[..], &owner].concat()).await.success();
        let password = output.lines().next().unwrap();
        staff.operators.log_in(name, password).await.success();
    }
    let act = async |name: &str, args: &[&str]| {
        CommandResult::of(staff.operators.command(name, args).output().await.unwrap())
    };
    let create = [
        "operators",
        "create",
        "zoe",
        "--role",
        "approver",
        "--issuer",
        "https://login.example",
        "--subject",
        "7",
    ];
    let error = act("amy", &create).await;
    assert!(error.stderr.contains("--reason <TEXT>"), "{error:?}");
    let with_reason = [&create[..], &["--reason", "a new colleague"]].concat();
    let error = act("ann", &with_reason).await.refused();
    assert!(
        error.contains("does not have the role administrator") && error.contains("role_missing"),
        "{error}"
    );
    let output = act("amy", &with_reason).await.success();
    let confirm = ["changes", "confirm", proposed(&output), "--reason", "seen"];
    let confirmed = act("abe", &confirm).await.success();
    assert!(
        confirmed.contains("create_operator") && confirmed.contains("confirmed by   abe: seen"),
        "{confirmed}"
    );
    let listed = act("bob", &["operators", "list"]).await.success();
    let zoe = listed.lines().find(|line| line.starts_with("zoe")).unwrap();
    assert!(
        zoe.contains("approver") && zoe.contains("7 of https://login.example") && zoe.contains("active"),
        "{zoe}"
    );
    let output = act("amy", &["operators", "disable", "zoe", "--reason", "left"]).await.success();
    assert_eq!(output, "operator zoe is disabled; the operator's sessions have ended\n");
    let listed = staff.json(&["operators", "list"]).await;
    assert!(
        listed["operators"].as_array().unwrap().iter().any(|operator| operator["disabled_at"].is_string())
    );
    // A password is known to who makes it.
    let error = act("amy", &["operators", "create", "zed", "--role", "viewer", "--reason", "r"]).await;
    assert!(error.stderr.contains("--issuer <URL>"), "{error:?}");
}
