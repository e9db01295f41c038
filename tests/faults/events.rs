//! R32, R23: the relay, the broker and the notifier die at the wrong moment, or something poisonous comes their way. What
//! happened to a payment is told all the same: once, in order, and the payments themselves wait for none of it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use outbox::NewEvent;
use serde_json::{Value, json};
use sqlx::PgPool;
use testkit::process::Process;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions, auditor};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

/// How long anything may take to be told.
const WITHIN: Duration = Duration::from_secs(60);
/// What is told of a payment that settles.
const SETTLED: [&str; 2] = ["transfer_pending", "transfer_sent"];

/// How long payments settle while the broker is down, in seconds of load; `OUTAGE_S` makes it longer.
const OUTAGE_S: i64 = 12;
/// Payments a second while the broker is down, before and after.
const PAYMENTS_PER_S: i64 = 5;
/// What the account has money for.
const PAYMENTS_MAX: usize = 2_000;

/// A bank with a broker and a notifier.
struct Bank {
    system: System,
    broker: NatsServer,
    notifier: Process,
}

impl Bank {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let broker = NatsServer::start(&format!("{name}-broker")).await?;
        let system =
            System::start(name, SystemOptions { broker_url: broker.url(), ..SystemOptions::default() })
                .await?;
        let notifier = system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
        Ok(Self { system, broker, notifier })
    }

    /// Makes payments that settle, whatever becomes of the events.
    async fn settle(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut ids = Vec::new();
        for _ in 0..count {
            ids.push(self.system.pay("5.00").await?.payment_id);
        }
        for id in &ids {
            self.system.wait_for_state(id, "settled").await?;
        }
        Ok(ids)
    }

    /// What the API says the customer was told, in order.
    async fn told(&self, id: &str) -> anyhow::Result<Vec<String>> {
        let payment = self.system.payment(id).await?;
        let told = payment["notifications"].as_array().context("no notifications")?;
        Ok(told.iter().filter_map(|one| one["kind"].as_str().map(str::to_owned)).collect())
    }

    /// Waits until the last of it was told, then compares all of it.
    async fn wait_until_settled_is_told(&self, ids: &[String]) -> anyhow::Result<()> {
        for id in ids {
            until(&format!("{id} is told to the end"), WITHIN, || async {
                Ok(self.told(id).await?.iter().any(|kind| kind == SETTLED[1]).then_some(()))
            })
            .await
            .map_err(|error| {
                error.context(self.notifier.log_tail()).context(self.system.background_worker.log_tail())
            })?;
            assert_eq!(self.told(id).await?, SETTLED, "{id}");
        }
        Ok(())
    }

    async fn wait_until_published(&self) -> anyhow::Result<()> {
        until("everything is published", WITHIN, || async {
            Ok((outbox::measure(&self.system.database.pool).await?.unpublished == 0).then_some(()))
        })
        .await
    }

    /// The stream itself, past relay and notifier.
    async fn raw(&self) -> anyhow::Result<async_nats::jetstream::Context> {
        Ok(async_nats::jetstream::new(async_nats::connect(self.broker.url()).await?))
    }

    /// The broker has both events of each of these payments and no others, in the order of their numbers. One that was published
    /// again is no disorder: whoever takes it in has had it.
    async fn assert_published_in_order(&self, ids: &[String]) -> anyhow::Result<()> {
        let mut stream = self.raw().await?.get_stream("EVENTS").await?;
        let state = stream.info().await?.state.clone();
        let mut published: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for place in state.first_sequence..=state.last_sequence {
            let message = stream.get_raw_message(place).await?;
            let event: outbox::Event = serde_json::from_slice(&message.payload)?;
            let of_key = published.entry(event.key).or_default();
            if !of_key.contains(&event.sequence) {
                of_key.push(event.sequence);
            }
        }
        let expected = ids.iter().map(|id| (id.clone(), vec![1, 2])).collect();
        assert_eq!(published, expected);
        Ok(())
    }
}

