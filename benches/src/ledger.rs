//! Contention in the ledger: many writers posting to one escrow account, against the same with a balance row for that account;
//! and customers' balances updated by the journal's trigger, against the same by a statement of the application.
//!
//! Every commit is durable, the sealer runs during all measurements, and each round measures every variant: the ratios count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use serde_json::json;
use sqlx::{AssertSqlSafe, PgPool};
use tokio_util::sync::CancellationToken;

use crate::common::{durable_pool, print_now, round2};
use crate::load::{self, median};

/// Concurrent writers, each with its own connection.
const WRITERS: u32 = 64;

/// Options of `bench ledger`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database with durable commits
    #[arg(long)]
    database_url: String,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
}

/// How an entry is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PostingVariant {
    /// To the escrow account, whose balance the sealer computes.
    Escrow,
    /// The same, with an update of a balance row of the escrow account just before the commit.
    EscrowWithBalanceRow,
    /// To customers' accounts, whose balances the journal's trigger updates.
    Customers,
    /// The same without the trigger, with a statement of the application.
    CustomersByStatement,
}

impl PostingVariant {
    const ALL: [Self; 4] =
        [Self::Escrow, Self::EscrowWithBalanceRow, Self::Customers, Self::CustomersByStatement];

    fn name(self) -> &'static str {
        match self {
            Self::Escrow => "escrow",
            Self::EscrowWithBalanceRow => "escrow_with_balance_row",
            Self::Customers => "customers",
            Self::CustomersByStatement => "customers_by_statement",
        }
    }

    /// Statements of the transaction after the operation; `$1` is the key, `$2` the customer.
    fn statements(self) -> &'static [&'static str] {
        const LATE: &str = "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                            VALUES ($1, $1, 'late_debit', 'internal:claims:EUR', 'internal:escrow:EUR', 1, 'EUR')";
        const FUND: &str =
            "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
                            VALUES ($1, 'fund', 'internal:funding:EUR', $2, 1, 'EUR')";
        match self {
            Self::Escrow => &[LATE],
            Self::EscrowWithBalanceRow => {
                &[LATE, "UPDATE bench_balance SET balance_minor = balance_minor + 1"]
            }
            Self::Customers => &[FUND],
            Self::CustomersByStatement => &[
                "UPDATE accounts SET available_minor = available_minor + 1 WHERE account_id = $2 AND $1 <> ''",
                FUND,
            ],
        }
    }
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let pool = durable_pool(&args.database_url, WRITERS + 2).await?;
    payment_ledger::MIGRATOR.run(&pool).await?;
    create_accounts(&pool).await?;
    print_now(&format!(
        "{WRITERS} writers, {} rounds of {} s each, with a running sealer\n\n",
        args.rounds, args.seconds
    ))?;

    let sealing = CancellationToken::new();
    let sealer = tokio::spawn(seal(Ledger::new(pool.clone()), sealing.clone()));
    let mut rates: Vec<Vec<f64>> = vec![vec![]; PostingVariant::ALL.len()];
    let mut p99s = rates.clone();
    for round in 0..args.rounds {
        for (n, variant) in PostingVariant::ALL.into_iter().enumerate() {
            let load = measure(&pool, variant, Duration::from_secs(args.seconds)).await?;
            anyhow::ensure!(load.failed == 0, "{} failed {} times", variant.name(), load.failed);
            print_now(&format!(
                "round {} {:<18} {:>7.0}/s  p99 {:.1} ms\n",
                round + 1,
                variant.name(),
                load.rate(),
                load.percentile_ms(0.99)
            ))?;
            rates[n].push(load.rate());
            p99s[n].push(load.percentile_ms(0.99));
        }
    }
    sealing.cancel();
    let unsealed_max = sealer.await??;
    let verified = Ledger::new(pool.clone()).verify(None).await?;
    anyhow::ensure!(verified.found == 0, "the verification found: {:?}", verified.findings);
    let ratio = |this: usize, baseline: usize| {
        median(rates[this].iter().zip(&rates[baseline]).map(|(this, baseline)| this / baseline).collect())
    };
    let json = json!({
        "hot_escrow_vs_balance_row": round2(ratio(0, 1)),
        "customers_by_trigger_vs_by_statement": round2(ratio(2, 3)),
        "entries": verified.entries + verified.unsealed,
        "unsealed_max": unsealed_max,
        "variants": PostingVariant::ALL.iter().zip(rates.iter().zip(&p99s)).map(|(variant, (rates, p99s))| json!({
            "variant": variant.name(), "per_second": median(rates.clone()).round(), "p99_ms": round2(median(p99s.clone())),
        })).collect::<Vec<_>>(),
    });
    print_now(&format!("\n{json}\n"))
}

/// Creates the internal accounts, one customer account per writer, and the balance row.
async fn create_accounts(pool: &PgPool) -> anyhow::Result<()> {
    let create = format!(
        "INSERT INTO accounts (account_id, tenant_id, kind, currency)
         SELECT 'internal:' || name || ':EUR', 'internal', 'internal', 'EUR' FROM unnest(ARRAY['claims', 'escrow', 'funding']) AS names (name);
         INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
         SELECT 'customer-' || n, 'bench', 'customer', 'EUR', 0 FROM generate_series(0, {WRITERS} - 1) AS n;
         CREATE TABLE bench_balance (balance_minor bigint NOT NULL);
         INSERT INTO bench_balance VALUES (0)"
    );
    sqlx::raw_sql(AssertSqlSafe(create)).execute(pool).await?;
    Ok(())
}

/// Measures one variant under closed load.
async fn measure(pool: &PgPool, variant: PostingVariant, time: Duration) -> anyhow::Result<load::Load> {
    let trigger_state = if variant == PostingVariant::CustomersByStatement { "DISABLE" } else { "ENABLE" };
    let triggers = format!(
        "ALTER TABLE journal {trigger_state} TRIGGER journal_moves_balances;
         ALTER TABLE accounts {trigger_state} TRIGGER accounts_follow_the_journal;
         CHECKPOINT"
    );
    for statement in triggers.split(';') {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(pool).await?;
    }
    let writer = Arc::new(AtomicU64::new(0));
    let pool = pool.clone();
    let request = move || {
        let (pool, customer) = (pool.clone(), writer.fetch_add(1, Ordering::Relaxed) % u64::from(WRITERS));
        async move { post(&pool, variant, &format!("customer-{customer}")).await }
    };
    Ok(load::closed(usize::try_from(WRITERS)?, time, request).await)
}

async fn post(pool: &PgPool, variant: PostingVariant, customer: &str) -> anyhow::Result<()> {
    let key = uuid::Uuid::new_v4().simple().to_string();
    let mut tx = pool.begin().await?;
    sqlx::query(
        "INSERT INTO operations (operation_key, payment_id, outcome)
         VALUES ($1, CASE WHEN $2 THEN $1 END, 'done')",
    )
    .bind(&key)
    .bind(matches!(variant, PostingVariant::Escrow | PostingVariant::EscrowWithBalanceRow))
    .execute(&mut *tx)
    .await?;
    for statement in variant.statements() {
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

/// Seals as the background worker does, until `stop`; returns the largest number of unsealed entries.
async fn seal(ledger: Ledger, stop: CancellationToken) -> anyhow::Result<i64> {
    let mut unsealed_max = 0;
    while !stop.is_cancelled() {
        unsealed_max = unsealed_max.max(ledger.unsealed().await?.count);
        if matches!(ledger.seal(BatchSize::new(5_000)).await?, SealOutcome::Batch { is_full: true, .. }) {
            continue;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
    Ok(unsealed_max)
}
