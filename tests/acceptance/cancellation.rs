//! Cancellation by the customer, and workflows cancelled or terminated in Temporal: the switch's answer to our cancel
//! decides (R30).

use serde_json::json;
use temporalio_client::WorkflowCancelOptions;
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions};

#[tokio::test]
async fn r30_cancellations_by_customers_and_operators() -> anyhow::Result<()> {
    let mut system = System::start("cancellation", SystemOptions::default().with_long_attempts()).await?;
    r30_a_customers_cancel_cancels_the_transfer_at_the_switch(&mut system).await?;
    r30_a_cancelled_workflow_cancels_the_transfer_at_the_switch(&mut system).await?;
    r30_a_terminated_workflow_recovers_without_resubmitting(&mut system).await?;
    Ok(())
}

async fn r30_a_customers_cancel_cancels_the_transfer_at_the_switch(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    assert_eq!(system.cancel(&payment.payment_id).await?.status(), 202);
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.switch.transfer_status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.cancel(&payment.payment_id).await?.status(), 409, "a cancel after the end is refused");
    system.audit().await?;
    Ok(())
}

async fn r30_a_cancelled_workflow_cancels_the_transfer_at_the_switch(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.workflow(&payment.payment_id).await?.cancel(WorkflowCancelOptions::default()).await?;
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

async fn r30_a_terminated_workflow_recovers_without_resubmitting(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let cancelled = system.pay("5.00").await?;
    let settled = system.pay("6.00").await?;
    // The recovery workflow may cancel this transfer before the test settles it, so the switch refuses cancels.
    let refuses = json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]});
    system.switch.set_behaviour(&settled.reference, refuses).await?;
    for payment in [&cancelled, &settled] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
        system.terminate_workflow(&payment.payment_id).await?;
    }
    system.switch.finish_transfer(&settled.reference, "settle").await?;
    system.wait_for_state(&cancelled.payment_id, "failed").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    for payment in [&cancelled, &settled] {
        assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1);
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 600);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