/// A number that a process shows.
async fn shows(process: &Process, name: &str) -> anyhow::Result<f64> {
    let text = reqwest::get(format!("{}/metrics", process.url())).await?.text().await?;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.with_context(|| format!("{name} is not shown"))?.parse().context("not a number")
}

/// Events that a relay has published.
const PUBLISHED: &str = "outbox_published_total";

/// Waits until a relay shows so many: it counts what the broker has confirmed, of which the customer may have been told
/// before.
async fn until_published(relay: &Process, events: f64) -> anyhow::Result<()> {
    until("the relay has counted what it published", WITHIN, || async {
        // Not shown before there is one.
        Ok((shows(relay, PUBLISHED).await.unwrap_or_default() >= events).then_some(()))
    })
    .await
}

#[tokio::test]
async fn r32_a_relay_killed_before_marking_republishes_and_notifies_once() -> anyhow::Result<()> {
    let mut bank = Bank::start("relay-killed").await?;
    bank.system.background_worker.kill().await?;
    let ids = bank.settle(3).await?;
    // Nothing can be marked, so the relay stands between the two.
    let mut lock = bank.system.database.pool.begin().await?;
    sqlx::query("SELECT position FROM outbox FOR UPDATE").execute(&mut *lock).await?;
    bank.system.background_worker.restart().await?;
    bank.wait_until_settled_is_told(&ids).await?;
    bank.system.background_worker.kill().await?;
    // PostgreSQL would still carry out what the dead relay asked for: the mark dies with it, as it does with the machine.
    let sessions = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name = 'relay'";
    until("the dead relay's sessions are gone", WITHIN, || async {
        let left: i64 = sqlx::query_scalar(sessions).fetch_one(&bank.system.database.pool).await?;
        Ok((left == 0).then_some(()))
    })
    .await?;
    lock.rollback().await?;
    assert_eq!(outbox::measure(&bank.system.database.pool).await?.unpublished, 6, "published and not marked");
    // A broker that knew the ids would keep the repeats out: this one has forgotten.
    bank.raw().await?.delete_stream("EVENTS").await?;
    bank.system.background_worker.restart().await?;
    bank.wait_until_published().await?;
    // What is told after the repeats shows that they were taken in.
    let later = bank.settle(8).await?;
    bank.wait_until_settled_is_told(&later).await?;
    bank.wait_until_settled_is_told(&ids).await?;
    until("the repeats were known", WITHIN, || async {
        let label = "events_consumed_total{consumer=\"notifier\",as=\"before\"}";
        let known = shows(&bank.notifier, label).await.unwrap_or(0.0);
        Ok((known >= 6.0).then_some(()))
    })
    .await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r32_events_lost_by_the_broker_still_notify_the_customer() -> anyhow::Result<()> {
    let mut bank = Bank::start("events-lost").await?;
    let told = bank.settle(1).await?;
    bank.wait_until_settled_is_told(&told).await?;
    bank.notifier.kill().await?;
    let ids = bank.settle(3).await?;
    bank.wait_until_published().await?;
    // As a power failure takes it: confirmed, and gone, and no id is remembered.
    bank.raw().await?.get_stream("EVENTS").await?.purge().await?;
    bank.broker.kill().await?;
    bank.broker.restart().await?;
    bank.notifier.restart().await?;
    bank.wait_until_settled_is_told(&ids).await?;
    until("it is counted", WITHIN, || async {
        Ok((shows(&bank.system.background_worker, "outbox_lost_total").await? >= 6.0).then_some(()))
    })
    .await?;
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn r32_s0_13_a_broker_outage_under_load_delays_events_and_no_payment() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let outage_s: i64 = std::env::var("OUTAGE_S").map_or(Ok(OUTAGE_S), |text| text.parse())?;
    let bank = Bank::start("broker-down").await?;
    let Bank { system, mut broker, notifier } = bank;
    let pool = &system.database.pool;
    let (stop, stopped) = oneshot::channel();
    let outage = async {
        until("what happened before is told", WITHIN, || async {
            Ok((count(pool, "SELECT count(*) FROM notifications").await? >= 10).then_some(()))
        })
        .await?;
        broker.kill().await?;
        let down_at: String = sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(pool).await?;
        // That a transfer was sent waits to be told: the payments settle, at the rate they are made.
        let settled = outage_s * PAYMENTS_PER_S;
        let within = WITHIN + Duration::from_secs(outage_s.unsigned_abs()) * 4;
        until(&format!("{settled} payments settle while the broker is down"), within, || async {
            let waiting = "SELECT count(*) FROM outbox WHERE published_at IS NULL AND kind = 'transfer_sent'";
            Ok((count(pool, waiting).await? >= settled).then_some(()))
        })
        .await?;
        until("the lag is seen to rise", WITHIN, || async {
            let waiting =
                shows(&system.background_worker, "outbox_unpublished").await? >= (2 * settled) as f64;
            let old = shows(&system.background_worker, "outbox_oldest_unpublished_seconds").await? > 0.5;
            Ok((waiting && old).then_some(()))
        })
        .await?;
        system.background_worker.wait_ready().await?;
        let told: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM notifications JOIN payments USING (payment_id) WHERE accepted_at > $1::timestamptz",
        )
        .bind(&down_at)
        .fetch_one(pool)
        .await?;
        ensure!(told == 0, "{told} messages of payments that were made while the broker was down");
        // What it had is what it has again: the folder stays.
        broker.restart().await?;
        until("most of it is published, under load", WITHIN, || async {
            Ok((outbox::measure(pool).await?.unpublished <= PAYMENTS_PER_S).then_some(()))
        })
        .await?;
        let _ = stop.send(());
        Ok(())
    };
    let work = async {
        let (ids, ()) = tokio::try_join!(load(&system, stopped), outage)?;
        system.wait_until_all_have_ended().await?;
        Ok(ids)
    };
    let (ids, samples) = auditor::sample_during(pool, work).await?;
    println!(
        "{} payments, {outage_s} s of them while the broker was down; {samples} samples, 0 violations",
        ids.len()
    );
    println!("a payment took {} ms at most", count(pool, SLOWEST_MS).await?);

    let bank = Bank { system, broker, notifier };
    bank.wait_until_settled_is_told(&ids).await?;
    until("the lag is seen to fall", WITHIN, || async {
        let waiting = shows(&bank.system.background_worker, "outbox_unpublished").await?;
        let oldest = shows(&bank.system.background_worker, "outbox_oldest_unpublished_seconds").await?;
        Ok((waiting <= 0.0 && oldest <= 0.0).then_some(()))
    })
    .await?;
    let told = count(&bank.system.database.pool, "SELECT count(*) FROM notifications").await?;
    assert_eq!(usize::try_from(told)?, 2 * ids.len(), "each once");
    bank.assert_published_in_order(&ids).await?;
    let audit = bank.system.audit().await?;
    assert_eq!((audit.payments, audit.debited, audit.open), (ids.len(), ids.len(), 0));
    Ok(())
}

