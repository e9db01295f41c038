//! PostgreSQL confirms a commit and loses it, as a failover to an asynchronous standby does (R30b).

use serde_json::json;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::{System, SystemOptions};

/// Leaves the payment as a promoted standby has it that lacks the last commits: without what they wrote.
async fn lose_the_attempt(system: &System, payment_id: &str) -> anyhow::Result<()> {
    let mut tx = system.database.pool.begin().await?;
    // Rows disappear without their triggers.
    sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *tx).await?;
    sqlx::query("DELETE FROM submissions WHERE payment_id = $1").bind(payment_id).execute(&mut *tx).await?;
    sqlx::query(
        "UPDATE payments SET attempts = 0, first_attempt_at = NULL, submit_deadline = NULL, state = 'reserved'
         WHERE payment_id = $1",
    )
    .bind(payment_id)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

/// A payment that the switch holds, and whose attempt's record is lost.
async fn held_payment_with_a_lost_attempt(name: &str) -> anyhow::Result<(System, AcceptedPayment)> {
    let system = System::start(name, SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("33.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    lose_the_attempt(&system, &payment.payment_id).await?;
    Ok((system, payment))
}

/// The submit attempt's record is lost while the transfer is pending at the switch: the customer's cancel must not be taken for
/// the cancel of a payment that was never sent.
#[tokio::test]
async fn r30b_a_payment_with_a_lost_attempt_is_cancelled_at_the_switch() -> anyhow::Result<()> {
    let (system, payment) = held_payment_with_a_lost_attempt("lost-attempt").await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_state(&payment.payment_id, "cancelled").await?;
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 1, "the switch was asked");
    assert_eq!(system.switch.transfer_status(&payment.reference).await?.as_deref(), Some("CANCELLED"));
    assert_eq!(system.available().await?, OPENING_MINOR);
    Ok(())
}

/// The same, and the switch settled the transfer before it was asked: the customer is charged once, without a person.
#[tokio::test]
async fn r30b_a_settled_payment_with_a_lost_attempt_is_debited() -> anyhow::Result<()> {
    let (system, payment) = held_payment_with_a_lost_attempt("lost-attempt-settled").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.cancel(&payment.payment_id).await?.error_for_status()?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    Ok(())
}
