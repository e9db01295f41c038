//! What stands around every route: bounds, fallbacks, request ids, health.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::support::{ACME, Api, PAYMENTS, order};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn fallbacks_and_bounds_are_problems(pool: PgPool) {
    let api = Api::new(pool).await;
    let large = format!("{{\"amount\":\"{}\"}}", "1".repeat(16 * 1024));
    api.get(ACME, "/nowhere").await.assert_problem(404, "not_found", "path");
    let put = Request::put(PAYMENTS).body(Body::empty()).unwrap();
    api.send(put).await.assert_problem(405, "method_not_allowed", "method");
    api.post(ACME, PAYMENTS, "k", &large).await.assert_problem(413, "body_too_large", "payment");
    api.post(ACME, "/callbacks/north", "k", &large).await.assert_problem(413, "body_too_large", "callback");
    let (id, _) = api.paid("k").await;
    let cancel = format!("{PAYMENTS}/{id}/cancel");
    api.post(ACME, &cancel, "c", &large).await.assert_problem(413, "body_too_large", "cancel");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_request_has_an_id_and_a_time(pool: PgPool) {
    let api = Api::new(pool).await;
    let given = Request::get("/nowhere").header("x-request-id", "mine").body(Body::empty()).unwrap();
    assert_eq!(api.send(given).await.header("x-request-id"), "mine");
    assert_eq!(api.get(ACME, "/nowhere").await.header("x-request-id").len(), 36);

    let (id, _) = api.paid("k").await;
    // The shortest time that the configuration takes; holding the row makes the cancel wait for it.
    let hurried = Api::with(api.pool.clone(), json!({"wait_max_s": 0, "request_timeout_s": 1}));
    let mut holder = api.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM payments WHERE payment_id = $1 FOR UPDATE")
        .bind(&id)
        .execute(&mut *holder)
        .await
        .unwrap();
    let late = hurried.post(ACME, &format!("{PAYMENTS}/{id}/cancel"), "c", "").await;
    late.assert_problem(503, "request_timeout", "held row");
    assert_eq!(late.header("x-request-id").len(), 36, "an answer of the bounds has its id too");
    holder.rollback().await.unwrap();
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_body_that_does_not_come_is_408_and_leaves_no_trace(pool: PgPool) {
    let api = Api::with(Api::new(pool).await.pool, json!({"body_timeout_s": 1}));
    let before = api.trace().await;
    let slow = |path: &str| {
        let never = futures::stream::pending::<Result<Vec<u8>, std::io::Error>>();
        Request::post(path)
            .header("authorization", format!("Bearer {ACME}"))
            .header("idempotency-key", "k")
            .header("content-type", "application/json")
            .body(Body::from_stream(never))
            .unwrap()
    };
    let (payment, callback) = tokio::join!(api.send(slow(PAYMENTS)), api.send(slow("/callbacks/north")));
    for answer in [payment, callback] {
        answer.assert_problem(408, "body_timeout", "half a request");
        assert_eq!(answer.header("connection"), "close");
    }
    assert_eq!(api.trace().await, before);
    assert_eq!(api.pay("k", &order()).await.status, 201, "the key is unused");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn one_request_too_many_is_sent_away_and_health_is_not(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let narrow = Api::with(api.pool.clone(), json!({"requests_max": 1}));
    let path = format!("{PAYMENTS}/{id}?wait=30");
    let second = async {
        let away = narrow.pay("l", &order()).await;
        away.assert_problem(503, "overloaded", "second");
        assert_eq!(away.header("retry-after"), "1");
        assert_eq!(narrow.get("", "/health").await.status, 200);
        narrow.stopping.cancel();
    };
    let (first, ()) = tokio::join!(narrow.get(ACME, &path), second);
    assert_eq!(first.status, 200);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn readiness_asks_the_database_only(pool: PgPool) {
    let api = Api::new(pool.clone()).await;
    assert_eq!(api.get("", "/health").await.json, json!({"status": "ok"}));
    assert_eq!(api.get("", "/ready").await.status, 200, "Temporal is unreachable");
    api.pay("k", &order()).await;
    let metrics = String::from_utf8(api.get("", "/metrics").await.bytes).unwrap();
    for name in ["api_payment_requests_total", "http_request_duration_seconds"] {
        assert!(metrics.contains(name), "{name}");
    }

    let lost = PgPoolOptions::new().connect_lazy_with(pool.connect_options().as_ref().clone());
    lost.close().await;
    let blind = Api::with(lost, json!({}));
    blind.get("", "/ready").await.assert_problem(503, "not_ready", "no database");
    assert_eq!(blind.get("", "/health").await.status, 200);
}
