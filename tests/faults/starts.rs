//! R31: a payment is started many times at once, a start's answer is lost, a start comes after Temporal has forgotten
//! the workflow. One payment, charged once.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use payment_ledger::Ledger;
use payment_ledger::steps::start::StartablePayment;
use payment_worker::workflow::InterBankPaymentWorkflow;
use serde_json::json;
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::{WorkflowIdReusePolicy, WorkflowStartOptions};
use testkit::proxy::{Direction, FaultProxy};
use testkit::surroundings::Surroundings;
use testkit::system::{Accepted, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{Options, System};

const STARTS: usize = 64;
const AMOUNT_MINOR: i64 = 500;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r31_of_64_starts_at_once_one_runs_and_charges_once() -> anyhow::Result<()> {
    let system = System::start("many-starts", Options::default().unhurried()).await?;
    system.switch.behave(json!({"outcome": "hold"})).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    let startable = take(&system).await?;
    let started = join_all((0..STARTS).map(|_| start(&system, &startable))).await;
    let runs = started.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(runs.iter().filter(|run| **run == Start::New).count() == 1, "{runs:?}");

    // The worker's own starter finds the row as nobody's, and meets the duplicate too.
    sqlx::query("UPDATE payments SET start_lease_until = NULL").execute(&system.database.pool).await?;
    system.worker.go_on()?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    system.switch.decide(&payment.reference, "settle").await?;
    charged_once(&system, &payment).await?;
    // A second run would have asked to cancel what the first one sent.
    let timeline = system.timeline(&payment.payment_id).await?;
    let states: Vec<_> = timeline.iter().filter_map(|line| line.split(':').next()).collect();
    ensure!(states == ["accepted", "reserved", "submitted", "confirmed", "settled"], "{timeline:#?}");
    let again = start(&system, &startable).await?;
    ensure!(again == Start::Duplicate, "also after the end: {again:?}");
    Ok(())
}

#[tokio::test]
async fn r31_a_start_whose_answer_was_lost_charges_once() -> anyhow::Result<()> {
    let temporal = Surroundings::find()?.temporal_address;
    let target = temporal.strip_prefix("http://").context("Temporal's address has no scheme")?;
    let proxy = FaultProxy::start(target).await?;
    let options =
        Options { temporal_address: Some(format!("http://{}", proxy.address)), ..Options::default() };
    let system = System::start("lost-start", options).await?;

    // Nothing comes back from Temporal: the start arrives, its answer does not.
    proxy.hold(Direction::Back);
    let payment = system.pay("5.00").await?;
    system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionStarted).await?;
    ensure!(system.state(&payment.payment_id).await? == "accepted", "the starter knows nothing of it");
    proxy.cut();
    proxy.let_go(Direction::Back);
    charged_once(&system, &payment).await
}

#[tokio::test]
async fn r31_a_start_after_the_history_is_gone_charges_once() -> anyhow::Result<()> {
    // A switch that is not asked before it is sent to: a run from the top would show there.
    let options = Options::default().profile("strategy", "reference").profile("has_query", false);
    let system = System::start("forgotten-start", options).await?;
    system.worker.pause()?;
    let payment = system.pay("5.00").await?;
    let startable = take(&system).await?;
    sqlx::query("UPDATE payments SET start_lease_until = NULL").execute(&system.database.pool).await?;
    system.worker.go_on()?;
    charged_once(&system, &payment).await?;

    system.forget(&payment.payment_id).await?;
    let again = start(&system, &startable).await?;
    ensure!(again == Start::New, "Temporal has forgotten it: {again:?}");
    // The run ends as the row says, without a step from the top.
    system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionCompleted).await?;
    charged_once(&system, &payment).await
}

#[tokio::test]
async fn r31_open_payments_that_temporal_forgot_are_not_sent_again() -> anyhow::Result<()> {
    let system = System::start("forgotten-open", Options::default()).await?;
    system.switch.behave(json!({"outcome": "hold"})).await?;
    let (settled, cancelled) = (system.pay("5.00").await?, system.pay("7.00").await?);
    // It may be taken up before the switch is told to settle it.
    let refuses = json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]});
    system.switch.behave_for(&settled.reference, refuses).await?;
    for payment in [&settled, &cancelled] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
        system.forget(&payment.payment_id).await?;
    }
    system.switch.decide(&settled.reference, "settle").await?;
    // Taken up again, each asks to cancel, and obeys.
    system.wait_until_all_have_ended().await?;
    charged_once(&system, &settled).await?;
    ensure!(system.switch.status(&cancelled.reference).await?.as_deref() == Some("CANCELLED"));
    ensure!(system.switch.requests(&cancelled.reference, "submit").await? == 1, "sent once");
    ensure!(system.available().await? == OPENING_MINOR - AMOUNT_MINOR);
    system.audit().await?;
    Ok(())
}

/// What became of one start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    New,
    Duplicate,
}

/// Takes the one accepted payment, as a starter does that then stands still.
async fn take(system: &System) -> anyhow::Result<StartablePayment> {
    let ledger = Ledger::new(system.database.pool.clone());
    until("an accepted payment can be taken", WITHIN, || async {
        Ok(ledger.claim_accepted(1, 60_000, 1).await?.pop())
    })
    .await
}

/// Starts the payment's workflow as the starter does.
async fn start(system: &System, startable: &StartablePayment) -> anyhow::Result<Start> {
    let options = WorkflowStartOptions::new(system.task_queue.clone(), startable.workflow_id.clone())
        .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
        .build();
    let payment = startable.payment.clone();
    match system.temporal().await?.start_workflow(InterBankPaymentWorkflow::run, payment, options).await {
        Ok(_) => Ok(Start::New),
        Err(WorkflowStartError::AlreadyStarted { .. }) => Ok(Start::Duplicate),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the payment has settled: sent once, debited once.
async fn charged_once(system: &System, payment: &Accepted) -> anyhow::Result<()> {
    system.wait_for_state(&payment.payment_id, "settled").await?;
    ensure!(system.switch.requests(&payment.reference, "submit").await? == 1, "sent once");
    let debits: i64 =
        sqlx::query_scalar("SELECT count(*) FROM journal WHERE payment_id = $1 AND kind = 'debit'")
            .bind(&payment.payment_id)
            .fetch_one(&system.database.pool)
            .await?;
    ensure!(debits == 1, "debited {debits} times");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}
