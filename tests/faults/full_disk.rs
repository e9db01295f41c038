//! R35: the database's disk is full. Requests are told to come again, nothing is half written, and when there is room
//! again everything goes on by itself.
//!
//! The server of this test is told by a preloaded library that no file can grow (`testkit::preload`), as the kernel
//! tells it on a full disk; that needs no root and no mount. Linux only.

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

/// Requests at once.
const AT_ONCE: usize = 8;
/// Requests that may still find room in pages that are there.
const REQUESTS_MAX: usize = 800;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn r35_a_full_disk_answers_503_and_leaves_no_partial_write() -> anyhow::Result<()> {
    let cluster = Cluster::start("full-disk", Preload::FullDisk).await?;
    // Nothing here is about a payment that takes too long.
    let options = SystemOptions { database_url: Some(cluster.url.clone()), ..SystemOptions::default() }
        .with_profile("sla_ms", 600_000)
        .with_profile("start_within_ms", 600_000);
    let system = System::start("full-disk", options).await?;
    system.worker.pause()?;
    let under_way = system.pay("1.00").await?;
    system.switch.set_behaviour(&under_way.reference, json!({"outcome": "hold"})).await?;
    system.worker.resume()?;
    system.wait_for_state(&under_way.payment_id, "submitted").await?;

    cluster.set_disk_full(true)?;
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    while refused.len() < AT_ONCE {
        let count = accepted.len() + refused.len();
        ensure!(count < REQUESTS_MAX, "the disk never ran full");
        let keys = (count..count + AT_ONCE).map(|n| format!("full-{n}"));
        for (key, status) in try_join_all(keys.map(|key| post(&system, key))).await? {
            match status {
                201 => accepted.push(key),
                503 => refused.push(key),
                other => anyhow::bail!("{key} was answered {other}"),
            }
        }
    }
    // Nothing of what was refused is there, and what is there can be read.
    for key in &refused {
        ensure!(rows_of(&system, key).await? == 0, "{key} was refused and left something");
    }
    for key in &accepted {
        ensure!(rows_of(&system, key).await? == 1, "{key} was accepted and is not there");
    }
    ensure!(system.payment(&under_way.payment_id).await?["status"] == "submitted", "reads need no room");
    auditor::check_conservation(&system.database.pool).await?;
    let log = std::fs::read_to_string(cluster.folder.join("server.log"))?;
    ensure!(log.contains("No space left on device"), "the server met no full disk:\n{log}");
    // The switch settles while there may be no room to write that down.
    system.switch.finish_transfer(&under_way.reference, "settle").await?;

    cluster.set_disk_full(false)?;
    for key in &refused {
        until("a refused request is accepted by its repeat", WITHIN, || async {
            Ok((post(&system, key.clone()).await?.1 == 201).then_some(()))
        })
        .await?;
    }
    for key in &accepted {
        ensure!(post(&system, key.clone()).await?.1 == 200, "{key} was accepted before");
    }
    system.wait_until_all_have_ended().await?;
    let log = std::fs::read_to_string(cluster.folder.join("server.log"))?;
    ensure!(!log.contains("PANIC"), "the server ended itself, which is another fault:\n{log}");
    let audit = system.audit().await?;
    let payments = accepted.len() + refused.len() + 1;
    ensure!((audit.payments, audit.debited, audit.open) == (payments, payments, 0), "{audit:?}");
    Ok(())
}

/// One payment of a cent; its key and status. A 503 must say when to come again.
async fn post(system: &System, key: String) -> anyhow::Result<(String, u16)> {
    let answer = system.post_payment(&key, &payment_request("0.01")).await?;
    let status = answer.status().as_u16();
    if status == 503 {
        let wait = answer.headers().get("retry-after").context("a 503 without Retry-After")?;
        ensure!(wait.to_str()?.parse::<u64>()? > 0, "{wait:?}");
    }
    Ok((key, status))
}

/// Rows of a key, which must be as many as payments of it.
async fn rows_of(system: &System, key: &str) -> anyhow::Result<i64> {
    let keys: i64 = sqlx::query_scalar("SELECT count(*) FROM idempotency_keys WHERE key = $1")
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
