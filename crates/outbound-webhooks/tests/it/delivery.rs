//! Delivery of events: signatures, retries, responses and secrets.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Response;
use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::endpoints;
use postgres_kit::Pool;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{Reply, TestEndpoint, TestWebhooks, body_until, master_key, options, status, until};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_webhook_delivery_is_signed_and_sent_once(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(204)).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    assert_eq!(webhooks.publish("acme", "k:happened", "happened").await, 1);
    let sender = webhooks.sender();
    let delivery = webhooks
        .wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered)
        .await;
    assert_eq!((delivery.failed_attempts, delivery.next_attempt_at), (0, None));
    assert_eq!(delivery.attempts.len(), 1);
    assert_eq!((delivery.attempts[0].response_status, &delivery.attempts[0].error), (Some(204), &None));

    let [request] = &server.requests()[..] else {
        panic!("expected one request, got {:?}", server.requests())
    };
    assert_eq!(
        (request.id(), &request.headers["content-type"]),
        ("k:happened", &"application/json".parse().unwrap())
    );
    assert!(request.has_valid_signature(&webhooks.secret(&endpoint.id, 1)));
    assert!(!request.has_valid_signature(&webhooks.secret(&endpoint.id, 2)));
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(
        body,
        json!({"type": "happened", "timestamp": "1970-01-01T00:00:00Z", "version": 1, "key": "k", "sequence": 7,
            "data": {"amount": "12.50"}})
    );
    sender.stop().await;
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_failed_webhook_delivery_is_retried_with_the_same_id(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, times| match times {
        1 => status(500),
        2 => status(404),
        3 => status(302),
        _ => status(200),
    })
    .await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    let delivery = webhooks
        .wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered)
        .await;
    let statuses: Vec<_> = delivery.attempts.iter().map(|attempt| attempt.response_status.unwrap()).collect();
    assert_eq!(statuses, [500, 404, 302, 200]);
    assert_eq!(delivery.attempts[0].error.as_deref(), Some("answered 500"));
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|one| one.id() == "e1" && one.body == requests[0].body));
    assert_eq!(webhooks.read(&endpoint.id).await.failing_since, None);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_webhook_endpoint_that_times_out_fails_the_delivery_attempt(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, times| if times == 1 { Reply::Never } else { status(200) }).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    let delivery = webhooks
        .wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered)
        .await;
    let [first, _] = &delivery.attempts[..] else { panic!("{delivery:?}") };
    assert_eq!((first.response_status, first.error.as_deref()), (None, Some("no answer within 2000 ms")));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_long_or_endless_webhook_response_body_is_cut_off(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|request, _| {
        let body = match request.path.as_str() {
            "long" => Body::from(vec![0_u8; 1 << 20]),
            _ => Body::from_stream(body_until(std::future::pending())),
        };
        Reply::Now(Response::new(body))
    })
    .await;
    for name in ["long", "endless"] {
        let endpoint = webhooks.endpoint("acme", &server.url(name), &[name]).await;
        webhooks.publish("acme", &format!("e-{name}"), name).await;
        let sender = webhooks.sender();
        let delivery = webhooks
            .wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered)
            .await;
        let answer = delivery.attempts[0].response_excerpt.clone().unwrap();
        assert_eq!(answer.chars().count(), if name == "long" { 512 } else { 0 }, "{name}");
        sender.stop().await;
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn retry_after_of_a_webhook_endpoint_delays_the_next_attempt(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| {
        let answer = Response::builder().status(429).header("retry-after", "3600").body(Body::empty());
        Reply::Now(answer.unwrap())
    })
    .await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    let delivery = webhooks.wait_for_delivery(&endpoint.id, "tried", |one| one.failed_attempts == 1).await;
    let pause_s = delivery.next_attempt_at.unwrap().duration_since(jiff::Timestamp::now()).as_secs();
    assert!((3_500..=3_600).contains(&pause_s), "{pause_s} s");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn both_webhook_secrets_sign_during_the_overlap_of_a_rotation(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    let _sender = webhooks.sender();
    let sent = async |event: &str| {
        webhooks.publish("acme", event, "happened").await;
        until("the request arrives", async || server.requests().iter().any(|one| one.id() == event)).await;
        let request = server.requests().into_iter().find(|one| one.id() == event).unwrap();
        let good: Vec<i32> = (1..=4)
            .filter(|version| request.has_valid_signature(&webhooks.secret(&endpoint.id, *version)))
            .collect();
        assert_eq!(request.signatures(), good.len());
        good
    };
    let rotate = async || {
        let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
        let key = master_key(&webhooks.options);
        endpoints::rotate(&mut connection, key, "acme", &endpoint.id, 3_600).await.unwrap().unwrap()
    };
    assert_eq!(sent("before").await, [1]);
    assert_eq!(rotate().await.secret_version, 2);
    assert_eq!(sent("overlap").await, [1, 2]);
    webhooks
        .sql("UPDATE webhook_endpoints SET old_secret_until = now() WHERE endpoint_id = $1", &endpoint.id)
        .await;
    assert_eq!(sent("after").await, [2]);
    rotate().await;
    rotate().await;
    assert_eq!(sent("twice").await, [3, 4], "expected the second rotation to end the overlap of the first");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_webhook_delivery_that_cannot_be_sent_is_postponed(pool: PgPool) {
    let mut webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let endpoint = webhooks.endpoint("acme", &server.url("hook"), &[]).await;
    // With another master key nothing is sent until the secret is rotated.
    let mut other = options();
    other.master_key = Some("//////////////////////////////////////////8=".into());
    webhooks.options = other.check().unwrap();
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    // More often than the schedule has attempts.
    let mut attempts_seen = BTreeSet::new();
    until("the delivery is postponed many times", async || {
        attempts_seen
            .extend(webhooks.deliveries(&endpoint.id).await[0].attempts.iter().map(|one| one.ended_at));
        attempts_seen.len() > 8
    })
    .await;
    let waiting = webhooks.wait_for_delivery(&endpoint.id, "pending", |_| true).await;
    assert_eq!((waiting.state, waiting.failed_attempts), (DeliveryState::Pending, 0));
    let [once] = &waiting.attempts[..] else {
        panic!("expected one recorded attempt per error, got {waiting:?}")
    };
    assert!(once.error.as_deref().unwrap().contains("another outbound_webhooks.master_key"), "{once:?}");
    assert_eq!(webhooks.read(&endpoint.id).await.failing_since, None);
    assert_eq!(server.requests().len(), 0);
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    let key = master_key(&webhooks.options);
    let rotated =
        endpoints::rotate(&mut connection, key, "acme", &endpoint.id, 3_600).await.unwrap().unwrap();
    assert_eq!(rotated.old_secret_until, None, "expected no overlap with a secret of another master key");
    webhooks.wait_for_delivery(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    assert!(server.requests()[0].has_valid_signature(&webhooks.secret(&endpoint.id, 2)));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_webhook_delivery_postponed_beyond_the_retention_fails(pool: PgPool) {
    let mut webhooks = TestWebhooks::new(pool);
    let endpoint = webhooks.endpoint("acme", "http://127.0.0.1:9/hook", &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    webhooks
        .sql(
            "UPDATE webhook_deliveries SET created_at = now() - interval '31 days' WHERE endpoint_id = $1",
            &endpoint.id,
        )
        .await;
    let mut other = options();
    other.master_key = Some("//////////////////////////////////////////8=".into());
    webhooks.options = other.check().unwrap();
    let _sender = webhooks.sender();
    let failed =
        webhooks.wait_for_delivery(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    assert!(failed.attempts[0].error.as_deref().unwrap().starts_with("not sent"), "{failed:?}");
    assert_eq!(failed.failed_attempts, 0, "expected no try without a request");
    assert_eq!(
        webhooks.read(&endpoint.id).await.failing_since,
        None,
        "expected no failure period of the endpoint"
    );
}
