//! Time and memory of a reconciliation run: without drift, with drift in every payment, and with a window, side by side. The switch is a stub
//! that generates its statement while it is read over HTTP. No workflow runs, since all payments have settled.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use payment_ledger::Ledger;
use payment_protocol::drift::Tolerance;
use reconciliation::Reconciler;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgPool};
use switch_client::config::{SecretsOf, Switches};
use tokio::net::TcpListener;
use workflow_api::{PaymentWorkflows, TemporalOptions};

use crate::common::{analyze, create_accounts, durable_pool, print_now, round2, seal_all};

/// Name of the stub switch.
const SWITCH: &str = "bench";
/// Amount of each payment, in minor units.
const AMOUNT_MINOR: i64 = 1_250;
/// Number of customers' source accounts.
const ACCOUNTS: u64 = 1_000;
/// Payments inserted per statement.
const CHUNK: u64 = 50_000;
const CONNECTIONS: u32 = 4;
/// Payments in the window, whatever the history.
const IN_WINDOW: u64 = 5_000;

/// Options of `bench reconcile`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database; the bench creates a second one in the same cluster
    #[arg(long)]
    database_url: String,
    /// A Temporal server that nothing else uses
    #[arg(long)]
    temporal_address: String,
    /// Numbers of payments, ascending; one measurement each
    #[arg(long, value_delimiter = ',', default_value = "10000,200000")]
    payments: Vec<u64>,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// A bank's database and the switch that it is compared with.
struct BenchBank {
    pool: PgPool,
    reconciler: Reconciler,
    /// Number of transfers in the statement.
    transfers: tokio::sync::watch::Sender<u64>,
}

/// Measurements for one number of payments.
struct Measurement {
    payments: u64,
    no_drift_s: f64,
    /// A run with a window of [`IN_WINDOW`] payments, without drift.
    window_s: f64,
    /// The run that opens the exceptions.
    first_drift_s: f64,
    /// A run whose exceptions are already open.
    repeated_drift_s: f64,
    peak_mib: f64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let temporal = TemporalOptions {
        address: args.temporal_address,
        allow_clear_payloads: true,
        ..TemporalOptions::default()
    };
    let without_drift = BenchBank::new(&args.database_url, temporal.clone(), AMOUNT_MINOR).await?;
    let with_drift = {
        let name = "bench_drift";
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&without_drift.pool).await?;
        let options: PgConnectOptions = args.database_url.parse()?;
        BenchBank::new(options.database(name).to_url_lossy().as_str(), temporal, AMOUNT_MINOR + 1).await?
    };
    print_now(" payments   no drift      window   all drift    repeated   peak MiB   (runs in s)\n")?;
    let mut all = Vec::new();
    for payments in &args.payments {
        let before_window = payments.checked_sub(IN_WINDOW).context("--payments is less than 5000")?;
        without_drift.grow_to(before_window).await?;
        // The first run reads the new statement lines, and opens an exception for every payment with drift.
        without_drift.time_run(before_window, None, 0).await?;
        let began = Instant::now();
        without_drift.grow_to(*payments).await?;
        with_drift.grow_to(*payments).await?;
        let first_drift_s = with_drift.time_run(*payments, None, *payments).await?;
        let (mut no_drift, mut window, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..=args.rounds {
            let seconds = i64::try_from(began.elapsed().as_secs())?;
            window.push(without_drift.time_run(IN_WINDOW, Some(seconds), 0).await?);
        }
        // It read the new statement lines.
        window.remove(0);
        for _ in 0..args.rounds {
            no_drift.push(without_drift.time_run(*payments, None, 0).await?);
            repeated.push(with_drift.time_run(*payments, None, *payments).await?);
        }
        let one = Measurement {
            payments: *payments,
            no_drift_s: crate::load::median(no_drift),
            window_s: crate::load::median(window),
            first_drift_s,
            repeated_drift_s: crate::load::median(repeated),
            peak_mib: peak_mib()?,
        };
        print_now(&format!(
            "{:>9} {:>10.2} {:>11.2} {:>11.2} {:>11.2} {:>10.1}\n",
            one.payments, one.no_drift_s, one.window_s, one.first_drift_s, one.repeated_drift_s, one.peak_mib
        ))?;
        all.push(one);
    }
    let (Some(small), Some(large)) = (all.first(), all.last()) else { return Ok(()) };
    let json = json!({
        "payments": large.payments,
        "all_drift_vs_none": round2(large.repeated_drift_s / large.no_drift_s),
        "all_drift_first_time_vs_none": round2(large.first_drift_s / large.no_drift_s),
        "payments_vs_smallest": round2(large.payments as f64 / small.payments as f64),
        "seconds_vs_smallest": round2(large.no_drift_s / small.no_drift_s),
        "window_vs_smallest": round2(large.window_s / small.window_s),
        "window_vs_everything": round2(large.window_s / large.no_drift_s),
        "peak_memory_vs_smallest": round2(large.peak_mib / small.peak_mib),
        "peak_mib": round2(large.peak_mib),
    });
    print_now(&format!("\n{json}\n"))
}

