//! The budget of a payment, in counts: statements, write transactions, history events and workflow tasks. No times: those depend on
//! the machine, and `./dev bench payments` measures them. For the same reason a statement that the processes also repeat without a
//! payment counts once: on a busy machine a payment lasts longer, and more of those fall into its time.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use temporalio_common::protos::temporal::api::enums::v1::EventType;
use testkit::cluster::Cluster;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions};

/// Payments, one after the other. Each is counted alone; the cheapest one has met no periodic work of the processes.
const PAYMENTS: usize = 25;
/// Payments before the first count: connections open and statements are prepared.
const WARM_UP: usize = 5;
/// Statements without a payment, by which the repeated ones are known.
const REPEATED: i64 = 100;
/// Time limit for a payment and its events.
const WITHIN: Duration = Duration::from_secs(60);

/// The file `benches/budget.toml`, and what a payment costs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    statements: i64,
    write_transactions: i64,
    history_events: i64,
    workflow_tasks: i64,
}

#[tokio::test]
async fn a_payment_costs_no_more_than_its_budget() -> anyhow::Result<()> {
    let budget: Costs = toml::from_str(include_str!("../../benches/budget.toml"))?;
    let mut cluster = Cluster::start_counting("budget").await?;
    let broker = NatsServer::start("budget-broker").await?;
    let options = SystemOptions {
        database_url: Some(cluster.url.clone()),
        broker_url: broker.url(),
        // No payment needs the gauges, and how many updates fall into its time depends on the machine.
        metrics_interval_ms: 60_000,
        ..SystemOptions::default().with_long_attempts()
    };
    let system = System::start("budget", options).await?;
    let _notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
    sqlx::query("CREATE EXTENSION pg_stat_statements").execute(&system.database.pool).await?;
    for _ in 0..WARM_UP {
        pay(&system, &HashSet::new()).await?;
    }
    let repeated = repeated_statements(&system).await?;
    let mut costs = Vec::new();
    for _ in 0..PAYMENTS {
        costs.push(pay(&system, &repeated).await?);
    }
    let lowest = |cost: fn(&Costs) -> i64| costs.iter().map(cost).min().context("no payment was counted");
    let figures = [
        ("statements", lowest(|costs| costs.statements)?, budget.statements),
        ("write_transactions", lowest(|costs| costs.write_transactions)?, budget.write_transactions),
        ("history_events", lowest(|costs| costs.history_events)?, budget.history_events),
        ("workflow_tasks", lowest(|costs| costs.workflow_tasks)?, budget.workflow_tasks),
    ];
    println!("{figures:?}");
    let over: Vec<String> = figures
        .iter()
        .filter(|(_, cost, budget)| cost > budget)
        .map(|(name, cost, budget)| format!("{name}: {cost}, budget {budget}"))
        .collect();
    anyhow::ensure!(
        over.is_empty(),
        "a payment costs more than benches/budget.toml allows: {}; make it cheaper, or raise the budget and say why",
        over.join("; ")
    );
    cluster.discard();
    Ok(())
}

/// Makes a payment, waits until its events are consumed, and counts what it cost.
async fn pay(system: &System, repeated: &HashSet<i64>) -> anyhow::Result<Costs> {
    let (calls, transactions) = count(system).await?;
    let id = system.pay("1.00").await?.payment_id;
    system.wait_for_state(&id, "settled").await?;
    until("both consumers have both events, and the message to the workflow is marked", WITHIN, || async {
        let is_done: bool = sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM processed_events WHERE event_id LIKE $1 || ':%') = 4
                AND (SELECT count(*) FROM outbox WHERE subject_key = $1 AND published_at IS NOT NULL) = 2
                AND NOT EXISTS (SELECT FROM inbox WHERE payment_id = $1 AND delivered_at IS NULL)",
        )
        .bind(&id)
        .fetch_one(&system.database.pool)
        .await?;
        Ok(is_done.then_some(()))
    })
    .await?;
    let (calls_after, transactions_after) = count(system).await?;
    let made = calls_after.iter().map(|(id, after)| (id, after - calls.get(id).unwrap_or(&0)));
    let statements = made.map(|(id, calls)| if repeated.contains(id) { calls.min(1) } else { calls }).sum();
    let history = system.history(&id).await?;
    let tasks = history.iter().filter(|event| event.event_type() == EventType::WorkflowTaskCompleted);
    Ok(Costs {
        statements,
        write_transactions: transactions_after - transactions,
        history_events: i64::try_from(history.len())?,
        workflow_tasks: i64::try_from(tasks.count())?,
    })
}

/// The statements that the processes repeat while there is no payment.
async fn repeated_statements(system: &System) -> anyhow::Result<HashSet<i64>> {
    let (before, _) = count(system).await?;
    let total: i64 = before.values().sum();
    let after = until("the processes look for work", WITHIN, || async {
        let (calls, _) = count(system).await?;
        Ok((calls.values().sum::<i64>() >= total + REPEATED).then_some(calls))
    })
    .await?;
    Ok(after.into_iter().filter(|(id, calls)| before.get(id) != Some(calls)).map(|(id, _)| id).collect())
}

/// Calls of each statement of the services so far, and transactions that wrote. This test reads as the owner, and writes nothing.
async fn count(system: &System) -> anyhow::Result<(HashMap<i64, i64>, i64)> {
    let pool = &system.database.pool;
    let transactions = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint";
    let transactions = sqlx::query_scalar(transactions).fetch_one(pool).await?;
    let calls: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT s.queryid, sum(s.calls)::bigint FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid
         WHERE r.rolname <> current_user AND s.query !~* '^(begin|commit|rollback|set|start)' GROUP BY s.queryid",
    )
    .fetch_all(pool)
    .await?;
    Ok((calls.into_iter().collect(), transactions))
}