/// The slowest payment, from its acceptance to its end.
const SLOWEST_MS: &str =
    "SELECT (extract(epoch FROM max(ended_at - accepted_at)) * 1000)::bigint FROM payments";

async fn count(pool: &PgPool, query: &'static str) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar(query).fetch_one(pool).await?)
}

/// Makes [`PAYMENTS_PER_S`] payments a second until it is stopped; gives them.
async fn load(system: &System, mut stopped: oneshot::Receiver<()>) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::new();
    let mut ticks = tokio::time::interval(Duration::from_millis(1_000 / PAYMENTS_PER_S.unsigned_abs()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = &mut stopped => return Ok(ids),
            _ = ticks.tick() => ids.push(system.pay("5.00").await?.payment_id),
        }
        ensure!(ids.len() < PAYMENTS_MAX, "the outage does not end");
    }
}

#[tokio::test]
async fn r32_a_second_relay_takes_over_when_the_first_is_killed() -> anyhow::Result<()> {
    let mut bank = Bank::start("two-relays").await?;
    let second =
        bank.system.start_process("background-worker", "PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN").await?;
    let mut ids = bank.settle(2).await?;
    bank.wait_until_settled_is_told(&ids).await?;
    until_published(&bank.system.background_worker, 4.0).await?;
    assert!(shows(&second, PUBLISHED).await.is_err(), "the second one has published nothing");
    bank.system.background_worker.kill().await?;
    ids.extend(bank.settle(2).await?);
    bank.wait_until_settled_is_told(&ids).await?;
    until_published(&second, 4.0).await
}

