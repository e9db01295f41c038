//! payments-api needs PostgreSQL only: it accepts payments while no worker runs them (R12).

use testkit::{System, SystemOptions};

#[tokio::test]
async fn r12_a_payment_accepted_while_no_worker_runs_is_started_later() -> anyhow::Result<()> {
    let mut system = System::start("no-worker", SystemOptions::default()).await?;
    system.worker.kill().await?;
    let payment = system.pay("5.00").await?;
    assert_eq!(system.state(&payment.payment_id).await?, "accepted");
    let cancelled = system.pay("6.00").await?;
    assert_eq!(system.cancel(&cancelled.payment_id).await?.status(), 202);
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.wait_for_state(&cancelled.payment_id, "cancelled").await?;
    assert_eq!(system.switch.request_count(&cancelled.reference, "submit").await?, 0);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
