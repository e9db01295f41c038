//! A sweep through the books of many payments: how long and how much memory, where nothing is wrong and where everything
//! is, side by side. The switch is a stub whose statement is made as it is read, so that every line goes over the wire. No
//! workflow runs: the payments have long settled.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use reconciliation::{Reconciler, Tolerance};
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgPool};
use switch_client::config::Switches;
use tokio::net::TcpListener;
use workflow_api::{RunningWorkflows, TemporalOptions};

use crate::common::{durable_pool, say, two};

/// The switch, and what each payment sends, in minor units.
const SWITCH: &str = "bench";
const AMOUNT: i64 = 1_250;
/// Customers' accounts that the payments come from.
const ACCOUNTS: u64 = 1_000;
/// Payments written in one statement.
const CHUNK: u64 = 50_000;
const CONNECTIONS: u32 = 4;

/// What is measured, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database; another is made beside it
    #[arg(long)]
    database_url: String,
    /// A Temporal server of ours alone
    #[arg(long)]
    temporal_address: String,
    /// Payments in the books, growing; one measurement for each number
    #[arg(long, value_delimiter = ',', default_value = "10000,200000")]
    payments: Vec<u64>,
    /// Rounds; the middle one counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// One book and the switch that it is compared with.
struct Book {
    pool: PgPool,
    reconciler: Reconciler,
    /// How many transfers the statement has.
    transfers: tokio::sync::watch::Sender<u64>,
}

/// What one number of payments came to.
struct Swept {
    payments: u64,
    none_s: f64,
    first_s: f64,
    again_s: f64,
    peak_mib: f64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let temporal = TemporalOptions { address: args.temporal_address, ..TemporalOptions::default() };
    let well = Book::new(&args.database_url, temporal.clone(), AMOUNT).await?;
    let other = {
        let name = "bench_drift";
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&well.pool).await?;
        let options: PgConnectOptions = args.database_url.parse()?;
        Book::new(options.database(name).to_url_lossy().as_str(), temporal, AMOUNT + 1).await?
    };
    say(" payments   no drift   all drift   all again   peak MiB   (sweeps in s)\n")?;
    let mut all = Vec::new();
    for payments in &args.payments {
        well.grow_to(*payments).await?;
        other.grow_to(*payments).await?;
        // The first sweep of each reads the new part of the statement; on one side it opens an exception for every payment.
        well.time_run(*payments, 0).await?;
        let first_s = other.time_run(*payments, *payments).await?;
        let (mut none, mut again) = (Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            none.push(well.time_run(*payments, 0).await?);
            again.push(other.time_run(*payments, *payments).await?);
        }
        let one = Swept {
            payments: *payments,
            none_s: crate::load::median(none),
            first_s,
            again_s: crate::load::median(again),
            peak_mib: peak_mib()?,
        };
        say(&format!(
            "{:>9} {:>10.2} {:>11.2} {:>11.2} {:>10.1}\n",
            one.payments, one.none_s, one.first_s, one.again_s, one.peak_mib
        ))?;
        all.push(one);
    }
    let (Some(small), Some(large)) = (all.first(), all.last()) else { return Ok(()) };
    let json = json!({
        "payments": large.payments,
        "all_drift_vs_none": two(large.again_s / large.none_s),
        "all_drift_first_time_vs_none": two(large.first_s / large.none_s),
        "payments_vs_smallest": two(large.payments as f64 / small.payments as f64),
        "seconds_vs_smallest": two(large.none_s / small.none_s),
        "peak_memory_vs_smallest": two(large.peak_mib / small.peak_mib),
        "peak_mib": two(large.peak_mib),
    });
    say(&format!("\n{json}\n"))
}

impl Book {
    /// An empty book at `url`, and a switch that settles every payment with `settles` minor units.
    async fn new(url: &str, temporal: TemporalOptions, settles: i64) -> anyhow::Result<Self> {
        let pool = durable_pool(url, CONNECTIONS).await?;
        payment_ledger::MIGRATOR.run(&pool).await?;
        make_accounts(&pool).await?;
        let (transfers, has) = tokio::sync::watch::channel(0);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let switches: Switches = serde_json::from_value(json!({ SWITCH: {
            "base_url": format!("http://{}", listener.local_addr()?),
            "api_token": "none",
            "routes": ["DE"],
            "profile": {
                "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400, "tombstones": true,
                "honours_deadline": true, "max_skew_ms": 500, "can_cancel": true, "can_recall": true,
                "has_callback": false, "has_statement": true,
            },
        }}))?;
        let router = Router::new().route("/v1/statement", get(statement)).with_state((has, settles));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let switches = switches.check()?;
        let switches = switches.iter().map(|(_, options, profile)| (options, profile));
        let temporal = RunningWorkflows::new(temporal, "bench");
        let reconciler = Reconciler::new(Ledger::new(pool.clone()), switches, temporal)?;
        Ok(Self { pool, reconciler, transfers })
    }

    /// Brings the book to so many settled payments, all of them sealed.
    async fn grow_to(&self, payments: u64) -> anyhow::Result<()> {
        let mut there = *self.transfers.borrow();
        while there < payments {
            let next = payments.min(there + CHUNK);
            write_settled(&self.pool, there, next).await?;
            there = next;
        }
        sqlx::raw_sql("VACUUM ANALYZE").execute(&self.pool).await?;
        sqlx::raw_sql("CHECKPOINT").execute(&self.pool).await?;
        self.transfers.send_replace(payments);
        Ok(())
    }

