//! Deletion of old rows, and the numbers of the gauges.

use std::time::Duration;

use outbound_webhooks::deliveries::{self, DeliveryState};
use outbound_webhooks::endpoints::{self, EndpointUpdateOutcome};
use outbound_webhooks::{measure, retention};
use postgres_kit::Pool;
use sqlx::PgPool;

use crate::support::{CLOSED_PORT_URL, TestEndpoint, TestWebhooks, status, until};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn webhook_rows_beyond_the_retention_are_deleted(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let id = webhooks.endpoint("acme", &server.url("hook"), &["happened"]).await.id;
    let deleted = webhooks.endpoint("acme", CLOSED_PORT_URL, &["other"]).await.id;
    for event in ["old", "new"] {
        webhooks.publish("acme", event, "happened").await;
    }
    webhooks.publish("acme", "gone", "other").await;
    // As many attempts as after many replays.
    webhooks.sql(
        "INSERT INTO webhook_attempts (position, duration_ms, error)
         SELECT d.position, 1, 'x' FROM webhook_deliveries d, generate_series(1, 150) WHERE d.endpoint_id = $1",
        &id,
    )
    .await;
    let sender = webhooks.sender();
    until("every delivery succeeds", async || {
        webhooks.deliveries(&id).await.iter().all(|one| one.state == DeliveryState::Delivered)
    })
    .await;
    sender.stop().await;
    let attempts = async || {
        let count = "SELECT count(*) FROM webhook_attempts JOIN webhook_deliveries USING (position)
                     WHERE event_id = 'new' GROUP BY event_id";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&webhooks.pool).await.unwrap()
    };
    assert_eq!(attempts().await, 100);

    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    assert_eq!(
        endpoints::delete(&mut connection, "acme", &deleted).await.unwrap(),
        EndpointUpdateOutcome::Done(())
    );
    webhooks.sql(
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days', ended_at = now() - interval '31 days' WHERE endpoint_id = $1 AND event_id = 'old'",
        &id,
    )
    .await;
    assert_eq!(
        retention::prune(&webhooks.pool.clone().into(), Duration::from_secs(30 * 86_400)).await.unwrap(),
        2
    );
    let left: Vec<(String,)> =
        sqlx::query_as("SELECT event_id FROM webhook_deliveries").fetch_all(&webhooks.pool).await.unwrap();
    assert_eq!(left, [("new".to_owned(),)], "expected only the recent delivery of the active endpoint");
    let endpoints: i64 =
        sqlx::query_scalar("SELECT count(*) FROM webhook_endpoints").fetch_one(&webhooks.pool).await.unwrap();
    assert_eq!(endpoints, 1);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_webhook_delivery_with_further_attempts_is_kept_at_any_age(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let active = webhooks.endpoint("acme", CLOSED_PORT_URL, &["happened"]).await.id;
    let disabled = webhooks.endpoint("acme", CLOSED_PORT_URL, &["other"]).await.id;
    for event in ["replayed", "ended-lately"] {
        webhooks.publish("acme", event, "happened").await;
    }
    webhooks.publish("acme", "pending", "other").await;
    webhooks
        .sql(
            "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = 'by_tenant' WHERE endpoint_id = $1",
            &disabled,
        )
        .await;
    webhooks
        .sql(
            "UPDATE webhook_deliveries SET next_attempt_at = now() - interval '31 days' WHERE endpoint_id = $1",
            &disabled,
        )
        .await;
    webhooks
        .sql(
            "UPDATE webhook_deliveries SET created_at = now() - interval '31 days',
                state = 'failed', ended_at = now() - interval '1 day' WHERE endpoint_id = $1",
            &active,
        )
        .await;
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    assert_eq!(
        deliveries::replay(&mut connection, &active, "replayed").await.unwrap(),
        deliveries::ReplayOutcome::Due
    );
    assert_eq!(
        retention::prune(&webhooks.pool.clone().into(), Duration::from_secs(30 * 86_400)).await.unwrap(),
        1
    );
    let left: Vec<_> = webhooks.deliveries(&active).await.into_iter().map(|one| one.event_id).collect();
    assert_eq!(left, ["ended-lately", "replayed"]);
    assert!(
        webhooks.deliveries(&disabled).await.is_empty(),
        "expected deletion after the retention while the endpoint is disabled"
    );
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn the_backlog_of_webhook_deliveries_is_measured(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let id = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await.id;
    let disabled = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await.id;
    for event in ["e1", "e2"] {
        webhooks.publish("acme", event, "happened").await;
    }
    webhooks.sql("UPDATE webhook_deliveries SET next_attempt_at = now() + interval '1 hour' WHERE event_id = 'e2' AND endpoint_id = $1", &id)
        .await;
    webhooks.sql("UPDATE webhook_deliveries SET next_attempt_at = now() - interval '1 hour' WHERE event_id = 'e1' AND endpoint_id = $1", &id)
        .await;
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    endpoints::disable_as_operator(&mut connection, &disabled, "ann: no").await.unwrap();
    let now = measure(&webhooks.pool.clone().into()).await.unwrap();
    assert_eq!((now.active, now.disabled, now.pending, now.due), (1, 1, 2, 1));
    assert!((3_600_000..3_700_000).contains(&now.oldest_due_ms), "{now:?}");
}
