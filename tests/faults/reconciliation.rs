//! R36 with real processes: the reconciliation workflow compares statements, ledger and workflows, and finds seeded damage.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use futures::TryStreamExt as _;
use payment_protocol::drift::Tolerance;
use payment_worker::reconciliation::{ReconciliationInput, ReconciliationSummary, ReconciliationWorkflow};
use serde_json::json;
use temporalio_client::schedules::{
    DeleteScheduleOptions, ListSchedulesOptions, ScheduleDescription, ScheduleDescriptionAction,
    ScheduleOverlapPolicy, ScheduleSpec, TriggerScheduleOptions,
};
use temporalio_client::tonic::IntoRequest as _;
use temporalio_client::{
    RpcOptions, WorkflowExecutionStatus, WorkflowGetResultOptions, WorkflowStartOptions,
    WorkflowTerminateOptions,
};
use temporalio_common::protos::temporal::api::common::v1::WorkflowExecution;
use temporalio_common::protos::temporal::api::workflowservice::v1::{
    UpdateActivityOptionsRequest, update_activity_options_request,
};
use testkit::environment::TestEnvironment;
use testkit::proxy::FaultProxy;
use testkit::system::Proxies;
use testkit::wait::until;
use testkit::{System, SystemOptions};
use tokio::sync::Mutex;

/// Where a payment-worker sets up what is missing at Temporal.
const SETS_UP: &str = "before setting up Temporal";

/// Without a grace period, so that damage is found at once.
const EVERYTHING: ReconciliationInput =
    ReconciliationInput { tolerance: Tolerance { grace_s: 0, cancelling_s: 3_600 }, window_s: None };

/// Runs the reconciliation workflow with a grace period of zero.
async fn reconcile(system: &System, name: &str) -> anyhow::Result<ReconciliationSummary> {
    let client = system.temporal().await?;
    let id = workflow_id(system, name);
    let options = WorkflowStartOptions::new(system.task_queue.clone(), id).build();
    let handle = client.start_workflow(ReconciliationWorkflow::run, EVERYTHING, options).await?;
    let result = handle.get_result(WorkflowGetResultOptions::default());
    match tokio::time::timeout(Duration::from_secs(60), result).await {
        Ok(result) => result.context(system.worker.log_tail()),
        Err(_) => anyhow::bail!(
            "the reconciliation workflow did not end within a minute:\n{}",
            system.worker.log_tail()
        ),
    }
}

fn workflow_id(system: &System, name: &str) -> String {
    format!("{}-{name}", system.task_queue)
}

/// Starts the reconciliation workflow, without waiting for its end; returns its id.
pub(crate) async fn start(system: &System, name: &str) -> anyhow::Result<String> {
    let id = workflow_id(system, name);
    let options = WorkflowStartOptions::new(system.task_queue.clone(), id.clone()).build();
    system.temporal().await?.start_workflow(ReconciliationWorkflow::run, EVERYTHING, options).await?;
    Ok(id)
}

fn drift_counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