    /// Sweeps, and checks that all was compared and so much was found; how long it took, in seconds.
    async fn time_run(&self, payments: u64, drifts: u64) -> anyhow::Result<f64> {
        let began = Instant::now();
        let report = self.reconciler.run(Tolerance::default(), &|_| ()).await?;
        let took = began.elapsed();
        let seen = (report.payments, report.lines, report.drifts(), report.not_compared.len());
        anyhow::ensure!(
            seen == (payments, payments, drifts, 0),
            "the sweep saw {seen:?}: {:?} {:?}",
            report.not_compared,
            report.drift
        );
        Ok(took.max(Duration::from_millis(1)).as_secs_f64())
    }
}

async fn make_accounts(pool: &PgPool) -> anyhow::Result<()> {
    let make = format!(
        "INSERT INTO accounts (account_id, tenant_id, kind, currency)
         SELECT 'internal:' || name || ':EUR', 'internal', 'internal', 'EUR'
         FROM unnest(ARRAY['escrow', 'funding', 'holding']) AS names (name);
         INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
         SELECT 'customer-' || n, 'bench', 'customer', 'EUR', 0 FROM generate_series(0, {ACCOUNTS} - 1) AS n"
    );
    sqlx::raw_sql(AssertSqlSafe(make)).execute(pool).await?;
    Ok(())
}

/// Payments `from` to `to`, as they are when they have long settled: written in bulk, past the triggers that would move a
/// thousand balances a million times.
async fn write_settled(pool: &PgPool, from: u64, to: u64) -> anyhow::Result<()> {
    let entries = |kind: &str, debit: &str, credit: &str, payment: &str| {
        format!(
            "INSERT INTO operations (operation_key, payment_id, outcome) SELECT 'pay_' || n || ':{kind}', {payment}, 'done' FROM new;
             INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT 'pay_' || n || ':{kind}', {payment}, '{kind}', {debit}, {credit}, {AMOUNT}, 'EUR' FROM new;"
        )
    };
    let customer = format!("'customer-' || n % {ACCOUNTS}");
    let write = format!(
        "BEGIN;
         SET LOCAL session_replication_role = replica;
         CREATE TEMPORARY TABLE new ON COMMIT DROP AS SELECT n FROM generate_series({from}, {to} - 1) AS n;
         INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, amount_minor,
             currency, switch, profile, request_hash, response_body, state, workflow_id, attempts, first_attempt_at, final_status,
             final_status_source, valid_until, started_at, updated_at, ended_at)
         SELECT 'pay_' || n, 'tx_' || n, 'bench', 'bench', {customer}, 'DE02', {AMOUNT}, 'EUR', '{SWITCH}', '{{}}', '', '',
             'settled', 'pay_' || n, 1, now(), 'settled', 'query', now(), now(), now() - interval '1 hour', now() FROM new;
         {fund} {reserve} {settle}
         INSERT INTO holds (payment_id, account_id, amount_minor, currency, status, closed_at)
         SELECT 'pay_' || n, {customer}, {AMOUNT}, 'EUR', 'debited', now() FROM new;
         INSERT INTO journal_unsealed (entry_id)
         SELECT entry_id FROM journal LEFT JOIN journal_seals s USING (entry_id) WHERE s.entry_id IS NULL;
         COMMIT",
        fund = entries("fund", "'internal:funding:EUR'", &customer, "NULL"),
        reserve = entries("reserve", &customer, "'internal:holding:EUR'", "'pay_' || n"),
        settle = entries("debit", "'internal:holding:EUR'", "'internal:escrow:EUR'", "'pay_' || n"),
    );
    sqlx::raw_sql(AssertSqlSafe(write)).execute(pool).await?;
    let ledger = Ledger::new(pool.clone());
    while let SealOutcome::Batch { .. } = ledger.seal(BatchSize::new(BatchSize::MAX)).await? {}
    Ok(())
}

#[derive(serde::Deserialize)]
struct Asked {
    limit: u64,
    after: Option<String>,
}

/// A page of a statement in which every payment of the book is settled.
async fn statement(
    State((transfers, amount)): State<(tokio::sync::watch::Receiver<u64>, i64)>,
    Query(asked): Query<Asked>,
) -> Json<Value> {
    let first = asked.after.and_then(|after| after.parse::<u64>().ok()).map_or(0, |after| after + 1);
    let all = *transfers.borrow();
    let last = all.min(first + asked.limit);
    let entries: Vec<Value> = (first..last)
        .map(|n| {
            json!({
                "cursor": n.to_string(), "reference": format!("tx_{n}:submit"), "transfer_id": format!("transfer-{n}"),
                "status": "SETTLED", "amount_minor": amount, "currency": "EUR", "finished_at": "2026-01-01T00:00:00Z",
            })
        })
        .collect();
    let next = (last < all).then(|| (last - 1).to_string());
    Json(json!({ "entries": entries, "next": next }))
}

/// Most memory that this process has had, in MiB. The stub and this bench are in it.
fn peak_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .context("this system does not say how much memory is used")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok())
        .context("this system does not say how much memory is used")?;
    Ok(kib / 1_024.0)
}
