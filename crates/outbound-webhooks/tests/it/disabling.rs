//! Endpoints that are disabled because they are gone or failing.

use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::endpoints::{
    self, DisabledReason, EndpointChange, EndpointStatus, EndpointUpdateOutcome,
};
use outbound_webhooks::target::Target;
use postgres_kit::Pool;
use sqlx::PgPool;
use tokio::sync::watch;

use crate::support::{TestEndpoint, TestWebhooks, held_response, status, until};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_webhook_endpoint_that_answers_410_is_disabled(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(410)).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let sender = webhooks.sender();
    webhooks.wait_for_delivery(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    let disabled = webhooks.read(&endpoint.id).await;
    assert_eq!(
        (disabled.status, disabled.disabled_reason),
        (EndpointStatus::Disabled, Some(DisabledReason::Gone))
    );
    assert_eq!(
        webhooks.publish("acme", "e2", "happened").await,
        0,
        "expected no delivery to a disabled endpoint"
    );
    sender.stop().await;

    // A delivery that was pending when the endpoint was disabled is sent once it is enabled.
    webhooks
        .sql(
            "UPDATE webhook_endpoints SET status = 'active', disabled_reason = NULL WHERE endpoint_id = $1",
            &endpoint.id,
        )
        .await;
    webhooks.publish("acme", "e3", "happened").await;
    let disable = EndpointChange { status: Some(EndpointStatus::Disabled), ..EndpointChange::default() };
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    let changed = endpoints::change(&mut connection, "acme", &endpoint.id, disable).await.unwrap();
    assert!(matches!(changed, EndpointUpdateOutcome::Done(_)), "{changed:?}");
    server.respond_with(|_, _| status(200));
    let _sender = webhooks.sender();
    let other = webhooks.endpoint("acme", &server.url("other"), &[]).await;
    webhooks.publish("acme", "e4", "happened").await;
    webhooks.wait_for_delivery(&other.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    assert_eq!(server.requests_to("hook").len(), 1);
    let enable = EndpointChange { status: Some(EndpointStatus::Active), ..EndpointChange::default() };
    let changed = endpoints::change(&mut connection, "acme", &endpoint.id, enable).await.unwrap();
    assert!(matches!(changed, EndpointUpdateOutcome::Done(_)), "{changed:?}");
    until("the pending delivery arrives", async || {
        server.requests_to("hook").iter().any(|one| one.id() == "e3")
    })
    .await;
}

/// A 410 from the previous URL does not disable the endpoint, and does not replace the reason of an operator.
#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_late_answer_of_a_webhook_endpoint_reverts_no_later_change(pool: PgPool) {
    let webhooks = TestWebhooks::with_long_timeouts(pool);
    let (release, held) = watch::channel(false);
    let server = TestEndpoint::start(move |_, _| held_response(410, &held)).await;
    let moved = webhooks.endpoint("acme", &server.url("moved"), &[]).await;
    let stopped = webhooks.endpoint("acme", &server.url("stopped"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    until("both requests arrive", async || server.requests().len() == 2).await;

    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    let there = Target::parse(&server.url("elsewhere"), &webhooks.options.rules).unwrap();
    let change = EndpointChange { target: Some(&there), ..EndpointChange::default() };
    let changed = endpoints::change(&mut connection, "acme", &moved.id, change).await.unwrap();
    assert!(matches!(changed, EndpointUpdateOutcome::Done(_)), "{changed:?}");
    assert!(endpoints::disable_as_operator(&mut connection, &stopped.id, "ann: a flood").await.unwrap());
    release.send(true).unwrap();
    for endpoint in [&moved, &stopped] {
        webhooks.wait_for_delivery(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    }
    let moved = webhooks.read(&moved.id).await;
    assert_eq!((moved.status, moved.failing_since), (EndpointStatus::Active, None));
    let stopped = webhooks.read(&stopped.id).await;
    assert_eq!(stopped.disabled_reason, Some(DisabledReason::Operator));
    assert_eq!(stopped.disabled_note.as_deref(), Some("ann: a flood"));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_webhook_endpoint_that_fails_for_five_days_is_disabled(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(500)).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    for (age, expected) in [("4 days 23 hours", None), ("5 days 1 minute", Some(DisabledReason::Failing))] {
        sqlx::query("UPDATE webhook_endpoints SET failing_since = now() - $1::text::interval")
            .bind(age)
            .execute(&webhooks.pool)
            .await
            .unwrap();
        webhooks.publish("acme", &age.replace(' ', "-"), "happened").await;
        let sender = webhooks.sender();
        until("an attempt arrives", async || {
            server.requests().iter().any(|one| one.id() == age.replace(' ', "-"))
        })
        .await;
        sender.stop().await;
        assert_eq!(webhooks.read(&endpoint.id).await.disabled_reason, expected, "{age}");
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_days_without_events_do_not_disable_a_webhook_endpoint(pool: PgPool) {
    let webhooks = TestWebhooks::with_long_timeouts(pool);
    let (release, held) = watch::channel(false);
    // One attempt stays in flight until the test has seen the failure period, which ends with the last pending delivery.
    let server =
        TestEndpoint::start(
            move |request, _| if request.id() == "e3" { held_response(503, &held) } else { status(503) },
        )
        .await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    for event in ["e1", "e2", "e3"] {
        webhooks.publish("acme", event, "happened").await;
    }
    let sender = webhooks.sender();
    until("the endpoint is failing", async || webhooks.read(&endpoint.id).await.failing_since.is_some())
        .await;
    release.send(true).unwrap();
    until("every delivery fails", async || {
        webhooks.deliveries(&endpoint.id).await.iter().all(|one| one.state == DeliveryState::Failed)
    })
    .await;
    sender.stop().await;
    assert_eq!(
        webhooks.read(&endpoint.id).await.failing_since,
        None,
        "expected no failure period without pending deliveries"
    );
    // Ten days without events, then one failed attempt.
    webhooks.sql(
        "UPDATE webhook_endpoints SET failing_since = failing_since - interval '10 days' WHERE endpoint_id = $1",
        &endpoint.id,
    )
    .await;
    server.respond_with(|_, times| status(if times == 1 { 503 } else { 200 }));
    webhooks.publish("acme", "e4", "happened").await;
    let _sender = webhooks.sender();
    until("the delivery succeeds", async || {
        webhooks.deliveries(&endpoint.id).await[0].state == DeliveryState::Delivered
    })
    .await;
    assert_eq!(webhooks.read(&endpoint.id).await.status, EndpointStatus::Active);
}
