//! What the database and Temporal have counted.

use std::collections::BTreeMap;

use sqlx::PgPool;
use temporalio_client::{UntypedWorkflow, WorkflowFetchHistoryOptions};
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use temporalio_common::protos::temporal::api::history::v1::HistoryEvent;
use workflow_api::TemporalOptions;

/// Statements shown in the table: those that took the most time.
const SHOWN: usize = 20;

/// Counters of the bank's database.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// The statements of the services, without BEGIN and COMMIT.
    statements: BTreeMap<Statement, Calls>,
    pub(super) commits: f64,
    pub(super) wal_bytes: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Statement {
    role: String,
    text: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    calls: f64,
    /// Time in the database, waits for locks included, in milliseconds.
    ms: f64,
}

impl Counts {
    /// The statements of this program's own user do not count.
    pub(super) async fn read(pool: &PgPool) -> anyhow::Result<Self> {
        let rows: Vec<(String, String, f64, f64)> = sqlx::query_as(
            "SELECT r.rolname::text, s.query, sum(s.calls)::float8, sum(s.total_exec_time)::float8
             FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid
             WHERE r.rolname <> current_user AND s.query !~* '^(begin|commit|rollback|set|start)'
             GROUP BY r.rolname, s.query",
        )
        .fetch_all(pool)
        .await?;
        let statements = rows
            .into_iter()
            .map(|(role, text, calls, ms)| (Statement { role, text }, Calls { calls, ms }))
            .collect();
        let (commits, wal_bytes): (f64, f64) = sqlx::query_as(
            "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())::float8,
                    pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8",
        )
        .fetch_one(pool)
        .await?;
        Ok(Self { statements, commits, wal_bytes })
    }

    pub(super) fn since(&self, before: &Self) -> Self {
        let mut statements = self.statements.clone();
        for (statement, now) in &mut statements {
            let then = before.statements.get(statement).copied().unwrap_or_default();
            *now = Calls { calls: now.calls - then.calls, ms: now.ms - then.ms };
        }
        Self {
            statements,
            commits: self.commits - before.commits,
            wal_bytes: self.wal_bytes - before.wal_bytes,
        }
    }

    /// How many statements ran.
    pub(super) fn statements(&self) -> f64 {
        self.statements.values().map(|calls| calls.calls).sum()
    }

    /// The statements that took the most time.
    pub(super) fn table(&self, payments: usize) -> String {
        let mut statements: Vec<_> = self.statements.iter().collect();
        statements.sort_by(|(_, a), (_, b)| b.ms.total_cmp(&a.ms));
        let mut table = format!(
            "\n{:<18} {:>9} {:>9} {:>12}  statement\n",
            "role", "a payment", "ms each", "ms a payment"
        );
        for (Statement { role, text }, Calls { calls, ms }) in statements.into_iter().take(SHOWN) {
            let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let line: String = line.chars().take(100).collect();
            table += &format!(
                "{role:<18} {:>9.2} {:>9.2} {:>12.2}  {line}\n",
                calls / payments as f64,
                ms / calls.max(1.0),
                ms / payments as f64
            );
        }
        table
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
