//! R35: the switch is busy. It answers submits, queries and cancels with 429 or 503 and a `Retry-After`, and recovers:
//! each payment ends right, and until then the switch is left alone for as long as it asked.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::try_join;
use serde_json::{Value, json};
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// How long the switch asks to be left alone, each time: longer than Temporal's own timers, which are late by up to a
/// second, would leave it alone anyway.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// How often it says so.
const BUSY_TIMES: u32 = 2;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r35_requests_to_a_busy_switch_wait_for_its_retry_after() -> anyhow::Result<()> {
    // A system for each operation: the wish of one request holds for all.
    try_join!(settles("busy-submit", "submit"), settles("busy-query", "query"), is_cancelled("busy-cancel"),)?;
    Ok(())
}

#[tokio::test]
async fn r35_a_payment_at_a_permanently_busy_switch_is_cancelled() -> anyhow::Result<()> {
    let always = json!({"submit": [{"fault": "error_503", "times": "always"}]});
    let (system, payment) = begin("always-busy", SystemOptions::default(), always).await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    // One at first, and one after each second of the budget.
    let submits = system.switch.request_count(&payment.reference, "submit").await?;
    ensure!((2..=9).contains(&submits), "{submits} submits");
    ensure!(
        system.switch.transfer_status(&payment.reference).await?.as_deref() == Some("CANCELLED"),
        "a tombstone"
    );
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// A system, and a payment that meets this behaviour from its first request on. The paces that Retry-After must slow
/// down are far quicker than it.
async fn begin(
    name: &str,
    options: SystemOptions,
    behaviour: Value,
) -> anyhow::Result<(System, AcceptedPayment)> {
    let options = options
        .with_profile("sla_ms", 1_000)
        .with_profile("backoff_ms", 50)
        .with_profile("retry_interval_max_ms", 5_000);
    let system = System::start(name, options).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    system.switch.set_behaviour(&payment.reference, behaviour).await?;
    system.worker.resume()?;
    Ok((system, payment))
}

fn busy() -> Value {
    json!({"fault": {"busy_s": RETRY_AFTER.as_secs()}, "times": BUSY_TIMES})
}

async fn settles(name: &str, operation: &str) -> anyhow::Result<()> {
    let (system, payment) =
        begin(name, SystemOptions::default().with_long_attempts(), json!({operation: [busy()]})).await?;
    is_left_alone(&system, &payment, operation).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    ensure!(system.switch.request_count(&payment.reference, "submit").await? <= i64::from(BUSY_TIMES) + 1);
    ensure!(system.available().await? == OPENING_MINOR - 500);
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}

async fn is_cancelled(name: &str) -> anyhow::Result<()> {
    let behaviour = json!({"outcome": "hold", "cancel": [busy()]});
    let (system, payment) = begin(name, SystemOptions::default().with_long_attempts(), behaviour).await?;
    is_left_alone(&system, &payment, "cancel").await?;
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    ensure!(system.switch.request_count(&payment.reference, "cancel").await? == i64::from(BUSY_TIMES) + 1);
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// Sees the switch being asked until it is no longer busy: once more each time that what it asked for was over.
async fn is_left_alone(system: &System, payment: &AcceptedPayment, operation: &str) -> anyhow::Result<()> {
    let asked = async |times: u32| {
        until(&format!("the switch is asked {times} times to {operation}"), WITHIN, || async {
            let requests = system.switch.request_count(&payment.reference, operation).await?;
            Ok((requests >= i64::from(times)).then(Instant::now))
        })
        .await
    };
    let first = asked(1).await?;
    let took = asked(BUSY_TIMES + 1).await?.duration_since(first);
    // One to spare, since the first was seen a moment after it came.
    ensure!(
        took > RETRY_AFTER * (BUSY_TIMES - 1),
        "{BUSY_TIMES} times told to come again later, in {took:?}"
    );
    Ok(())
}
