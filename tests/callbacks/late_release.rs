//! R6: a release that fails permanently is alerted, and the payment needs an operator. If an abandoned attempt of that release
//! succeeds late, it ends the payment: the workflow receives the end and completes accordingly.

use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::Cause;
use payment_protocol::ids::PaymentId;
use serde_json::json;
use temporalio_client::WorkflowExecutionStatus;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::OPENING_MINOR;
use testkit::temporal::{EventType, failure_message};
use testkit::wait::until;
use testkit::{System, SystemOptions};

#[tokio::test]
async fn r6_a_late_release_ends_the_workflow_that_needs_an_operator() -> anyhow::Result<()> {
    let system = System::start("late-release", SystemOptions::default().with_long_attempts()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    // Every release violates this constraint.
    let constraint = "ALTER TABLE journal ADD CONSTRAINT no_release CHECK (kind <> 'release')";
    sqlx::raw_sql(constraint).execute(&system.database.pool).await?;
    let payment = system.pay("5.00").await?;
    let id = payment.payment_id.as_str();
    system.wait_for_state(id, "submitted").await?;
    system.switch.finish_transfer(&payment.reference, "reject").await?;
    system.wait_for_state(id, "needs_operator").await?;
    assert_eq!(system.operator_reason(id).await?.as_deref(), Some("compensation_failed"));
    let alerts = until("both alerts are raised", Duration::from_secs(30), || async {
        let alerts = "SELECT kind FROM alerts WHERE payment_id = $1 ORDER BY kind";
        let alerts: Vec<String> =
            sqlx::query_scalar(alerts).bind(id).fetch_all(&system.database.pool).await?;
        Ok((alerts.len() > 1).then_some(alerts))
    })
    .await?;
    assert_eq!(alerts, ["compensation_failed", "needs_operator"]);
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "held while the payment needs an operator");
    // The workflow has received the callback and sends no requests, so only the late release can wake it.
    system.wait_until_inbox_delivered(id).await?;

    sqlx::raw_sql("ALTER TABLE journal DROP CONSTRAINT no_release").execute(&system.database.pool).await?;
    let ledger = Ledger::new(system.database.pool.clone());
    let released = ledger.release(&PaymentId::new(id)?, &Cause::Interrupted).await?;
    assert!(matches!(released, ReleaseStepOutcome::Done(Cause::FailureReported { .. })), "{released:?}");
    assert_eq!(system.state(id).await?, "failed");

    let workflow = system.workflow(id).await?;
    until("the workflow has ended", Duration::from_secs(30), || async {
        let status = workflow.describe(Default::default()).await?.status();
        Ok((status == WorkflowExecutionStatus::Failed).then_some(()))
    })
    .await?;
    let ended = system.wait_for_event(id, EventType::WorkflowExecutionFailed).await?;
    let Some(Attributes::WorkflowExecutionFailedEventAttributes(ended)) = ended.attributes else {
        anyhow::bail!("{ended:?}");
    };
    let message = failure_message(&ended.failure.unwrap_or_default())?;
    assert_eq!(
        message,
        "failed: the payment had already ended in the state failed; the workflow did nothing"
    );
    system.wait_until_inbox_delivered(id).await?;
    assert_eq!(system.available().await?, OPENING_MINOR);
    let audit = system.audit().await?;
    assert_eq!((audit.debited, audit.open), (0, 0));
    Ok(())
}
