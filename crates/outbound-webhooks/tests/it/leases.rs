//! Leases: senders that die, that lose their lease, and that run concurrently.

use std::collections::BTreeSet;

use outbound_webhooks::deliveries::DeliveryState;
use sqlx::PgPool;
use tokio::sync::watch;

use crate::support::{Reply, TestEndpoint, TestWebhooks, held_response, status, until};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_another_webhook_sender_repeats_an_attempt_after_its_lease(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, times| if times == 1 { Reply::Never } else { status(200) }).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let first = webhooks.sender();
    until("the request arrives", async || server.requests().len() == 1).await;
    first.kill().await;
    let _second = webhooks.sender();
    let delivery = webhooks
        .wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered)
        .await;
    assert_eq!(
        (delivery.failed_attempts, delivery.attempts.len()),
        (0, 1),
        "expected no failed attempt for the killed sender"
    );
    assert_eq!(server.requests().iter().map(|one| one.id().to_owned()).collect::<Vec<_>>(), ["e1", "e1"]);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_a_webhook_attempt_with_a_lost_lease_changes_nothing(pool: PgPool) {
    let webhooks = TestWebhooks::with_long_timeouts(pool);
    let (release, held) = watch::channel(false);
    let server =
        TestEndpoint::start(move |_, times| if times == 1 { held_response(500, &held) } else { status(200) })
            .await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _slow = webhooks.sender();
    until("the request arrives", async || server.requests().len() == 1).await;
    // The lease expires while the first sender reads the response, and the delivery is claimed again.
    webhooks
        .sql(
            "UPDATE webhook_deliveries SET next_attempt_at = now() - interval '1 second' WHERE endpoint_id = $1",
            &endpoint.id,
        )
        .await;
    webhooks
        .wait_for_delivery(&endpoint.id, "delivered by the second attempt", |one| {
            one.state == DeliveryState::Delivered
        })
        .await;
    release.send(true).unwrap();
    let delivery = webhooks
        .wait_for_delivery(&endpoint.id, "both attempts recorded", |one| one.attempts.len() == 2)
        .await;
    assert_eq!((delivery.state, delivery.failed_attempts), (DeliveryState::Delivered, 0));
    assert_eq!(webhooks.read(&endpoint.id).await.failing_since, None);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_concurrent_webhook_senders_never_make_the_same_attempt(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let one = webhooks.endpoint("acme", &server.url("one"), &[]).await;
    let two = webhooks.endpoint("acme", &server.url("two"), &[]).await;
    let events: BTreeSet<String> = (0..60).map(|n| format!("e{n}")).collect();
    for event in &events {
        assert_eq!(webhooks.publish("acme", event, "happened").await, 2);
    }
    let _senders = [webhooks.sender(), webhooks.sender(), webhooks.sender()];
    for endpoint in [&one, &two] {
        until("every delivery succeeds", async || {
            webhooks.deliveries(&endpoint.id).await.iter().all(|one| one.state == DeliveryState::Delivered)
        })
        .await;
    }
    for name in ["one", "two"] {
        let ids: Vec<String> =
            server.requests_to(name).iter().map(|request| request.id().to_owned()).collect();
        assert_eq!(ids.len(), events.len(), "each request once");
        assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), events);
    }
}
