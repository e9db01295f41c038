//! R24 for operator-api: schemathesis sends valid and invalid requests of its OpenAPI document, in the session of an operator and without
//! one. No answer is 5xx, every answer is as documented, and nothing is decided without a session.

use anyhow::ensure;
use serde_json::json;
use testkit::system::{ALICE, AcceptedPayment, Operators};
use testkit::{System, SystemOptions};

use crate::schemathesis;

/// The document that a test of operator-api compares with the routes.
const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../operator-api/openapi.json");

#[tokio::test]
async fn r24_hostile_requests_in_an_operators_session_cause_no_server_error() -> anyhow::Result<()> {
    let (system, operators) = start("hostile-operator").await?;
    let token = operators.token("ann")?;
    send(&system, &operators, Some(&token)).await?;
    let changes: i64 =
        sqlx::query_scalar("SELECT count(*) FROM changes").fetch_one(&system.database.pool).await?;
    ensure!(changes > 1, "no generated request proposed a change");
    let open: i64 = sqlx::query_scalar("SELECT count(*) FROM decisions WHERE status = 'proposed'")
        .fetch_one(&system.database.pool)
        .await?;
    let decisions: i64 =
        sqlx::query_scalar("SELECT count(*) FROM decisions").fetch_one(&system.database.pool).await?;
    ensure!(open < decisions, "no generated request confirmed or withdrew a decision: {open} of {decisions}");
    // A generated request may have confirmed the other operator's deposit.
    let deposited: i64 =
        sqlx::query_scalar("SELECT count(*) FROM changes WHERE kind = 'fund_account' AND status = 'done'")
            .fetch_one(&system.database.pool)
            .await?;
    system.expect_deposit(deposited * 100);
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r24_hostile_requests_without_a_session_are_answered_401() -> anyhow::Result<()> {
    let (system, operators) = start("hostile-no-session").await?;
    send(&system, &operators, None).await?;
    let changes: i64 =
        sqlx::query_scalar("SELECT count(*) FROM changes").fetch_one(&system.database.pool).await?;
    ensure!(changes == 1, "a change was proposed without a session");
    let decisions: i64 =
        sqlx::query_scalar("SELECT count(*) FROM decisions").fetch_one(&system.database.pool).await?;
    ensure!(decisions == 1, "a decision was proposed without a session");
    let proposed: i64 = sqlx::query_scalar("SELECT count(*) FROM decisions WHERE status = 'proposed'")
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(proposed == 1, "a decision was confirmed or withdrawn without a session");
    ensure!(system.audit().await?.open == 2, "the books differ");
    Ok(())
}

async fn start(name: &str) -> anyhow::Result<(System, Operators)> {
    // The requests take longer than a payment usually waits.
    let system = System::start(name, SystemOptions::default().with_profile("sla_ms", 600_000)).await?;
    let operators = system.operators(&["ann", "bob"]).await?;
    Ok((system, operators))
}

/// A payment whose money left, and whose account was frozen meanwhile: operators must decide about it.
async fn waiting_payment(system: &System) -> anyhow::Result<AcceptedPayment> {
    let refuses = json!({"outcome": "hold", "recall": [{"fault": "refuse", "times": "always"}]});
    system.switch.set_default_behaviour(refuses).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.set_account_status(ALICE, "frozen").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    system.set_account_status(ALICE, "active").await?;
    Ok(payment)
}

/// Sends the requests. The system has a pending payment, one that waits for operators, and a change and a decision that bob proposed.
async fn send(system: &System, operators: &Operators, token: Option<&str>) -> anyhow::Result<()> {
    let waiting = waiting_payment(system).await?;
    let decision = operators.propose_debit(system, "bob", &waiting.payment_id).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let held = system.pay("2.00").await?;
    system.wait_for_state(&held.payment_id, "submitted").await?;
    let deposit = ["accounts", "fund", "ALICE", "--tenant", "test", "--amount", "1.00", "--reason", "a test"];
    operators.run(system, "bob", &deposit).await?;
    let change: String =
        sqlx::query_scalar("SELECT change_id FROM changes").fetch_one(&system.database.pool).await?;
    let mut command = schemathesis::command(DOCUMENT, "operator_api.toml", "operator_hooks.py")?;
    command
        .args(["--url", &operators.api.url()])
        // It would end the session of the other requests.
        .args(["--exclude-method", "DELETE"])
        .env("HOSTILE_PAYMENTS", format!("{},{}", held.payment_id, waiting.payment_id))
        .env("HOSTILE_CHANGE", change)
        .env("HOSTILE_DECISION", decision)
        .env("HOSTILE_WITHOUT_SESSION", if token.is_none() { "1" } else { "" });
    match token {
        Some(token) => command.args(["--header", &format!("Authorization: Bearer {token}")]),
        // All answers are 401, so the stateful and fuzzing phases add nothing.
        None => command.args(["--phases", "examples,coverage"]),
    };
    schemathesis::run(command).await
}
