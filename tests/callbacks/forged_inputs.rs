//! R31: somebody who can write to Temporal starts a payment's workflow with another payment. It does nothing but open an
//! exception, and the payment ends as if it had not been started.

use payment_ledger::Ledger;
use payment_protocol::Payment;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::Money;
use payment_protocol::profile::Strategy;
use payment_worker::workflow::InterBankPaymentWorkflow;
use serde_json::json;
use temporalio_client::WorkflowStartOptions;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::{System, SystemOptions};

/// The payment as its workflow has it.
async fn stored(system: &System, payment: &AcceptedPayment) -> anyhow::Result<Payment> {
    let ledger = Ledger::new(system.database.pool.clone());
    Ok(ledger.accepted_payment(&PaymentId::new(payment.payment_id.as_str())?).await?)
}

async fn start(system: &System, workflow_id: &str, input: Payment) -> anyhow::Result<()> {
    let options = WorkflowStartOptions::new(system.task_queue.clone(), workflow_id.to_owned()).build();
    system.temporal().await?.start_workflow(InterBankPaymentWorkflow::run, input, options).await?;
    Ok(())
}

async fn open_exceptions(system: &System, payment: &AcceptedPayment) -> anyhow::Result<Vec<String>> {
    let sql = "SELECT kind FROM exceptions WHERE payment_id = $1 AND closed_at IS NULL ORDER BY exception_id";
    Ok(sqlx::query_scalar(sql).bind(&payment.payment_id).fetch_all(&system.database.pool).await?)
}

#[tokio::test]
async fn r31_forged_workflows_change_no_payment() -> anyhow::Result<()> {
    let mut system = System::start("forged-inputs", SystemOptions::default().with_long_attempts()).await?;
    r31_a_forged_recovery_releases_no_hold(&mut system).await?;
    r31_a_forged_first_workflow_does_not_replace_the_payment(&mut system).await?;
    Ok(())
}

/// A recovery of an unused transaction id, with a profile that believes every answer: the switch would not know the reference,
/// and the hold would be released while the real transfer settles.
async fn r31_a_forged_recovery_releases_no_hold(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("33.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let mut forged = stored(system, &payment).await?;
    forged.tx_id = TxId::derive(&PaymentId::new("pay_unused")?);
    forged.profile.strategy = Strategy::Query;
    forged.resume = 1;
    let forged_reference = forged.reference();
    start(system, "forged", forged).await?;
    system.wait_for_event("forged", EventType::WorkflowExecutionFailed).await?;

    assert_eq!(open_exceptions(system, &payment).await?, ["workflow_input_differs"]);
    assert_eq!(system.switch.request_count(forged_reference.as_str(), "cancel").await?, 0);
    assert_eq!(system.switch.request_count(&payment.reference, "cancel").await?, 0);
    assert_eq!(system.state(&payment.payment_id).await?, "submitted");
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    system.audit().await?;
    Ok(())
}

/// The forged workflow takes the payment's own Workflow ID before the payment-worker starts it: a recovery workflow runs the
/// stored payment.
async fn r31_a_forged_first_workflow_does_not_replace_the_payment(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.worker.pause()?;
    let payment = system.pay("33.00").await?;
    let mut forged = stored(system, &payment).await?;
    forged.money = Money::from_minor(1, forged.money.currency())?;
    start(system, &payment.payment_id, forged).await?;
    system.worker.resume()?;

    system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionFailed).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(open_exceptions(system, &payment).await?, ["workflow_input_differs"]);
    assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1);
    assert_eq!(system.available().await?, OPENING_MINOR - 3_300);
    system.audit().await?;
    Ok(())
}
