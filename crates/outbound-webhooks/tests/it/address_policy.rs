//! Requests that must not be sent: internal addresses and redirects (server-side request forgery).

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use outbound_webhooks::address::AddressPolicy;
use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::schedule::Schedule;
use sqlx::PgPool;

use crate::support::{Reply, TestEndpoint, TestWebhooks, status};

/// One attempt of a sender that permits only these networks.
async fn attempt(webhooks: &TestWebhooks, url: &str, allowed: &[&str]) -> (Option<i32>, Option<String>) {
    let tenant = format!("{url} {allowed:?}");
    // Created while the URL was permitted.
    let endpoint = webhooks.endpoint(&tenant, url, &[]).await;
    let event = format!("e-{}", endpoint.id);
    assert_eq!(webhooks.publish(&tenant, &event, "happened").await, 1);
    let mut options = webhooks.options.clone();
    options.rules.addresses =
        AddressPolicy::new(allowed.iter().map(|network| network.parse().unwrap()).collect());
    // No further attempt during the test.
    options.schedule = Schedule::new(vec![Duration::from_secs(3_600)], Duration::ZERO);
    // The resolver may take long to answer that a name does not exist.
    (options.attempt_timeout, options.lease) = (Duration::from_secs(60), Duration::from_secs(120));
    let sender = webhooks.sender_with(options);
    let delivery = webhooks.wait_for_delivery(&endpoint.id, "tried", |one| !one.attempts.is_empty()).await;
    sender.stop().await;
    // Otherwise the next sender would repeat the attempt.
    webhooks
        .sql("UPDATE webhook_endpoints SET status = 'deleted' WHERE endpoint_id = $1", &endpoint.id)
        .await;
    (delivery.attempts[0].response_status, delivery.attempts[0].error.clone())
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_webhook_host_name_with_internal_addresses_is_not_connected_to(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let url = format!("http://localhost:{}/hook", server.port());
    let (answer, error) = attempt(&webhooks, &url, &[]).await;
    assert_eq!(answer, None);
    assert_eq!(error.as_deref(), Some("no connection"));
    assert_eq!(server.requests().len(), 0);
    // A name that does not exist and a closed port have the same error.
    let missing = attempt(&webhooks, "http://nobody.invalid/hook", &[]).await;
    let closed = attempt(&webhooks, "http://127.0.0.1:1/hook", &["127.0.0.0/8"]).await;
    assert_eq!([&missing, &closed], [&(None, error.clone()), &(None, error)]);
    // The delivery is sent if the network is permitted.
    assert_eq!(attempt(&webhooks, &url, &["127.0.0.0/8"]).await, (Some(200), None));
    assert_eq!(server.requests().len(), 1);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_webhook_address_that_is_no_longer_permitted_is_not_connected_to(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    let (answer, error) = attempt(&webhooks, &server.url("hook"), &["10.0.0.0/8"]).await;
    assert_eq!(
        (answer, error.as_deref()),
        (None, Some("not sent: the address of the webhook URL is not permitted; use a public address"))
    );
    assert_eq!(server.requests().len(), 0);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_redirect_by_a_webhook_endpoint_is_not_followed(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let inside = TestEndpoint::start(|_, _| status(200)).await;
    for code in [301, 302, 303, 307, 308] {
        let to = inside.url("inside");
        let server = TestEndpoint::start(move |_, _| {
            Reply::Now(Response::builder().status(code).header("location", &to).body(Body::empty()).unwrap())
        })
        .await;
        let (answer, error) = attempt(&webhooks, &server.url("hook"), &["127.0.0.0/8"]).await;
        assert_eq!((answer, error), (Some(i32::from(code)), Some(format!("answered {code}"))));
        assert_eq!(server.requests().len(), 1);
    }
    assert_eq!(inside.requests().len(), 0);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_non_http_response_of_a_webhook_endpoint_fails_the_attempt(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let malformed_server = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 64];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"\0\xff no HTTP\r\n\r\n").await;
        }
    });
    let endpoint = webhooks.endpoint("acme", &url, &[]).await;
    webhooks.publish("acme", "e1", "happened").await;
    let _sender = webhooks.sender();
    let failed =
        webhooks.wait_for_delivery(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    assert!(failed.attempts.iter().all(|attempt| attempt.response_status.is_none()), "{failed:?}");
    malformed_server.abort();
}
