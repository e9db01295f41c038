//! Cancel, settle and submit of one reference at once: one end, told alike.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::task::JoinSet;

use crate::test_switch::{TestSwitch, eventually, order};

const REFERENCES: usize = 200;

/// The last ones are held, so that some are cancelled however slow the machine is.
const HELD: usize = 10;

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn settled_or_cancelled_never_both(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = Arc::new(TestSwitch::start(options, connect).await);
    for n in 0..REFERENCES {
        let reference = format!("r-{n}");
        let outcome = if n < REFERENCES - HELD { "settle" } else { "hold" };
        switch.set_behaviour(&reference, json!({"outcome": outcome, "settle_after_ms": n * 20})).await;
        switch.submit(order(&reference)).await;
    }
    // One after the other falls due; from the middle of that, cancel all at once.
    switch.wait_for_status("r-60", "SETTLED").await;
    let mut asked = JoinSet::new();
    for n in 0..REFERENCES {
        let switch = switch.clone();
        asked.spawn(async move {
            let reference = format!("r-{n}");
            let (status, answer) = switch.cancel(&reference, &format!("k-{n}")).await;
            assert_eq!(status, 200);
            (reference, answer["answer"].as_str().unwrap().to_owned())
        });
    }
    let answers: HashMap<_, _> = asked.join_all().await.into_iter().collect();
    let settled = answers.values().filter(|answer| *answer == "ALREADY_SETTLED").count();
    assert!(settled > 0 && settled < REFERENCES, "no race: {settled} of {REFERENCES} settled");
    let book = switch.admin(Method::GET, "book?limit=10000", None).await;
    for entry in book["transfers"].as_array().unwrap() {
        let answer = &answers[entry["reference"].as_str().unwrap()];
        match entry["status"].as_str().unwrap() {
            "SETTLED" => assert_eq!(answer, "ALREADY_SETTLED", "{entry}"),
            "CANCELLED" => assert_eq!(answer, "CANCELLED", "{entry}"),
            other => panic!("{other}: {entry}"),
        }
    }
    // What is told is what settled, and nothing else.
    eventually("callbacks", || async { (switch.bank.received().len() >= settled).then_some(()) }).await;
    for callback in switch.bank.received() {
        assert_eq!(answers[callback.body["reference"].as_str().unwrap()], "ALREADY_SETTLED");
    }
    Arc::into_inner(switch).unwrap().stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn submit_and_cancel_at_once(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = Arc::new(TestSwitch::start(options, connect).await);
    let mut asked = JoinSet::new();
    for n in 0..REFERENCES {
        let switch = switch.clone();
        asked.spawn(async move {
            let reference = format!("r-{n}");
            let key = format!("k-{n}");
            let (submitted, twin, cancelled) = tokio::join!(
                switch.submit(order(&reference)),
                switch.submit(order(&reference)),
                switch.cancel(&reference, &key),
            );
            assert_eq!(cancelled.1["answer"], "CANCELLED");
            // Known or not, the cancel and the submits saw the same order of things.
            let expected = if cancelled.1["known"] == true { 202 } else { 422 };
            assert!(submitted.0 == expected && twin.0 == expected, "{submitted:?} {twin:?} {cancelled:?}");
            assert_eq!(switch.book(&reference).await["transfers"].as_array().unwrap().len(), 1);
        });
    }
    asked.join_all().await;
    Arc::into_inner(switch).unwrap().stop().await;
}
