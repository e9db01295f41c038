//! A backlog of accepted payments at a switch that hangs: what it does to the payments of another switch.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use payment_ledger::Ledger;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::load::{self, Order, Payer};
use super::processes::Process;
use super::{ALONE, Args, WITHIN};
use crate::common::{analyze, print_now, round2};
use crate::load::{Load, closed};

/// The payment that is copied; its switch then hangs.
const HANGING: Order<'static> = Order { amount: "1.00", destination: "AT-BENCH" };
/// Time of the claims, and payments that one asks for, as a starter does.
const CLAIMS_FOR: Duration = Duration::from_secs(2);
const CLAIM_LIMIT: i64 = 50;
/// The in-flight limit of a switch, the workers' default.
const IN_FLIGHT_MAX: i64 = 200;
/// The process of the switch that hangs.
const PROCESS: &str = "sepa_switch";

/// Stores a backlog at a switch that hangs, and makes payments one after the other at the other switch: the latency of their start and of
/// their end, without the backlog (`alone`) and with it; and the time of a claim of accepted payments.
pub(super) async fn measure(
    args: &Args,
    pool: &PgPool,
    payer: &Payer,
    alone: &[String],
) -> anyhow::Result<Value> {
    let switch = args.processes.iter().find(|process| process.name == PROCESS);
    let switch = switch.with_context(|| format!("--process {PROCESS}=PID is missing"))?;
    let copied = payer.closed(&HANGING, 1, 1).await?.payment_ids.pop().context("no payment to copy")?;
    print_now(&format!("{} accepted payments wait for a switch that hangs\n", args.backlog))?;
    signal("STOP", switch)?;
    let with = with_backlog(args, pool, payer, &copied).await;
    signal("CONT", switch)?;
    let WithBacklog { payment_ids, in_flight, claims } = with?;
    let latency = async |ids: &[String]| {
        let start_ms = load::timeline(pool, ids).await?.get(1).map_or(0.0, |(_, ms)| *ms);
        anyhow::Ok((start_ms, load::ends(pool, ids).await?.p50_ms))
    };
    let (without, with) = (latency(alone).await?, latency(&payment_ids).await?);
    Ok(json!({
        "payments": args.backlog,
        "in_flight": in_flight,
        "claim_ms": {"p50": round2(claims.percentile_ms(0.50)), "p99": round2(claims.percentile_ms(0.99))},
        "start_ms": {"without": round2(without.0), "with": round2(with.0)},
        "p50_ms": {"without": round2(without.1), "with": round2(with.1)},
    }))
}

/// What was measured beside the backlog.
struct WithBacklog {
    /// The payments made beside it.
    payment_ids: Vec<String>,
    /// Payments of the backlog in flight before them.
    in_flight: i64,
    /// Claims beside those of the workers.
    claims: Load,
}

async fn with_backlog(
    args: &Args,
    pool: &PgPool,
    payer: &Payer,
    copied: &str,
) -> anyhow::Result<WithBacklog> {
    store(pool, copied, args.backlog).await?;
    // A backlog that has stood for a while: autovacuum has nothing left to do.
    sqlx::query("VACUUM payments").execute(pool).await?;
    analyze(pool).await?;
    let in_flight = fill(pool, copied).await?;
    let claims = claim(pool).await?;
    let payment_ids = payer.closed(&Order::default(), ALONE, 1).await?.payment_ids;
    Ok(WithBacklog { payment_ids, in_flight, claims })
}

/// Claims, one after the other. They find nothing to start: the switch with the backlog is at its limit.
async fn claim(pool: &PgPool) -> anyhow::Result<Load> {
    let ledger = Ledger::new(pool.clone());
    let claims = closed(1, CLAIMS_FOR, move || {
        let ledger = ledger.clone();
        async move {
            let claimed = ledger.claim_accepted(CLAIM_LIMIT, 1, IN_FLIGHT_MAX).await?;
            ensure!(claimed.is_empty(), "a claim of the benchmark took a payment from the workers");
            Ok(())
        }
    })
    .await;
    ensure!(claims.failed == 0, "{} claims failed, or took a payment from the workers", claims.failed);
    Ok(claims)
}

/// Copies an ended payment as accepted ones, without triggers; each has waited for up to a minute.
async fn store(pool: &PgPool, payment_id: &str, payments: u32) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    sqlx::query("SET LOCAL session_replication_role = replica").execute(&mut *tx).await?;
    sqlx::query(
        "INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, amount_minor, currency,
                               switch, profile_hash, needs_account_lock, request_hash, response_body, state, workflow_id,
                               accepted_at, valid_until)
         SELECT id, left(md5('backlogged transaction ' || n) || md5(n::text), length(tx_id)), tenant_id, client_id, source_account,
                destination_account, amount_minor, currency, switch, profile_hash, needs_account_lock, request_hash, response_body,
                'accepted', id, clock_timestamp() - random() * interval '1 minute', clock_timestamp() + interval '1 day'
         FROM payments
         CROSS JOIN (SELECT n, 'pay_' || md5('backlogged payment ' || n) AS id FROM generate_series(1, $2) AS n) AS copies
         WHERE payment_id = $1",
    )
    .bind(payment_id)
    .bind(i64::from(payments))
    .execute(&mut *tx)
    .await?;
    Ok(tx.commit().await?)
}

/// Waits until the workers start no more of the backlog; returns how many they have started.
async fn fill(pool: &PgPool, copied: &str) -> anyhow::Result<i64> {
    let started = Instant::now();
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let in_flight: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM payments
             WHERE state IN ('started', 'reserved') AND switch = (SELECT switch FROM payments WHERE payment_id = $1)",
        )
        .bind(copied)
        .fetch_one(pool)
        .await?;
        if in_flight > 0 && in_flight == before {
            return Ok(in_flight);
        }
        ensure!(started.elapsed() < WITHIN, "the workers start payments of a switch that hangs without end");
        before = in_flight;
    }
}

fn signal(name: &str, process: &Process) -> anyhow::Result<()> {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(process.pid.to_string()).status()?;
    ensure!(sent.success(), "the signal {name} could not be sent to {}", process.name);
    Ok(())
}
