//! R31: a payment's workflow is started concurrently, with a lost answer, or after Temporal has deleted it. The payment is
//! debited once.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use payment_ledger::Ledger;
use payment_ledger::steps::start::{START_REJECTIONS_MAX, StartablePayment};
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use payment_worker::workflow::InterBankPaymentWorkflow;
use serde_json::json;
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{WorkflowIdReusePolicy, WorkflowStartOptions};
use testkit::environment::TestEnvironment;
use testkit::proxy::{Direction, FaultProxy};
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};

const STARTS: usize = 64;
/// Claims of one payment by the starters of four workers.
const CLAIMS: usize = 16;
const AMOUNT_MINOR: i64 = 500;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r31_of_64_concurrent_workflow_starts_one_runs_and_debits_once() -> anyhow::Result<()> {
    let system = System::start("many-starts", SystemOptions::default().with_long_attempts()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    let startable = claim(&system).await?;
    let results = join_all((0..STARTS).map(|_| start(&system, &startable))).await;
    let starts = results.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(starts.iter().filter(|start| **start == StartOutcome::New).count() == 1, "{starts:?}");

    // The worker's own starter claims the payment, too, and finds the workflow already started.
    sqlx::query("UPDATE payments SET start_lease_until = NULL").execute(&system.database.pool).await?;
    system.worker.resume()?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    assert_debited_once(&system, &payment).await?;
    // A second run would have cancelled the transfer of the first one.
    let timeline = system.timeline(&payment.payment_id).await?;
    let states: Vec<_> = timeline.iter().filter_map(|line| line.split(':').next()).collect();
    ensure!(states == ["accepted", "reserved", "submitted", "confirmed", "settled"], "{timeline:#?}");
    let repeated = start(&system, &startable).await?;
    ensure!(repeated == StartOutcome::Duplicate, "a start after the end: {repeated:?}");
    Ok(())
}

/// The service's own starters: each claim's start is held on its way to Temporal until all of them have sent theirs.
#[tokio::test]
async fn r31_four_workers_that_start_a_payment_at_once_debit_once() -> anyhow::Result<()> {
    let (proxy, options) = behind_proxy().await?;
    let mut system = System::start("many-starters", options.with_long_attempts()).await?;
    let mut workers = Vec::new();
    for _ in 1..4 {
        workers.push(system.start_process("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN").await?);
    }
    proxy.hold(Direction::ToServer);
    let payment = system.pay("5.00").await?;
    let ledger = Ledger::new(system.database.pool.clone());
    for _ in 0..CLAIMS {
        until("a starter claims the payment", WITHIN, || async {
            let claimed = "SELECT start_lease_until > clock_timestamp() FROM payments WHERE payment_id = $1";
            let claimed: Option<bool> = sqlx::query_scalar(claimed)
                .bind(&payment.payment_id)
                .fetch_one(&system.database.pool)
                .await?;
            Ok((claimed == Some(true)).then_some(()))
        })
        .await?;
        // As if the lease of a starter that makes no progress had ended.
        sqlx::query("UPDATE payments SET start_lease_until = NULL").execute(&system.database.pool).await?;
        ledger.wake_starters().await?;
    }
    ensure!(system.state(&payment.payment_id).await? == "accepted", "expected no start to be recorded");
    proxy.resume(Direction::ToServer);
    assert_debited_once(&system, &payment).await?;
    // A second run would have cancelled the transfer of the first one.
    let timeline = system.timeline(&payment.payment_id).await?;
    let states: Vec<_> = timeline.iter().filter_map(|line| line.split(':').next()).collect();
    ensure!(states == ["accepted", "reserved", "submitted", "confirmed", "settled"], "{timeline:#?}");

    // A worker that stops waits for its starts. One that Temporal did not answer, since it was held for too long, was given up.
    let mut unanswered = 0;
    for worker in workers.iter_mut().chain([&mut system.worker]) {
        worker.stop().await?;
        unanswered += worker.times_logged("Temporal did not answer the start")?;
        unanswered += worker.times_logged("Temporal did not confirm the start")?;
    }
    ensure!(unanswered + 1 < CLAIMS, "{unanswered} of {CLAIMS} starts had no answer: no repeat is certain");
    Ok(())
}

#[tokio::test]
async fn r31_a_workflow_start_with_a_lost_answer_debits_once() -> anyhow::Result<()> {
    let (proxy, options) = behind_proxy().await?;
    let system = System::start("lost-start", options).await?;
    // The start reaches Temporal, but its answer is held.
    proxy.hold(Direction::ToClient);
    let payment = system.pay("5.00").await?;
    system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionStarted).await?;
    ensure!(system.state(&payment.payment_id).await? == "accepted", "expected the start to be unrecorded");
    proxy.cut();
    proxy.resume(Direction::ToClient);
    assert_debited_once(&system, &payment).await
}

