//! Payments over the API, and their ends.
//!
//! The end of a payment is read from the ledger by this program's own session, whose CPU time is subtracted: a customer who polls or
//! waits at the API would be a part of the figures.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use payment_ledger::Ledger;
use payment_protocol::ids::{AccountId, TenantId};
use payment_protocol::money::{Money, parse_currency};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{WITHIN, processes};

/// Source accounts, each with as many payments.
const ACCOUNTS: usize = 64;
/// Opening balance of each, in minor units.
const OPENING_MINOR: i64 = 1_000_000_000;
/// Tenant of the API key.
const TENANT: &str = "demo";
/// Interval between two looks at the ends of payments.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// Makes payments.
pub(super) struct Payer {
    http: reqwest::Client,
    url: String,
    key: String,
    waiting: Waiting,
    /// The session that looks at the ends of payments.
    session: u32,
    next_account: AtomicUsize,
}

/// What a payment pays, and to whom.
pub(super) struct Order<'a> {
    pub(super) amount: &'a str,
    pub(super) destination: &'a str,
}

impl Default for Order<'_> {
    /// The mock switch settles a transfer of this amount.
    fn default() -> Self {
        Self { amount: "1.00", destination: "FR-BENCH" }
    }
}

/// The payments of a load.
pub(super) struct Load {
    pub(super) payment_ids: Vec<String>,
    /// How long the API took to accept each; empty of a burst.
    pub(super) accept_ms: Vec<f64>,
    /// Of a burst.
    pub(super) accepted_per_s: Option<f64>,
}

/// How payments ended.
pub(super) struct Ends {
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) compensated: i64,
    pub(super) lost: i64,
}

impl Payer {
    /// Opens and funds the accounts.
    pub(super) async fn start(pool: PgPool, api: &str, key: &str) -> anyhow::Result<Self> {
        let ledger = Ledger::new(pool.clone());
        let euro = parse_currency("EUR")?;
        for n in 0..ACCOUNTS {
            let account = AccountId::new(account(n))?;
            ledger.open_account(&TenantId::new(TENANT)?, &account, euro).await?;
            // A key funds once, whichever account it names.
            let key = format!("bench-opening-{n}");
            ledger.fund(&account, Money::from_minor(OPENING_MINOR, euro)?, &key).await?;
        }
        let waiting = Waiting::default();
        let session = look_at_ends(&pool, waiting.clone()).await?;
        let http = reqwest::Client::builder().tls_certs_only([]).no_proxy().timeout(WITHIN).build()?;
        let url = format!("{}/api/v1/payments", api.trim_end_matches('/'));
        Ok(Self { http, url, key: key.to_owned(), waiting, session, next_account: AtomicUsize::new(0) })
    }

    /// CPU time of this program's sessions in the database, in milliseconds.
    pub(super) async fn database_cpu_ms(&self, pool: &PgPool) -> anyhow::Result<f64> {
        let own: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(pool).await?;
        Ok(processes::cpu_ms(self.session) + processes::cpu_ms(u32::try_from(own)?))
    }

    /// Makes payments with a number of them in flight: the next one follows when one has ended.
    pub(super) async fn closed(
        &self,
        order: &Order<'_>,
        payments: usize,
        in_flight: usize,
    ) -> anyhow::Result<Load> {
        let next = AtomicUsize::new(0);
        let caller = async || {
            let mut accepted = Vec::new();
            while next.fetch_add(1, Ordering::Relaxed) < payments {
                let started = Instant::now();
                let (id, end) = self.pay(order).await?;
                let accept_ms = started.elapsed().as_secs_f64() * 1_000.0;
                tokio::time::timeout(WITHIN, end).await.with_context(|| format!("{id} has not ended"))??;
                accepted.push((id, accept_ms));
            }
            anyhow::Ok(accepted)
        };
        let accepted = try_join_all((0..in_flight).map(|_| caller())).await?;
        let (payment_ids, accept_ms) = accepted.into_iter().flatten().unzip();
        Ok(Load { payment_ids, accept_ms, accepted_per_s: None })
    }

    /// Makes payments as fast as the API accepts them, and waits for their ends.
    pub(super) async fn burst(&self, payments: usize, connections: usize) -> anyhow::Result<Load> {
        let started = Instant::now();
        let accepted = self.accept(&Order::default(), payments, connections).await?;
        let accepted_per_s = payments as f64 / started.elapsed().as_secs_f64();
        let mut payment_ids = Vec::new();
        for (id, end) in accepted {
            tokio::time::timeout(WITHIN * 10, end).await.with_context(|| format!("{id} has not ended"))??;
            payment_ids.push(id);
        }
        Ok(Load { payment_ids, accept_ms: Vec::new(), accepted_per_s: Some(accepted_per_s) })
    }

