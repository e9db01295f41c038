//! Cost of the reads of the ledger that must not grow with its history: queues, lists, gauges and the hold audit, in one database
//! with few stored payments and then with many. The blocks that PostgreSQL touches are counted, those in its cache included.
//!
//! Stored are payments, holds and timeline lines, and the reserve entries of the open payments; not the journal of ended payments,
//! which none of these reads touches.

use std::time::Instant;

use anyhow::Context as _;
use jiff::Timestamp;
use payment_ledger::Ledger;
use payment_ledger::audit::seal::BatchSize;
use payment_ledger::reads::queues::{ExceptionFilter, OperatorPaymentFilter};
use payment_ledger::reads::view::PaymentFilter;
use payment_protocol::PaymentState;
use payment_protocol::drift::Tolerance;
use payment_protocol::ids::{AccountId, PaymentId, SwitchName, TenantId};
use serde_json::json;
use sqlx::{AssertSqlSafe, PgPool};

use crate::common::{analyze, create_accounts, durable_pool, print_now, round2, seal_all};

/// Payments inserted per statement.
const CHUNK: u64 = 500_000;
/// Customers' source accounts.
const ACCOUNTS: u64 = 1_000;
/// Tenants that share the payments evenly.
const TENANTS: u64 = 5;
/// Executions of each read; the last one counts. More than PostgreSQL plans for the values of the parameters.
const EXECUTIONS: u32 = 7;
/// Payments that a list shows, or a queue claims.
const PAGE: i64 = 50;
/// In-flight limit of a switch.
const IN_FLIGHT_MAX: i64 = 256;
/// Blocks that are not counted as growth: a few for each payment of a page, which a small database has in fewer blocks.
const FEW_BLOCKS: f64 = 250.0;
/// The same for an open payment: the levels of an index in each of the tables that have something of it.
const FEW_BLOCKS_OF_A_PAYMENT: f64 = 20.0;

/// Options of `bench reads`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An empty database
    #[arg(long)]
    database_url: String,
    /// Stored payments: few, then many
    #[arg(long, value_delimiter = ',', default_value = "20000,1000000")]
    stored: Vec<u64>,
    /// Of these, open payments: few, then many
    #[arg(long, value_delimiter = ',', default_value = "2000,20000")]
    open: Vec<u64>,
}

/// What the cost of a read is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    /// It costs the same however many payments are stored or open.
    Fixed,
    /// It costs the same per open payment.
    PerOpenPayment,
    /// It searches a bounded number of payments.
    Search,
}

/// The cost of one execution of a read.
struct ReadCost {
    read: &'static str,
    bound: Bound,
    blocks: i64,
    ms: f64,
}

/// A bank's database, used by one connection that flushes its own statistics.
struct StoredBank {
    pool: PgPool,
    ledger: Ledger,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let (&[few, many], &[few_open, many_open]) = (args.stored.as_slice(), args.open.as_slice()) else {
        anyhow::bail!("give two numbers of stored and two of open payments, like --stored 20000,1000000")
    };
    anyhow::ensure!(
        few < many && 10 <= few_open && few_open <= many_open && many_open < many - few && few_open < few,
        "stored payments must grow, and the open ones must be fewer than those added: {few},{many} stored, {few_open},{many_open} open"
    );
    let pool = durable_pool(&args.database_url, 1).await?;
    payment_ledger::MIGRATOR.run(&pool).await?;
    let bank = StoredBank { ledger: Ledger::new(pool.clone()), pool };
    create_accounts(&bank.pool, ACCOUNTS).await?;
    bank.store(0, few, few_open).await?;
    let small = bank.read_all().await?;
    bank.store(few, many, many_open).await?;
    let large = bank.read_all().await?;