#[tokio::test]
async fn s3_6_a_repeatedly_killed_notifier_notifies_once() -> anyhow::Result<()> {
    let mut bank = Bank::start("notifier-killed").await?;
    let mut ids = Vec::new();
    for _ in 0..4 {
        for _ in 0..4 {
            ids.push(bank.system.pay("5.00").await?.payment_id);
        }
        bank.notifier.kill().await?;
        bank.notifier.restart().await?;
    }
    bank.wait_until_settled_is_told(&ids).await?;
    bank.wait_until_published().await?;
    let told: i64 = sqlx::query_scalar("SELECT count(*) FROM notifications")
        .fetch_one(&bank.system.database.pool)
        .await?;
    assert_eq!(told, 2 * 16);
    Ok(())
}

#[tokio::test]
async fn r23_an_unprocessable_event_is_parked_and_others_are_delivered() -> anyhow::Result<()> {
    let bank = Bank::start("poison-event").await?;
    let first = bank.settle(1).await?;
    bank.wait_until_settled_is_told(&first).await?;
    // A row that no broker takes, one that no customer can be told of, and what is no event at all in every lane.
    let unknown = json!({"payment_id": "pay_of_nobody", "transaction_id": "t", "tenant_id": "t", "status": "settled",
        "amount": "1.00", "amount_minor": 100, "currency": "EUR", "source_account": "a"});
    let mut tx = bank.system.database.pool.begin().await?;
    for (kind, key, body) in
        [("no.subject", "pay_no_subject", &Value::Null), ("transfer_sent", "pay_of_nobody", &unknown)]
    {
        let event_id = format!("{key}:{kind}");
        outbox::append(&mut tx, NewEvent { event_id: &event_id, kind, version: 1, key, body }).await?;
    }
    tx.commit().await?;
    let raw = bank.raw().await?;
    for lane in 0..outbox::nats::LANES {
        raw.publish(format!("events.{lane}.transfer_sent"), "{".into()).await?.await?;
    }
    let ids = bank.settle(6).await?;
    bank.wait_until_settled_is_told(&ids).await?;
    until("poison is seen to be parked", WITHIN, || async {
        let relay = &bank.system.background_worker;
        let refused = shows(relay, "outbox_parked").await?;
        let parked = shows(relay, "outbox_parked_deliveries").await?;
        // What is no event at all is parked by each of the two consumers.
        Ok((refused >= 1.0 && parked >= 17.0).then_some(()))
    })
    .await?;
    let refused = outbox::keep::parked(&bank.system.database.pool, 10).await?;
    assert_eq!(refused.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["pay_no_subject"]);
    let parked = outbox::intake::parked(&bank.system.database.pool, 20).await?;
    let by = |consumer: &str| parked.iter().filter(|(one, _)| one.consumer == consumer).count();
    assert_eq!((by("notifier"), by("webhooks")), (9, 8), "{parked:?}");
    assert!(parked.iter().all(|(one, _)| one.deliveries == 5), "tried as often as is allowed: {parked:?}");
    Ok(())
}
