//! What a payment costs: the whole system, started by `./dev bench payments` as release programs, under a closed load or a burst.
//!
//! | file | content |
//! |---|---|
//! | `load` | payments over the API, and their ends |
//! | `processes` | CPU time and memory of each process |
//! | `stored` | payments of earlier hours, beside which the others are measured |
//! | `lost` | payments that lose their workflows |
//! | `backlog` | payments beside a backlog at a switch that hangs |
//! | `broker` | payments while the broker is away or hangs |
//! | `counts` | statements, commits, WAL, and events of Temporal's history |

mod attacks;
mod backlog;
mod broker;
mod counts;
mod load;
mod lost;
mod processes;
mod stored;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use payment_ledger::events::Consumer;
use serde_json::{Map, json};
use sqlx::PgPool;
use workflow_api::TemporalOptions;

use self::counts::Counts;
use self::load::{Order, Payer};
use self::processes::{Process, Usage};
use crate::common::{analyze, durable_pool, print_now, round2};

/// Payments whose history is counted.
const HISTORIES: usize = 20;
/// Payments one after the other, for the latency of a payment alone.
const ALONE: usize = 40;
/// Time for a payment, and for the events of all payments, to end.
const WITHIN: Duration = Duration::from_secs(120);
/// The processes in the order of the table, with their names in the figures. The switch and its database are measured and not
/// counted: they are another party's.
const COUNTED: [&str; 7] = ["temporal", "postgres", "worker", "webhook", "relay", "notifier", "broker"];

