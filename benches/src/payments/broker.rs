//! A broker that is away, or that hangs: what it does to the cost and the rate of payments, whose events wait meanwhile.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sqlx::PgPool;

use super::load::{Order, Payer};
use super::processes::Process;
use super::{Args, Snapshot};
use crate::common::{analyze, print_now, round2};

/// What happens to the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum BrokerOutage {
    /// It has ended: its port refuses connections.
    Away,
    /// It is stopped: it keeps its connections and answers nothing.
    Hung,
}

/// Takes the broker away, stores the events of an outage that lasts for long, and makes as many payments as before: what each costs, and
/// the ratios to `cpu_ms` and `per_s`, those of a payment with a broker.
pub(super) async fn measure(
    args: &Args,
    outage: BrokerOutage,
    pool: &PgPool,
    payer: &Payer,
    (cpu_ms, per_s): (f64, f64),
) -> anyhow::Result<Value> {
    let (payments, concurrency) = (args.payments as usize, args.concurrency as usize);
    let broker = args.processes.iter().find(|process| process.name == "broker").context("no broker")?;
    print_now(&format!("{payments} payments while the broker is {outage:?}\n").to_lowercase())?;
    signal(broker, if outage == BrokerOutage::Hung { "STOP" } else { "KILL" })?;
    store_unpublished(pool, args.unpublished).await?;
    analyze(pool).await?;
    payer.closed(&Order::default(), concurrency * 2, concurrency).await?;
    let others: Vec<Process> =
        args.processes.iter().filter(|process| process.name != "broker").cloned().collect();
    let before = Snapshot::take(pool, &others, payer).await?;
    let started = Instant::now();
    payer.closed(&Order::default(), payments, concurrency).await?;
    let rate = payments as f64 / started.elapsed().as_secs_f64();
    let used = Snapshot::take(pool, &others, payer).await?.since(&before);
    if outage == BrokerOutage::Hung {
        signal(broker, "CONT")?;
    }
    let unpublished: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox WHERE published_at IS NULL").fetch_one(pool).await?;
    let cost = used.counted_cpu_ms() / payments as f64;
    Ok(json!({
        "outage": format!("{outage:?}").to_lowercase(),
        "unpublished": unpublished,
        "payments_per_s": round2(rate),
        "payments_per_s_ratio": round2(rate / per_s),
        "cpu_ms": round2(cost),
        "cpu_ratio": round2(cost / cpu_ms),
        "postgres_cpu_ms": round2(used.cpu_ms("postgres") / payments as f64),
        "relay_cpu_ms": round2(used.cpu_ms("relay") / payments as f64),
        "statements": round2(used.counts.statements() / payments as f64),
        "others_cpu_share": round2(used.others_cpu_share()),
    }))
}

fn signal(process: &Process, name: &str) -> anyhow::Result<()> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.pid.to_string()).status()?;
    ensure!(sent.success(), "SIG{name} could not be sent to {}", process.name);
    Ok(())
}

/// Copies the events of one payment under other ids, as events that wait for the broker.
async fn store_unpublished(pool: &PgPool, events: u64) -> anyhow::Result<()> {
    let stored = sqlx::query(
        "WITH sample AS (SELECT * FROM outbox WHERE subject_key = (SELECT max(subject_key) FROM outbox) ORDER BY sequence),
              copies AS (SELECT n, 'pay_' || md5('unpublished ' || n) AS id
                         FROM generate_series(1, $1 / (SELECT greatest(count(*), 1) FROM sample)) AS n)
         INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body)
         SELECT replace(event_id, subject_key, id), kind, version, id, sequence, body
         FROM copies CROSS JOIN sample ORDER BY n, sequence",
    )
    .bind(i64::try_from(events)?)
    .execute(pool)
    .await?;
    print_now(&format!("{} events wait for the broker\n", stored.rows_affected()))
}
