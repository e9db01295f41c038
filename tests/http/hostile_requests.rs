//! R24: schemathesis generates valid and invalid requests from our OpenAPI document and sends them to payments-api with a real
//! database. No answer is 5xx, every answer is as documented, and requests without an API key are answered 401.
//!
//! The requests are deterministic (`--generation-deterministic`) and bounded in number and time. `hooks.py` inserts existing ids,
//! signs callbacks and adds the check for requests without a key; `schemathesis.toml` has the adjusted checks with reasons.

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::system::{API_KEY, SWITCH_SECRET, payment_request};
use testkit::{System, SystemOptions};

use crate::schemathesis;

/// Whether requests have an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Authentication {
    ApiKey,
    None,
}

#[tokio::test]
async fn r24_hostile_requests_with_an_api_key_cause_no_server_error() -> anyhow::Result<()> {
    let system = System::start("hostile", options()).await?;
    fuzz(&system, Authentication::ApiKey).await?;
    ensure!(payment_count(&system).await? > 3, "no generated request created a payment");
    let callbacks: i64 = sqlx::query_scalar("SELECT count(*) FROM switch_callbacks WHERE status = 'FAILURE'")
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(callbacks > 0, "no signed callback was stored");
    ensure!(cancel_count(&system).await? > 0, "no cancel was stored");
    let rotated: i64 = sqlx::query_scalar("SELECT count(*) FROM webhook_endpoints WHERE secret_version > 1")
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(rotated > 0, "no secret was rotated");
    // Every created payment ends correctly.
    system.wait_until_all_have_ended().await?;
    system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r24_hostile_requests_without_an_api_key_are_answered_401() -> anyhow::Result<()> {
    let system = System::start("hostile-keyless", options()).await?;
    fuzz(&system, Authentication::None).await?;
    ensure!(payment_count(&system).await? == 3, "a payment was created without a key");
    ensure!(cancel_count(&system).await? == 0, "a payment was cancelled without a key");
    let endpoints: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM webhook_endpoints WHERE secret_version = 1 AND status = 'active'",
    )
    .fetch_one(&system.database.pool)
    .await?;
    ensure!(endpoints == 1, "an endpoint was created, changed or deleted without a key");
    ensure!(system.audit().await?.payments == 3, "the books differ");
    Ok(())
}

/// Options of a system with a second switch, whose payments stay pending during the test.
fn options() -> SystemOptions {
    SystemOptions::default().with_other_switch(&[("sla_ms", json!(schemathesis::within().as_millis()))])
}

/// Runs schemathesis once. The system has a settled payment, a pending one that receives callbacks, and a pending one to be
/// cancelled.
async fn fuzz(system: &System, authentication: Authentication) -> anyhow::Result<()> {
    let settled = system.pay("1.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let held = system.pay("2.00").await?;
    system.wait_for_state(&held.payment_id, "submitted").await?;
    let endpoint = create_endpoint(system, authentication).await?;
    // Pending until it is cancelled, since the second switch sends no callbacks.
    let mut body = payment_request("3.00");
    body["destination_account"] = "YY-BOB".into();
    let cancellable = system.pay_with(&body).await?;
    system.wait_for_state(&cancellable.payment_id, "submitted").await?;
    system.switch.set_default_behaviour(json!({})).await?;

    let document = format!("{}/openapi.json", system.api.url());
    let mut command = schemathesis::command(&document, "schemathesis.toml", "hooks.py")?;
    command
        .env("HOSTILE_PAYMENTS", format!("{},{}", settled.payment_id, held.payment_id))
        .env("HOSTILE_CANCELLABLE", &cancellable.payment_id)
        .env("HOSTILE_ENDPOINT", &endpoint)
        .env("HOSTILE_EVENT", format!("{}:transfer_sent", settled.payment_id))
        .env("HOSTILE_REFERENCE", &held.reference)
        .env("HOSTILE_SWITCH_SECRET", SWITCH_SECRET)
        .env("HOSTILE_KEYLESS", if authentication == Authentication::None { "1" } else { "" });
    match authentication {
        Authentication::ApiKey => command.args(["--header", &format!("Authorization: Bearer {API_KEY}")]),
        // All answers are 401, so the stateful and fuzzing phases add nothing.
        Authentication::None => command.args(["--phases", "examples,coverage"]),
    };
    schemathesis::run(command).await?;
    let status: String = sqlx::query_scalar("SELECT status FROM webhook_endpoints WHERE endpoint_id = $1")
        .bind(&endpoint)
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(status != "deleted", "a request deleted the endpoint that others use");
    Ok(())
}

/// Creates a webhook endpoint with a delivery for the generated requests. Nothing is sent, since no notifier runs.
async fn create_endpoint(system: &System, authentication: Authentication) -> anyhow::Result<String> {
    let url = format!("{}/api/v1/webhook-endpoints", system.api.url());
    let request = testkit::http()
        .post(url)
        .bearer_auth(API_KEY)
        .header("Idempotency-Key", format!("{authentication:?}"));
    let response =
        request.json(&json!({"url": "https://bank.example/hooks"})).send().await?.error_for_status()?;
    let created: serde_json::Value = response.json().await?;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body)
         SELECT endpoint_id, payment_id || ':transfer_sent', 'transfer_sent', '{}' FROM webhook_endpoints, payments",
    )
    .execute(&system.database.pool)
    .await?;
    created["endpoint_id"].as_str().map(str::to_owned).context("no endpoint_id")
}

async fn payment_count(system: &System) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&system.database.pool).await?)
}

async fn cancel_count(system: &System) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT count(*) FROM inbox WHERE kind = 'cancel'")
        .fetch_one(&system.database.pool)
        .await?)
}
