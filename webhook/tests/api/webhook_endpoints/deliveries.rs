//! Lists and replays of deliveries.

use serde_json::{Value, json};
use sqlx::PgPool;

use super::path;
use crate::support::{ACME, Api};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_lists_and_replays_webhook_deliveries(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    for n in 0..3 {
        api.fan_out_event(&format!("pay_1:e{n}")).await;
    }
    api.fail_all_deliveries().await;
    sqlx::query(
        "INSERT INTO webhook_attempts (position, duration_ms, response_status, error, response_excerpt)
         SELECT position, 12, 500, 'answered 500', 'sorry' FROM webhook_deliveries",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let deliveries = format!("{}/deliveries", path(&endpoint));
    let page = api.get(ACME, &format!("{deliveries}?state=failed&limit=2")).await.json;
    assert_eq!(page["next"], "pay_1:e1");
    assert_eq!(page["deliveries"][0]["event_id"], "pay_1:e2");
    let attempts = &page["deliveries"][0]["attempts"];
    assert_eq!(
        (&attempts[0]["response_status"], &attempts[0]["response_body"]),
        (&json!(500), &json!("sorry"))
    );
    let last = api.get(ACME, &format!("{deliveries}?limit=2&after=pay_1:e1")).await.json;
    assert_eq!((&last["deliveries"][0]["event_id"], &last["next"]), (&json!("pay_1:e0"), &Value::Null));
    for query in ["limit=0", "limit=201", "state=lost", "after=", "unknown=1"] {
        let response = api.get(ACME, &format!("{deliveries}?{query}")).await;
        response.assert_problem(400, "malformed_query", query);
    }

    let replay = |event: &str| format!("{deliveries}/{event}/replay");
    let again = api.post(ACME, &replay("pay_1:e1"), "p1", "").await;
    assert_eq!((again.status.as_u16(), &again.json["status"]), (202, &json!("scheduled")), "{again:?}");
    assert_eq!(api.scheduled_events().await, ["pay_1:e1"]);
    api.post(ACME, &replay("another"), "p2", "").await.assert_problem(404, "delivery_not_found", "another");

    let all = format!("{}/replay-failed", path(&endpoint));
    let since = |at: &str| json!({ "since": at }).to_string();
    api.post(ACME, &all, "p3", &since("yesterday")).await.assert_problem(
        422,
        "invalid_instant",
        "not an instant",
    );
    assert_eq!(api.post(ACME, &all, "p4", &since("2999-01-01T00:00:00Z")).await.json["replayed"], 0);
    assert_eq!(api.post(ACME, &all, "p5", &since("2020-01-01T00:00:00Z")).await.json["replayed"], 2);
    assert_eq!(api.scheduled_events().await, ["pay_1:e0", "pay_1:e1", "pay_1:e2"]);

    api.fail_all_deliveries().await;
    api.send_keyed("PATCH", ACME, &path(&endpoint), "c", r#"{"status": "disabled"}"#).await;
    for (key, path, body) in
        [("p6", replay("pay_1:e1"), String::new()), ("p7", all, since("2020-01-01T00:00:00Z"))]
    {
        api.post(ACME, &path, key, &body).await.assert_problem(409, "endpoint_disabled", &path);
    }
    assert!(api.scheduled_events().await.is_empty());
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_filters_webhook_deliveries_and_replays_no_leased_one(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    api.fan_out_event("e1").await;
    api.fail_all_deliveries().await;
    api.fan_out_event("e2").await;
    let deliveries = format!("{}/deliveries", path(&endpoint));
    for (state, events) in [("failed", json!(["e1"])), ("pending", json!(["e2"])), ("delivered", json!([]))] {
        let listed = api.get(ACME, &format!("{deliveries}?state={state}")).await.json;
        let listed: Value = listed["deliveries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|delivery| delivery["event_id"].clone())
            .collect();
        assert_eq!(listed, events, "{state}");
    }
    // As during a delivery attempt.
    let lease =
        "UPDATE webhook_deliveries SET lease = gen_random_uuid(), next_attempt_at = now() + interval '1 hour'
                 WHERE event_id = 'e2' RETURNING lease::text";
    let lease: String = sqlx::query_scalar(lease).fetch_one(&api.pool).await.unwrap();
    let again = api.post(ACME, &format!("{deliveries}/e2/replay"), "p", "").await;
    assert_eq!((again.status.as_u16(), &again.json["status"]), (202, &json!("in_progress")), "{again:?}");
    let held = "SELECT lease::text FROM webhook_deliveries WHERE event_id = 'e2'";
    let held: Option<String> = sqlx::query_scalar(held).fetch_one(&api.pool).await.unwrap();
    assert_eq!(
        held,
        Some(lease),
        "expected the lease to be unchanged; otherwise two attempts could run at once"
    );
}
