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
    assert_eq!(switch.query("r").await.1["status"], "RECALLED");
    // A recalled transfer is no longer in progress.
    assert_eq!(switch.cancel("r", "k").await.1["answer"], "ALREADY_REJECTED");
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
