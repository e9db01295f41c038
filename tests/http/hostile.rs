//! R24: schemathesis reads our OpenAPI document and sends what it says one may send, and what it says one may not, to a
//! real webhook over a real database: no 5xx, every answer as documented, nothing without a key.
//!
//! Always the same requests (`--generation-deterministic`), bounded in number and time. `hooks.py` puts ids that are there into requests,
//! signs callbacks and adds the check that nothing is told without a key; `schemathesis.toml` says which checks are
//! adjusted, and why.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::system::{API_KEY, SWITCH_SECRET, payment_request};
use testkit::{System, SystemOptions};
use tokio::process::Command;

/// Longer than the service holds any request, which may ask it to wait for the payment's end.
const REQUEST_TIMEOUT_S: &str = "45";
/// Requests of one operation in each phase.
const EXAMPLES_MAX: &str = "25";
/// A run takes less than a minute; one that hangs fails.
const WITHIN: Duration = Duration::from_secs(600);

/// Who sends the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    HasKey,
    HasNone,
}

#[tokio::test]
async fn r24_hostile_requests_with_a_key_cause_no_server_error() -> anyhow::Result<()> {
    let system = System::start("hostile", options()).await?;
    fuzz(&system, Caller::HasKey).await?;
    ensure!(payments(&system).await? > 3, "requests made payments, so they came past the checks");
    let callbacks: i64 = sqlx::query_scalar("SELECT count(*) FROM switch_callbacks WHERE status = 'FAILURE'")
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(callbacks > 0, "signed callbacks were stored");
    ensure!(cancels(&system).await? > 0, "a wish to cancel was stored");
    let rotated: i64 = sqlx::query_scalar("SELECT count(*) FROM webhook_endpoints WHERE secret_version > 1")
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(rotated > 0, "a secret was rotated, so requests came past the checks");
    // Hostile or not, each of them is one payment of the books.
    system.wait_until_all_have_ended().await?;
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r24_hostile_requests_without_a_key_are_answered_401() -> anyhow::Result<()> {
    let system = System::start("hostile-keyless", options()).await?;
    fuzz(&system, Caller::HasNone).await?;
    ensure!(payments(&system).await? == 3, "nobody made a payment");
    ensure!(cancels(&system).await? == 0, "nobody cancelled one");
    let endpoints: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM webhook_endpoints WHERE secret_version = 1 AND status = 'active'",
    )
    .fetch_one(&system.database.pool)
    .await?;
    ensure!(endpoints == 1, "nobody made, changed or deleted an endpoint");
    Ok(())
}

/// With a second switch, whose payments stay pending for as long as this takes.
fn options() -> SystemOptions {
    SystemOptions::default().with_other_switch(&[("sla_ms", json!(WITHIN.as_millis()))])
}

/// Runs schemathesis once, against a settled payment, one that waits for the switch and is called back about, and one that
/// waits and nobody is told of, so that it can be cancelled.
async fn fuzz(system: &System, caller: Caller) -> anyhow::Result<()> {
    let program = std::env::var_os("TEST_SCHEMATHESIS").context(
        "TEST_SCHEMATHESIS is not set: run the tests by `./dev test`, which installs schemathesis",
    )?;
    let settled = system.pay("1.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let held = system.pay("2.00").await?;
    system.wait_for_state(&held.payment_id, "submitted").await?;
    let endpoint = make_endpoint(system, caller).await?;
    // Pending until it is cancelled, however long the other requests take.
    let mut body = payment_request("3.00");
    body["destination_account"] = "YY-BOB".into();
    let cancellable = system.pay_with(&body).await?;
    system.wait_for_state(&cancellable.payment_id, "submitted").await?;
    system.switch.set_default_behaviour(json!({})).await?;

    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("http");
    let mut command = Command::new(program);
    command
        .args(["--config-file".as_ref(), here.join("schemathesis.toml").as_os_str()])
        .args(["run", &format!("{}/openapi.json", system.api.url())])
        .args(["--checks", "all", "--workers", "1", "--max-examples", EXAMPLES_MAX])
        .args(["--generation-deterministic", "--no-shrink", "--no-color"])
        .args([
            "--request-timeout",
            REQUEST_TIMEOUT_S,
            "--continue-on-failure",
            "--suppress-health-check",
            "all",
        ])
        .env("SCHEMATHESIS_HOOKS", here.join("hooks.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOSTILE_PAYMENTS", format!("{},{}", settled.payment_id, held.payment_id))
        .env("HOSTILE_CANCELLABLE", &cancellable.payment_id)
        .env("HOSTILE_ENDPOINT", &endpoint)
        .env("HOSTILE_EVENT", format!("{}:transfer_sent", settled.payment_id))
        .env("HOSTILE_REFERENCE", &held.reference)
        .env("HOSTILE_SWITCH_SECRET", SWITCH_SECRET)
        .env("HOSTILE_KEYLESS", if caller == Caller::HasNone { "1" } else { "" })
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    match caller {
        Caller::HasKey => command.args(["--header", &format!("Authorization: Bearer {API_KEY}")]),
        // One answer to everything: nothing to go on from, and little to vary.
        Caller::HasNone => command.args(["--phases", "examples,coverage"]),
    };
    let ran = tokio::time::timeout(WITHIN, command.output())
        .await
        .with_context(|| format!("schemathesis did not end within {WITHIN:?}"))?
        .context("schemathesis cannot be started")?;
    let said = String::from_utf8_lossy(&ran.stdout);
    ensure!(ran.status.success(), "{}:\n{said}\n{}", ran.status, String::from_utf8_lossy(&ran.stderr));
    let status: String = sqlx::query_scalar("SELECT status FROM webhook_endpoints WHERE endpoint_id = $1")
        .bind(&endpoint)
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(status != "deleted", "the requests had an endpoint to find, to the end");
    Ok(())
}

/// An endpoint with a delivery, so that requests find one; nothing is sent, since no notifier runs.
async fn make_endpoint(system: &System, caller: Caller) -> anyhow::Result<String> {
    let url = format!("{}/api/v1/webhook-endpoints", system.api.url());
    let request =
        testkit::http().post(url).bearer_auth(API_KEY).header("Idempotency-Key", format!("{caller:?}"));
    let answer =
        request.json(&json!({"url": "https://bank.example/hooks"})).send().await?.error_for_status()?;
    let made: serde_json::Value = answer.json().await?;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body)
         SELECT endpoint_id, payment_id || ':transfer_sent', 'transfer_sent', '{}' FROM webhook_endpoints, payments",
    )
    .execute(&system.database.pool)
    .await?;
    made["endpoint_id"].as_str().map(str::to_owned).context("no endpoint_id")
}

async fn payments(system: &System) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&system.database.pool).await?)
}

async fn cancels(system: &System) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM inbox WHERE kind = 'cancel'")
        .fetch_one(&system.database.pool)
        .await?)
}
