//! `POST /api/v1/payments/{payment_id}/cancel`: one inbox row, with the same idempotency contract.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, GLOBEX, PAYMENTS, order};

fn cancel(id: &str) -> String {
    format!("{PAYMENTS}/{id}/cancel")
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn repeated_cancel_requests_of_a_payment_store_one_row(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let first = api.post(ACME, &cancel(&id), "c1", "").await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(first.header("idempotent-replay"), "false");
    assert_eq!(first.json["payment_id"], json!(id));
    assert_eq!(first.json["status"], "cancel_requested");

    let retry = api.post(ACME, &cancel(&id), "c1", "").await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (202, &first.bytes));
    assert_eq!(retry.header("idempotent-replay"), "true");
    let again = api.post(ACME, &cancel(&id), "c2", "").await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replay")), (202, "false"));

    let kinds: Vec<(String, bool)> =
        sqlx::query_as("SELECT kind, delivered_at IS NULL FROM inbox").fetch_all(&api.pool).await.unwrap();
    assert_eq!(kinds, [("cancel".to_owned(), true)], "expected one undelivered row");
    let timeline = api.get(ACME, &format!("{PAYMENTS}/{id}")).await.json["timeline"].clone();
    assert_eq!(timeline.as_array().unwrap().len(), 2);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_ended_payment_refuses_a_new_cancel_but_replays_an_earlier_one(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let first = api.post(ACME, &cancel(&id), "c1", "").await;
    api.end_payment(&id, "settled").await;
    let before = api.row_counts().await;

    let late = api.post(ACME, &cancel(&id), "c2", "").await;
    late.assert_problem(409, "payment_ended", "late");
    assert!(late.json["detail"].as_str().unwrap().contains("settled"));
    let retry = api.post(ACME, &cancel(&id), "c1", "").await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (202, &first.bytes));
    assert_eq!(api.row_counts().await, before);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_refused_cancel_request_stores_nothing(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let (other, _) = api.accepted_payment("l").await;
    api.post(ACME, &cancel(&other), "used", "").await;
    let before = api.row_counts().await;
    #[rustfmt::skip]
    let table = [
        (ACME,     cancel("pay_0"), "c",    404, "payment_not_found"),
        (ACME,     cancel("a%20b"), "c",    404, "payment_not_found"),
        (GLOBEX,   cancel(&id),     "c",    404, "payment_not_found"),
        ("unknown", cancel(&id),     "c",    401, "unauthorized"),
        (ACME,     cancel(&id),     "a b",  400, "idempotency_key_malformed"),
        (ACME,     cancel(&id),     "used", 422, "payload_mismatch"),
        (ACME,     cancel(&id),     "k",    422, "payload_mismatch"),
    ];
    for (api_key, path, key, status, code) in table {
        let case = format!("{api_key} {path} {key}");
        api.post(api_key, &path, key, "").await.assert_problem(status, code, &case);
    }
    let keyless = Request::post(cancel(&id)).header("authorization", format!("Bearer {ACME}"));
    let response = api.send(keyless.body(Body::empty()).unwrap()).await;
    response.assert_problem(400, "idempotency_key_missing", "no key");
    let pay = api.pay("used", &order()).await;
    pay.assert_problem(422, "payload_mismatch", "payment under the key of a cancel");
    assert_eq!(api.row_counts().await, before);
}
