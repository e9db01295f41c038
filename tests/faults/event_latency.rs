//! S3.5: an event is published within half a second of its transaction. The wake-ups of the payment-worker make it
//! independent of the relay's poll interval, which is an hour here. How long it takes is printed: a busy machine has no bound.

use std::time::Duration;

use futures::future::try_join_all;
use outbox::nats::{Broker, BrokerOptions, JetStreamPublisher};
use outbox::{Relay, RelayOptions};
use testkit::wait::until;
use tokio_util::sync::CancellationToken;

use crate::event_bank::{EventBank, WITHIN};

/// Payments one after the other, while nothing else happens.
const IDLE: usize = 5;
/// Payments at the same time.
const LOAD: usize = 60;
/// The time from the transaction of an event to its publication, in milliseconds: median and longest.
const LATENCY_MS: &str = "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::bigint, max(ms)::bigint FROM
     (SELECT extract(epoch FROM published_at - appended_at) * 1000 AS ms FROM outbox WHERE position > $1) AS events";

/// The position of the last event.
async fn last_position(bank: &EventBank) -> anyhow::Result<i64> {
    let last = "SELECT coalesce(max(position), 0) FROM outbox";
    Ok(sqlx::query_scalar(last).fetch_one(&bank.system.database.pool).await?)
}

/// Median and longest latency of the events after a position, all of which are published.
async fn latency_ms(bank: &EventBank, after: i64) -> anyhow::Result<(i64, i64)> {
    Ok(sqlx::query_as(LATENCY_MS).bind(after).fetch_one(&bank.system.database.pool).await?)
}

#[tokio::test]
async fn s3_5_events_are_published_at_wake_ups_when_idle_and_under_load() -> anyhow::Result<()> {
    let mut bank = EventBank::start("wake-ups").await?;
    // The relay of this test takes the place of the background-worker's.
    bank.system.background_worker.stop().await?;
    // The database ends the session of a process that has ended a little later. A relay that is refused the leader lock asks
    // again after its poll interval.
    let pool = bank.system.database.pool.clone();
    until("the leader lock is free", WITHIN, || async {
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let held: i64 = sqlx::query_scalar(held).fetch_one(&pool).await?;
        Ok((held == 0).then_some(()))
    })
    .await?;
    let options = BrokerOptions { url: bank.broker.url(), ..BrokerOptions::default() };
    let publisher = JetStreamPublisher::new(Broker::connect(&options, "system-test").await?);
    let hourly = RelayOptions { poll_interval: Duration::from_secs(3_600), ..RelayOptions::default() };
    let (relay, stop) = (Relay::new(pool.clone().into(), publisher, hourly), CancellationToken::new());
    let payments = async {
        // The relay may not listen yet at the first wake-ups.
        bank.settle_payments(1).await?;
        until("the relay listens", WITHIN, || async {
            outbox::wake_relay(&pool.clone().into()).await?;
            Ok((outbox::measure(&pool.clone().into()).await?.unpublished == 0).then_some(()))
        })
        .await?;
        let before = last_position(&bank).await?;
        for _ in 0..IDLE {
            bank.settle_payments(1).await?;
            bank.wait_until_published().await?;
        }
        let idle = latency_ms(&bank, before).await?;
        let before = last_position(&bank).await?;
        let payments = try_join_all((0..LOAD).map(|_| bank.system.pay("5.00"))).await?;
        for payment in &payments {
            bank.system.wait_for_state(&payment.payment_id, "settled").await?;
        }
        bank.wait_until_published().await?;
        let loaded = latency_ms(&bank, before).await?;
        println!("events were published after (median, longest) {idle:?} ms idle, {loaded:?} ms under load");
        let ids: Vec<_> = payments.into_iter().map(|payment| payment.payment_id).collect();
        bank.wait_for_notifications(&ids).await
    };
    let work = async {
        let worked = payments.await;
        stop.cancel();
        worked
    };
    let (worked, ()) = tokio::join!(work, relay.run(&stop));
    worked?;
    bank.system.audit().await?;
    Ok(())
}