#[tokio::test]
async fn r31_a_workflow_start_after_history_deletion_debits_once() -> anyhow::Result<()> {
    // Without a query before the submit, a second run from the beginning would submit again.
    let options = SystemOptions::default()
        .with_long_attempts()
        .with_profile("strategy", "reference")
        .with_profile("has_query", false);
    let system = System::start("forgotten-start", options).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    let startable = claim(&system).await?;
    sqlx::query("UPDATE payments SET start_lease_until = NULL").execute(&system.database.pool).await?;
    system.worker.resume()?;
    assert_debited_once(&system, &payment).await?;

    system.delete_workflow(&payment.payment_id).await?;
    let repeated = start(&system, &startable).await?;
    ensure!(repeated == StartOutcome::New, "expected a new workflow after the deletion: {repeated:?}");
    // The new run ends with the recorded final state, without executing a step.
    system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionCompleted).await?;
    assert_debited_once(&system, &payment).await
}

#[tokio::test]
async fn r31_open_payments_with_deleted_workflows_are_not_resubmitted() -> anyhow::Result<()> {
    let system = System::start("forgotten-open", SystemOptions::default().with_long_attempts()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let (settled, cancelled) = (system.pay("5.00").await?, system.pay("7.00").await?);
    // The recovery workflow may cancel this transfer before the test settles it, so the switch refuses cancels.
    let refuses = json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]});
    system.switch.set_behaviour(&settled.reference, refuses).await?;
    for payment in [&settled, &cancelled] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
        system.delete_workflow(&payment.payment_id).await?;
    }
    system.switch.finish_transfer(&settled.reference, "settle").await?;
    // The recovery workflows cancel, and the switch's answers decide.
    system.wait_until_all_have_ended().await?;
    assert_debited_once(&system, &settled).await?;
    ensure!(system.switch.transfer_status(&cancelled.reference).await?.as_deref() == Some("CANCELLED"));
    ensure!(system.switch.request_count(&cancelled.reference, "submit").await? == 1, "expected one submit");
    ensure!(system.available().await? == OPENING_MINOR - AMOUNT_MINOR);
    system.audit().await?;
    Ok(())
}

/// Temporal may refuse the workflow of a payment for good. Once its time is past, the payment needs no workflow to be rejected.
#[tokio::test]
async fn r31_a_payment_that_temporal_refuses_to_start_is_rejected_once_its_time_is_past() -> anyhow::Result<()>
{
    let system = System::start("refused-start", SystemOptions::default()).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    let ledger = Ledger::new(system.database.pool.clone());
    let id = PaymentId::new(payment.payment_id.as_str())?;
    for _ in 0..START_REJECTIONS_MAX {
        ledger.record_start_rejection(&id).await?;
    }
    ensure!(system.state(&payment.payment_id).await? == "needs_operator");
    sqlx::query("UPDATE payments SET valid_until = accepted_at").execute(&system.database.pool).await?;
    system.worker.resume()?;
    system.wait_for_state(&payment.payment_id, "rejected").await?;
    for resumes in 0..=1 {
        let history = system.history(&keys::workflow_id(&id, resumes)).await;
        ensure!(history.is_err(), "expected no workflow after {resumes} resumes");
    }
    ensure!(system.available().await? == OPENING_MINOR);
    system.audit().await?;
    Ok(())
}

/// A proxy before Temporal, and the options of a system that reaches Temporal through it.
async fn behind_proxy() -> anyhow::Result<(FaultProxy, SystemOptions)> {
    let temporal = TestEnvironment::load()?.temporal_address;
    let target = temporal.strip_prefix("http://").context("the address of Temporal has no scheme")?;
    let proxy = FaultProxy::start(target).await?;
    let temporal_address = Some(format!("http://{}", proxy.address));
    Ok((proxy, SystemOptions { temporal_address, ..SystemOptions::default().with_long_attempts() }))
}

/// Outcome of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartOutcome {
    New,
    Duplicate,
}

/// Claims the accepted payment, as a starter does that then makes no progress.
async fn claim(system: &System) -> anyhow::Result<StartablePayment> {
    let ledger = Ledger::new(system.database.pool.clone());
    until("an accepted payment can be claimed", WITHIN, || async {
        Ok(ledger.claim_accepted(1, 60_000, 1).await?.pop())
    })
    .await
}

/// Starts the payment's workflow as the starter does.
async fn start(system: &System, startable: &StartablePayment) -> anyhow::Result<StartOutcome> {
    let options = WorkflowStartOptions::new(system.task_queue.clone(), startable.workflow_id.clone())
        .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
        .build();
    let payment = startable.payment.clone();
    match system.temporal().await?.start_workflow(InterBankPaymentWorkflow::run, payment, options).await {
        Ok(_) => Ok(StartOutcome::New),
        Err(WorkflowStartError::AlreadyStarted { .. }) => Ok(StartOutcome::Duplicate),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the payment has settled; expects one submit and one debit.
async fn assert_debited_once(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "settled").await?;
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 1, "expected one submit");
    let debits: i64 =
        sqlx::query_scalar("SELECT count(*) FROM journal WHERE payment_id = $1 AND kind = 'debit'")
            .bind(&payment.payment_id)
            .fetch_one(&system.database.pool)
            .await?;
    ensure!(debits == 1, "expected one debit, got {debits}");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}
