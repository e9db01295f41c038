//! R32, S0.13: the broker is down under load. Payments settle at the same rate, and their events follow after the outage.

use std::time::Duration;

use anyhow::ensure;
use sqlx::PgPool;
use testkit::wait::until;
use testkit::{NatsServer, System, auditor};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use crate::event_bank::{EventBank, WITHIN, metric};

/// Length of the outage in seconds of load; the environment variable `OUTAGE_S` overrides it.
const OUTAGE_S: i64 = 12;
/// Payments per second before, during and after the outage.
const PAYMENTS_PER_S: i64 = 5;
/// Payments that the account's balance suffices for.
const PAYMENTS_MAX: usize = 2_000;
/// The slowest payment, from its acceptance to its end.
const SLOWEST_MS: &str =
    "SELECT (extract(epoch FROM max(ended_at - accepted_at)) * 1000)::bigint FROM payments";

#[tokio::test]
async fn r32_s0_13_a_broker_outage_under_load_delays_events_and_no_payment() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let outage_s: i64 = std::env::var("OUTAGE_S").map_or(Ok(OUTAGE_S), |text| text.parse())?;
    let EventBank { system, mut broker, notifier } = EventBank::start("broker-down").await?;
    let pool = &system.database.pool;
    let (stop, stopped) = oneshot::channel();
    let work = async {
        let (ids, ()) =
            tokio::try_join!(load(&system, stopped), outage(&system, &mut broker, outage_s, stop))?;
        system.wait_until_all_have_ended().await?;
        Ok(ids)
    };
    let (ids, samples) = auditor::sample_during(pool, work).await?;
    println!(
        "{} payments, broker down for {outage_s} s of load, {samples} samples without violation",
        ids.len()
    );
    println!("the slowest payment took {} ms", count(pool, SLOWEST_MS).await?);

    let bank = EventBank { system, broker, notifier };
    bank.wait_for_notifications(&ids).await?;
    until("the metrics show no unpublished event", WITHIN, || async {
        let unpublished = metric(&bank.system.background_worker, "outbox_unpublished").await?;
        let oldest_s = metric(&bank.system.background_worker, "outbox_unpublished_oldest_seconds").await?;
        Ok((unpublished <= 0.0 && oldest_s <= 0.0).then_some(()))
    })
    .await?;
    let notifications = count(&bank.system.database.pool, "SELECT count(*) FROM notifications").await?;
    assert_eq!(usize::try_from(notifications)?, 2 * ids.len(), "expected two notifications per payment");
    bank.assert_published_in_order(&ids).await?;
    let audit = bank.system.audit().await?;
    assert_eq!((audit.payments, audit.debited, audit.open), (ids.len(), ids.len(), 0));
    Ok(())
}

/// Kills the broker under load, checks the effects, restarts it, and stops the load when most events are published.
async fn outage(
    system: &System,
    broker: &mut NatsServer,
    outage_s: i64,
    stop: oneshot::Sender<()>,
) -> anyhow::Result<()> {
    let pool = &system.database.pool;
    until("there are notifications before the outage", WITHIN, || async {
        Ok((count(pool, "SELECT count(*) FROM notifications").await? >= 10).then_some(()))
    })
    .await?;
    broker.kill().await?;
    let down_at: String = sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(pool).await?;
    // Each unpublished transfer_sent is a payment that settled during the outage.
    let settled = outage_s * PAYMENTS_PER_S;
    let within = WITHIN + Duration::from_secs(outage_s.unsigned_abs()) * 4;
    until(&format!("{settled} payments settle while the broker is down"), within, || async {
        let waiting = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND kind = 'transfer_sent'";
        Ok((count(pool, waiting).await? >= settled).then_some(()))
    })
    .await?;
    until("the metrics show the unpublished events", WITHIN, || async {
        let is_counted =
            metric(&system.background_worker, "outbox_unpublished").await? >= (2 * settled) as f64;
        let is_old = metric(&system.background_worker, "outbox_unpublished_oldest_seconds").await? > 0.5;
        Ok((is_counted && is_old).then_some(()))
    })
    .await?;
    system.background_worker.wait_ready().await?;
    let notified: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM notifications JOIN payments USING (payment_id) WHERE accepted_at > $1::timestamptz",
    )
    .bind(&down_at)
    .fetch_one(pool)
    .await?;
    ensure!(notified == 0, "{notified} notifications of payments accepted while the broker was down");
    // The broker restarts with its store.
    broker.restart().await?;
    until("most events are published under load", WITHIN, || async {
        Ok((outbox::measure(&pool.clone().into()).await?.unpublished <= PAYMENTS_PER_S).then_some(()))
    })
    .await?;
    let _ = stop.send(());
    Ok(())
}

async fn count(pool: &PgPool, query: &'static str) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar(query).fetch_one(pool).await?)
}

/// Makes [`PAYMENTS_PER_S`] payments per second until it is stopped; returns their ids.
async fn load(system: &System, mut stopped: oneshot::Receiver<()>) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(1_000 / PAYMENTS_PER_S.unsigned_abs()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stopped => return Ok(ids),
            _ = ticks.tick() => ids.push(system.pay("5.00").await?.payment_id),
        }
        ensure!(ids.len() < PAYMENTS_MAX, "the outage did not end within {PAYMENTS_MAX} payments");
    }
}
