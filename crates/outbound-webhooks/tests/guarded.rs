//! Requests that nobody may have us make.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use outbound_webhooks::address::Reach;
use outbound_webhooks::deliveries::DeliveryState;
use outbound_webhooks::schedule::Schedule;
use sqlx::PgPool;
use support::{Book, Receiver, Reply, status};

/// One attempt of a sender that may reach only what it is told.
async fn attempt(book: &Book, url: &str, allowed: &[&str]) -> (Option<i32>, Option<String>) {
    let tenant = format!("{url} {allowed:?}");
    // Made when it was still allowed.
    let endpoint = book.endpoint(&tenant, url, &[]).await;
    let event = format!("e-{}", endpoint.id);
    assert_eq!(book.happens(&tenant, &event, "happened").await, 1);
    let mut options = book.options.clone();
    options.rules.reach = Reach::new(allowed.iter().map(|network| network.parse().unwrap()).collect());
    // The next attempt is not for this test.
    options.schedule = Schedule::new(vec![Duration::from_secs(3_600)], Duration::ZERO);
    // The machine's resolver may take its time to say that a name is not there.
    (options.attempt_timeout, options.lease) = (Duration::from_secs(60), Duration::from_secs(120));
    let sender = book.sender_of(options);
    let delivery = book.until_one(&endpoint.id, "tried", |one| !one.attempts.is_empty()).await;
    sender.stop().await;
    // It would be tried again by the next sender.
    book.sql("UPDATE webhook_endpoints SET status = 'deleted' WHERE endpoint_id = $1", &endpoint.id).await;
    (delivery.attempts[0].response_status, delivery.attempts[0].error.clone())
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_name_that_leads_into_our_own_network_is_not_followed(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let url = format!("http://localhost:{}/hook", receiver.port());
    let (answer, error) = attempt(&book, &url, &[]).await;
    assert_eq!(answer, None);
    assert_eq!(error.as_deref(), Some("no connection"));
    assert_eq!(receiver.came().len(), 0);
    // A name that is not there, and a port that nobody listens on, read the same.
    let missing = attempt(&book, "http://nobody.invalid/hook", &[]).await;
    let closed = attempt(&book, "http://127.0.0.1:1/hook", &["127.0.0.0/8"]).await;
    assert_eq!([&missing, &closed], [&(None, error.clone()), &(None, error)]);
    // The very same is sent where the network is named.
    assert_eq!(attempt(&book, &url, &["127.0.0.0/8"]).await, (Some(200), None));
    assert_eq!(receiver.came().len(), 1);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_address_that_is_no_longer_allowed_is_not_connected_to(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let (answer, error) = attempt(&book, &receiver.url("hook"), &["10.0.0.0/8"]).await;
    assert_eq!((answer, error.as_deref()), (None, Some("not sent: the address may not be reached")));
    assert_eq!(receiver.came().len(), 0);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_redirect_is_not_followed(pool: PgPool) {
    let book = Book::new(pool);
    let inside = Receiver::start(|_, _| status(200)).await;
    for code in [301, 302, 303, 307, 308] {
        let to = inside.url("inside");
        let receiver = Receiver::start(move |_, _| {
            Reply::Now(Response::builder().status(code).header("location", &to).body(Body::empty()).unwrap())
        })
        .await;
        let (answer, error) = attempt(&book, &receiver.url("hook"), &["127.0.0.0/8"]).await;
        assert_eq!((answer, error), (Some(i32::from(code)), Some(format!("answered {code}"))));
        assert_eq!(receiver.came().len(), 1);
    }
    assert_eq!(inside.came().len(), 0);
}

/// The answer of a stranger is stored as text, whatever it is.
#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_endpoint_that_speaks_no_http_is_a_failed_attempt(pool: PgPool) {
    let book = Book::new(pool);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let liar = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 64];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(b"\0\xff no HTTP\r\n\r\n").await;
        }
    });
    let endpoint = book.endpoint("acme", &url, &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    let failed = book.until_one(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    assert!(failed.attempts.iter().all(|attempt| attempt.response_status.is_none()), "{failed:?}");
    liar.abort();
}
