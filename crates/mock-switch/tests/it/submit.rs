//! Submit and query.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;
use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};

use crate::test_switch::{TestSwitch, order, order_with, read};

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_answers_a_repeated_submit_with_the_first_outcome(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    let (status, first) = switch.submit(order("tx-1:submit")).await;
    assert_eq!((status, &first["status"], &first["duplicate"]), (202, &json!("PENDING"), &json!(false)));
    let (status, again) = switch.submit(order("tx-1:submit")).await;
    assert_eq!((status, &again["duplicate"]), (202, &json!(true)));
    assert_eq!(again["received_at"], first["received_at"]);

    for change in
        [json!({"amount_minor": 1251}), json!({"currency": "USD"}), json!({"creditor_account": "other"})]
    {
        let (status, problem) = switch.submit(order_with("tx-1:submit", change)).await;
        assert_eq!((status, &problem["code"]), (409, &json!("reference_conflict")));
    }
    let book = switch.book("tx-1:submit").await;
    assert_eq!(book["transfers"].as_array().unwrap().len(), 1);
    assert_eq!(book["requests"], json!({"submit": 5}));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_without_deduplication_makes_each_submit_a_transfer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    switch.set_shape(json!({"dedup": false})).await;
    for _ in 0..2 {
        let (status, answer) = switch.submit(order("r")).await;
        assert_eq!((status, &answer["duplicate"]), (202, &json!(false)));
    }
    switch.bank.wait_for(2).await;
    let book = switch.book("r").await;
    let settled = |entry: &&serde_json::Value| entry["status"] == "SETTLED";
    assert_eq!(book["transfers"].as_array().unwrap().iter().filter(settled).count(), 2);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_records_and_repeats_the_refusal_of_a_submit(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_behaviour("r", json!({"submit": ["refuse"], "reject_reason": "account_closed"})).await;
    // The script refuses the first submit; the record refuses the repeat.
    for duplicate in [false, true] {
        let (status, answer) = switch.submit(order("r")).await;
        let expected = json!({"reference": "r", "status": "REJECTED",
                              "reason": "account_closed", "duplicate": duplicate});
        assert_eq!((status, answer), (422, expected));
    }
    assert_eq!(switch.query("r").await.1["status"], "REJECTED");
    assert_eq!(switch.cancel("r", "k").await.1["answer"], "ALREADY_REJECTED");

    switch.set_behaviour("s", json!({"submit": ["refuse_unrecorded"]})).await;
    assert_eq!(switch.submit(order("s")).await.0, 422);
    assert_eq!(switch.query("s").await.0, 404);
    assert_eq!(switch.submit(order("s")).await.0, 202);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_submit_deadline_counts_on_the_clock_of_the_mock_switch(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    let soon = Timestamp::now() + SignedDuration::from_secs(300);
    let with_deadline = |reference| order_with(reference, json!({"deadline": soon.to_string()}));
    assert_eq!(switch.submit(with_deadline("in-time")).await.0, 202);

    switch.admin(Method::PUT, "clock", Some(json!({"offset_ms": 600_000}))).await;
    for duplicate in [false, true] {
        let (status, answer) = switch.submit(with_deadline("late")).await;
        assert_eq!((status, &answer["reason"]), (422, &json!("deadline_passed")));
        assert_eq!(answer["duplicate"], duplicate);
    }
    // A repeat of a submit that arrived in time is not late.
    assert_eq!(switch.submit(with_deadline("in-time")).await.0, 202);
    let response = switch.send(Method::GET, "/v1/transfers/late", None, None).await.unwrap();
    let date = response.headers()["date"].to_str().unwrap();
    let shown = jiff::fmt::rfc2822::parse(date).unwrap().timestamp();
    let ahead_s = shown.as_second() - Timestamp::now().as_second();
    assert!((590..=610).contains(&ahead_s), "{ahead_s}");

    switch.set_shape(json!({"deadline": false})).await;
    assert_eq!(switch.submit(with_deadline("ignored")).await.0, 202);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_forgets_a_reference_after_its_retention(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"retention_s": 60})).await;
    switch.submit(order("r")).await;
    assert_eq!(switch.cancel("r", "k").await.1["known"], true);
    switch.admin(Method::PUT, "clock", Some(json!({"offset_ms": 61_000}))).await;
    assert_eq!(switch.query("r").await.1["code"], "unknown_reference");
    // The recorded answer under the same key is forgotten with its transfer.
    let (_, answer) = switch.cancel("r", "k").await;
    assert_eq!((&answer["answer"], &answer["known"]), (&json!("CANCELLED"), &json!(false)));
    assert_eq!(switch.book("r").await["transfers"].as_array().unwrap().len(), 2);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_answers_an_invalid_request_with_a_problem(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    for change in [
        json!({"amount_minor": 0}),
        json!({"amount_minor": -1}),
        json!({"currency": "eur"}),
        json!({"creditor_account": ""}),
        json!({"reference": "with space"}),
        json!({"reference": "default"}),
        json!({"reference": "by-id"}),
    ] {
        let (status, problem) = switch.submit(order_with("r", change.clone())).await;
        assert_eq!((status, &problem["code"]), (400, &json!("invalid_field")), "{change}");
    }
    let (status, problem) = switch.submit(order_with("r", json!({"amount_minor": "12"}))).await;
    assert_eq!((status, &problem["code"]), (400, &json!("malformed_json")));
    let (status, problem) = switch.submit(json!({"pad": "x".repeat(70_000)})).await;
    assert_eq!((status, &problem["code"]), (413, &json!("body_too_large")));

    let path = "/v1/transfers/r/cancel";
    let (status, problem) = read(switch.send(Method::POST, path, None, None).await.unwrap()).await;
    assert_eq!((status, &problem["code"]), (400, &json!("idempotency_key_required")));
    assert_eq!(switch.query("r").await.1["code"], "unknown_reference");
    let wrong = switch.send(Method::GET, "/v1/transfer/r", None, None).await.unwrap();
    assert_eq!(read(wrong).await.1["code"], "not_found");

    switch.set_shape(json!({"query": false})).await;
    let (status, problem) = switch.query("r").await;
    assert_eq!((status, &problem["code"]), (501, &json!("query_not_supported")));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_api_requires_its_bearer_token(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch =
        TestSwitch::with(options, connect.clone(), |config| config.api_token = "another".into()).await;
    let (status, problem) = switch.submit(order("r")).await;
    assert_eq!((status, &problem["code"]), (401, &json!("unauthorized")));
    // A tenant's webhook can be sent to this URL; it must settle nothing.
    let settle = switch.send(Method::POST, "/admin/transfers/r/settle", None, None).await.unwrap();
    assert_eq!(read(settle).await.1["code"], "unauthorized");
    let mut database = PgConnection::connect_with(&connect).await.unwrap();
    let requests: i64 =
        sqlx::query_scalar("SELECT count(*) FROM requests").fetch_one(&mut database).await.unwrap();
    assert_eq!(requests, 0);
    database.close().await.unwrap();
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_admin_api_can_be_disabled(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = TestSwitch::with(options, connect, |config| config.admin = false).await;
    let response = switch.send(Method::GET, "/admin/book", None, None).await.unwrap();
    assert_eq!(response.status().as_u16(), 404);
    for path in ["/health", "/ready", "/metrics"] {
        let response = switch.send(Method::GET, path, None, None).await.unwrap();
        assert_eq!(response.status().as_u16(), 200, "{path}");
    }
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_switch_of_a_rail_refuses_a_reference_of_another_pattern(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch =
        TestSwitch::with(options, connect, |config| config.rail = Some(mock_switch::Rail::Pix)).await;
    for wrong in ["tx_0123456789abcdef01234567:submit", "E00000001202613012359ABCDEF01234"] {
        let (status, problem) = switch.submit(order(wrong)).await;
        assert_eq!((status, &problem["code"]), (400, &json!("malformed_reference")), "{wrong}");
        assert_eq!(switch.book(wrong).await["requests"], json!({}), "nothing is recorded");
    }
    let (status, _) = switch.submit(order("E00000001202603012359ABCDEF01234")).await;
    assert_eq!(status, 202);
    switch.stop().await;
}
