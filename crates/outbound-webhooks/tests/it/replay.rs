//! Listing and replay of deliveries.

use jiff::Timestamp;
use outbound_webhooks::deliveries::{self, DeliveryFilter, DeliveryState, ReplayOutcome};
use postgres_kit::Pool;
use sqlx::PgPool;
use tokio::sync::watch;

use crate::support::{CLOSED_PORT_URL, TestEndpoint, TestWebhooks, held_response, status, until};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn webhook_deliveries_are_listed_in_pages(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let id = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await.id;
    for n in 0..5 {
        webhooks.publish("acme", &format!("e{n}"), "happened").await;
    }
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    let mut seen = Vec::new();
    loop {
        let after = seen.last().cloned();
        let filter = DeliveryFilter { state: Some(DeliveryState::Pending), after: after.as_deref() };
        let page = deliveries::list(&mut connection, &id, filter, 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|delivery| delivery.event_id));
    }
    assert_eq!(seen, ["e4", "e3", "e2", "e1", "e0"]);
    let failed = DeliveryFilter { state: Some(DeliveryState::Failed), after: None };
    assert!(deliveries::list(&mut connection, &id, failed, 2).await.unwrap().is_empty());
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_webhook_delivery_fails_after_last_attempt_and_can_be_replayed(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(503)).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    let failed =
        webhooks.wait_for_delivery(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    assert_eq!(
        (failed.failed_attempts, failed.attempts.len(), server.requests().len()),
        (4, 4, 4),
        "expected an attempt after each of three delays"
    );

    server.respond_with(|_, _| status(200));
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    assert_eq!(
        deliveries::replay(&mut connection, &endpoint.id, "another").await.unwrap(),
        ReplayOutcome::Unknown
    );
    assert_eq!(deliveries::replay(&mut connection, &endpoint.id, "e1").await.unwrap(), ReplayOutcome::Due);
    let again = webhooks
        .wait_for_delivery(&endpoint.id, "delivered after the replay", |one| {
            one.state == DeliveryState::Delivered
        })
        .await;
    assert_eq!((again.failed_attempts, again.attempts.len()), (0, 5), "what request before stays on record");
    // A delivered event can be replayed too.
    assert_eq!(deliveries::replay(&mut connection, &endpoint.id, "e1").await.unwrap(), ReplayOutcome::Due);
    until("the delivery arrives once more", async || server.requests().len() == 6).await;
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn failed_webhook_deliveries_since_an_instant_are_replayed(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server =
        TestEndpoint::start(|request, _| status(if request.id() == "good" { 200 } else { 500 })).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    for id in ["old", "good", "new-1", "new-2"] {
        webhooks.publish("acme", id, "happened").await;
    }
    let ended = async || {
        webhooks
            .deliveries(&endpoint.id)
            .await
            .iter()
            .all(|delivery| delivery.state != DeliveryState::Pending)
    };
    let _sender = webhooks.sender();
    until("every delivery ends", ended).await;
    webhooks.sql(
        "UPDATE webhook_deliveries SET created_at = created_at - interval '1 day' WHERE endpoint_id = $1 AND event_id = 'old'",
        &endpoint.id,
    )
    .await;
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
    server.respond_with(|_, _| status(200));
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    assert_eq!(deliveries::replay_failed(&mut connection, &endpoint.id, since).await.unwrap(), 2);
    until("every delivery ends again", ended).await;
    let failed: Vec<_> = webhooks.deliveries(&endpoint.id).await;
    let failed: Vec<_> = failed.iter().filter(|one| one.state == DeliveryState::Failed).collect();
    assert_eq!(failed.iter().map(|one| one.event_id.as_str()).collect::<Vec<_>>(), ["old"]);
    assert_eq!(server.requests().iter().filter(|one| one.id() == "good").count(), 1);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_a_webhook_delivery_in_flight_is_not_replayed(pool: PgPool) {
    let webhooks = TestWebhooks::with_long_timeouts(pool);
    let (release, held) = watch::channel(false);
    let server =
        TestEndpoint::start(move |_, times| if times == 1 { held_response(500, &held) } else { status(200) })
            .await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    until("the request arrives", async || server.requests().len() == 1).await;
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    assert_eq!(
        deliveries::replay(&mut connection, &endpoint.id, "e1").await.unwrap(),
        ReplayOutcome::InFlight
    );
    release.send(true).unwrap();
    let delivery = webhooks
        .wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered)
        .await;
    let statuses: Vec<_> = delivery.attempts.iter().map(|attempt| attempt.response_status).collect();
    assert_eq!(
        (statuses, delivery.failed_attempts),
        (vec![Some(500), Some(200)], 1),
        "expected the replay not to interrupt the attempt"
    );
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn one_replay_call_queues_a_bounded_number_of_webhooks_oldest_first(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let id = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await.id;
    webhooks
        .sql(
            "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at)
         SELECT $1, 'e' || n, 'happened', '{}', 'failed', now() FROM generate_series(1, 1003) n",
            &id,
        )
        .await;
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    let mut replay =
        async || deliveries::replay_failed(&mut connection, &id, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(replay().await, deliveries::REPLAYED_MAX.unsigned_abs());
    let left = webhooks.deliveries(&id).await;
    let left: Vec<_> = left.iter().filter(|one| one.state == DeliveryState::Failed).collect();
    assert_eq!(left.iter().map(|one| one.event_id.as_str()).collect::<Vec<_>>(), ["e1003", "e1002", "e1001"]);
    assert_eq!([replay().await, replay().await], [3, 0]);
}