#[tokio::test]
async fn r36_the_reconciliation_workflow_finds_each_damage_to_the_data() -> anyhow::Result<()> {
    // No liveness check and no SLA interferes while the data is damaged. The statement lists each transfer twice.
    let options = SystemOptions {
        liveness_check_after_ms: 600_000,
        shape: json!({"statement_repeats": true}),
        ..SystemOptions::default()
    };
    let options = options.with_profile("has_statement", true).with_profile("sla_ms", 600_000);
    let system = System::start("drift", options).await?;
    let settled = system.pay("5.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    let orphaned = system.pay("6.00").await?;
    system.wait_for_state(&orphaned.payment_id, "settled").await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let waiting = system.pay("7.00").await?;
    system.wait_for_state(&waiting.payment_id, "submitted").await?;
    // Temporal's visibility is eventually consistent.
    until("a run without drift", Duration::from_secs(30), || async {
        let run = reconcile(&system, &format!("sound-{}", uuid::Uuid::new_v4().simple())).await?;
        Ok((run.drift.is_empty() && run.not_compared.is_empty() && run.payments == 3).then_some(()))
    })
    .await?;

    // Damage: a missing debit, a hold that stays open, a terminated workflow, and a transfer that nobody ordered.
    let damage = format!(
        "DELETE FROM journal WHERE payment_id = '{}' AND kind = 'debit';
         UPDATE holds SET status = 'open', closed_at = NULL WHERE payment_id = '{}'",
        settled.payment_id, orphaned.payment_id
    );
    system.damage_ledger(&damage).await?;
    system.switch.submit_unordered("unordered", 900).await?;
    system.switch.finish_transfer("unordered", "settle").await?;
    let workflow = system.workflow(&waiting.payment_id).await?;
    workflow.terminate(WorkflowTerminateOptions::default()).await?;
    until("Temporal reports the workflow as terminated", Duration::from_secs(30), || async {
        let status = workflow.describe(Default::default()).await?.status();
        Ok((status == WorkflowExecutionStatus::Terminated).then_some(()))
    })
    .await?;
    let expected = drift_counts(&[
        ("orphan_hold", 1),
        ("payment_without_workflow", 1),
        ("settled_not_debited", 1),
        ("transfer_without_payment", 1),
        ("unmatched_callback", 1),
    ]);
    // The verification of the journal finds the damage, too, with a varying number of findings.
    let split = |run: &ReconciliationSummary| {
        let mut between_sources = run.drift.clone();
        (between_sources.remove("journal_hash_mismatch"), between_sources)
    };
    let found = Mutex::new(None);
    until("each damage is found", Duration::from_secs(30), || async {
        let run = reconcile(&system, &format!("damaged-{}", uuid::Uuid::new_v4().simple())).await?;
        let (journal, between_sources) = split(&run);
        let is_complete = journal.is_some() && between_sources == expected;
        *found.lock().await = Some(run);
        Ok(is_complete.then_some(()))
    })
    .await
    .with_context(|| format!("the last run: {found:?}"))?;
    let exceptions = system.exceptions(&settled.payment_id).await?;
    assert_eq!(exceptions, ["settled_not_debited"], "expected one exception for repeated findings");
    Ok(())
}

/// The interval of a schedule with one interval, in seconds.
fn interval_s(schedule: &ScheduleDescription) -> Option<i64> {
    let spec = schedule.raw().schedule.as_ref()?.spec.as_ref()?;
    let [interval] = spec.interval.as_slice() else { return None };
    interval.interval.as_ref().map(|every| every.seconds)
}

#[tokio::test]
async fn s0_15_the_worker_creates_the_reconciliation_schedule_once() -> anyhow::Result<()> {
    let mut system = System::start("schedule", SystemOptions::default()).await?;
    let client = system.temporal().await?.clone();
    let schedule = client.get_schedule_handle(format!("reconciliation-{}", system.task_queue));
    let of_everything =
        client.get_schedule_handle(format!("reconciliation-of-everything-{}", system.task_queue));
    let describe = async || schedule.describe(RpcOptions::default()).await;
    // The systems of tests have the interval 0, which creates no schedule. A payment shows that the worker has started.
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert!(describe().await.is_err(), "a schedule exists although none is configured");

    system.worker.stop().await?;
    system.worker.set_variable("PAYMENTS_WORKER__RECONCILIATION_INTERVAL_S", "1800");
    system.worker.set_variable("PAYMENTS_WORKER__FULL_RECONCILIATION_INTERVAL_S", "86400");
    system.worker.restart().await?;
    let created =
        until("the schedule exists", Duration::from_secs(60), || async { Ok(describe().await.ok()) }).await?;
    assert_eq!(interval_s(&created), Some(1_800));
    let policies = created.raw().schedule.as_ref().and_then(|schedule| schedule.policies);
    let overlap = policies.map(|policies| policies.overlap_policy().as_str_name());
    assert_eq!(overlap, Some("SCHEDULE_OVERLAP_POLICY_SKIP"));
    let ScheduleDescriptionAction::StartWorkflow(action) = created.action() else {
        anyhow::bail!("{:?}", created.raw());
    };
    assert_eq!(action.workflow_type(), "ReconciliationWorkflow");
    assert_eq!(action.task_queue(), system.task_queue);

    let created = until("the schedule of everything exists", Duration::from_secs(60), || async {
        Ok(of_everything.describe(RpcOptions::default()).await.ok())
    })
    .await?;
    assert_eq!(interval_s(&created), Some(86_400));

    // Each starts a run that ends, with a window and without, and an operator changes one.
    for (schedule, has_window) in [(&schedule, true), (&of_everything, false)] {
        schedule.trigger(ScheduleOverlapPolicy::Unspecified, TriggerScheduleOptions::default()).await?;
        until("a run of the schedule has ended", Duration::from_secs(60), || async {
            let ended = "SELECT count(*) FROM reconciliation_runs
                         WHERE finished_at IS NOT NULL AND (window_began_at IS NOT NULL) = $1";
            let ended: i64 =
                sqlx::query_scalar(ended).bind(has_window).fetch_one(&system.database.pool).await?;
            Ok((ended == 1).then_some(()))
        })
        .await?;
    }
    let change = |update: &mut temporalio_client::schedules::ScheduleUpdate| {
        update.set_spec(ScheduleSpec::from_interval(Duration::from_secs(7_200))).set_paused(true);
    };
    schedule.update(change, RpcOptions::default()).await?;

    // A worker with another interval neither changes the schedule nor creates a second one.
    system.worker.stop().await?;
    system.worker.set_variable("PAYMENTS_WORKER__RECONCILIATION_INTERVAL_S", "900");
    system.worker.restart().await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let kept = describe().await?;
    assert_eq!((interval_s(&kept), kept.paused()), (Some(7_200), true), "expected the operator's settings");
    let own = until("Temporal lists the schedule", Duration::from_secs(60), || async {
        let all: Vec<_> = client.list_schedules(ListSchedulesOptions::default()).try_collect().await?;
        let own = all.iter().filter(|one| one.schedule_id().contains(&system.task_queue)).count();
        Ok((own > 1).then_some(own))
    })
    .await?;
    assert_eq!(own, 2);
    schedule.delete(DeleteScheduleOptions::default()).await?;
    of_everything.delete(DeleteScheduleOptions::default()).await?;
    Ok(())
}

/// Temporal is unreachable at the instant at which the worker would set it up.
#[tokio::test]
async fn s0_15_a_reconciliation_schedule_is_created_once_temporal_answers() -> anyhow::Result<()> {
    let temporal = TestEnvironment::load()?.temporal_address;
    let proxy = FaultProxy::start(temporal.trim_start_matches("http://")).await?;
    let to_temporal = Proxies { temporal: Some(proxy.address.clone()), ..Proxies::default() };
    let options = SystemOptions {
        proxies: BTreeMap::from([("payment-worker", to_temporal)]),
        ..SystemOptions::default()
    };
    let mut system = System::start("late-schedule", options).await?;
    system.worker.stop().await?;
    let held = system.folder().join("held");
    std::fs::write(&held, "")?;
    system.worker.set_variable("PAYMENTS_WORKER__RECONCILIATION_INTERVAL_S", "3600");
    system.worker.set_variable(crash_point::HELD_POINT, SETS_UP);
    system.worker.set_variable(crash_point::HELD_FILE, &held.display().to_string());
    system.worker.spawn()?;
    system.worker.wait_for_log(&format!("held at: {SETS_UP}")).await?;
    proxy.refuse(true);
    proxy.cut();
    std::fs::remove_file(held)?;
    system.worker.wait_for_log("could not set up the schedule").await?;
    proxy.refuse(false);

    let client = system.temporal().await?;
    let schedule = client.get_schedule_handle(format!("reconciliation-{}", system.task_queue));
    until("the schedule exists", Duration::from_secs(60), || async {
        Ok(schedule.describe(RpcOptions::default()).await.ok())
    })
    .await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    schedule.delete(DeleteScheduleOptions::default()).await?;
    Ok(())
}

/// Ends the wait for the heartbeats of a killed worker early. The next attempt has the usual time between its own.
pub(crate) async fn give_up_attempt(system: &System, workflow_id: &str, attempt: i32) -> anyhow::Result<()> {
    set_heartbeat_timeout(system, workflow_id, Duration::from_secs(1)).await?;
    system.wait_for_attempt(workflow_id, "run_reconciliation", attempt + 1).await?;
    set_heartbeat_timeout(system, workflow_id, Duration::from_secs(60)).await
}

/// As `temporal activity update-options` does.
async fn set_heartbeat_timeout(system: &System, workflow_id: &str, timeout: Duration) -> anyhow::Result<()> {
    let execution = WorkflowExecution { workflow_id: workflow_id.to_owned(), run_id: String::new() };
    let mut request = UpdateActivityOptionsRequest {
        namespace: "default".to_owned(),
        execution: Some(execution),
        activity_options: Some(Default::default()),
        update_mask: Some(Default::default()),
        activity: Some(update_activity_options_request::Activity::Type("run_reconciliation".to_owned())),
        ..Default::default()
    };
    if let Some(options) = &mut request.activity_options {
        options.heartbeat_timeout = Some(timeout.try_into()?);
    }
    if let Some(mask) = &mut request.update_mask {
        mask.paths.push("heartbeat_timeout".to_owned());
    }
    let mut service = system.temporal().await?.connection().workflow_service();
    service.update_activity_options(request.into_request()).await?;
    Ok(())
}

/// The run has compared the payments and waits at the callbacks when its worker is killed. The next worker continues there:
/// it does not find damage to a payment that was compared before.
#[tokio::test]
async fn s1_6_another_worker_continues_a_killed_reconciliation_run() -> anyhow::Result<()> {
    let options = SystemOptions { liveness_check_after_ms: 600_000, ..SystemOptions::default() }
        .with_profile("has_statement", true);
    let mut system = System::start("killed-run", options).await?;
    for _ in 0..3 {
        let payment = system.pay("5.00").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    let pool = system.database.pool.clone();
    let mut lock = pool.begin().await?;
    sqlx::query("LOCK TABLE switch_callbacks IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await?;
    let id = workflow_id(&system, "killed");
    let options = WorkflowStartOptions::new(system.task_queue.clone(), id.clone()).build();
    let client = system.temporal().await?.clone();
    let run = client.start_workflow(ReconciliationWorkflow::run, EVERYTHING, options).await?;
    // The first attempt fails at the lock timeout and reports to the server how far it came; the second one is killed.
    system.wait_for_attempt(&id, "run_reconciliation", 2).await?;
    until("the second attempt waits for the callbacks", Duration::from_secs(60), || async {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND application_name = 'payment-worker' AND wait_event_type = 'Lock' AND query LIKE '%switch_callbacks%'",
        )
        .fetch_one(&pool)
        .await?;
        Ok((waiting > 0).then_some(()))
    })
    .await?;
    system.worker.kill().await?;
    system.damage_ledger("UPDATE holds SET status = 'open', closed_at = NULL").await?;
    lock.rollback().await?;
    give_up_attempt(&system, &id, 2).await?;
    system.worker.restart().await?;

    let result = run.get_result(WorkflowGetResultOptions::default());
    let summary = tokio::time::timeout(Duration::from_secs(120), result).await??;
    let first: i64 =
        sqlx::query_scalar("SELECT min(reconciliation_id) FROM reconciliation_runs").fetch_one(&pool).await?;
    assert_eq!(summary.reconciliation_id, first, "another run was begun");
    assert_eq!((summary.payments, summary.drift), (3, BTreeMap::new()), "payments were compared again");
    let next = reconcile(&system, "next").await?;
    assert_eq!(next.drift.get("orphan_hold"), Some(&3), "{next:?}");
    Ok(())
}