impl BenchBank {
    /// An empty bank at `url`, and a switch whose statement has `settled_minor` for every transfer.
    async fn new(url: &str, temporal: TemporalOptions, settled_minor: i64) -> anyhow::Result<Self> {
        let pool = durable_pool(url, CONNECTIONS).await?;
        payment_ledger::MIGRATOR.run(&pool).await?;
        create_accounts(&pool, ACCOUNTS).await?;
        let (transfers, count) = tokio::sync::watch::channel(0);
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
        let router = Router::new().route("/v1/statement", get(statement)).with_state((count, settled_minor));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let switches = switches.check(SecretsOf::Requests)?;
        let switches = switches.iter().map(|(_, options, profile)| (options, profile));
        let temporal = PaymentWorkflows::new(temporal, "bench");
        let reconciler = Reconciler::new(Ledger::new(pool.clone()), switches, temporal)?;
        Ok(Self { pool, reconciler, transfers })
    }

    /// Adds settled and sealed payments up to this number.
    async fn grow_to(&self, payments: u64) -> anyhow::Result<()> {
        let mut existing = *self.transfers.borrow();
        while existing < payments {
            let next = payments.min(existing + CHUNK);
            insert_settled(&self.pool, existing, next).await?;
            existing = next;
        }
        analyze(&self.pool).await?;
        self.transfers.send_replace(payments);
        Ok(())
    }

    /// Runs a reconciliation and checks its result; returns the duration in seconds.
    async fn time_run(&self, payments: u64, window_s: Option<i64>, drifts: u64) -> anyhow::Result<f64> {
        let started = Instant::now();
        let report = self.reconciler.run(Tolerance::default(), window_s, &|_| ()).await?;
        let duration = started.elapsed();
        let result = (report.payments, report.lines, report.drift_count(), report.not_compared.len());
        anyhow::ensure!(
            result == (payments, payments, drifts, 0),
            "unexpected payments, lines, drift, sources not compared {result:?}: {:?} {:?}",
            report.not_compared,
            report.drift
        );
        Ok(duration.max(Duration::from_millis(1)).as_secs_f64())
    }
}

/// Inserts the settled payments `from` to `to` in bulk, without the triggers that update the balances per entry.
async fn insert_settled(pool: &PgPool, from: u64, to: u64) -> anyhow::Result<()> {
    let entries = |kind: &str, from: &str, to: &str, payment: &str| {
        format!(
            "INSERT INTO operations (operation_key, payment_id, outcome) SELECT 'pay_' || n || ':{kind}', {payment}, 'done' FROM new;
             INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT 'pay_' || n || ':{kind}', {payment}, '{kind}', {from}, {to}, {AMOUNT_MINOR}, 'EUR' FROM new;"
        )
    };
    let customer = format!("'customer-' || n % {ACCOUNTS}");
    let insert = format!(
        "BEGIN;
         SET LOCAL session_replication_role = replica;
         CREATE TEMPORARY TABLE new ON COMMIT DROP AS SELECT n FROM generate_series({from}, {to} - 1) AS n;
         INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, amount_minor,
             currency, switch, profile_hash, needs_account_lock, request_hash, response_body, state, workflow_id, attempts, first_attempt_at, final_status,
             final_status_source, valid_until, started_at, updated_at, ended_at)
         SELECT 'pay_' || n, 'tx_' || n, 'bench', 'bench', {customer}, 'DE02', {AMOUNT_MINOR}, 'EUR', '{SWITCH}', '', false, '', '',
             'settled', 'pay_' || n, 1, now(), 'settled', 'query', now(), now(), now() - interval '1 hour', now() FROM new;
         {fund} {reserve} {debit}
         INSERT INTO holds (payment_id, account_id, amount_minor, currency, status, closed_at)
         SELECT 'pay_' || n, {customer}, {AMOUNT_MINOR}, 'EUR', 'debited', now() FROM new;
         INSERT INTO journal_unsealed (entry_id)
         SELECT entry_id FROM journal LEFT JOIN journal_seals s USING (entry_id) WHERE s.entry_id IS NULL;
         COMMIT",
        fund = entries("fund", "'internal:funding:EUR'", &customer, "NULL"),
        reserve = entries("reserve", &customer, "'internal:holding:EUR'", "'pay_' || n"),
        debit = entries("debit", "'internal:holding:EUR'", "'internal:escrow:EUR'", "'pay_' || n"),
    );
    sqlx::raw_sql(AssertSqlSafe(insert)).execute(pool).await?;
    seal_all(&Ledger::new(pool.clone())).await
}

#[derive(serde::Deserialize)]
struct StatementQuery {
    limit: u64,
    after: Option<String>,
}

/// A page of a statement that has every payment as settled.
async fn statement(
    State((transfers, amount)): State<(tokio::sync::watch::Receiver<u64>, i64)>,
    Query(query): Query<StatementQuery>,
) -> Json<Value> {
    let first = query.after.and_then(|after| after.parse::<u64>().ok()).map_or(0, |after| after + 1);
    let all = *transfers.borrow();
    let last = all.min(first + query.limit);
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

/// Peak memory of this process in MiB, including the stub and the bench.
fn peak_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")
        .context("/proc/self/status has no peak memory (VmHWM): Linux is required")?;
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<f64>().ok())
        .context("/proc/self/status has no peak memory (VmHWM): Linux is required")?;
    Ok(kib / 1_024.0)
}
