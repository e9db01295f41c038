//! Concurrent cancel, settlement and submit of one reference: one end, and consistent answers.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinSet;

use crate::test_switch::{TestSwitch, eventually, order};

const REFERENCES: usize = 200;

/// Number of references held pending, so that some are cancelled even on a slow machine.
const HELD: usize = 10;

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_transfer_is_settled_or_cancelled_never_both(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = Arc::new(TestSwitch::start(options, connect).await);
    for n in 0..REFERENCES {
        let reference = format!("r-{n}");
        let outcome = if n < REFERENCES - HELD { "settle" } else { "hold" };
        switch.set_behaviour(&reference, json!({"outcome": outcome, "settle_after_ms": n * 20})).await;
        switch.submit(order(&reference)).await;
    }
    // The transfers become due one after the other; cancel all of them in the middle.
    switch.wait_for_status("r-60", "SETTLED").await;
    let mut requests = JoinSet::new();
    for n in 0..REFERENCES {
        let switch = switch.clone();
        requests.spawn(async move {
            let reference = format!("r-{n}");
            let (status, answer) = switch.cancel(&reference, &format!("k-{n}")).await;
            assert_eq!(status, 200);
            (reference, answer["answer"].as_str().unwrap().to_owned())
        });
    }
    let answers: HashMap<_, _> = requests.join_all().await.into_iter().collect();
    let settled = answers.values().filter(|answer| *answer == "ALREADY_SETTLED").count();
    assert!(
        settled > 0 && settled < REFERENCES,
        "expected some transfers to settle and some not, got {settled} of {REFERENCES}"
    );
    let book = switch.admin(Method::GET, "book?limit=10000", None).await;
    for entry in book["transfers"].as_array().unwrap() {
        let answer = &answers[entry["reference"].as_str().unwrap()];
        match entry["status"].as_str().unwrap() {
            "SETTLED" => assert_eq!(answer, "ALREADY_SETTLED", "{entry}"),
            "CANCELLED" => assert_eq!(answer, "CANCELLED", "{entry}"),
            other => panic!("{other}: {entry}"),
        }
    }
    // Exactly the settled transfers have a callback.
    eventually("callbacks", || async { (switch.bank.received().len() >= settled).then_some(()) }).await;
    for callback in switch.bank.received() {
        assert_eq!(answers[callback.body["reference"].as_str().unwrap()], "ALREADY_SETTLED");
    }
    Arc::into_inner(switch).unwrap().stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn concurrent_mock_switch_submit_and_cancel_agree_on_their_order(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = Arc::new(TestSwitch::start(options, connect).await);
    let mut requests = JoinSet::new();
    for n in 0..REFERENCES {
        let switch = switch.clone();
        requests.spawn(async move {
            let reference = format!("r-{n}");
            let key = format!("k-{n}");
            let (first, second, cancelled) = tokio::join!(
                switch.submit(order(&reference)),
                switch.submit(order(&reference)),
                switch.cancel(&reference, &key),
            );
            assert_eq!(cancelled.1["answer"], "CANCELLED");
            // The answers of the cancel and of both submits imply the same order.
            let expected = if cancelled.1["known"] == true { 202 } else { 422 };
            assert!(first.0 == expected && second.0 == expected, "{first:?} {second:?} {cancelled:?}");
            assert_eq!(switch.book(&reference).await["transfers"].as_array().unwrap().len(), 1);
        });
    }
    requests.join_all().await;
    Arc::into_inner(switch).unwrap().stop().await;
}
