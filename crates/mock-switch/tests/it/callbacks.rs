//! Callbacks: signatures, repetition and scripts. The test bank answers 401 to a callback without a valid signature.

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, eventually, order};

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_reports_a_settled_or_rejected_transfer_by_callback(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    switch.submit(order("s")).await;
    let callback = switch.bank.wait_for(1).await.remove(0).body;
    assert_eq!(callback["type"], "transfer.completed");
    assert_eq!((&callback["reference"], &callback["status"]), (&json!("s"), &json!("SUCCESS")));
    assert_eq!((&callback["amount_minor"], &callback["currency"]), (&json!(1250), &json!("EUR")));
    assert!(callback["occurred_at"].is_string());

    switch.set_behaviour("x", json!({"outcome": "reject", "reject_reason": "closed"})).await;
    switch.submit(order("x")).await;
    let callback = switch.bank.wait_for(2).await.remove(1).body;
    assert_eq!((&callback["status"], &callback["reason"]), (&json!("FAILURE"), &json!("closed")));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_repeats_a_callback_with_one_id_until_a_2xx(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    switch.bank.answer_next(&[500, 302, 404]);
    switch.submit(order("r")).await;
    let received = switch.bank.wait_for(4).await;
    assert!(received.iter().all(|callback| callback.id == received[0].id));
    assert!(received.iter().all(|callback| callback.body == received[0].body));
    let delivered = eventually("delivery", || async {
        let callback = switch.book("r").await["callbacks"][0].clone();
        (callback["state"] == "DELIVERED").then_some(callback)
    })
    .await;
    assert_eq!((&delivered["attempts"], &delivered["last_status"]), (&json!(4), &json!(200)));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn copies_of_a_mock_switch_callback_share_an_event_id(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    switch.set_behaviour("r", json!({"callback": {"copies": 5}})).await;
    switch.submit(order("r")).await;
    let received = switch.bank.wait_for(5).await;
    assert!(received.iter().all(|callback| callback.id == received[0].id));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn contradicting_mock_switch_callbacks_keep_their_order(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    let cases = [
        ("a", json!({"contradict": "failure_first"}), ["FAILURE", "SUCCESS"]),
        ("b", json!({"contradict": "failure_after"}), ["SUCCESS", "FAILURE"]),
    ];
    for (reference, callback, expected) in cases {
        // The bank refuses the first callback once; the second one still waits for it.
        switch.bank.answer_next(&[503]);
        let before = switch.bank.received().len();
        switch.set_behaviour(reference, json!({"callback": callback})).await;
        switch.submit(order(reference)).await;
        let received = switch.bank.wait_for(before + 3).await.split_off(before);
        let statuses: Vec<_> = received.iter().map(|c| c.body["status"].clone()).collect();
        assert_eq!(statuses, [expected[0], expected[0], expected[1]]);
        assert_eq!(received[0].id, received[1].id);
        assert_ne!(received[1].id, received[2].id);
    }
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn mock_switch_callbacks_can_be_scripted_as_lost_early_or_wrong(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| config.settle_after_ms = 0).await;
    switch.set_behaviour("lost", json!({"callback": {"lose": true}})).await;
    switch.submit(order("lost")).await;
    switch.wait_for_status("lost", "SETTLED").await;
    assert_eq!(switch.book("lost").await["callbacks"][0]["state"], "LOST");

    switch.set_behaviour("early", json!({"outcome": "hold", "callback": {"early": true}})).await;
    switch.submit(order("early")).await;
    let early = switch.bank.wait_for(1).await.remove(0).body;
    assert_eq!((&early["reference"], &early["status"]), (&json!("early"), &json!("SUCCESS")));
    assert_eq!(switch.query("early").await.1["status"], "PENDING");

    switch.set_behaviour("other", json!({"callback": {"amount_minor": 7}})).await;
    switch.submit(order("other")).await;
    assert_eq!(switch.bank.wait_for(2).await[1].body["amount_minor"], 7);
    assert_eq!(switch.query("other").await.1["amount_minor"], 1250);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_shaped_without_callbacks_sends_none(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::with(options, connect, |config| {
        config.settle_after_ms = 0;
        config.shape.callback = false;
    })
    .await;
    switch.set_behaviour("early", json!({"callback": {"early": true, "copies": 2}})).await;
    for reference in ["early", "usual"] {
        switch.submit(order(reference)).await;
        switch.wait_for_status(reference, "SETTLED").await;
    }
    let none = switch.admin(Method::GET, "callbacks", None).await;
    assert_eq!(none["callbacks"], json!([]));

    // A transfer that ended without a callback gets none later.
    switch.set_shape(json!({})).await;
    switch.submit(order("reported")).await;
    assert_eq!(switch.bank.wait_for(1).await[0].body["reference"], "reported");
    let recorded = switch.admin(Method::GET, "callbacks", None).await;
    assert_eq!(recorded["callbacks"].as_array().unwrap().len(), 1);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_admin_api_sends_any_callback_on_request(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    let forged = json!({"status": "SUCCESS", "amount_minor": 9, "currency": "USD", "event_id": "evt_1"});
    switch.admin(Method::POST, "transfers/nobody/callback", Some(forged)).await;
    let received = switch.bank.wait_for(1).await;
    assert_eq!((received[0].id.as_str(), &received[0].body["amount_minor"]), ("evt_1", &json!(9)));
    switch.submit(order("r")).await;
    switch.admin(Method::POST, "transfers/r/settle", None).await;
    switch.admin(Method::POST, "transfers/r/callback", Some(json!({}))).await;
    let received = switch.bank.wait_for(3).await;
    assert_eq!(received[2].body["status"], "SUCCESS");
    assert_ne!(received[1].id, received[2].id);
    switch.stop().await;
}
