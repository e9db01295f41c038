//! The receiving bank returns the money of a transfer that the switch had settled.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use testkit::system::OPENING_MINOR;
use testkit::wait::until;
use testkit::{System, SystemOptions};
use tokio::process::Command;

/// Runs `payctl` and reads its JSON.
async fn json_of(mut payctl: Command, arguments: &[&str]) -> anyhow::Result<Value> {
    let output = payctl.args(arguments).arg("--json").output().await?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// After the debit: an exception asks operators for the credit, which they make once, and the payment stays settled.
#[tokio::test]
async fn money_that_the_receiving_bank_returns_is_credited_by_operators() -> anyhow::Result<()> {
    let system = System::start("returned-money", SystemOptions::default().with_long_attempts()).await?;
    let operators = system.operators(&["ann", "ben"]).await?;
    let exceptions = async || json_of(system.command("payctl"), &["exceptions"]).await;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.switch.finish_transfer(&payment.reference, "return").await?;
    until("the exception of the return", Duration::from_secs(30), || async {
        let exceptions = system.exceptions(&payment.payment_id).await?;
        Ok((exceptions == ["returned_after_debit"]).then_some(()))
    })
    .await?;
    assert_eq!(system.state(&payment.payment_id).await?, "settled");
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "operators decide the credit");

    // The switch is queried before the credit, and says that the money came back.
    let listed = exceptions().await?;
    let number = listed["exceptions"][0]["exception_id"].to_string();
    let reason = ["--reason", "the switch returned it"];
    let evidence = ["--evidence", "statement 7, line 3"];
    let propose = [&["decide", "return-credit", number.as_str()], &reason[..], &evidence].concat();
    let proposed = json_of(operators.payctl(&system, "ann"), &propose).await?;
    let id = proposed["decision_id"].as_str().with_context(|| proposed.to_string())?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "a second operator confirms it");
    let confirm = [&["decide", "confirm", id], &reason[..]].concat();
    for _ in 0..2 {
        json_of(operators.payctl(&system, "ben"), &confirm).await?;
        assert_eq!(system.available().await?, OPENING_MINOR, "credited once");
    }
    let open = exceptions().await?;
    assert_eq!(open["exceptions"], json!([]), "closed by the credit");
    assert_eq!(system.state(&payment.payment_id).await?, "settled");
    let events: Vec<Value> =
        sqlx::query_scalar("SELECT body FROM outbox WHERE kind = 'transfer_returned' AND subject_key = $1")
            .bind(&payment.payment_id)
            .fetch_all(&system.database.pool)
            .await?;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!((&events[0]["returned_minor"], &events[0]["credited"]), (&json!(500), &json!("customer")));
    system.audit().await?;
    Ok(())
}
