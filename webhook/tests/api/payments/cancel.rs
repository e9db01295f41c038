//! `POST /api/v1/payments/{payment_id}/cancel`: one row in the inbox, under the same contract of keys.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, GLOBEX, PAYMENTS, order};

fn cancel(id: &str) -> String {
    format!("{PAYMENTS}/{id}/cancel")
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_cancel_is_one_row_however_often_it_is_asked_for(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let first = api.post(ACME, &cancel(&id), "c1", "").await;
    assert_eq!(first.status, 202, "{first:?}");
    assert_eq!(first.header("idempotent-replay"), "false");
    assert_eq!(first.json["payment_id"], json!(id));
    assert_eq!(first.json["status"], "cancel_requested");

    let repeat = api.post(ACME, &cancel(&id), "c1", "").await;
    assert_eq!((repeat.status.as_u16(), &repeat.bytes), (202, &first.bytes));
    assert_eq!(repeat.header("idempotent-replay"), "true");
    let again = api.post(ACME, &cancel(&id), "c2", "").await;
    assert_eq!((again.status.as_u16(), again.header("idempotent-replay")), (202, "false"));

    let kinds: Vec<(String, bool)> =
        sqlx::query_as("SELECT kind, delivered_at IS NULL FROM inbox").fetch_all(&api.pool).await.unwrap();
    assert_eq!(kinds, [("cancel".to_owned(), true)], "stored; the relay tells the workflow");
    let timeline = api.get(ACME, &format!("{PAYMENTS}/{id}")).await.json["timeline"].clone();
    assert_eq!(timeline.as_array().unwrap().len(), 2);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_has_ended_cannot_be_cancelled_but_a_repeat_is_still_answered(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let first = api.post(ACME, &cancel(&id), "c1", "").await;
    api.end(&id, "settled").await;
    let before = api.trace().await;

    let late = api.post(ACME, &cancel(&id), "c2", "").await;
    late.assert_problem(409, "payment_ended", "late");
    assert!(late.json["detail"].as_str().unwrap().contains("settled"));
    let repeat = api.post(ACME, &cancel(&id), "c1", "").await;
    assert_eq!((repeat.status.as_u16(), &repeat.bytes), (202, &first.bytes));
    assert_eq!(api.trace().await, before);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_is_refused_leaves_no_trace(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let (other, _) = api.paid("l").await;
    api.post(ACME, &cancel(&other), "used", "").await;
    let before = api.trace().await;
    #[rustfmt::skip]
    let table = [
        (ACME,     cancel("pay_0"), "c",    404, "payment_not_found"),
        (ACME,     cancel("a%20b"), "c",    404, "payment_not_found"),
        (GLOBEX,   cancel(&id),     "c",    404, "payment_not_found"),
        ("nobody", cancel(&id),     "c",    401, "unauthorized"),
        (ACME,     cancel(&id),     "a b",  400, "idempotency_key_malformed"),
        (ACME,     cancel(&id),     "used", 422, "payload_mismatch"),
        (ACME,     cancel(&id),     "k",    422, "payload_mismatch"),
    ];
    for (api_key, path, key, status, code) in table {
        let case = format!("{api_key} {path} {key}");
        api.post(api_key, &path, key, "").await.assert_problem(status, code, &case);
    }
    let keyless = Request::post(cancel(&id)).header("authorization", format!("Bearer {ACME}"));
    let answer = api.send(keyless.body(Body::empty()).unwrap()).await;
    answer.assert_problem(400, "idempotency_key_missing", "no key");
    let pay = api.pay("used", &order()).await;
    pay.assert_problem(422, "payload_mismatch", "a payment under the key of a cancel");
    assert_eq!(api.trace().await, before);
}
