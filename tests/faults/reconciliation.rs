//! R36 with real processes: the reconciliation workflow compares statements, ledger and workflows, and finds seeded damage.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use payment_protocol::drift::Tolerance;
use payment_worker::reconciliation::{ReconciliationSummary, ReconciliationWorkflow};
use serde_json::json;
use temporalio_client::{
    WorkflowExecutionStatus, WorkflowGetResultOptions, WorkflowStartOptions, WorkflowTerminateOptions,
};
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// Runs the reconciliation workflow with a grace period of zero.
async fn reconcile(system: &System, name: &str) -> anyhow::Result<ReconciliationSummary> {
    let client = system.temporal().await?;
    let tolerance = Tolerance { grace_s: 0, cancelling_s: 3_600 };
    let id = format!("{}-{name}", system.task_queue);
    let options = WorkflowStartOptions::new(system.task_queue.clone(), id).build();
    let handle = client.start_workflow(ReconciliationWorkflow::run, tolerance, options).await?;
    let result = handle.get_result(WorkflowGetResultOptions::default());
    match tokio::time::timeout(Duration::from_secs(60), result).await {
        Ok(result) => result.context(system.worker.log_tail()),
        Err(_) => anyhow::bail!(
            "the reconciliation workflow did not end within a minute:\n{}",
            system.worker.log_tail()
        ),
    }
}

fn drift_counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

#[tokio::test]
async fn r36_the_reconciliation_workflow_finds_each_damage_to_the_data() -> anyhow::Result<()> {
    // No liveness check and no SLA interferes while the data is damaged.
    let options = SystemOptions { liveness_check_after_ms: 600_000, ..SystemOptions::default() }
        .with_profile("has_statement", true)
        .with_profile("sla_ms", 600_000);
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

    // Damage: a missing debit, a hold that stays open, and a terminated workflow.
    let damage = format!(
        "BEGIN; SET LOCAL session_replication_role = replica;
         DELETE FROM journal WHERE payment_id = '{}' AND kind = 'debit';
         UPDATE holds SET status = 'open', closed_at = NULL WHERE payment_id = '{}';
         COMMIT",
        settled.payment_id, orphaned.payment_id
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(damage)).execute(&system.database.pool).await?;
    let workflow = system.workflow(&waiting.payment_id).await?;
    workflow.terminate(WorkflowTerminateOptions::default()).await?;
    until("Temporal reports the workflow as terminated", Duration::from_secs(30), || async {
        let status = workflow.describe(Default::default()).await?.status();
        Ok((status == WorkflowExecutionStatus::Terminated).then_some(()))
    })
    .await?;
    let expected =
        drift_counts(&[("orphan_hold", 1), ("payment_without_workflow", 1), ("settled_not_debited", 1)]);
    // The verification of the journal finds the damage, too, with a varying number of findings.
    let split = |run: &ReconciliationSummary| {
        let mut between_sources = run.drift.clone();
        (between_sources.remove("journal_hash_mismatch"), between_sources)
    };
    until("each damage is found", Duration::from_secs(30), || async {
        let run = reconcile(&system, &format!("damaged-{}", uuid::Uuid::new_v4().simple())).await?;
        let (journal, between_sources) = split(&run);
        Ok((journal.is_some() && between_sources == expected).then_some(()))
    })
    .await?;
    let exceptions = system.exceptions(&settled.payment_id).await?;
    assert_eq!(exceptions, ["settled_not_debited"], "expected one exception for repeated findings");
    Ok(())
}