/// Options of `bench payments`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Database of the bank, as its owner
    #[arg(long)]
    database_url: String,
    /// URL of the payments API
    #[arg(long)]
    api: String,
    /// An API key with the scope `pay`
    #[arg(long)]
    api_key: String,
    /// URL of the Temporal frontend
    #[arg(long)]
    temporal_address: String,
    /// A process to measure and its pid; once for each of: temporal, postgres, worker, webhook, relay, notifier, broker, switch,
    /// switch_postgres; for --backlog also sepa_switch
    #[arg(long = "process", value_name = "NAME=PID", required = true, value_parser = processes::parse)]
    processes: Vec<Process>,
    /// Payments to measure
    #[arg(short = 'n', long, default_value_t = 800, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    payments: u32,
    /// Payments in flight
    #[arg(short = 'c', long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    concurrency: u32,
    /// Send all payments at once, as fast as the API accepts them; -c is the number of connections
    #[arg(long)]
    burst: bool,
    /// Store this many settled payments first, with all their rows: about 10 KB each
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000_000))]
    stored: u64,
    /// Then let this many payments lose their workflows, and measure how fast they are resumed; more would meet their SLA meanwhile
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2_000))]
    lost: u32,
    /// At last store this many accepted payments at another switch, which hangs, and measure payments alone beside them
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2_000_000))]
    backlog: u32,
    /// Then make payments while strangers and a tenant send as much as they can from another address
    #[arg(long)]
    attacks: bool,
    /// After all others, make as many payments while the broker is away or hangs
    #[arg(long, value_name = "STATE", conflicts_with = "backlog")]
    broker_outage: Option<broker::BrokerOutage>,
    /// With --broker-outage: store this many events first that wait for the broker, as after a long outage
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=2_000_000))]
    unpublished: u64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let pool = durable_pool(&args.database_url, 1).await?;
    let payer = Payer::start(pool.clone(), &args.api, &args.api_key).await?;
    let (payments, concurrency) = (args.payments as usize, args.concurrency as usize);
    print_now(&format!("warming up: {} payments\n", concurrency * 4))?;
    payer.closed(&Order::default(), concurrency * 4, concurrency).await?;
    let mut settled = settle(&pool, 0).await?;
    let mut database_bytes = None;
    if args.stored > 0 {
        database_bytes = Some(stored::store(&pool, args.stored, &args.processes).await?);
        settled = stored::last_position(&pool).await?;
    }
    analyze(&pool).await?;
    if args.stored > 0 {
        // What the statistics changed is planned, and the pages in use are read.
        payer.closed(&Order::default(), concurrency * 2, concurrency).await?;
        settled = settle(&pool, settled).await?;
    }

    print_now(&format!(
        "{payments} payments, {concurrency} {}\n",
        if args.burst { "connections, a burst" } else { "in flight" }
    ))?;
    let before = Snapshot::take(&pool, &args.processes, &payer).await?;
    let started = Instant::now();
    let load = if args.burst {
        payer.burst(payments, concurrency).await?
    } else {
        payer.closed(&Order::default(), payments, concurrency).await?
    };
    let seconds = started.elapsed().as_secs_f64();
    settle(&pool, settled).await?;
    let after = Snapshot::take(&pool, &args.processes, &payer).await?;

    print_now(&format!("{ALONE} payments alone, one after the other\n"))?;
    let alone = payer.closed(&Order::default(), ALONE, 1).await?;
    let temporal = TemporalOptions {
        address: args.temporal_address.clone(),
        allow_clear_payloads: true,
        ..TemporalOptions::default()
    };
    let histories = counts::histories(&temporal, &load.payment_ids, HISTORIES).await?;
    let lost = match args.lost {
        0 => None,
        _ => Some(lost::measure(&args, &pool, &payer, &temporal).await?),
    };
    let attacks = match args.attacks {
        false => None,
        true => Some(attacks::measure(&args, &pool, &payer).await?),
    };
    // Last: its payments stay in flight.
    let backlog = match args.backlog {
        0 => None,
        _ => Some(backlog::measure(&args, &pool, &payer, &alone.payment_ids).await?),
    };

    let per_payment = |value: f64| round2(value / payments as f64);
    let used = after.since(&before);
    let broker = match args.broker_outage {
        None => None,
        Some(outage) => {
            let normal = (used.counted_cpu_ms() / payments as f64, payments as f64 / seconds);
            Some(broker::measure(&args, outage, &pool, &payer, normal).await?)
        }
    };

    let ends = load::ends(&pool, &load.payment_ids).await?;
    ensure!(ends.lost == 0, "{} of {payments} payments have not ended", ends.lost);
    let alone_p50_ms = load::ends(&pool, &alone.payment_ids).await?.p50_ms;
    print_now("\nms after the acceptance, of a payment alone\n")?;
    for (entry, ms) in load::timeline(&pool, &alone.payment_ids).await? {
        print_now(&format!("{ms:>8.2} {entry}\n"))?;
    }
    print_now(&used.counts.table(payments))?;
    print_now(&used.table(payments))?;
    let mut cpu_ms = Map::new();
    for name in COUNTED {
        cpu_ms.insert(name.into(), json!(per_payment(used.cpu_ms(name))));
    }
    cpu_ms.insert("total".into(), json!(per_payment(used.counted_cpu_ms())));
    let mut rss_mb = Map::new();
    for (name, usage) in &after.usages {
        rss_mb.insert(name.clone(), json!(round2(usage.rss_bytes as f64 / 1e6)));
    }
    let json = json!({
        "payments": payments,
        "in_flight": concurrency,
        "burst": args.burst,
        "stored": args.stored,
        "database_gb": database_bytes.map(|bytes| round2(bytes as f64 / 1e9)),
        "payments_per_s": round2(payments as f64 / seconds),
        "accepted_per_s": load.accepted_per_s.map(round2),
        "p50_ms": round2(ends.p50_ms),
        "p99_ms": round2(ends.p99_ms),
        "alone_p50_ms": round2(alone_p50_ms),
        "cpu_ms": cpu_ms,
        "statements": per_payment(used.counts.statements()),
        "commits": per_payment(used.counts.commits),
        "wal_bytes": per_payment(used.counts.wal_bytes).round(),
        "history_events": round2(histories.events),
        "workflow_tasks": round2(histories.workflow_tasks),
        "rss_mb": rss_mb,
        "compensated": ends.compensated,
        "backlog": backlog,
        "lost": lost,
        "attacks": attacks,
        "broker": broker,
        "others_cpu_share": round2(used.others_cpu_share()),
    });
    print_now(&format!("\n{json}\n"))
}

