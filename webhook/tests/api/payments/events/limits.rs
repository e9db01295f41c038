//! Visibility, number, life and cost of streams.

use axum::http::StatusCode;
use payment_ledger::access::api_keys::ApiKeyScope;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use super::client::{StreamResponse, names, open, refused};
use super::{LONG, settle};
use crate::support::{ACME, ACME_TILL, Api, GLOBEX, order_with};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_unknown_or_foreign_payment_cannot_be_streamed(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    for (key, id, status, code) in [
        (GLOBEX, id.as_str(), 404, "payment_not_found"),
        (ACME, "pay_0", 404, "payment_not_found"),
        (ACME, "%00", 404, "payment_not_found"),
        ("unknown", &id, 401, "unauthorized"),
    ] {
        assert_eq!(refused(&api, key, id, "", None).await, (status, json!(code), String::new()), "{id}");
    }
    // With a last event id too, another tenant's payment does not exist.
    assert_eq!(refused(&api, GLOBEX, &id, "", Some("1")).await.0, 404);
    api.create_key("payer", "acme", "shop", &[ApiKeyScope::Pay]).await;
    assert_eq!(refused(&api, "payer", &id, "", None).await.1, "insufficient_scope");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn open_event_streams_are_limited_and_their_slots_are_released(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.accepted_payment("k").await;
    let api = Api::with_options(wide.pool.clone(), json!({"streams": {"max": 3, "per_client_max": 2}}));
    let refusal = |status: u16, code: &str| (status, json!(code), "5".to_owned());
    let (first, second) = (open(&api, &id, None).await, open(&api, &id, None).await);
    assert_eq!(refused(&api, ACME, &id, "", None).await, refusal(429, "too_many_streams"));
    let third = StreamResponse::open(&api, ACME_TILL, &id, "", None).await;
    assert_eq!(third.status, StatusCode::OK);
    assert_eq!(refused(&api, ACME_TILL, &id, "", None).await, refusal(503, "overloaded"));

    drop(first);
    let mut again = open(&api, &id, None).await;
    again.take(1).await;
    settle(&wide, &id).await;
    assert_eq!(names(&again.rest().await), ["settled", "end"]);
    assert_eq!(
        open(&api, &id, None).await.rest().await.len(),
        3,
        "expected an ended stream to release its slot"
    );
    drop((second, third));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn opening_an_event_stream_is_counted_as_a_read(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.accepted_payment("k").await;
    let api = Api::with_options(wide.pool.clone(), json!({"reads": {"per_s": 1, "burst": 2}}));
    for _ in 0..100 {
        let response = StreamResponse::open(&api, ACME, &id, "", None).await;
        assert!(response.headers.contains_key("ratelimit"));
        if response.status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
    }
    panic!("expected a refusal within 100 requests");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn event_streams_end_when_the_api_stops(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let mut waiting = open(&api, &id, None).await;
    waiting.take(1).await;
    let (unread, ended) = (open(&api, &id, None).await, waiting.next());
    let (ended, ()) = tokio::join!(ended, async { api.stopping.cancel() });
    assert_eq!(ended, None, "expected no final event: the payment has not ended");
    assert_eq!(unread.rest().await, [], "expected unsent entries to be left to the next process");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_event_stream_ends_after_its_maximum_lifetime(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.accepted_payment("k").await;
    let api = Api::with_options(wide.pool.clone(), json!({"streams": {"lifetime_s": 3}}));
    let events = open(&api, &id, None).await.rest().await;
    assert_eq!(names(&events), ["accepted"], "expected a close without the final event");
    settle(&api, &id).await;
    let events = open(&api, &id, Some(&events[0].id)).await.rest().await;
    assert_eq!(names(&events), ["settled", "end"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_an_open_event_stream_holds_no_database_connection(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.accepted_payment("k").await;
    let one = PgPoolOptions::new().max_connections(1).acquire_timeout(LONG);
    let one = one.connect_with(wide.pool.connect_options().as_ref().clone()).await.unwrap();
    let api = Api::with_options(one, json!({"max_in_flight": 1}));
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = open(&api, &id, None).await;
        stream.take(1).await;
        streams.push(stream);
    }
    // The only connection and the only permit are available for payments.
    for n in 0..10 {
        let response = api.pay(&format!("k{n}"), &order_with("amount", json!("1"))).await;
        assert_eq!(response.status, 201, "{response:?}");
    }
    settle(&wide, &id).await;
    for stream in streams {
        assert_eq!(names(&stream.rest().await), ["settled", "end"]);
    }
}
