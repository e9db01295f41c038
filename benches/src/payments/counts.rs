//! What the database and Temporal have counted.

use sqlx::PgPool;
use temporalio_client::{UntypedWorkflow, WorkflowFetchHistoryOptions};
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use workflow_api::TemporalOptions;

/// Counters of the bank's database.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Statements of the services, without BEGIN and COMMIT.
    pub(super) statements: f64,
    pub(super) commits: f64,
    pub(super) wal_bytes: f64,
}

impl Counts {
    /// The statements of this program's own user do not count.
    pub(super) async fn read(pool: &PgPool) -> anyhow::Result<Self> {
        let (statements, commits, wal_bytes): (f64, f64, f64) = sqlx::query_as(
            "SELECT (SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid
                     WHERE r.rolname <> current_user AND s.query !~* '^(begin|commit|rollback|set|start)')::float8,
                    (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8,
                    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8",
        )
        .fetch_one(pool)
        .await?;
        Ok(Self { statements, commits, wal_bytes })
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            statements: self.statements - before.statements,
            commits: self.commits - before.commits,
            wal_bytes: self.wal_bytes - before.wal_bytes,
        }
    }
}

/// Averages over the histories of payments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Histories {
    pub(super) events: f64,
    pub(super) workflow_tasks: f64,
}

/// Counts the events of up to `sample` payments, evenly spread over all.
pub(super) async fn histories(
    temporal: &TemporalOptions,
    payment_ids: &[String],
    sample: usize,
) -> anyhow::Result<Histories> {
    let client = temporal.connect("bench").await?;
    let step = (payment_ids.len() / sample).max(1);
    let (mut histories, mut events, mut tasks) = (0.0, 0.0, 0.0);
    for id in payment_ids.iter().step_by(step).take(sample) {
        let handle = client.get_workflow_handle::<UntypedWorkflow>(id);
        let history = handle.fetch_history(WorkflowFetchHistoryOptions::default()).into_events().await?;
        histories += 1.0;
        events += history.len() as f64;
        let is_task = |event: &&HistoryEvent| event.event_type() == EventType::WorkflowTaskCompleted;
        tasks += history.iter().filter(is_task).count() as f64;
    }
    Ok(Histories { events: events / histories, workflow_tasks: tasks / histories })
}