    print_now(&format!(
        "\n{:<34} {:>11} {:>11} {:>7} {:>9} {:>9}\n",
        "read", "blocks few", "blocks many", "ratio", "ms few", "ms many"
    ))?;
    let mut grown = Vec::new();
    for (small, large) in small.iter().zip(&large) {
        let (per_few, per_many, floor, unit) = match small.bound {
            Bound::PerOpenPayment => {
                (few_open, few_open + many_open, FEW_BLOCKS_OF_A_PAYMENT, " (an open payment)")
            }
            Bound::Fixed | Bound::Search => (1, 1, FEW_BLOCKS, ""),
        };
        let few_blocks = small.blocks as f64 / per_few as f64;
        let many_blocks = large.blocks as f64 / per_many as f64;
        if many_blocks > 2.0 * few_blocks.max(floor) && small.bound != Bound::Search {
            grown.push(small.read);
        }
        print_now(&format!(
            "{:<34} {few_blocks:>11.1} {many_blocks:>11.1} {:>7.2} {:>9.2} {:>9.2}\n",
            format!("{}{unit}", small.read),
            many_blocks / few_blocks.max(1.0),
            small.ms,
            large.ms,
        ))?;
    }
    let slowest = large.iter().map(|cost| cost.ms).fold(0.0, f64::max);
    let json = json!({
        "stored": [few, many], "open": [few_open, few_open + many_open], "grown": grown,
        "slowest_ms": round2(slowest),
    });
    print_now(&format!("\n{json}\n"))
}

impl StoredBank {
    /// Stores the payments `from` to `to` and reports progress; the last `open` of them are open.
    async fn store(&self, from: u64, to: u64, open: u64) -> anyhow::Result<()> {
        let mut next = from;
        while next < to {
            let end = to.min(next + CHUNK);
            self.store_chunk(next, end, to - open).await?;
            next = end;
            print_now(&format!("stored {next} payments\n"))?;
        }
        seal_all(&self.ledger).await?;
        analyze(&self.pool).await
    }

    /// Stores payments without triggers, `first_open` and later ones open: of ten, one accepted, two that need an operator, one
    /// that is being cancelled and six submitted. One of a hundred ended payments was rejected, one of a million went to another
    /// switch.
    async fn store_chunk(&self, from: u64, to: u64, first_open: u64) -> anyhow::Result<()> {
        let profile = json!({
            "switch": "bench", "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 500, "can_cancel": true, "can_recall": true,
            "has_callback": true, "has_statement": false,
        });
        let profile_hash = format!("switch_profile_hash('{profile}')");
        let insert = format!(
            "BEGIN;
             SET LOCAL session_replication_role = replica;
             SET LOCAL synchronous_commit = off;
             CREATE TEMPORARY TABLE new ON COMMIT DROP AS
             SELECT n, 'pay_' || n AS id, 'customer-' || n % {ACCOUNTS} AS account,
                    CASE WHEN n < {first_open} THEN CASE WHEN n % 100 = 0 THEN 'rejected' ELSE 'settled' END
                         WHEN n % 10 = 0 THEN 'accepted' WHEN n % 10 < 3 THEN 'needs_operator' WHEN n % 10 = 3 THEN 'cancelling'
                         ELSE 'submitted' END AS state
             FROM generate_series({from}, {to} - 1) AS n;
             INSERT INTO switch_profiles VALUES ({profile_hash}, '{profile}') ON CONFLICT DO NOTHING;
             INSERT INTO payments (payment_id, tx_id, tenant_id, client_id, source_account, destination_account, end_to_end_id,
                 amount_minor, currency, switch, profile_hash, needs_account_lock, request_hash, response_body, state, workflow_id, attempts,
                 first_attempt_at, final_status, final_status_source, operator_reason, needs_operator_since, accepted_at,
                 valid_until, started_at, updated_at, ended_at)
             SELECT id, 'tx_' || n, 'tenant-' || n % {TENANTS}, 'client', account, 'DE02', 'invoice-' || n, 100, 'EUR',
                    CASE WHEN n % 1000000 = 7 THEN 'rare' ELSE 'bench' END,
                    {profile_hash}, false, '', '', state, id,
                    CASE WHEN state IN ('accepted', 'rejected') THEN 0 ELSE 1 END,
                    CASE WHEN state IN ('accepted', 'rejected') THEN NULL ELSE now() END,
                    CASE WHEN state = 'settled' THEN 'settled' END, CASE WHEN state = 'settled' THEN 'query' END,
                    CASE WHEN state = 'needs_operator' THEN 'not_found_is_inconclusive' END,
                    CASE WHEN state = 'needs_operator' THEN now() END,
                    '2026-01-01'::timestamptz + n * interval '1 millisecond', now() + interval '1 day',
                    CASE WHEN state = 'accepted' THEN NULL ELSE now() END, now() - interval '1 hour',
                    CASE WHEN n < {first_open} THEN now() END
             FROM new;
             INSERT INTO timeline (payment_id, state, detail) SELECT id, state, 'stored' FROM new ORDER BY n;
             INSERT INTO holds (payment_id, account_id, amount_minor, currency, status, closed_at)
             SELECT id, account, 100, 'EUR', CASE WHEN state = 'settled' THEN 'debited' ELSE 'open' END,
                    CASE WHEN state = 'settled' THEN now() END
             FROM new WHERE state NOT IN ('accepted', 'rejected');
             INSERT INTO operations (operation_key, payment_id, outcome)
             SELECT id || ':reserve', id, 'done' FROM new WHERE n >= {first_open} AND state <> 'accepted';
             WITH entries AS (
                 INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                 SELECT id || ':reserve', id, 'reserve', account, 'internal:holding:EUR', 100, 'EUR'
                 FROM new WHERE n >= {first_open} AND state <> 'accepted' RETURNING entry_id)
             INSERT INTO journal_unsealed (entry_id) SELECT entry_id FROM entries;
             COMMIT"
        );
        sqlx::raw_sql(AssertSqlSafe(insert))
            .execute(&self.pool)
            .await
            .context("payments could not be stored")?;
        Ok(())
    }