/// Waits until every event after `position` is published and consumed, so that its cost counts; returns the last position. What is
/// stored before it is not read: among millions of events that would cost more than the payments.
async fn settle(pool: &PgPool, position: i64) -> anyhow::Result<i64> {
    let consumers: Vec<&str> = Consumer::ALL.iter().map(|consumer| consumer.as_str()).collect();
    let started = Instant::now();
    loop {
        let (left, last): (i64, i64) = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE o.published_at IS NULL OR (
                        SELECT count(*) FROM processed_events p
                        WHERE p.consumer = ANY ($2) AND p.event_id = o.event_id) < cardinality($2)),
                    coalesce(max(o.position), $1)
             FROM outbox o WHERE o.position > $1",
        )
        .bind(position)
        .bind(&consumers)
        .fetch_one(pool)
        .await?;
        if left == 0 {
            return Ok(last);
        }
        ensure!(
            started.elapsed() < WITHIN,
            "{left} events are not published or not consumed after {WITHIN:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What was used up to an instant.
struct Snapshot {
    usages: Vec<(String, Usage)>,
    /// CPU time of the whole machine that was not idle, in milliseconds.
    machine_busy_ms: f64,
    machine_ms: f64,
    /// CPU time of this program, in milliseconds.
    own_ms: f64,
    counts: Counts,
}

impl Snapshot {
    async fn take(pool: &PgPool, processes: &[Process], payer: &Payer) -> anyhow::Result<Self> {
        let counts = Counts::read(pool).await?;
        let mut usages = Vec::new();
        for process in processes {
            let mut usage =
                process.usage().with_context(|| format!("{} cannot be measured", process.name))?;
            if process.name == "postgres" {
                // The sessions of this program are no cost of a payment.
                usage.cpu_ms -= payer.database_cpu_ms(pool).await?;
            }
            usages.push((process.name.clone(), usage));
        }
        let (machine_busy_ms, machine_ms) = processes::machine_ms()?;
        let own_ms = processes::own_ms()?;
        Ok(Self { usages, machine_busy_ms, machine_ms, own_ms, counts })
    }

    fn since(&self, before: &Self) -> Used {
        let cpu = self.usages.iter().zip(&before.usages);
        Used {
            cpu_ms: cpu.map(|((name, now), (_, then))| (name.clone(), now.cpu_ms - then.cpu_ms)).collect(),
            machine_busy_ms: self.machine_busy_ms - before.machine_busy_ms,
            machine_ms: self.machine_ms - before.machine_ms,
            own_ms: self.own_ms - before.own_ms,
            counts: self.counts.since(&before.counts),
        }
    }
}

/// What was used between two instants.
struct Used {
    cpu_ms: Vec<(String, f64)>,
    machine_busy_ms: f64,
    machine_ms: f64,
    own_ms: f64,
    counts: Counts,
}

impl Used {
    fn cpu_ms(&self, name: &str) -> f64 {
        self.cpu_ms.iter().filter(|(process, _)| process == name).map(|(_, ms)| ms).sum()
    }

    fn counted_cpu_ms(&self) -> f64 {
        COUNTED.iter().map(|name| self.cpu_ms(name)).sum()
    }

    /// The part of the machine's time that programs used which have nothing to do with the measurement.
    fn others_cpu_share(&self) -> f64 {
        let ours: f64 = self.cpu_ms.iter().map(|(_, ms)| ms).sum::<f64>() + self.own_ms;
        ((self.machine_busy_ms - ours) / self.machine_ms).max(0.0)
    }

    fn table(&self, payments: usize) -> String {
        let line = |name: &str, ms: f64| format!("{name:<16} {:>8.2}\n", ms / payments as f64);
        let mut table = format!("\n{:<16} {:>8}\n", "CPU ms a payment", "");
        for name in COUNTED {
            table += &line(name, self.cpu_ms(name));
        }
        table += &line("total", self.counted_cpu_ms());
        for (name, ms) in self.cpu_ms.iter().filter(|(name, _)| !COUNTED.contains(&name.as_str())) {
            table += &line(&format!("({name})"), *ms);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_measured_and_not_counted() {
        let used = Used {
            cpu_ms: vec![("postgres".into(), 20.0), ("worker".into(), 10.0), ("switch".into(), 5.0)],
            machine_busy_ms: 50.0,
            machine_ms: 100.0,
            own_ms: 5.0,
            counts: Counts::default(),
        };
        assert_eq!(used.counted_cpu_ms(), 30.0);
        assert_eq!(used.others_cpu_share(), 0.1);
        assert!(used.table(10).contains("(switch)"));
    }
}
