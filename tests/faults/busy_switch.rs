//! R35: the switch is busy. It answers submits, queries and cancels with 429 or 503 and a `Retry-After`, and recovers. Each
//! payment ends correctly, and no request is sent before `Retry-After` has passed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::try_join;
use serde_json::{Value, json};
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// The `Retry-After` of each answer: longer than Temporal's timers, which fire up to a second late, would pause anyway.
const RETRY_AFTER: Duration = Duration::from_secs(3);
/// Number of busy answers.
const BUSY_ANSWERS: u32 = 2;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r35_requests_to_a_busy_switch_wait_for_its_retry_after() -> anyhow::Result<()> {
    // One system per operation, since a `Retry-After` holds back all requests to the switch.
    try_join!(
        assert_settles("busy-submit", "submit", json!({"submit": [busy_fault()]})),
        // The query follows a submit without an answer.
        assert_settles("busy-query", "query", json!({"submit": ["drop_request"], "query": [busy_fault()]})),
        assert_cancelled("busy-cancel"),
    )?;
    Ok(())
}

#[tokio::test]
async fn r35_a_payment_at_a_permanently_busy_switch_is_cancelled() -> anyhow::Result<()> {
    let always = json!({"submit": [{"fault": "error_503", "times": "always"}]});
    let (system, payment) = pay_while_busy("always-busy", SystemOptions::default(), always).await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    // The first attempt, and at most one per second of the submit budget.
    let submits = system.switch.request_count(&payment.reference, "submit").await?;
    ensure!((2..=9).contains(&submits), "expected 2 to 9 submits, got {submits}");
    ensure!(
        system.switch.transfer_status(&payment.reference).await?.as_deref() == Some("CANCELLED"),
        "expected a tombstone"
    );
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// A system and a payment whose requests meet this behaviour from the first one. The retry intervals are much shorter than
/// `Retry-After`.
async fn pay_while_busy(
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

fn busy_fault() -> Value {
    json!({"fault": {"busy_s": RETRY_AFTER.as_secs()}, "times": BUSY_ANSWERS})
}

async fn assert_settles(name: &str, operation: &str, behaviour: Value) -> anyhow::Result<()> {
    // Beside other load the three attempts take longer than the usual budget, after which the submit would be cancelled.
    let options = SystemOptions::default()
        .with_long_attempts()
        .with_profile("submit_budget_ms", 60_000)
        .with_profile("submit_deadline_ms", 90_000);
    let (system, payment) = pay_while_busy(name, options, behaviour).await?;
    assert_retry_after_respected(&system, &payment, operation).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    ensure!(system.switch.request_count(&payment.reference, "submit").await? <= i64::from(BUSY_ANSWERS) + 1);
    ensure!(system.available().await? == OPENING_MINOR - 500);
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}

async fn assert_cancelled(name: &str) -> anyhow::Result<()> {
    let behaviour = json!({"outcome": "hold", "cancel": [busy_fault()]});
    let (system, payment) =
        pay_while_busy(name, SystemOptions::default().with_long_attempts(), behaviour).await?;
    assert_retry_after_respected(&system, &payment, "cancel").await?;
    system.wait_for_state(&payment.payment_id, "timed_out").await?;
    ensure!(system.switch.request_count(&payment.reference, "cancel").await? == i64::from(BUSY_ANSWERS) + 1);
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// Measures the time from the first request to the one after the last busy answer.
async fn assert_retry_after_respected(
    system: &System,
    payment: &AcceptedPayment,
    operation: &str,
) -> anyhow::Result<()> {
    let received = async |count: u32| {
        until(&format!("the switch receives {count} {operation} requests"), WITHIN, || async {
            let requests = system.switch.request_count(&payment.reference, operation).await?;
            Ok((requests >= i64::from(count)).then(Instant::now))
        })
        .await
    };
    let first = received(1).await?;
    let elapsed = received(BUSY_ANSWERS + 1).await?.duration_since(first);
    // One interval is subtracted, since the test sees the first request after a delay.
    ensure!(
        elapsed > RETRY_AFTER * (BUSY_ANSWERS - 1),
        "{BUSY_ANSWERS} busy answers with Retry-After {RETRY_AFTER:?} delayed the requests by only {elapsed:?}"
    );
    Ok(())
}
