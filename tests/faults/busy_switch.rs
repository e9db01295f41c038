//! R35: the switch is busy. It answers submits, queries and cancels with 429 or 503 and a `Retry-After`, and recovers:
//! each payment ends right, and until then the switch is left alone for as long as it asked.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::try_join;
use serde_json::{Value, json};
use testkit::system::{Accepted, OPENING_MINOR};
use testkit::wait::until;
use testkit::{Options, System};

/// How long the mock switch asks to be left alone, each time.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How often it says so.
const BUSY_TIMES: u32 = 3;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r35_a_busy_switch_is_left_alone_for_as_long_as_it_asks() -> anyhow::Result<()> {
    // A system for each operation: the wish of one request holds for all.
    try_join!(
        settles("busy-submit", "submit", "too_many_requests"),
        settles("busy-query", "query", "error_503"),
        is_cancelled("busy-cancel"),
    )?;
    Ok(())
}

#[tokio::test]
async fn r35_a_switch_that_stays_busy_is_asked_to_cancel_and_not_hammered() -> anyhow::Result<()> {
    let (system, payment) =
        begin("always-busy", json!({"submit": [{"fault": "error_503", "times": "always"}]})).await?;
    let submits = first_request(&system, &payment, "submit").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    is_left_alone(&system, &payment, "submit", submits).await?;
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// A system, and a payment that meets this behaviour from its first request on. The paces that Retry-After must slow
/// down are far quicker than it.
async fn begin(name: &str, behaviour: Value) -> anyhow::Result<(System, Accepted)> {
    let options = Options::default()
        .profile("sla_ms", 1_000)
        .profile("backoff_ms", 50)
        .profile("ask_interval_max_ms", 5_000);
    let system = System::start(name, options).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    system.switch.behave_for(&payment.reference, behaviour).await?;
    system.worker.go_on()?;
    Ok((system, payment))
}

async fn settles(name: &str, operation: &str, fault: &str) -> anyhow::Result<()> {
    let busy = json!([{"fault": fault, "times": BUSY_TIMES}]);
    let (system, payment) = begin(name, json!({operation: busy})).await?;
    let since = first_request(&system, &payment, operation).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    is_left_alone(&system, &payment, operation, since).await?;
    ensure!(system.available().await? == OPENING_MINOR - 500);
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}

async fn is_cancelled(name: &str) -> anyhow::Result<()> {
    let busy = json!([{"fault": "too_many_requests", "times": BUSY_TIMES}]);
    let (system, payment) = begin(name, json!({"outcome": "hold", "cancel": busy})).await?;
    let since = first_request(&system, &payment, "cancel").await?;
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    is_left_alone(&system, &payment, "cancel", since).await?;
    ensure!(system.switch.requests(&payment.reference, "cancel").await? == i64::from(BUSY_TIMES) + 1);
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// Waits until the switch was asked for the first time.
async fn first_request(system: &System, payment: &Accepted, operation: &str) -> anyhow::Result<Instant> {
    until("the switch is asked", WITHIN, || async {
        Ok((system.switch.requests(&payment.reference, operation).await? > 0).then(Instant::now))
    })
    .await
}

/// One request at first, and one more each time that what the switch asked for was over; one to spare, since the first
/// was seen a moment after it came.
async fn is_left_alone(
    system: &System,
    payment: &Accepted,
    operation: &str,
    since: Instant,
) -> anyhow::Result<()> {
    let (requests, took) = (system.switch.requests(&payment.reference, operation).await?, since.elapsed());
    let pauses = i64::try_from(took.as_millis() / RETRY_AFTER.as_millis())?;
    ensure!(requests <= 2 + pauses, "{requests} requests of {operation} in {took:?}");
    Ok(())
}
