//! R32, R23: background-worker, broker or notifier are killed at the worst moment, or an event cannot be processed. Every
//! event is still delivered, in order, with one effect, and no payment waits for it. For a broker outage see `broker_outage`.

use std::time::Duration;

use outbox::NewEvent;
use postgres_kit::Pool;
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::wait::until;

use crate::event_bank::{EventBank, PUBLISHED, WITHIN, metric};

/// Waits until the relay has counted so many published events. It counts after the broker's confirmation, when the customer
/// may already be notified.
async fn wait_for_published_count(relay: &Process, events: f64) -> anyhow::Result<()> {
    until("the relay has counted the published events", WITHIN, || async {
        // The metric is exported from the first event on.
        Ok((metric(relay, PUBLISHED).await.unwrap_or_default() >= events).then_some(()))
    })
    .await
}

#[tokio::test]
async fn r32_a_relay_killed_before_marking_republishes_and_notifies_once() -> anyhow::Result<()> {
    let mut bank = EventBank::start("relay-killed").await?;
    bank.system.background_worker.kill().await?;
    let ids = bank.settle_payments(3).await?;
    // The lock keeps the relay from marking the events that it has published.
    let mut lock = Pool::from(bank.system.database.pool.clone()).begin().await?;
    sqlx::query("SELECT position FROM outbox FOR UPDATE").execute(&mut *lock).await?;
    bank.system.background_worker.restart().await?;
    bank.wait_for_notifications(&ids).await?;
    bank.system.background_worker.kill().await?;
    // PostgreSQL would still execute the killed relay's UPDATE, so its sessions are ended, too.
    let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'background-worker'";
    until("the sessions of the killed relay have ended", WITHIN, || async {
        let left: i64 = sqlx::query_scalar(sessions).fetch_one(&bank.system.database.pool).await?;
        Ok((left == 0).then_some(()))
    })
    .await?;
    lock.rollback().await?;
    let unpublished = outbox::measure(&bank.system.database.pool.clone().into()).await?.unpublished;
    assert_eq!(unpublished, 6, "expected six events published and not marked");
    // A broker that remembers the ids would drop the repeats, so the stream is deleted.
    bank.jetstream().await?.delete_stream("EVENTS").await?;
    bank.system.background_worker.restart().await?;
    bank.wait_until_published().await?;
    // Events after the repeats show that the repeats were consumed.
    let later = bank.settle_payments(8).await?;
    bank.wait_for_notifications(&later).await?;
    bank.wait_for_notifications(&ids).await?;
    until("the notifier has recognized the repeats", WITHIN, || async {
        let repeats = "events_consumed_total{consumer=\"notifier\",outcome=\"duplicate\"}";
        let count = metric(&bank.notifier, repeats).await.unwrap_or(0.0);
        Ok((count >= 6.0).then_some(()))
    })
    .await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r32_republished_events_of_a_lost_stream_notify_once() -> anyhow::Result<()> {
    let mut bank = EventBank::start("events-lost").await?;
    let notified = bank.settle_payments(1).await?;
    bank.wait_for_notifications(&notified).await?;
    bank.notifier.kill().await?;
    let ids = bank.settle_payments(3).await?;
    bank.wait_until_published().await?;
    bank.jetstream().await?.delete_stream("EVENTS").await?;
    bank.notifier.restart().await?;
    // As `payctl events republish` does.
    let republished =
        outbox::operator::republish(&bank.system.database.pool.clone().into(), Duration::from_secs(3_600))
            .await?;
    assert_eq!(republished, 8);
    bank.wait_for_notifications(&ids).await?;
    until("the repeated events are recognised", WITHIN, || async {
        let label = "events_consumed_total{consumer=\"notifier\",outcome=\"duplicate\"}";
        let repeated = metric(&bank.notifier, label).await.unwrap_or(0.0);
        Ok((repeated >= 2.0).then_some(()))
    })
    .await?;
    bank.wait_for_notifications(&notified).await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r32_a_second_relay_takes_over_when_the_first_is_killed() -> anyhow::Result<()> {
    let mut bank = EventBank::start("two-relays").await?;
    let second =
        bank.system.start_process("background-worker", "PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN").await?;
    let mut ids = bank.settle_payments(2).await?;
    bank.wait_for_notifications(&ids).await?;
    wait_for_published_count(&bank.system.background_worker, 4.0).await?;
    assert!(metric(&second, PUBLISHED).await.is_err(), "the second relay published beside the first");
    bank.system.background_worker.kill().await?;
    ids.extend(bank.settle_payments(2).await?);
    bank.wait_for_notifications(&ids).await?;
    wait_for_published_count(&second, 4.0).await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s3_6_a_repeatedly_killed_notifier_notifies_once() -> anyhow::Result<()> {
    let mut bank = EventBank::start("notifier-killed").await?;
    let mut ids = Vec::new();
    for _ in 0..4 {
        for _ in 0..4 {
            ids.push(bank.system.pay("5.00").await?.payment_id);
        }
        bank.notifier.kill().await?;
        bank.notifier.restart().await?;
    }
    bank.wait_for_notifications(&ids).await?;
    bank.wait_until_published().await?;
    let notifications: i64 = sqlx::query_scalar("SELECT count(*) FROM notifications")
        .fetch_one(&bank.system.database.pool)
        .await?;
    assert_eq!(notifications, 2 * 16);
    assert_eq!(bank.system.audit().await?.debited, 16);
    Ok(())
}

#[tokio::test]
async fn r23_an_unprocessable_event_is_parked_and_others_are_delivered() -> anyhow::Result<()> {
    let bank = EventBank::start("poison-event").await?;
    let first = bank.settle_payments(1).await?;
    bank.wait_for_notifications(&first).await?;
    // One event that the broker refuses, one without a payment, and eight messages that are no events at all.
    let unknown = json!({"payment_id": "pay_of_nobody", "transaction_id": "t", "tenant_id": "t", "status": "settled",
        "amount": "1.00", "amount_minor": 100, "currency": "EUR", "source_account": "a"});
    let mut tx = Pool::from(bank.system.database.pool.clone()).begin().await?;
    for (kind, key, body) in
        [("no.subject", "pay_no_subject", &Value::Null), ("transfer_sent", "pay_of_nobody", &unknown)]
    {
        let event_id = format!("{key}:{kind}");
        outbox::append(
            &mut tx,
            NewEvent { event_id: &event_id, kind, version: 1, key, body, trace_parent: None },
        )
        .await?;
    }
    tx.commit().await?;
    let jetstream = bank.jetstream().await?;
    for _ in 0..8 {
        jetstream.publish("events.transfer_sent", "{".into()).await?.await?;
    }
    let ids = bank.settle_payments(6).await?;
    bank.wait_for_notifications(&ids).await?;
    until("the metrics show the parked events", WITHIN, || async {
        let relay = &bank.system.background_worker;
        let events = metric(relay, "outbox_parked").await?;
        let deliveries = metric(relay, "consumer_parked_messages").await?;
        // Each of the two consumers parks the messages that are no events.
        Ok((events >= 1.0 && deliveries >= 17.0).then_some(()))
    })
    .await?;
    let events = outbox::operator::parked_events(&bank.system.database.pool.clone().into(), 10).await?;
    assert_eq!(events.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["pay_no_subject"]);
    let deliveries =
        outbox::operator::parked_deliveries(&bank.system.database.pool.clone().into(), 20).await?;
    let count = |consumer: &str| deliveries.iter().filter(|(one, _)| one.consumer == consumer).count();
    assert_eq!((count("notifier"), count("webhooks")), (9, 8), "{deliveries:?}");
    assert!(
        deliveries.iter().all(|(one, _)| one.deliveries == 5),
        "expected five tries each: {deliveries:?}"
    );
    assert_eq!(bank.system.audit().await?.debited, 7);
    Ok(())
}
