//! The idempotency layer against the same endpoint without a layer, with a plain table, with a cache first, and with both.
//!
//! First directly at the store: checks per second under closed load, each with its effect, every commit durable. Then over
//! HTTP: the latency added at half the maximum rate of the endpoint without a layer. Then the store with increasing numbers of
//! live keys.

mod fill;
mod orders;
mod service;
mod variants;

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use sqlx::PgPool;

use crate::common::{durable_pool, print_now, round2};
use crate::load::{self, Load, median};
use variants::{LayerVariant, Variants};

/// Concurrent callers in closed load.
const CALLERS: usize = 256;
/// Database connections of every variant.
const CONNECTIONS: u32 = 32;

/// Options of `bench idempotency`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database with durable commits
    #[arg(long)]
    database_url: String,
    /// A Redis server for scratch data
    #[arg(long)]
    redis_url: String,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Concurrent batches of our layer; the layer's default if omitted
    #[arg(long)]
    batch_workers: Option<usize>,
    /// Numbers of live keys in the store; one measurement each
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    live_keys: Vec<u64>,
}

/// The medians of one variant.
#[derive(Clone, Debug)]
struct VariantResult {
    variant: LayerVariant,
    rate: f64,
    wal_bytes: f64,
    http_rate: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let time = Duration::from_secs(args.seconds);
    let pool = durable_pool(&args.database_url, CONNECTIONS).await?;
    idempotency::MIGRATOR.run(&pool).await?;
    orders::create_tables(&pool).await?;
    let variants = Variants::new(pool.clone(), &args.redis_url, args.batch_workers).await?;
    print_now(&format!(
        "{CALLERS} callers, {CONNECTIONS} connections, {} rounds of {} s each\n",
        args.rounds, args.seconds
    ))?;

    let measured = measure_variants(&variants, &pool, args.rounds, time).await?;
    print_variants(&measured)?;
    let by_live_keys = measure_live_keys(&variants, &pool, &args.live_keys, time).await?;

    let result = |variant: LayerVariant| {
        measured.iter().find(|one| one.variant == variant).cloned().context("a variant was not measured")
    };
    let (none, plain, ours) =
        (result(LayerVariant::NoLayer)?, result(LayerVariant::Plain)?, result(LayerVariant::Ours)?);
    let row_bytes = by_live_keys.last().map(|one| one.row_bytes);
    let json = json!({
        "checks_per_second": ours.rate.round(),
        "speedup_vs_plain": round2(ours.rate / plain.rate),
        "speedup_vs_no_layer": round2(ours.rate / none.rate),
        "added_p50_ms": round2(ours.p50_ms - none.p50_ms),
        "added_p99_ms": round2(ours.p99_ms - none.p99_ms),
        "wal_bytes_per_request": ours.wal_bytes.round(),
        "bytes_per_row": row_bytes.map(f64::round),
        "variants": measured.iter().map(|one| json!({
            "variant": one.variant.name(), "checks_per_second": one.rate.round(), "http_per_second": one.http_rate.round(),
            "p50_ms": round2(one.p50_ms), "p99_ms": round2(one.p99_ms), "wal_bytes_per_request": one.wal_bytes.round(),
        })).collect::<Vec<_>>(),
        "by_live_keys": by_live_keys.iter().map(|one| json!({
            "live_keys": one.live_keys, "ours_per_second": one.ours.round(), "plain_per_second": one.plain.round(),
            "replays_per_second": one.replays.round(), "bytes_per_row": one.row_bytes.round(),
            "wal_bytes_per_request": one.wal_bytes.round(),
        })).collect::<Vec<_>>(),
    });
    print_now(&format!("\n{json}\n"))
}

/// The measurements of one variant in all rounds.
struct Rounds {
    variant: LayerVariant,
    /// Directly at the store, each with its WAL bytes per request.
    closed: Vec<(Load, f64)>,
    /// Over HTTP under closed load.
    http: Vec<Load>,
    /// Over HTTP under open load at half the maximum rate.
    open: Vec<Load>,
}

impl Rounds {
    fn new(variant: LayerVariant) -> Self {
        Self { variant, closed: Vec::new(), http: Vec::new(), open: Vec::new() }
    }
}

