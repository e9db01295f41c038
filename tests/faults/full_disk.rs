//! R35: the database's disk is full. Requests are answered 503 with `Retry-After`, no write is partial, and processing
//! continues without intervention when there is space again.
//!
//! A preloaded library (`testkit::preload`) makes file extensions fail in the database server of this test, as the kernel does
//! on a full disk. It needs neither root rights nor a mount. Linux only.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use payment_protocol::ids::{ClientId, PaymentId, TenantId};
use serde_json::json;
use testkit::cluster::Cluster;
use testkit::preload::Preload;
use testkit::system::payment_request;
use testkit::wait::until;
use testkit::{System, SystemOptions, auditor};

/// Number of concurrent requests.
const CONCURRENCY: usize = 8;
/// Requests that may succeed in the free space of existing pages, at most.
const REQUESTS_MAX: usize = 800;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r35_a_full_database_disk_is_answered_503_and_leaves_no_partial_write() -> anyhow::Result<()> {
    let mut cluster = Cluster::start("full-disk", Preload::FullDisk).await?;
    // Deadlines are not the subject of this test.
    let options = SystemOptions { database_url: Some(cluster.url.clone()), ..SystemOptions::default() }
        .with_profile("sla_ms", 600_000)
        .with_profile("start_within_ms", 600_000);
    let system = System::start("full-disk", options).await?;
    system.worker.pause()?;
    let open = system.pay("1.00").await?;
    system.switch.set_behaviour(&open.reference, json!({"outcome": "hold"})).await?;
    system.worker.resume()?;
    system.wait_for_state(&open.payment_id, "submitted").await?;

    cluster.set_disk_full(true)?;
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    while refused.len() < CONCURRENCY {
        let count = accepted.len() + refused.len();
        ensure!(count < REQUESTS_MAX, "no request met the full disk");
        let keys = (count..count + CONCURRENCY).map(|n| format!("full-{n}"));
        for (key, status) in try_join_all(keys.map(|key| post(&system, key))).await? {
            match status {
                201 => accepted.push(key),
                503 => refused.push(key),
                other => anyhow::bail!("{key} was answered {other}"),
            }
        }
    }
    // Refused requests left no rows, accepted ones are readable.
    for key in &refused {
        ensure!(row_count(&system, key).await? == 0, "{key} was refused but has rows");
    }
    for key in &accepted {
        ensure!(row_count(&system, key).await? == 1, "{key} was accepted but has no rows");
    }
    ensure!(
        system.payment(&open.payment_id).await?["status"] == "submitted",
        "a read failed on the full disk"
    );
    auditor::check_conservation(&system.database.pool).await?;
    let log = std::fs::read_to_string(cluster.folder.join("server.log"))?;
    ensure!(log.contains("No space left on device"), "the full disk was not simulated:\n{log}");
    // The transfer settles while the bank may be unable to record it.
    system.switch.finish_transfer(&open.reference, "settle").await?;

    cluster.set_disk_full(false)?;
    for key in &refused {
        until("a repeated request is accepted", WITHIN, || async {
            Ok((post(&system, key.clone()).await?.1 == 201).then_some(()))
        })
        .await?;
    }
    for key in &accepted {
        ensure!(post(&system, key.clone()).await?.1 == 200, "expected a replay for {key}");
    }
    system.wait_until_all_have_ended().await?;
    let log = std::fs::read_to_string(cluster.folder.join("server.log"))?;
    ensure!(!log.contains("PANIC"), "the server shut down, which is another fault:\n{log}");
    let audit = system.audit().await?;
    let payments = accepted.len() + refused.len() + 1;
    ensure!((audit.payments, audit.debited, audit.open) == (payments, payments, 0), "{audit:?}");
    cluster.discard();
    Ok(())
}

/// Posts a payment of one cent; returns its key and the status. A 503 must have a `Retry-After`.
async fn post(system: &System, key: String) -> anyhow::Result<(String, u16)> {
    let response = system.post_payment(&key, &payment_request("0.01")).await?;
    let status = response.status().as_u16();
    if status == 503 {
        let retry_after = response.headers().get("retry-after").context("503 without Retry-After")?;
        ensure!(retry_after.to_str()?.parse::<u64>()? > 0, "Retry-After: {retry_after:?}");
    }
    Ok((key, status))
}

/// Number of rows of an idempotency key, which must equal the number of its payments.
async fn row_count(system: &System, key: &str) -> anyhow::Result<i64> {
    let keys: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency.keys WHERE key = $1")
        .bind(key)
        .fetch_one(&system.database.pool)
        .await?;
    let id = PaymentId::derive(&TenantId::new("test")?, &ClientId::new(system.client())?, key);
    let payments: i64 = sqlx::query_scalar("SELECT count(*) FROM payments WHERE payment_id = $1")
        .bind(id.as_str())
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(keys == payments, "{key} has {keys} rows and {payments} payments");
    Ok(keys)
}
