//! Scripted faults of requests, and the amounts that bring them.

use reqwest::Method;
use serde_json::json;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::bench::{Bench, eventually, order, order_with, read};

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn answers_and_requests_are_dropped(options: PgPoolOptions, connect: PgConnectOptions) {
    let bench = Bench::start(options, connect).await;
    bench.behave("r", json!({"submit": ["drop_request", "accept_drop_answer"]})).await;
    assert!(bench.try_submit(order("r")).await.is_err());
    assert_eq!(bench.query("r").await.0, 404);
    assert!(bench.try_submit(order("r")).await.is_err());
    assert_eq!(bench.query("r").await.0, 200);
    let (status, answer) = bench.submit(order("r")).await;
    assert_eq!((status, &answer["duplicate"]), (202, &json!(true)));
    assert_eq!(bench.book("r").await["requests"]["submit"], 3);
    bench.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn http_faults_record_nothing(options: PgPoolOptions, connect: PgConnectOptions) {
    let bench = Bench::start(options, connect).await;
    let script = json!({"submit": ["error_500", {"fault": "error_503", "times": 2},
                                   "too_many_requests", "error_404", "error_403", "error_400"]});
    bench.behave("r", script).await;
    for expected in [500, 503, 503, 429, 404, 403, 400] {
        let response = bench.try_submit(order("r")).await.unwrap();
        assert_eq!(response.headers().contains_key("retry-after"), matches!(expected, 429 | 503));
        assert_eq!(read(response).await.0, expected);
        assert_eq!(bench.query("r").await.0, 404);
    }
    assert_eq!(bench.submit(order("r")).await.0, 202);
    bench.behave("r", json!({"query": ["not_found", {"fault": "error_500", "times": "always"}]})).await;
    assert_eq!(bench.query("r").await.1["code"], "unknown_reference");
    for _ in 0..3 {
        assert_eq!(bench.query("r").await.0, 500);
    }
    bench.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn request_lands_although_the_client_went(options: PgPoolOptions, connect: PgConnectOptions) {
    let bench = Bench::start(options, connect).await;
    bench.behave("r", json!({"submit": [{"delay_ms": 5_000}]})).await;
    let met = async || (bench.book("r").await["requests"] == json!({"submit": 1})).then_some(());
    // It is counted before it is delayed: the client goes while the switch holds the request.
    tokio::select! {
        _ = bench.try_submit(order("r")) => panic!("the answer came too early"),
        () = eventually("request", met) => {}
    }
    assert_eq!(bench.query("r").await.0, 404);
    bench.until("r", "PENDING").await;
    bench.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn hung_answer_comes_after_its_callback(options: PgPoolOptions, connect: PgConnectOptions) {
    let bench = Bench::with(options, connect, |config| config.settle_after_ms = 0).await;
    bench.behave("r", json!({"submit": [{"accept_hang_ms": 30_000}]})).await;
    let submit = bench.try_submit(order("r"));
    tokio::select! {
        _ = submit => panic!("the answer came before the callback"),
        received = bench.bank.wait_for(1) => assert_eq!(received[0].body["reference"], "r"),
    }
    bench.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn default_script_runs_for_each_reference(options: PgPoolOptions, connect: PgConnectOptions) {
    let bench = Bench::start(options, connect).await;
    bench.behave("default", json!({"submit": ["error_503"], "outcome": "hold"})).await;
    bench.behave("own", json!({"submit": ["error_500"]})).await;
    for (reference, first) in [("a", 503), ("b", 503), ("own", 500)] {
        assert_eq!(bench.submit(order(reference)).await.0, first);
        assert_eq!(bench.submit(order(reference)).await.0, 202);
    }
    // Replacing a behaviour starts its script over.
    bench.behave("default", json!({"submit": ["error_503"]})).await;
    assert_eq!(bench.submit(order("a")).await.0, 503);
    bench.admin(Method::DELETE, "behaviours/default", None).await;
    assert_eq!(bench.submit(order("c")).await.0, 202);
    let wrong = json!({"submit": ["explode"]});
    let response = bench.send(Method::PUT, "/admin/behaviours/r", None, Some(wrong)).await.unwrap();
    assert_eq!(response.status().as_u16(), 400);
    bench.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn sandbox_amounts_misbehave(options: PgPoolOptions, connect: PgConnectOptions) {
    let bench = Bench::with(options, connect, |config| {
        config.settle_after_ms = 0;
        config.sandbox_amounts = true;
    })
    .await;
    let amount = |reference: &str, minor: i64| order_with(reference, json!({"amount_minor": minor}));
    bench.submit(amount("rejected", 19_001)).await;
    bench.until("rejected", "REJECTED").await;
    assert_eq!(bench.submit(amount("refused", 9006)).await.0, 422);
    assert!(bench.try_submit(amount("dropped", 9007)).await.is_err());
    assert_eq!(bench.submit(amount("held", 9009)).await.0, 202);
    for expected in ["IN_PROCESS", "IN_PROCESS", "CANCELLED"] {
        assert_eq!(bench.cancel("held", "k").await.1["answer"], expected);
    }
    bench.submit(amount("repeated", 9005)).await;
    eventually("three copies", || async {
        let received = bench.bank.received();
        let of = received.iter().filter(|callback| callback.body["reference"] == "repeated");
        (of.count() == 3).then_some(())
    })
    .await;
    bench.stop().await;
}