/// Measures every variant in every round, so that other load of the machine affects all of them.
async fn measure_variants(
    variants: &Variants,
    pool: &PgPool,
    rounds: u32,
    time: Duration,
) -> anyhow::Result<Vec<VariantResult>> {
    let mut loads: Vec<Rounds> = LayerVariant::ALL.iter().map(|variant| Rounds::new(*variant)).collect();
    let services = service::start(variants).await?;
    let mut half = 0.0;
    for round in 0..rounds {
        for Rounds { variant, closed, http, .. } in &mut loads {
            closed.push(measure_store(variants, pool, *variant, time).await?);
            let service = services.of(*variant)?;
            http.push(load::closed(CALLERS / 4, time, move || service.clone().post()).await);
            progress(&format!("round {} {}", round + 1, variant.name()))?;
        }
        if round == 0 {
            half = loads.first().and_then(|rounds| rounds.http.first()).map_or(0.0, Load::rate) / 2.0;
        }
        for Rounds { variant, open, .. } in &mut loads {
            let service = services.of(*variant)?;
            open.push(load::open(half, time, move || service.clone().post()).await);
        }
    }
    let median_of = |loads: &[Load], value: fn(&Load) -> f64| median(loads.iter().map(value).collect());
    loads
        .into_iter()
        .map(|Rounds { variant, closed, http, open }| {
            let failed: u64 = closed
                .iter()
                .map(|(load, _)| load.failed)
                .chain(http.iter().chain(&open).map(|load| load.failed))
                .sum();
            anyhow::ensure!(failed == 0, "{failed} requests of {:?} failed", variant.name());
            Ok(VariantResult {
                variant,
                rate: median(closed.iter().map(|(load, _)| load.rate()).collect()),
                wal_bytes: median(closed.iter().map(|(_, wal)| *wal).collect()),
                http_rate: median_of(&http, Load::rate),
                p50_ms: median_of(&open, |load| load.percentile_ms(0.50)),
                p99_ms: median_of(&open, |load| load.percentile_ms(0.99)),
            })
        })
        .collect()
}

/// Closed load directly at the store; also returns the WAL bytes per request.
async fn measure_store(
    variants: &Variants,
    pool: &PgPool,
    variant: LayerVariant,
    time: Duration,
) -> anyhow::Result<(Load, f64)> {
    let before = wal_position(pool).await?;
    let shared = variants.clone();
    let load = load::closed(CALLERS, time, move || {
        let variants = shared.clone();
        async move { variants.execute(variant, &orders::Order::new()).await.map(|_| ()) }
    })
    .await;
    let written = wal_position(pool).await? - before;
    let per_request = written / load.succeeded.max(1) as f64;
    Ok((load, per_request))
}

async fn wal_position(pool: &PgPool) -> anyhow::Result<f64> {
    Ok(sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").fetch_one(pool).await?)
}

/// Measurements with one number of live keys.
#[derive(Clone, Debug)]
struct LiveKeysResult {
    live_keys: u64,
    ours: f64,
    plain: f64,
    replays: f64,
    row_bytes: f64,
    wal_bytes: f64,
}

async fn measure_live_keys(
    variants: &Variants,
    pool: &PgPool,
    sizes: &[u64],
    time: Duration,
) -> anyhow::Result<Vec<LiveKeysResult>> {
    print_now("\nlive keys    ours/s    plain/s   replays/s bytes per row WAL bytes per request\n")?;
    let mut all = Vec::new();
    for live_keys in sizes {
        progress(&format!("inserting up to {live_keys} keys"))?;
        fill::fill_to(pool, *live_keys).await?;
        let (plain, _) = measure_store(variants, pool, LayerVariant::Plain, time).await?;
        let (ours, wal_bytes) = measure_store(variants, pool, LayerVariant::Ours, time).await?;
        let stored = fill::store_orders(variants, 2_000).await?;
        let shared = variants.clone();
        let replays = load::closed(CALLERS, time, move || {
            let (variants, order) = (shared.clone(), stored.next());
            async move {
                let response = variants.execute(LayerVariant::Ours, &order).await?;
                anyhow::ensure!(response.replayed, "a stored key was executed again");
                Ok(())
            }
        })
        .await;
        anyhow::ensure!(
            plain.failed + ours.failed + replays.failed == 0,
            "requests failed with {live_keys} live keys"
        );
        let one = LiveKeysResult {
            live_keys: *live_keys,
            ours: ours.rate(),
            plain: plain.rate(),
            replays: replays.rate(),
            row_bytes: fill::row_bytes(pool).await?,
            wal_bytes,
        };
        print_now(&format!(
            "{:>9} {:>9.0} {:>10.0} {:>11.0} {:>13.0} {:>21.0}\n",
            one.live_keys, one.ours, one.plain, one.replays, one.row_bytes, one.wal_bytes
        ))?;
        all.push(one);
    }
    Ok(all)
}

fn print_variants(measured: &[VariantResult]) -> anyhow::Result<()> {
    let none =
        measured.iter().find(|one| one.variant == LayerVariant::NoLayer).context("nothing was measured")?;
    let plain =
        measured.iter().find(|one| one.variant == LayerVariant::Plain).context("nothing was measured")?;
    print_now(
        "\nvariant        checks/s   vs plain   HTTP/s   p50 ms (added)   p99 ms (added)   WAL bytes\n",
    )?;
    for one in measured {
        print_now(&format!(
            "{:<13} {:>9.0} {:>9.2}x {:>8.0} {:>8.2} ({:>+5.2}) {:>8.2} ({:>+5.2}) {:>11.0}\n",
            one.variant.name(),
            one.rate,
            one.rate / plain.rate,
            one.http_rate,
            one.p50_ms,
            one.p50_ms - none.p50_ms,
            one.p99_ms,
            one.p99_ms - none.p99_ms,
            one.wal_bytes,
        ))?;
    }
    Ok(())
}

fn progress(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr().lock(), "{text}")?;
    Ok(())
}
