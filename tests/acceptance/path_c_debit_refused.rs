//! Path C: the transfer settled at the switch, but the debit is refused. The bank recalls the money (S0.10).

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions, TestCallback};

/// Makes a payment whose transfer settles after the account was frozen. The default behaviour of the switch must be `hold`.
async fn settle_on_frozen_account(system: &System) -> anyhow::Result<testkit::system::AcceptedPayment> {
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.set_account_status(system.account(), "frozen").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    Ok(payment)
}

#[tokio::test]
async fn s0_10_path_c_follows_the_answer_to_the_recall() -> anyhow::Result<()> {
    let mut system = System::start("path-c", SystemOptions::default()).await?;
    s0_10_s0_17_a_payment_with_a_refused_debit_is_recalled(&mut system).await?;
    s0_10_a_payment_with_a_refused_recall_needs_an_operator(&mut system).await?;
    Ok(())
}

async fn s0_10_s0_17_a_payment_with_a_refused_debit_is_recalled(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system
        .switch
        .set_default_behaviour(json!({"outcome": "hold", "recall": ["in_process", "apply_drop_answer"]}))
        .await?;
    let payment = settle_on_frozen_account(system).await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.payment(&payment.payment_id).await?["reason"], "debit_refused");
    assert_eq!(system.switch.transfer_status(&payment.reference).await?.as_deref(), Some("RETURNED"));
    assert_eq!(
        system.switch.request_count(&payment.reference, "cancel").await?,
        0,
        "a settled transfer is recalled, not cancelled"
    );
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

async fn s0_10_a_payment_with_a_refused_recall_needs_an_operator(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold", "recall": ["refuse"]})).await?;
    let payment = settle_on_frozen_account(system).await?;
    system.wait_for_state(&payment.payment_id, "needs_operator").await?;
    // The recorded refusal of the debit is final, also after the freeze is lifted.
    system.set_account_status(system.account(), "active").await?;
    assert_eq!(system.post_callback(&TestCallback::success(&payment.reference, 500)).await?, 200);
    system.wait_until_inbox_delivered(&payment.payment_id).await?;
    assert_eq!(system.debits(&payment.payment_id).await?, [0; 0]);
    assert_eq!(system.payment(&payment.payment_id).await?["status"], "needs_operator");
    assert_eq!(system.operator_reason(&payment.payment_id).await?.as_deref(), Some("recall_refused"));
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held until an operator decides");
    assert_eq!(system.audit().await?.open, 1);
    Ok(())
}
