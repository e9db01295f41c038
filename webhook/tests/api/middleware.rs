//! Layers around every route: bounds, fallbacks, request ids, health.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use service_kit::peers::PeerAddress;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use webhook_signature::SIGNATURE_HEADER;

use crate::support::{ACME, Api, NORTH, NORTH_SECRET, PAYMENTS, config, order, pending_body, report, signed};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn unknown_api_routes_and_exceeded_bounds_are_answered_with_problems(pool: PgPool) {
    let api = Api::new(pool).await;
    let large = format!("{{\"amount\":\"{}\"}}", "1".repeat(16 * 1024));
    api.get(ACME, "/nowhere").await.assert_problem(404, "not_found", "path");
    let put = Request::put(PAYMENTS).body(Body::empty()).unwrap();
    api.send(put).await.assert_problem(405, "method_not_allowed", "method");
    api.post(ACME, PAYMENTS, "k", &large).await.assert_problem(413, "body_too_large", "payment");
    let callback = signed(NORTH_SECRET, "e-1", 0, large.as_str());
    api.callback(NORTH, callback).await.assert_problem(413, "body_too_large", "callback");
    let (id, _) = api.accepted_payment("k").await;
    let cancel = format!("{PAYMENTS}/{id}/cancel");
    api.post(ACME, &cancel, "c", &large).await.assert_problem(413, "body_too_large", "cancel");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_api_request_has_a_request_id_and_a_timeout(pool: PgPool) {
    let api = Api::new(pool).await;
    let given = Request::get("/nowhere").header("x-request-id", "mine").body(Body::empty()).unwrap();
    assert_eq!(api.send(given).await.header("x-request-id"), "mine");
    assert_eq!(api.get(ACME, "/nowhere").await.header("x-request-id").len(), 36);

    let (id, _) = api.accepted_payment("k").await;
    // The shortest allowed timeout; the cancel waits for the locked row.
    let hurried = Api::with_options(api.pool.clone(), json!({"wait_max_s": 0, "request_timeout_s": 1}));
    let mut holder = api.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM payments WHERE payment_id = $1 FOR UPDATE")
        .bind(&id)
        .execute(&mut *holder)
        .await
        .unwrap();
    let late = hurried.post(ACME, &format!("{PAYMENTS}/{id}/cancel"), "c", "").await;
    late.assert_problem(503, "request_timeout", "locked row");
    assert_eq!(late.header("x-request-id").len(), 36, "expected a request id on the timeout response");
    holder.rollback().await.unwrap();
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_request_body_that_never_arrives_is_408_and_stores_nothing(pool: PgPool) {
    let api = Api::with_options(Api::new(pool).await.pool, json!({"body_timeout_s": 1}));
    let before = api.row_counts().await;
    let payment = Request::post(PAYMENTS)
        .header("authorization", format!("Bearer {ACME}"))
        .header("idempotency-key", "k")
        .header("content-type", "application/json")
        .body(pending_body())
        .unwrap();
    let callback = signed(NORTH_SECRET, "e-1", 0, "{}").request(NORTH, pending_body());
    let (payment, callback) = tokio::join!(api.send(payment), api.send(callback));
    for response in [payment, callback] {
        response.assert_problem(408, "body_timeout", "incomplete request");
        assert_eq!(response.header("connection"), "close");
    }
    assert_eq!(api.row_counts().await, before);
    assert_eq!(api.pay("k", &order()).await.status, 201, "expected the key to be unused");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_request_above_the_in_flight_limit_is_503_but_health_is_not(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let narrow = Api::with_options(api.pool.clone(), json!({"max_in_flight": 1}));
    let path = format!("{PAYMENTS}/{id}?wait=30");
    let second = async {
        let refused = narrow.pay("l", &order()).await;
        refused.assert_problem(503, "overloaded", "second");
        assert_eq!(refused.header("retry-after"), "1");
        assert_eq!(narrow.get("", "/health").await.status, 200);
        narrow.stopping.cancel();
    };
    let (first, ()) = tokio::join!(narrow.get(ACME, &path), second);
    assert_eq!(first.status, 200);
}

/// Clients at their limit hold up no callback, and switches at theirs no client.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn clients_and_switches_have_limits_in_flight_of_their_own(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.accepted_payment("k").await;
    let options = json!({"max_in_flight": 1, "callbacks_max_in_flight": 1, "body_timeout_s": 1});
    let narrow = Api::with_options(api.pool.clone(), options);
    let callback = |event: &str| signed(NORTH_SECRET, event, 0, report(&tx_id, "FAILURE").to_string());

    let path = format!("{PAYMENTS}/{id}?wait=30");
    let during_a_wait = async {
        narrow.pay("l", &order()).await.assert_problem(503, "overloaded", "a client at the clients' limit");
        assert_eq!(narrow.callback(NORTH, callback("e-1")).await.status, 200);
        narrow.stopping.cancel();
    };
    let (first, ()) = tokio::join!(narrow.get(ACME, &path), during_a_wait);
    assert_eq!(first.status, 200);

    let slow = callback("e-2").request(NORTH, pending_body());
    let during_a_slow_callback = async {
        narrow.callback(NORTH, callback("e-3")).await.assert_problem(
            503,
            "overloaded",
            "a callback at its limit",
        );
        assert_eq!(narrow.get(ACME, PAYMENTS).await.status, 200);
    };
    let (slow, ()) = tokio::join!(narrow.send(slow), during_a_slow_callback);
    slow.assert_problem(408, "body_timeout", "the body of the first callback never arrives");
}

/// One machine with slow bodies leaves the other addresses their part of the limit.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn one_address_uses_up_its_part_of_the_limits_in_flight_only(pool: PgPool) {
    let api = Api::new(pool).await;
    let (_, tx_id) = api.accepted_payment("k").await;
    let options =
        json!({"callbacks_max_in_flight": 2, "callbacks_max_in_flight_per_address": 1, "body_timeout_s": 1});
    let narrow = Api::with_options(api.pool.clone(), options);
    let callback = |event: &str| signed(NORTH_SECRET, event, 0, report(&tx_id, "FAILURE").to_string());
    let from = |last: u8, mut request: Request<Body>| {
        request.extensions_mut().insert(PeerAddress::from(SocketAddr::from(([192, 0, 2, last], 1))));
        request
    };

    let slow = from(1, callback("e-1").request(NORTH, pending_body()));
    let during_a_slow_callback = async {
        let again = from(1, callback("e-2").request(NORTH, pending_body()));
        narrow.send(again).await.assert_problem(503, "overloaded", "the address has its part in flight");
        let complete = callback("e-3");
        let body = complete.body.clone().into();
        let other = narrow.send(from(2, complete.request(NORTH, body))).await;
        assert_eq!(other.status, 200, "{other:?}");
    };
    let (slow, ()) = tokio::join!(narrow.send(slow), during_a_slow_callback);
    slow.assert_problem(408, "body_timeout", "the body of the first callback never arrives");
}

/// Who sends no fresh timestamp and no signature holds no permit while the body does not arrive.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_callback_with_invalid_headers_is_refused_before_its_body_arrives(pool: PgPool) {
    let api = Api::new(pool).await;
    let (_, tx_id) = api.accepted_payment("k").await;
    let options = json!({"callbacks_max_in_flight": 1, "body_timeout_s": 1});
    let narrow = Api::with_options(api.pool.clone(), options);
    let valid =
        |event: &str, age_s| signed(NORTH_SECRET, event, age_s, report(&tx_id, "FAILURE").to_string());
    let mut unsigned = valid("e-1", 0);
    unsigned.headers.remove(SIGNATURE_HEADER);
    let cases = [
        ("nobody", valid("e-1", 0), 404, "unknown_switch"),
        (NORTH, valid("e-1", 3_600), 401, "invalid_signature"),
        (NORTH, unsigned, 401, "invalid_signature"),
    ];
    for (index, (switch, callback, status, code)) in cases.into_iter().enumerate() {
        let meanwhile = async {
            assert_eq!(narrow.callback(NORTH, valid(&format!("e-{}", index + 2), 0)).await.status, 200);
        };
        let slow = narrow.send(callback.request(switch, pending_body()));
        let (refused, ()) = tokio::join!(slow, meanwhile);
        refused.assert_problem(status, code, "the body never arrives");
        assert_eq!(refused.header("connection"), "close");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn no_cache_stores_an_answer_of_the_api(pool: PgPool) {
    let api = Api::new(pool).await;
    let paid = api.pay("k", &order()).await;
    let endpoint = json!({"url": "https://shop.example/hooks"}).to_string();
    let created = api.post(ACME, "/api/v1/webhook-endpoints", "e", &endpoint).await;
    assert!(created.json["secret"].is_string(), "{created:?}");
    let listed = api.get(ACME, PAYMENTS).await;
    let refused = api.get("unknown", PAYMENTS).await;
    for response in [paid, created, listed, refused] {
        assert_eq!(response.header("cache-control"), "no-store", "{response:?}");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_public_listener_serves_neither_metrics_nor_the_page_by_default(pool: PgPool) {
    let api = Api::new(pool).await;
    for path in ["/metrics", "/docs", "/docs/", "/openapi.json"] {
        api.get("", path).await.assert_problem(404, "not_found", path);
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn api_readiness_depends_on_the_database_only(pool: PgPool) {
    let api = Api::new(pool.clone()).await;
    assert_eq!(api.get("", "/health").await.json, json!({"status": "ok"}));
    assert_eq!(api.get("", "/ready").await.status, 200, "expected readiness while Temporal is unreachable");
    api.pay("k", &order()).await;
    let metrics = service_kit::metrics::install().unwrap().render();
    for name in ["api_payment_requests_total", "http_request_duration_seconds"] {
        assert!(metrics.contains(name), "{name}");
    }

    let lost = PgPoolOptions::new().connect_lazy_with(pool.connect_options().as_ref().clone());
    lost.close().await;
    let disconnected = Api::with_options(lost, json!({}));
    disconnected.get("", "/ready").await.assert_problem(503, "not_ready", "no database");
    assert_eq!(disconnected.get("", "/health").await.status, 200);
}

/// Reads that are slow use up the connections of reads, and a payment is accepted beside them.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn reads_that_hold_every_connection_of_theirs_keep_no_payment_waiting(
    pool: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let reads = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(1));
    let reads = reads.connect_with(connect.clone()).await.unwrap();
    let pool = pool.connect_with(connect).await.unwrap();
    let api = Api::new(pool.clone()).await;
    let (id, _) = api.accepted_payment("before").await;
    let api = Api::with_reads(pool, reads.clone(), config(json!({})));
    let payment = format!("{PAYMENTS}/{id}");
    assert_eq!(api.get(ACME, &payment).await.status, 200);
    let held = reads.acquire().await.unwrap();
    for path in [payment.as_str(), PAYMENTS, "/api/v1/accounts/acme-eur", "/api/v1/webhook-endpoints"] {
        api.get(ACME, path).await.assert_problem(503, "store_unavailable", path);
    }
    assert_eq!(api.pay("beside", &order()).await.status, 201);
    drop(held);
    assert_eq!(api.get(ACME, &payment).await.status, 200);
}
