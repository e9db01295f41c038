//! Answers to a recall.

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, order};

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_recalls_a_settled_transfer_once(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = TestSwitch::start(options, connect).await;
    assert_eq!(switch.recall("r", "k").await.1["answer"], "NOT_FOUND");
    switch.submit(order("r")).await;
    assert_eq!(switch.recall("r", "k").await.1["answer"], "NOT_SETTLED");
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    for key in ["k", "k", "another-key"] {
        assert_eq!(switch.recall("r", key).await, (200, json!({"reference": "r", "answer": "RECALLED"})));
    }
    assert_eq!(switch.query("r").await.1["status"], "RETURNED");
    assert_eq!(switch.cancel("r", "k").await.1["answer"], "ALREADY_RETURNED");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_recorded_recall_refusal_of_the_mock_switch_is_final(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    switch.set_behaviour("r", json!({"recall": ["in_process", "refuse"], "reject_reason": "spent"})).await;
    assert_eq!(switch.recall("r", "k").await.1["answer"], "IN_PROCESS");
    for key in ["k", "k", "another-key"] {
        let expected = json!({"reference": "r", "answer": "REFUSED", "reason": "spent"});
        assert_eq!(switch.recall("r", key).await, (200, expected));
    }
    assert_eq!(switch.query("r").await.1["status"], "SETTLED");
    switch.set_shape(json!({"recall": false})).await;
    assert_eq!(switch.recall("r", "third-key").await.1["answer"], "CANNOT_RECALL");
    // The recorded answer is repeated.
    assert_eq!(switch.recall("r", "k").await.1["answer"], "REFUSED");
    switch.stop().await;
}

/// The receiving bank may return the money at any time after the settlement; the switch reports it in a callback.
#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_returns_the_money_of_a_settled_transfer_once(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    let refused = switch.send(Method::POST, "/admin/transfers/r/return", None, None).await.unwrap();
    assert_eq!(refused.status(), 409, "the transfer is still pending");
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    switch.admin(Method::POST, "transfers/r/return", None).await;
    assert_eq!(switch.query("r").await.1["status"], "RETURNED");
    let again = switch.send(Method::POST, "/admin/transfers/r/return", None, None).await.unwrap();
    assert_eq!(again.status(), 409, "the money was returned already");
    assert_eq!(switch.recall("r", "k").await.1["answer"], "RECALLED");
    let (_, page) = switch.get("/v1/statement").await;
    let statuses: Vec<_> =
        page["entries"].as_array().unwrap().iter().map(|entry| entry["status"].clone()).collect();
    assert_eq!(statuses, ["SETTLED", "RETURNED"]);
    switch.stop().await;
}
