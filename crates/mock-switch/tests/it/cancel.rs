//! Answers to a cancel.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, order};

/// Asserts status 200, the answer and whether the reference was known.
fn assert_answer(response: &(u16, Value), answer: &str, known: bool) {
    assert_eq!(
        (response.0, &response.1["answer"], &response.1["known"]),
        (200, &json!(answer), &json!(known))
    );
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_pending_transfer_at_the_mock_switch_is_cancelled_for_good(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    let first = switch.cancel("r", "k").await;
    assert_answer(&first, "CANCELLED", true);
    assert_eq!(first.1["transfer"]["status"], "CANCELLED");
    assert_eq!(switch.cancel("r", "k").await, first);
    assert_answer(&switch.cancel("r", "another-key").await, "CANCELLED", true);
    let settled = switch.send(Method::POST, "/admin/transfers/r/settle", None, None).await.unwrap();
    assert_eq!(settled.status().as_u16(), 409);
    assert_eq!(switch.query("r").await.1["status"], "CANCELLED");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_tombstone_refuses_a_late_submit(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = TestSwitch::start(options, connect).await;
    for _ in 0..2 {
        assert_answer(&switch.cancel("r", "k").await, "CANCELLED", false);
    }
    for _ in 0..2 {
        let (status, answer) = switch.submit(order("r")).await;
        assert_eq!((status, &answer["reason"]), (422, &json!("cancelled_before_receipt")));
    }
    let (status, transfer) = switch.query("r").await;
    assert_eq!(
        (status, &transfer["status"], &transfer["tombstone"]),
        (200, &json!("CANCELLED"), &json!(true))
    );
    assert_answer(&switch.cancel("r", "another-key").await, "CANCELLED", false);
    switch.stop().await;
}

/// A switch that fails over to a copy without a transfer does not know it, leaves a tombstone for it, and settles it nevertheless.
#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_transfer_that_the_mock_switch_forgot_still_settles(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_behaviour("r", json!({"outcome": "hold"})).await;
    switch.submit(order("r")).await;
    switch.admin(Method::POST, "transfers/r/forget", None).await;
    assert_eq!(switch.query("r").await.0, 404);
    assert_answer(&switch.cancel("r", "k").await, "CANCELLED", false);
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    let settled = switch.bank.wait_for(1).await.remove(0);
    assert_eq!(settled.body["status"], "SUCCESS", "{}", settled.body);
    assert_eq!(switch.query("r").await.1["status"], "CANCELLED", "the copy has its tombstone");
    switch.admin(Method::POST, "transfers/r/return", None).await;
    assert_eq!(switch.bank.wait_for(2).await.remove(1).body["status"], "RETURNED");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_cancel_reports_a_transfer_that_ended_before(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    for (reference, decision, answer) in
        [("s", "settle", "ALREADY_SETTLED"), ("x", "reject", "ALREADY_REJECTED")]
    {
        switch.submit(order(reference)).await;
        switch.admin(Method::POST, &format!("transfers/{reference}/{decision}"), None).await;
        let response = switch.cancel(reference, &format!("k-{reference}")).await;
        assert_answer(&response, answer, true);
        assert_eq!(response.1["transfer"]["amount_minor"], 1250);
    }
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_does_not_record_a_scripted_cancel_answer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    let script = json!({"cancel": ["refuse", "in_process", "cannot_cancel", "not_found",
                                   {"fault": "unauthorized", "times": 1}]});
    switch.set_behaviour("r", script).await;
    switch.submit(order("r")).await;
    assert_answer(&switch.cancel("r", "k").await, "REFUSED", true);
    assert_answer(&switch.cancel("r", "k").await, "IN_PROCESS", true);
    assert_answer(&switch.cancel("r", "k").await, "CANNOT_CANCEL", true);
    assert_answer(&switch.cancel("r", "k").await, "NOT_FOUND", false);
    assert_eq!(switch.cancel("r", "k").await.0, 401);
    assert_eq!(switch.query("r").await.1["status"], "PENDING");
    assert_answer(&switch.cancel("r", "k").await, "CANCELLED", true);
    assert_eq!(switch.book("r").await["requests"]["cancel"], 6);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_can_be_shaped_without_tombstones_and_cancels(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    switch.set_shape(json!({"tombstone": false})).await;
    assert_answer(&switch.cancel("unknown", "k1").await, "NOT_FOUND", false);
    assert_eq!(switch.submit(order("unknown")).await.0, 202);
    switch.set_shape(json!({"cancel": false})).await;
    assert_answer(&switch.cancel("r", "k2").await, "CANNOT_CANCEL", true);
    assert_eq!(switch.query("r").await.1["status"], "PENDING");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_cancel_key_belongs_to_one_reference(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.cancel("r", "k").await;
    let (status, problem) = switch.cancel("s", "k").await;
    assert_eq!((status, &problem["code"]), (409, &json!("idempotency_key_reused")));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_sticky_mock_switch_repeats_its_first_answer_to_a_cancel_key(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"tombstone": false, "sticky_answers": true})).await;
    // The first answer under the key was NOT_FOUND; it is repeated although the transfer arrived since.
    assert_answer(&switch.cancel("late", "k1").await, "NOT_FOUND", false);
    assert_eq!(switch.submit(order("late")).await.0, 202);
    assert_answer(&switch.cancel("late", "k1").await, "NOT_FOUND", false);
    assert_eq!(switch.query("late").await.1["status"], "PENDING");
    assert_answer(&switch.cancel("late", "k2").await, "CANCELLED", true);
    assert_answer(&switch.cancel("late", "k2").await, "CANCELLED", true);
    assert_answer(&switch.cancel("late", "k1").await, "NOT_FOUND", false);

    // A scripted answer is sticky too, and a script does not replace a recorded answer.
    switch.set_behaviour("r", json!({"cancel": [{"fault": "refuse", "times": 2}, "in_process"]})).await;
    switch.submit(order("r")).await;
    let first = switch.cancel("r", "k3").await;
    assert_answer(&first, "REFUSED", true);
    for _ in 0..3 {
        assert_eq!(switch.cancel("r", "k3").await, first);
    }
    let (status, problem) = switch.cancel("late", "k3").await;
    assert_eq!((status, &problem["code"]), (409, &json!("idempotency_key_reused")));

    switch.set_shape(json!({"tombstone": false})).await;
    assert_answer(&switch.cancel("r", "k3").await, "CANCELLED", true);
    assert_answer(&switch.cancel("unknown", "k4").await, "NOT_FOUND", false);
    switch.submit(order("unknown")).await;
    assert_answer(&switch.cancel("unknown", "k4").await, "CANCELLED", true);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_applies_a_cancel_whose_answer_it_drops(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    switch.set_behaviour("r", json!({"cancel": ["apply_drop_answer"]})).await;
    let path = "/v1/transfers/r/cancel";
    assert!(switch.send(Method::POST, path, Some("k"), None).await.is_err());
    assert_eq!(switch.query("r").await.1["status"], "CANCELLED");
    assert_answer(&switch.cancel("r", "k").await, "CANCELLED", true);
    switch.stop().await;
}
