//! R36 with real processes: the schedule's own workflow compares the three books, and names what was damaged behind the
//! service's back.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use payment_worker::reconciliation::{ReconciliationWorkflow, Swept, Tolerance};
use serde_json::json;
use temporalio_client::{
    WorkflowExecutionStatus, WorkflowGetResultOptions, WorkflowStartOptions, WorkflowTerminateOptions,
};
use testkit::wait::until;
use testkit::{Options, System};

/// Sweeps as the schedule does, with nothing merely under way.
async fn sweep(system: &System, name: &str) -> anyhow::Result<Swept> {
    let client = system.temporal().await?;
    let patience = Tolerance { grace_s: 0, cancelling_s: 3_600 };
    let id = format!("{}-{name}", system.task_queue);
    let options = WorkflowStartOptions::new(system.task_queue.clone(), id).build();
    let handle = client.start_workflow(ReconciliationWorkflow::run, patience, options).await?;
    let swept = handle.get_result(WorkflowGetResultOptions::default());
    match tokio::time::timeout(Duration::from_secs(60), swept).await {
        Ok(swept) => swept.context(system.worker.log_tail()),
        Err(_) => anyhow::bail!("no sweep within a minute:\n{}", system.worker.log_tail()),
    }
}

fn drift(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(kind, found)| ((*kind).to_owned(), *found)).collect()
}

#[tokio::test]
async fn r36_a_sweep_on_temporal_names_what_went_wrong_behind_the_services_back() -> anyhow::Result<()> {
    // Nothing is looked after, and no SLA passes, while the test has it in pieces.
    let options = Options { liveness_check_after_ms: 600_000, ..Options::default() }
        .profile("has_statement", true)
        .profile("sla_ms", 600_000);
    let system = System::start("drift", options).await?;
    let settled = system.pay("5.00").await?;
    system.wait_for_state(&settled.payment_id, "settled").await?;
    let refused = system.pay("6.00").await?;
    system.wait_for_state(&refused.payment_id, "settled").await?;
    system.switch.behave(json!({"outcome": "hold"})).await?;
    let waits = system.pay("7.00").await?;
    system.wait_for_state(&waits.payment_id, "submitted").await?;
    // Visibility follows a moment later.
    until("Temporal lists what runs and no more", Duration::from_secs(30), || async {
        let swept = sweep(&system, &format!("well-{}", uuid::Uuid::new_v4().simple())).await?;
        Ok((swept.drift.is_empty() && swept.not_compared.is_empty() && swept.payments == 3).then_some(()))
    })
    .await?;

    // A debit that nobody made, a hold that nobody closed, and a workflow that somebody ended.
    let damage = format!(
        "BEGIN; SET LOCAL session_replication_role = replica;
         DELETE FROM journal WHERE payment_id = '{}' AND kind = 'debit';
         UPDATE holds SET status = 'open', closed_at = NULL WHERE payment_id = '{}';
         COMMIT",
        settled.payment_id, refused.payment_id
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(damage)).execute(&system.database.pool).await?;
    let workflow = system.workflow(&waits.payment_id).await?;
    workflow.terminate(WorkflowTerminateOptions::default()).await?;
    until("Temporal has forgotten that it ran", Duration::from_secs(30), || async {
        let status = workflow.describe(Default::default()).await?.status();
        Ok((status == WorkflowExecutionStatus::Terminated).then_some(()))
    })
    .await?;
    let expected = drift(&[("orphan_hold", 1), ("payment_without_workflow", 1), ("settled_not_debited", 1)]);
    // Our own history shows it too, in more than one place.
    let between = |swept: &Swept| {
        let mut between = swept.drift.clone();
        (between.remove("journal_hash_mismatch"), between)
    };
    until("each is named", Duration::from_secs(30), || async {
        let swept = sweep(&system, &format!("ill-{}", uuid::Uuid::new_v4().simple())).await?;
        let (chain, between) = between(&swept);
        Ok((chain.is_some() && between == expected).then_some(()))
    })
    .await?;
    let exceptions = system.exceptions(&settled.payment_id).await?;
    assert_eq!(exceptions, ["settled_not_debited"], "opened once, however often it is met");
    Ok(())
}
