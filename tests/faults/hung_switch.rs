//! S1.4: an attempt that waits for a hung switch ends when its answer is no longer needed, and does not delay the shutdown of
//! its worker. Only an attempt that may be repeated is abandoned: a poll, a cancel or a recall, never a submit.

use std::time::Duration;

use serde_json::json;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::{ALICE, AcceptedPayment, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// How long the switch holds a request: shorter than the attempt timeout, so that its answer would end an attempt.
const HELD_MS: u64 = 50_000;
/// The attempt timeout: an attempt that is not abandoned ends with the answer of the switch.
const ATTEMPT_TIMEOUT_MS: u64 = 60_000;

fn options() -> SystemOptions {
    SystemOptions::default()
        .with_profile("attempt_timeout_ms", ATTEMPT_TIMEOUT_MS)
        .with_profile("submit_budget_ms", 4 * ATTEMPT_TIMEOUT_MS + 10_000)
        .with_profile("sla_ms", 600_000)
}

/// Waits until the switch holds a request of this operation.
async fn wait_until_held(
    system: &System,
    payment: &AcceptedPayment,
    operation: &str,
    before: i64,
) -> anyhow::Result<()> {
    until(&format!("the switch holds a {operation}"), Duration::from_secs(60), || async {
        let received = system.switch.request_count(&payment.reference, operation).await?;
        Ok((received > before).then_some(()))
    })
    .await
}

/// The type of the ordinary activity that this event schedules.
pub(crate) fn scheduled_activity(event: &HistoryEvent) -> Option<&str> {
    match &event.attributes {
        Some(Attributes::ActivityTaskScheduledEventAttributes(scheduled)) => {
            scheduled.activity_type.as_ref().map(|activity| activity.name.as_str())
        }
        _ => None,
    }
}

/// A switch that was slow is asked by ordinary activities, which hold no workflow task, until it is quick again.
#[tokio::test]
async fn s1_4_only_a_quick_switch_is_asked_within_a_workflow_task() -> anyhow::Result<()> {
    let system = System::start("quick-switch", SystemOptions::default().with_long_attempts()).await?;
    let is_ordinary = async || {
        let payment = system.pay("1.00").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
        let history = system.history(&payment.payment_id).await?;
        anyhow::Ok(history.iter().any(|event| scheduled_activity(event) == Some("submit")))
    };
    system.switch.set_default_behaviour(json!({"submit": [{"accept_hang_ms": 1_300}]})).await?;
    assert!(!is_ordinary().await?, "nothing is known of the switch");
    assert!(is_ordinary().await?, "the switch was slow");
    assert!(is_ordinary().await?, "the switch is still slow");
    system.switch.set_default_behaviour(json!({})).await?;
    assert!(is_ordinary().await?, "the switch was slow until now");
    // Beside a busy machine one answer may take longer than a second.
    until("the switch is quick again", Duration::from_secs(60), || async {
        Ok((!is_ordinary().await?).then_some(()))
    })
    .await?;
    system.audit().await?;
    Ok(())
}

/// The customer cancels while a poll waits for the switch. The cancel is undecided for now, so the workflow is still open when
/// the server records that the poll was cancelled: a poll that goes on would end as failed, or not at all.
#[tokio::test]
async fn s1_4_a_poll_at_a_hung_switch_ends_when_the_workflow_cancels_it() -> anyhow::Result<()> {
    let mut options = options().with_profile("strategy", "reference").with_profile("has_callback", false);
    options.shape = json!({"callback": false});
    let system = System::start("hung-poll", options).await?;
    let held = json!({"outcome": "hold", "query": [{"fault": {"delay_ms": HELD_MS}, "times": "always"}],
        "cancel": [{"fault": "in_process", "times": "always"}]});
    system.switch.set_default_behaviour(held).await?;
    let payment = system.pay("5.00").await?;
    wait_until_held(&system, &payment, "query", 0).await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_event(&payment.payment_id, EventType::ActivityTaskCanceled).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// The worker is stopped while a cancel and a recall wait for the switch. It does not wait for the answers, and says so to the
/// server: the next worker repeats both at once, under the same keys.
#[tokio::test]
async fn s1_4_a_hung_switch_does_not_delay_the_shutdown_of_a_worker() -> anyhow::Result<()> {
    let mut system = System::start("hung-shutdown", options()).await?;
    let delay = json!([{"delay_ms": HELD_MS}]);
    let held = json!({"outcome": "hold", "cancel": delay, "recall": delay});
    system.switch.set_default_behaviour(held).await?;
    let (cancelled, recalled) = (system.pay("5.00").await?, system.pay("6.00").await?);
    for payment in [&cancelled, &recalled] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
    }
    system.set_account_status(ALICE, "frozen").await?;
    system.switch.finish_transfer(&recalled.reference, "settle").await?;
    system.cancel(&cancelled.payment_id).await?.error_for_status()?;
    wait_until_held(&system, &recalled, "recall", 0).await?;
    wait_until_held(&system, &cancelled, "cancel", 0).await?;

    system.worker.stop().await?;
    // The switch still holds both requests: the worker did not wait for their answers.
    let status = async |payment: &AcceptedPayment| system.switch.transfer_status(&payment.reference).await;
    assert_eq!(status(&cancelled).await?.as_deref(), Some("PENDING"), "the worker stopped too late");
    assert_eq!(status(&recalled).await?.as_deref(), Some("SETTLED"), "the worker stopped too late");

    system.worker.restart().await?;
    system.wait_for_state(&cancelled.payment_id, "cancelled").await?;
    system.wait_for_state(&recalled.payment_id, "failed").await?;
    assert_eq!(system.switch.request_count(&cancelled.reference, "cancel").await?, 2);
    assert_eq!(system.switch.request_count(&recalled.reference, "recall").await?, 2);
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}