    /// Makes payments without waiting for their ends: their ids, and what waits for the end of each.
    pub(super) async fn accept(
        &self,
        order: &Order<'_>,
        payments: usize,
        connections: usize,
    ) -> anyhow::Result<Vec<(String, oneshot::Receiver<()>)>> {
        stream::iter(0..payments).map(|_| self.pay(order)).buffer_unordered(connections).try_collect().await
    }

    async fn pay(&self, order: &Order<'_>) -> anyhow::Result<(String, oneshot::Receiver<()>)> {
        let n = self.next_account.fetch_add(1, Ordering::Relaxed) % ACCOUNTS;
        let body = json!({"amount": order.amount, "currency": "EUR", "source_account": account(n), "destination_account": order.destination});
        let request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.key)
            .header("Idempotency-Key", Uuid::new_v4().simple().to_string())
            .json(&body);
        let response = request.send().await.context("the payments API does not answer")?;
        let status = response.status();
        let body: Value = response.json().await?;
        ensure!(status == 201, "a payment was not accepted: {status} {body}");
        let id = body["payment_id"].as_str().context("no payment id")?.to_owned();
        let (ended, end) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), ended);
        Ok((id, end))
    }
}

fn account(n: usize) -> String {
    format!("DE-BENCH-{n}")
}

/// Looks at the payments that somebody waits for, in a session of its own; returns the process id of the session.
async fn look_at_ends(pool: &PgPool, waiting: Waiting) -> anyhow::Result<u32> {
    use sqlx::ConnectOptions as _;
    let mut session = pool.connect_options().as_ref().clone().connect().await?;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut session).await?;
    // While the table is small the planner would read all of it in each look, which slows down what is measured.
    sqlx::query("SET enable_seqscan = off").execute(&mut session).await?;
    tokio::spawn(async move {
        loop {
            let ids: Vec<String> =
                waiting.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
            // A look at a burst's backlog is dear, and nobody measures when it is noticed.
            let looks = u32::try_from(1 + ids.len() / 100).unwrap_or(u32::MAX);
            tokio::time::sleep(LOOK_INTERVAL * looks.min(100)).await;
            if ids.is_empty() {
                continue;
            }
            let ended: Result<Vec<String>, _> = sqlx::query_scalar(
                "SELECT payment_id FROM payments WHERE payment_id = ANY($1) AND ended_at IS NOT NULL",
            )
            .bind(&ids)
            .fetch_all(&mut session)
            .await;
            // Without the session nobody hears of an end, and each wait times out.
            let Ok(ended) = ended else { return };
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            for id in ended {
                if let Some(waiting) = waiting.remove(&id) {
                    let _ = waiting.send(());
                }
            }
        }
    });
    Ok(u32::try_from(pid)?)
}

/// How these payments ended; latencies from acceptance to the end, by the database's clock.
pub(super) async fn ends(pool: &PgPool, payment_ids: &[String]) -> anyhow::Result<Ends> {
    let (p50_ms, p99_ms, compensated, settled): (f64, f64, i64, i64) = sqlx::query_as(
        "SELECT coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), 0), coalesce(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms), 0),
                count(*) FILTER (WHERE ended_at IS NOT NULL AND state <> 'settled'), count(*) FILTER (WHERE state = 'settled')
         FROM (SELECT extract(epoch FROM ended_at - accepted_at)::float8 * 1000 AS ms, ended_at, state
               FROM payments WHERE payment_id = ANY($1)) AS payments",
    )
    .bind(payment_ids)
    .fetch_one(pool)
    .await?;
    let lost = i64::try_from(payment_ids.len())? - compensated - settled;
    Ok(Ends { p50_ms, p99_ms, compensated, lost })
}

/// The timeline of payments that ended in the same way: each entry, and the median of its time after the acceptance in milliseconds, by
/// the database's clock.
pub(super) async fn timeline(pool: &PgPool, payment_ids: &[String]) -> anyhow::Result<Vec<(String, f64)>> {
    let entries = sqlx::query_as(
        "SELECT min(detail), percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)
         FROM (SELECT row_number() OVER (PARTITION BY t.payment_id ORDER BY t.entry_id) AS n, t.detail,
                      extract(epoch FROM t.happened_at - p.accepted_at)::float8 * 1000 AS ms
               FROM timeline t JOIN payments p USING (payment_id) WHERE payment_id = ANY($1)) AS entries
         GROUP BY n ORDER BY n",
    );
    Ok(entries.bind(payment_ids).fetch_all(pool).await?)
}