    /// Blocks of all tables and indexes touched since the last call.
    async fn blocks(&self) -> anyhow::Result<i64> {
        sqlx::raw_sql("SELECT pg_stat_force_next_flush()").execute(&self.pool).await?;
        let blocks = sqlx::query_scalar(
            "SELECT (SELECT sum(heap_blks_hit + heap_blks_read) FROM pg_statio_user_tables)::bigint
                    + (SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_user_indexes)::bigint",
        )
        .fetch_one(&self.pool)
        .await?;
        sqlx::raw_sql("SELECT pg_stat_reset()").execute(&self.pool).await?;
        Ok(blocks)
    }

    /// Executes a read repeatedly and returns the cost of the last execution.
    async fn cost<T, E: std::error::Error + Send + Sync + 'static>(
        &self,
        read: &'static str,
        bound: Bound,
        mut execute: impl AsyncFnMut(&Ledger) -> Result<T, E>,
    ) -> anyhow::Result<ReadCost> {
        let executions = if bound == Bound::Fixed { EXECUTIONS } else { 1 };
        let (mut blocks, mut ms) = (0, 0.0);
        for _ in 0..executions {
            self.blocks().await?;
            let started = Instant::now();
            execute(&self.ledger).await?;
            ms = started.elapsed().as_secs_f64() * 1_000.0;
            blocks = self.blocks().await?;
        }
        Ok(ReadCost { read, bound, blocks, ms })
    }

    /// The cost of every read.
    async fn read_all(&self) -> anyhow::Result<Vec<ReadCost>> {
        use Bound::{Fixed, PerOpenPayment, Search};
        let tenant = TenantId::new("tenant-0")?;
        let of_tenant = || PaymentFilter { limit: PAGE, ..PaymentFilter::default() };
        let of_all = || OperatorPaymentFilter { limit: PAGE, ..OperatorPaymentFilter::default() };
        let ended = PaymentId::new("pay_5")?;
        let by_id = PaymentFilter { end_to_end_id: Some("invoice-5".into()), ..of_tenant() };
        let by_unknown_id = PaymentFilter { end_to_end_id: Some("unknown".into()), ..of_tenant() };
        let by_source = PaymentFilter { source_account: Some(AccountId::new("customer-5")?), ..of_tenant() };
        let with_state = |state| PaymentFilter { state: Some(state), ..of_tenant() };
        let oldest = PaymentFilter { older_than_s: Some(age_of_the_first_payments()), ..of_tenant() };
        let listed = |state| OperatorPaymentFilter { state: Some(state), ..of_all() };
        let on_page_two = OperatorPaymentFilter { after: Some(PaymentId::new("pay_900")?), ..of_all() };
        let open = ExceptionFilter { limit: PAGE, ..Default::default() };
        let at_switch = OperatorPaymentFilter { switch: Some(SwitchName::new("rare")?), ..of_all() };
        Ok(vec![
            self.cost("claim accepted payments", Fixed, async |l| {
                l.claim_accepted(PAGE, 1, IN_FLIGHT_MAX).await
            })
            .await?,
            self.cost("claim idle payments", Fixed, async |l| l.claim_idle(PAGE, 60_000).await).await?,
            self.cost("claim inbox messages", Fixed, async |l| l.claim_undelivered(PAGE, 500).await).await?,
            self.cost("seal, nothing unsealed", Fixed, async |l| l.seal(BatchSize::new(5_000)).await).await?,
            self.cost("API: a payment", Fixed, async |l| l.payment(&tenant, &ended).await).await?,
            self.cost("API: newest", Fixed, async |l| l.payments(&tenant, &of_tenant()).await).await?,
            self.cost("API: end-to-end id", Fixed, async |l| l.payments(&tenant, &by_id).await).await?,
            self.cost("API: unknown end-to-end id", Fixed, async |l| {
                l.payments(&tenant, &by_unknown_id).await
            })
            .await?,
            self.cost("API: source account", Fixed, async |l| l.payments(&tenant, &by_source).await).await?,
            self.cost("API: rejected", Fixed, async |l| {
                l.payments(&tenant, &with_state(PaymentState::Rejected)).await
            })
            .await?,
            self.cost("API: cancelled (none)", Fixed, async |l| {
                l.payments(&tenant, &with_state(PaymentState::Cancelled)).await
            })
            .await?,
            self.cost("API: submitted", Fixed, async |l| {
                l.payments(&tenant, &with_state(PaymentState::Submitted)).await
            })
            .await?,
            self.cost("API: oldest", Fixed, async |l| l.payments(&tenant, &oldest).await).await?,
            self.cost("payctl list", Fixed, async |l| l.list(&of_all()).await).await?,
            self.cost("payctl list --after", Fixed, async |l| l.list(&on_page_two).await).await?,
            self.cost("payctl list --state needs_operator", Fixed, async |l| {
                l.list(&listed(PaymentState::NeedsOperator)).await
            })
            .await?,
            self.cost("payctl list --state timed_out", Fixed, async |l| {
                l.list(&listed(PaymentState::TimedOut)).await
            })
            .await?,
            self.cost("payctl list --switch", Search, async |l| l.list(&at_switch).await).await?,
            self.cost("payctl stuck", PerOpenPayment, async |l| l.stuck(60, PAGE).await).await?,
            self.cost("payctl exceptions", Fixed, async |l| l.exceptions(&open).await).await?,
            self.cost("gauge: open by state", PerOpenPayment, async |l| l.open_by_state().await).await?,
            self.cost("gauge: needs operator", PerOpenPayment, async |l| l.needs_operator_by_reason().await)
                .await?,
            self.cost("gauge: alerts", PerOpenPayment, async |l| l.alerts_by_kind().await).await?,
            self.cost("gauge: exceptions", Fixed, async |l| l.open_exceptions_by_kind().await).await?,
            self.cost("gauge: unsealed", Fixed, async |l| l.unsealed().await).await?,
            self.cost("gauge: undelivered", Fixed, async |l| l.undelivered().await).await?,
            self.cost("gauge: limits and kill switches", Fixed, async |l| l.restrictions().await).await?,
            self.cost("gauge: last reconciliation", Fixed, async |l| l.last_reconciliation_run().await)
                .await?,
            self.cost("gauge: holds by state", PerOpenPayment, async |l| l.held_by_state().await).await?,
            self.cost("gauge: internal balances", Fixed, async |l| l.internal_balances().await).await?,
            self.cost("hold audit", PerOpenPayment, async |l| l.audit_holds(Tolerance::default()).await)
                .await?,
        ])
    }
}

/// Seconds since a few of the first payments were accepted.
fn age_of_the_first_payments() -> i64 {
    // The first payment is accepted at this instant, a thousand in each second after it.
    const FIRST: i64 = 1_767_225_600;
    Timestamp::now().as_second() - FIRST - 1
}
