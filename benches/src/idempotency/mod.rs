//! The idempotency layer against the same endpoint without it, the plain way, a cache first, and both.
//!
//! First through the store: as many checks a second as go through, each with its effect, every commit durable. Then over
//! HTTP: what is added to a request's latency at half of what the endpoint without a layer bears. Then the same store
//! with more and more live keys.

mod fill;
mod orders;
mod service;
mod ways;

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use sqlx::PgPool;

use crate::common::{durable_pool, say, two};
use crate::load::{self, Load, median};
use ways::{Way, Ways};

/// Callers at once where as much as possible is to go through.
const CALLERS: usize = 256;
/// Connections of every way.
const CONNECTIONS: u32 = 32;

/// What is measured, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database with durable commits
    #[arg(long)]
    database_url: String,
    /// A Redis that may be filled
    #[arg(long)]
    redis_url: String,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds; the middle one counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Batches at once in our way; the layer's default unless given
    #[arg(long)]
    workers: Option<usize>,
    /// Live keys in the store, one measurement for each number
    #[arg(long, value_delimiter = ',', default_value = "10000,1000000,10000000")]
    live_keys: Vec<u64>,
}

/// One way, measured.
#[derive(Clone, Debug)]
struct Measured {
    way: Way,
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
    orders::make_tables(&pool).await?;
    let ways = Ways::new(pool.clone(), &args.redis_url, args.workers).await?;
    say(&format!(
        "{CALLERS} callers, {CONNECTIONS} connections, {} rounds of {} s each\n",
        args.rounds, args.seconds
    ))?;

    let measured = measure_ways(&ways, &pool, args.rounds, time).await?;
    print_ways(&measured)?;
    let by_live_keys = measure_live_keys(&ways, &pool, &args.live_keys, time).await?;

    let of = |way: Way| measured.iter().find(|one| one.way == way).cloned().context("a way was not measured");
    let (none, plain, ours) = (of(Way::NoLayer)?, of(Way::Plain)?, of(Way::Ours)?);
    let row_bytes = by_live_keys.last().map(|one| one.row_bytes);
    let json = json!({
        "checks_per_second": ours.rate.round(),
        "speedup_vs_plain": two(ours.rate / plain.rate),
        "speedup_vs_no_layer": two(ours.rate / none.rate),
        "added_p50_ms": two(ours.p50_ms - none.p50_ms),
        "added_p99_ms": two(ours.p99_ms - none.p99_ms),
        "wal_bytes_per_request": ours.wal_bytes.round(),
        "bytes_per_row": row_bytes.map(f64::round),
        "ways": measured.iter().map(|one| json!({
            "way": one.way.name(), "checks_per_second": one.rate.round(), "http_per_second": one.http_rate.round(),
            "p50_ms": two(one.p50_ms), "p99_ms": two(one.p99_ms), "wal_bytes_per_request": one.wal_bytes.round(),
        })).collect::<Vec<_>>(),
        "by_live_keys": by_live_keys.iter().map(|one| json!({
            "live_keys": one.live_keys, "ours_per_second": one.ours.round(), "plain_per_second": one.plain.round(),
            "replays_per_second": one.replays.round(), "bytes_per_row": one.row_bytes.round(),
            "wal_bytes_per_request": one.wal_bytes.round(),
        })).collect::<Vec<_>>(),
    });
    say(&format!("\n{json}\n"))
}

/// What the rounds brought for one way.
struct Rounds {
    way: Way,
    /// Through the store, with the WAL bytes of each request.
    closed: Vec<(Load, f64)>,
    /// Over HTTP, as much as goes through.
    http: Vec<Load>,
    /// Over HTTP, at half load.
    open: Vec<Load>,
}

impl Rounds {
    fn of(way: Way) -> Self {
        Self { way, closed: Vec::new(), http: Vec::new(), open: Vec::new() }
    }
}

