//! Scripted faults of requests, and sandbox amounts.

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, eventually, order, order_with, read};

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_scripted_mock_switch_fault_drops_a_submit_or_its_answer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_behaviour("r", json!({"submit": ["drop_request", "accept_drop_answer"]})).await;
    assert!(switch.try_submit(order("r")).await.is_err());
    assert_eq!(switch.query("r").await.0, 404);
    assert!(switch.try_submit(order("r")).await.is_err());
    assert_eq!(switch.query("r").await.0, 200);
    let (status, answer) = switch.submit(order("r")).await;
    assert_eq!((status, &answer["duplicate"]), (202, &json!(true)));
    assert_eq!(switch.book("r").await["requests"]["submit"], 3);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_scripted_http_fault_of_the_mock_switch_records_no_transfer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    let script = json!({"submit": ["error_500", {"fault": "error_503", "times": 2},
                                   "too_many_requests", "error_404", "error_403", "error_400"]});
    switch.set_behaviour("r", script).await;
    for expected in [500, 503, 503, 429, 404, 403, 400] {
        let response = switch.try_submit(order("r")).await.unwrap();
        assert_eq!(response.headers().contains_key("retry-after"), matches!(expected, 429 | 503));
        assert_eq!(read(response).await.0, expected);
        assert_eq!(switch.query("r").await.0, 404);
    }
    assert_eq!(switch.submit(order("r")).await.0, 202);
    switch
        .set_behaviour("r", json!({"query": ["not_found", {"fault": "error_500", "times": "always"}]}))
        .await;
    assert_eq!(switch.query("r").await.1["code"], "unknown_reference");
    for _ in 0..3 {
        assert_eq!(switch.query("r").await.0, 500);
    }
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_processes_a_delayed_submit_after_a_disconnect(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_behaviour("r", json!({"submit": [{"delay_ms": 5_000}]})).await;
    let counted = async || (switch.book("r").await["requests"] == json!({"submit": 1})).then_some(());
    // The request is counted before its delay; the client disconnects during it.
    tokio::select! {
        _ = switch.try_submit(order("r")) => panic!("expected no answer before the delay"),
        () = eventually("request", counted) => {}
    }
    assert_eq!(switch.query("r").await.0, 404);
    switch.wait_for_status("r", "PENDING").await;
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_sends_the_callback_before_a_hung_submit_answer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    switch.set_behaviour("r", json!({"submit": [{"accept_hang_ms": 30_000}]})).await;
    let submit = switch.try_submit(order("r"));
    tokio::select! {
        _ = submit => panic!("expected the callback before the answer"),
        received = switch.bank.wait_for(1) => assert_eq!(received[0].body["reference"], "r"),
    }
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_default_mock_switch_script_runs_once_per_reference(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_behaviour("default", json!({"submit": ["error_503"], "outcome": "hold"})).await;
    switch.set_behaviour("own", json!({"submit": ["error_500"]})).await;
    for (reference, first) in [("a", 503), ("b", 503), ("own", 500)] {
        assert_eq!(switch.submit(order(reference)).await.0, first);
        assert_eq!(switch.submit(order(reference)).await.0, 202);
    }
    // Replacing a behaviour restarts its script.
    switch.set_behaviour("default", json!({"submit": ["error_503"]})).await;
    assert_eq!(switch.submit(order("a")).await.0, 503);
    switch.admin(Method::DELETE, "behaviours/default", None).await;
    assert_eq!(switch.submit(order("c")).await.0, 202);
    let wrong = json!({"submit": ["explode"]});
    let response = switch.send(Method::PUT, "/admin/behaviours/r", None, Some(wrong)).await.unwrap();
    assert_eq!(response.status().as_u16(), 400);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_transfer_of_a_sandbox_amount_misbehaves_as_listed(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| {
        config.settle_after_ms = 0;
        config.sandbox_amounts = true;
    })
    .await;
    let amount = |reference: &str, minor: i64| order_with(reference, json!({"amount_minor": minor}));
    switch.submit(amount("rejected", 19_001)).await;
    switch.wait_for_status("rejected", "REJECTED").await;
    assert_eq!(switch.submit(amount("refused", 9006)).await.0, 422);
    assert!(switch.try_submit(amount("dropped", 9007)).await.is_err());
    assert_eq!(switch.submit(amount("held", 9009)).await.0, 202);
    for expected in ["IN_PROCESS", "IN_PROCESS", "CANCELLED"] {
        assert_eq!(switch.cancel("held", "k").await.1["answer"], expected);
    }
    switch.submit(amount("repeated", 9005)).await;
    eventually("three copies", || async {
        let received = switch.bank.received();
        let repeated = received.iter().filter(|callback| callback.body["reference"] == "repeated");
        (repeated.count() == 3).then_some(())
    })
    .await;
    switch.stop().await;
}
