//! The ledger where it is hot: many writers who post to one escrow account, against the same with a balance row for that account;
//! and customers' balances moved by the journal's own triggers, against the same by a statement of the application.
//!
//! Every commit is durable, the sealer runs beside all ways, and each round measures every way: what counts is how they compare.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use serde_json::json;
use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::sync::CancellationToken;

use crate::common::{durable_pool, say, two};
use crate::load::{self, median};

/// Writers at once, each with a connection of its own.
const WRITERS: u32 = 64;

/// What is measured, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database with durable commits
    #[arg(long)]
    database_url: String,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds; the middle one counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// How an entry is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// To the one escrow account, whose balance is rolled forward by the sealer.
    Escrow,
    /// The same, and a balance row of the escrow account changed last, just before the commit.
    EscrowRow,
    /// To customers' accounts, whose balances the journal's trigger moves.
    Customers,
    /// The same without that trigger, the balance moved by a statement of the application.
    CustomersByHand,
}

impl Way {
    const ALL: [Self; 4] = [Self::Escrow, Self::EscrowRow, Self::Customers, Self::CustomersByHand];

    fn name(self) -> &'static str {
        match self {
            Self::Escrow => "escrow",
            Self::EscrowRow => "escrow_with_a_row",
            Self::Customers => "customers",
            Self::CustomersByHand => "customers_by_hand",
        }
    }

    /// Statements of the transaction, after the operation; `$1` is the key, `$2` the customer.
    fn statements(self) -> &'static [&'static str] {
        const LATE: &str = "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                            VALUES ($1, $1, 'late_debit', 'internal:claims:EUR', 'internal:escrow:EUR', 1, 'EUR')";
        const FUND: &str =
            "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
                            VALUES ($1, 'fund', 'internal:funding:EUR', $2, 1, 'EUR')";
        match self {
            Self::Escrow => &[LATE],
            Self::EscrowRow => &[LATE, "UPDATE bench_balance SET balance_minor = balance_minor + 1"],
            Self::Customers => &[FUND],
            Self::CustomersByHand => &[
                "UPDATE accounts SET available_minor = available_minor + 1 WHERE account_id = $2 AND $1 <> ''",
                FUND,
            ],
        }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let pool = durable_pool(&args.database_url, WRITERS + 2).await?;
    payment_ledger::MIGRATOR.run(&pool).await?;
    make_book(&pool).await?;
    say(&format!(
        "{WRITERS} writers, {} rounds of {} s each, sealed meanwhile\n\n",
        args.rounds, args.seconds
    ))?;

    let sealing = CancellationToken::new();
    let sealer = tokio::spawn(seal(Ledger::new(pool.clone()), sealing.clone()));
    let mut rates: Vec<Vec<f64>> = vec![vec![]; Way::ALL.len()];
    let mut p99s = rates.clone();
    for round in 0..args.rounds {
        for (n, way) in Way::ALL.into_iter().enumerate() {
            let load = measure(&pool, way, Duration::from_secs(args.seconds)).await?;
            anyhow::ensure!(load.failed == 0, "{} failed {} times", way.name(), load.failed);
            say(&format!(
                "round {} {:<18} {:>7.0}/s  p99 {:.1} ms\n",
                round + 1,
                way.name(),
                load.rate(),
                load.percentile_ms(0.99)
            ))?;
            rates[n].push(load.rate());
            p99s[n].push(load.percentile_ms(0.99));
        }
    }
    sealing.cancel();
    let behind = sealer.await??;
    let verified = Ledger::new(pool.clone()).verify(None).await?;
    anyhow::ensure!(verified.found == 0, "the books disagree: {:?}", verified.findings);
    let ratio = |over: usize, under: usize| {
        median(rates[over].iter().zip(&rates[under]).map(|(over, under)| over / under).collect())
    };
    let json = json!({
        "hot_escrow_vs_balance_row": two(ratio(0, 1)),
        "customers_by_trigger_vs_by_hand": two(ratio(2, 3)),
        "entries": verified.entries + verified.unsealed,
        "unsealed_at_most": behind,
        "ways": Way::ALL.iter().zip(rates.iter().zip(&p99s)).map(|(way, (rates, p99s))| json!({
            "way": way.name(), "per_second": median(rates.clone()).round(), "p99_ms": two(median(p99s.clone())),
        })).collect::<Vec<_>>(),
    });
    say(&format!("\n{json}\n"))
}

/// Accounts: the internal ones, one for each writer, and the row that one way changes.
async fn make_book(pool: &PgPool) -> anyhow::Result<()> {
    let make = format!(
        "INSERT INTO accounts (account_id, tenant_id, kind, currency)
         SELECT 'internal:' || name || ':EUR', 'internal', 'internal', 'EUR' FROM unnest(ARRAY['claims', 'escrow', 'funding']) AS names (name);
         INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
         SELECT 'customer-' || n, 'bench', 'customer', 'EUR', 0 FROM generate_series(0, {WRITERS} - 1) AS n;
         CREATE TABLE bench_balance (balance_minor bigint NOT NULL);
         INSERT INTO bench_balance VALUES (0)"
    );
    sqlx::raw_sql(AssertSqlSafe(make)).execute(pool).await?;
    Ok(())
}

/// One way, as much as goes through.
async fn measure(pool: &PgPool, way: Way, time: Duration) -> anyhow::Result<load::Load> {
    let by_hand = if way == Way::CustomersByHand { "DISABLE" } else { "ENABLE" };
    let triggers = format!(
        "ALTER TABLE journal {by_hand} TRIGGER journal_moves_balances;
         ALTER TABLE accounts {by_hand} TRIGGER accounts_follow_journal;
         CHECKPOINT"
    );
    for statement in triggers.split(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(pool).await?;
    }
    let writer = Arc::new(AtomicU64::new(0));
    let pool = pool.clone();
    let ask = move || {
        let (pool, customer) = (pool.clone(), writer.fetch_add(1, Ordering::Relaxed) % u64::from(WRITERS));
        async move { post(&pool, way, &format!("customer-{customer}")).await }
    };
    Ok(load::closed(usize::try_from(WRITERS)?, time, ask).await)
}

async fn post(pool: &PgPool, way: Way, customer: &str) -> anyhow::Result<()> {
    let key = uuid::Uuid::new_v4().simple().to_string();
    let mut tx = pool.begin().await?;
    sqlx::query(
        "INSERT INTO operations (operation_key, payment_id, outcome)
         VALUES ($1, CASE WHEN $2 THEN $1 END, 'done')",
    )
    .bind(&key)
    .bind(matches!(way, Way::Escrow | Way::EscrowRow))
    .execute(&mut *tx)
    .await?;
    for statement in way.statements() {
        let mut query = sqlx::query(*statement);
        if statement.contains("$1") || statement.contains("$2") {
            query = query.bind(&key);
        }
        if statement.contains("$2") {
            query = query.bind(customer);
        }
        query.execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Seals as the relay does, until `stop`. Returns how many entries waited at most.
async fn seal(ledger: Ledger, stop: CancellationToken) -> anyhow::Result<i64> {
    let mut behind = 0;
    while !stop.is_cancelled() {
        behind = behind.max(ledger.unsealed().await?.count);
        if matches!(ledger.seal(BatchSize::new(5_000)).await?, SealOutcome::Batch { is_full: true, .. }) {
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
    Ok(behind)
}