/// Every way in every round, one after the other, so that whatever else the machine does meets all of them.
async fn measure_ways(
    ways: &Ways,
    pool: &PgPool,
    rounds: u32,
    time: Duration,
) -> anyhow::Result<Vec<Measured>> {
    let mut loads: Vec<Rounds> = Way::ALL.iter().map(|way| Rounds::of(*way)).collect();
    let services = service::start(ways).await?;
    let mut half = 0.0;
    for round in 0..rounds {
        for Rounds { way, closed, http, .. } in &mut loads {
            closed.push(through_the_store(ways, pool, *way, time).await?);
            let service = services.of(*way)?;
            http.push(load::closed(CALLERS / 4, time, move || service.clone().post()).await);
            progress(&format!("round {} {}", round + 1, way.name()))?;
        }
        if round == 0 {
            half = loads.first().and_then(|rounds| rounds.http.first()).map_or(0.0, Load::rate) / 2.0;
        }
        for Rounds { way, open, .. } in &mut loads {
            let service = services.of(*way)?;
            open.push(load::open(half, time, move || service.clone().post()).await);
        }
    }
    let middle = |loads: &[Load], of: fn(&Load) -> f64| median(loads.iter().map(of).collect());
    loads
        .into_iter()
        .map(|Rounds { way, closed, http, open }| {
            let failed: u64 = closed
                .iter()
                .map(|(load, _)| load.failed)
                .chain(http.iter().chain(&open).map(|load| load.failed))
                .sum();
            anyhow::ensure!(failed == 0, "{failed} requests of {:?} failed", way.name());
            Ok(Measured {
                way,
                rate: median(closed.iter().map(|(load, _)| load.rate()).collect()),
                wal_bytes: median(closed.iter().map(|(_, wal)| *wal).collect()),
                http_rate: middle(&http, Load::rate),
                p50_ms: middle(&open, |load| load.percentile_ms(0.50)),
                p99_ms: middle(&open, |load| load.percentile_ms(0.99)),
            })
        })
        .collect()
}

/// As many as go through, and the WAL bytes that each wrote.
async fn through_the_store(
    ways: &Ways,
    pool: &PgPool,
    way: Way,
    time: Duration,
) -> anyhow::Result<(Load, f64)> {
    let before = wal(pool).await?;
    let ask = ways.clone();
    let load = load::closed(CALLERS, time, move || {
        let ways = ask.clone();
        async move { ways.carry_out(way, &orders::Order::new()).await.map(|_| ()) }
    })
    .await;
    let written = wal(pool).await? - before;
    let each = written / load.answered.max(1) as f64;
    Ok((load, each))
}

async fn wal(pool: &PgPool) -> anyhow::Result<f64> {
    Ok(sqlx::query_scalar("SELECT (pg_current_wal_insert_lsn() - '0/0')::float8").fetch_one(pool).await?)
}

/// The store with so many live keys.
#[derive(Clone, Debug)]
struct WithLiveKeys {
    live_keys: u64,
    ours: f64,
    plain: f64,
    replays: f64,
    row_bytes: f64,
    wal_bytes: f64,
}

async fn measure_live_keys(
    ways: &Ways,
    pool: &PgPool,
    sizes: &[u64],
    time: Duration,
) -> anyhow::Result<Vec<WithLiveKeys>> {
    say("\nlive keys    ours/s    plain/s   replays/s   bytes a row   WAL bytes a request\n")?;
    let mut all = Vec::new();
    for live_keys in sizes {
        progress(&format!("writing {live_keys} keys"))?;
        fill::to(pool, *live_keys).await?;
        let (plain, _) = through_the_store(ways, pool, Way::Plain, time).await?;
        let (ours, wal_bytes) = through_the_store(ways, pool, Way::Ours, time).await?;
        let replayed = fill::some_keys(ways, 2_000).await?;
        let ask = ways.clone();
        let replays = load::closed(CALLERS, time, move || {
            let (ways, order) = (ask.clone(), replayed.one());
            async move {
                let answer = ways.carry_out(Way::Ours, &order).await?;
                anyhow::ensure!(answer.replayed, "a kept key was carried out again");
                Ok(())
            }
        })
        .await;
        anyhow::ensure!(
            plain.failed + ours.failed + replays.failed == 0,
            "requests failed at {live_keys} keys"
        );
        let one = WithLiveKeys {
            live_keys: *live_keys,
            ours: ours.rate(),
            plain: plain.rate(),
            replays: replays.rate(),
            row_bytes: fill::row_bytes(pool).await?,
            wal_bytes,
        };
        say(&format!(
            "{:>9} {:>9.0} {:>10.0} {:>11.0} {:>13.0} {:>21.0}\n",
            one.live_keys, one.ours, one.plain, one.replays, one.row_bytes, one.wal_bytes
        ))?;
        all.push(one);
    }
    Ok(all)
}

fn print_ways(measured: &[Measured]) -> anyhow::Result<()> {
    let none = measured.iter().find(|one| one.way == Way::NoLayer).context("nothing was measured")?;
    let plain = measured.iter().find(|one| one.way == Way::Plain).context("nothing was measured")?;
    say("\nway            checks/s   of plain   HTTP/s   p50 ms (added)   p99 ms (added)   WAL bytes\n")?;
    for one in measured {
        say(&format!(
            "{:<13} {:>9.0} {:>9.2}x {:>8.0} {:>8.2} ({:>+5.2}) {:>8.2} ({:>+5.2}) {:>11.0}\n",
            one.way.name(),
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
