//! What a switch of a rail's shape refuses.

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, order};

/// Sets the switch's clock ahead of this machine's.
async fn set_clock_ahead(switch: &TestSwitch, ms: u32) {
    switch.admin(Method::PUT, "clock", Some(json!({"offset_ms": ms}))).await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_refuses_an_early_query_and_one_too_many(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"query_after_ms": 600_000})).await;
    switch.submit(order("early")).await;
    let (status, problem) = switch.query("early").await;
    assert_eq!((status, &problem["code"]), (409, &json!("query_too_early")));
    set_clock_ahead(&switch, 601_000).await;
    assert_eq!(switch.query("early").await.1["status"], "PENDING");

    switch.set_shape(json!({"queries_max": 3})).await;
    switch.submit(order("asked")).await;
    for _ in 0..3 {
        assert_eq!(switch.query("asked").await.1["status"], "PENDING");
    }
    let (status, problem) = switch.query("asked").await;
    assert_eq!((status, &problem["code"]), (409, &json!("queries_spent")));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_refuses_a_duplicate_with_the_rails_code(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"dedup": false, "refuses_duplicates": true, "reject_codes": "iso"})).await;
    let (_, first) = switch.submit(order("r")).await;
    let (_, second) = switch.submit(order("r")).await;
    assert_eq!((&second["status"], &second["reason_code"]), (&json!("REJECTED"), &json!("AM05")), "{second}");
    let (_, queried) = switch.query("r").await;
    assert_eq!((&queried["status"], &queried["transfer_id"]), (&json!("PENDING"), &first["transfer_id"]));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_rejects_a_transfer_when_the_rails_clock_has_ended(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"reject_codes": "iso", "decides_within_ms": 50})).await;
    switch.submit(order("r")).await;
    switch.wait_for_status("r", "REJECTED").await;
    assert_eq!(switch.query("r").await.1["reason_code"], "TM01");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_shows_an_end_in_the_statement_when_its_cycle_has_closed(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"statement_cycle_s": 3_600})).await;
    switch.submit(order("r")).await;
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    let shown = async || switch.get("/v1/statement").await.1["entries"].as_array().map(Vec::len);
    assert_eq!(shown().await, Some(0));
    set_clock_ahead(&switch, 3_601_000).await;
    assert_eq!(shown().await, Some(1));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_reports_money_that_is_settled_and_not_posted_before_it_is_returned(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    switch.admin(Method::POST, "transfers/r/posting", Some(json!({"posting": "return_coming"}))).await;
    switch.admin(Method::POST, "transfers/r/return", Some(json!({"return_id": "ret-1"}))).await;
    let mut received: Vec<_> =
        switch.bank.wait_for(3).await.into_iter().map(|callback| callback.body).collect();
    // Callbacks may overtake each other.
    received.sort_by_key(|body| body["occurred_at"].to_string());
    let types: Vec<_> = received.iter().map(|body| body["type"].as_str().unwrap_or_default()).collect();
    assert_eq!(types, ["transfer.completed", "transfer.posting", "transfer.returned"], "{received:?}");
    assert_eq!(received[1]["posting"], "return_coming", "{}", received[1]);
    switch.stop().await;
}
