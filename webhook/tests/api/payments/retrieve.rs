//! `GET /api/v1/payments/{payment_id}`: the view, its visibility, and `?wait=`.

use std::pin::pin;
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::PgPool;
use tokio::time::timeout;

use crate::support::{ACME, ACME_TILL, Api, GLOBEX, PAYMENTS};

/// Longest wait for a response.
const LONG: Duration = Duration::from_secs(20);

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_shows_a_payment_with_state_timeline_and_notifications(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, tx_id) = api.accepted_payment("k").await;
    let shown = api.get(ACME_TILL, &format!("{PAYMENTS}/{id}")).await;
    assert_eq!(shown.status, 200, "{shown:?}");
    let this = format!("{PAYMENTS}/{id}");
    for (field, value) in [
        ("payment_id", json!(id)),
        ("transaction_id", json!(tx_id)),
        ("status", json!("accepted")),
        ("ended", json!(false)),
        ("amount", json!("12.50")),
        ("amount_minor", json!(1_250)),
        ("currency", json!("EUR")),
        ("switch", json!("north")),
        ("links", json!({"self": this, "cancel": format!("{this}/cancel")})),
    ] {
        assert_eq!(shown.json[field], value, "{field}");
    }
    for internal in ["workflow_id", "operator_reason", "allowed_actions"] {
        assert_eq!(shown.json.get(internal), None, "{internal} concerns only the bank");
    }
    let timeline = shown.json["timeline"].as_array().unwrap();
    assert_eq!(timeline.len(), 1);
    assert_eq!(timeline[0]["status"], "accepted");
    assert_eq!(shown.json["notifications"], json!([]));

    sqlx::query(
        "INSERT INTO notifications (payment_id, event_id, kind, message)
         VALUES ($1, 'e1', 'transfer_pending', 'The amount is held.'), ($1, 'e2', 'transfer_sent', 'The transfer was sent.')",
    )
    .bind(&id)
    .execute(api.ledger.pool())
    .await
    .unwrap();
    let notifications = api.get(ACME_TILL, &this).await.json["notifications"].clone();
    assert_eq!(
        (&notifications[0]["kind"], &notifications[0]["message"]),
        (&json!("transfer_pending"), &json!("The amount is held."))
    );
    assert_eq!(
        (&notifications[1]["kind"], &notifications[1]["message"]),
        (&json!("transfer_sent"), &json!("The transfer was sent."))
    );
    assert!(notifications[1]["at"].is_string());

    api.end_payment(&id, "rejected").await;
    let ended = api.get(ACME, &this).await.json;
    assert_eq!((&ended["status"], &ended["ended"]), (&json!("rejected"), &json!(true)));
    assert!(ended["ended_at"].is_string());
    assert_eq!(ended["links"], json!({"self": this}));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_answers_404_for_another_tenants_or_an_unknown_payment(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let response = api.get(GLOBEX, &format!("{PAYMENTS}/{id}")).await;
    response.assert_problem(404, "payment_not_found", "other tenant");
    for path in ["pay_0", "a%20b", "%00", &"p".repeat(500)] {
        let response = api.get(ACME, &format!("{PAYMENTS}/{path}")).await;
        response.assert_problem(404, "payment_not_found", path);
    }
    api.get("unknown", &format!("{PAYMENTS}/{id}")).await.assert_problem(401, "unauthorized", "no key");
    for query in ["wait=-1", "wait=x", "wiat=1"] {
        let response = api.get(ACME, &format!("{PAYMENTS}/{id}?{query}")).await;
        response.assert_problem(400, "malformed_query", query);
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_request_waiting_for_a_payment_is_answered_at_its_end(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let path = format!("{PAYMENTS}/{id}?wait=30");
    let started = Instant::now();
    let mut waiting = pin!(api.get(ACME, &path));
    let early = timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err(), "it was answered before the end");
    let (shown, ()) = tokio::join!(waiting, api.end_payment(&id, "rejected"));
    assert_eq!(shown.json["status"], "rejected");
    assert!(started.elapsed() < LONG);
    let again = api.get(ACME, &path).await;
    assert_eq!(again.json["status"], "rejected", "expected no wait for an ended payment");
    assert!(started.elapsed() < LONG);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn waiting_for_a_payment_is_bounded_by_time_number_and_the_api_stop(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let path = format!("{PAYMENTS}/{id}?wait=3600");

    let short = Api::with_options(api.pool.clone(), json!({"wait_max_s": 1}));
    let started = Instant::now();
    assert_eq!(short.get(ACME, &path).await.json["status"], "accepted");
    assert!(started.elapsed() >= Duration::from_secs(1) && started.elapsed() < LONG);

    let crowded = Api::with_options(api.pool.clone(), json!({"waiters_max": 0}));
    let started = Instant::now();
    assert_eq!(crowded.get(ACME, &path).await.json["status"], "accepted");
    assert!(started.elapsed() < LONG);

    let stopping = async { api.stopping.cancel() };
    let (shown, ()) = tokio::join!(api.get(ACME, &path), stopping);
    assert_eq!(shown.json["status"], "accepted");
    assert!(started.elapsed() < LONG);
}
