//! A switch without keys, which identifies transfers by its own ids; and these ids at a switch with keys.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, eventually, order, order_with, read};

/// Submits and returns the switch's own id.
async fn accepted(switch: &TestSwitch, order: Value) -> String {
    let (status, answer) = switch.submit(order).await;
    assert_eq!((status, &answer["duplicate"]), (202, &json!(false)), "{answer}");
    answer["transfer_id"].as_str().unwrap().to_owned()
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_without_keys_ignores_references(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = TestSwitch::with(options, connect, |config| {
        config.settle_after_ms = 0;
        config.shape.keys = false;
    })
    .await;
    let first = accepted(&switch, order("r")).await;
    // A different order under the same reference is no conflict.
    let second = accepted(&switch, order_with("r", json!({"amount_minor": 99}))).await;
    assert_ne!(first, second);
    assert_eq!(switch.query("r").await.1["code"], "references_not_supported");
    for (status, problem) in
        [switch.query("r").await, switch.cancel("r", "k").await, switch.recall("r", "k").await]
    {
        assert_eq!((status, &problem["code"]), (501, &json!("references_not_supported")));
    }
    let path = format!("/v1/transfers/by-id/{second}");
    eventually("settlement", || async { (switch.get(&path).await.1["status"] == "SETTLED").then_some(()) })
        .await;
    let (_, transfer) = switch.get(&path).await;
    assert_eq!((&transfer["reference"], &transfer["amount_minor"]), (&Value::Null, &json!(99)));

    switch.set_behaviour("s", json!({"submit": ["refuse", "refuse_unrecorded"]})).await;
    for _ in 0..2 {
        let (status, answer) = switch.submit(order("s")).await;
        assert_eq!((status, &answer["reference"]), (422, &Value::Null));
    }
    // Only the admin API shows the references, and no callback was recorded.
    let book = switch.book("r").await;
    assert_eq!(book["transfers"].as_array().unwrap().len(), 2);
    assert_eq!(book["callbacks"], json!([]));
    let (_, statement) = switch.get("/v1/statement").await;
    for entry in statement["entries"].as_array().unwrap() {
        assert_eq!(entry["reference"], Value::Null);
    }
    assert_eq!(statement["entries"].as_array().unwrap().len(), 3);
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_without_keys_ignores_tombstones(options: PgPoolOptions, connect: PgConnectOptions) {
    let switch = TestSwitch::start(options, connect).await;
    assert_eq!(switch.cancel("r", "k").await.1["known"], false);
    switch.set_shape(json!({"keys": false})).await;
    accepted(&switch, order("r")).await;
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_cancel_or_recall_by_id_affects_one_transfer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"keys": false})).await;
    let ids = [accepted(&switch, order("r")).await, accepted(&switch, order("r")).await];
    switch.set_behaviour("r", json!({"cancel": ["in_process"], "recall": ["in_process"]})).await;
    let path = |id: &str, operation: &str| format!("/v1/transfers/by-id/{id}/{operation}");

    // No key is required, and the other transfer of the reference is unchanged.
    for answer in ["IN_PROCESS", "CANCELLED", "CANCELLED"] {
        let (status, answer_body) = switch.post(&path(&ids[0], "cancel")).await;
        assert_eq!(
            (status, &answer_body["answer"], &answer_body["known"]),
            (200, &json!(answer), &json!(true))
        );
        assert_eq!((&answer_body["transfer_id"], &answer_body["reference"]), (&json!(ids[0]), &Value::Null));
        assert_eq!(answer_body["transfer"]["reference"], Value::Null);
    }
    assert_eq!(switch.get(&format!("/v1/transfers/by-id/{}", ids[1])).await.1["status"], "PENDING");

    switch.admin(Method::POST, "transfers/r/settle", None).await;
    assert_eq!(switch.post(&path(&ids[1], "cancel")).await.1["answer"], "ALREADY_SETTLED");
    for answer in ["IN_PROCESS", "RECALLED", "RECALLED"] {
        let (_, answer_body) = switch.post(&path(&ids[1], "recall")).await;
        assert_eq!(answer_body, json!({"reference": null, "transfer_id": ids[1], "answer": answer}));
    }
    assert_eq!(switch.post(&path(&ids[0], "recall")).await.1["answer"], "NOT_SETTLED");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_answers_404_to_an_unknown_transfer_id(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    for keys in [true, false] {
        switch.set_shape(json!({"keys": keys})).await;
        for id in ["4711", "no-number"] {
            let path = format!("/v1/transfers/by-id/{id}");
            let (status, problem) = switch.get(&path).await;
            assert_eq!((status, &problem["code"]), (404, &json!("unknown_transfer")));
            for operation in ["cancel", "recall"] {
                let path = format!("{path}/{operation}");
                let answer = switch.send(Method::POST, &path, Some(&path), None).await.unwrap();
                assert_eq!(read(answer).await.1["answer"], "NOT_FOUND", "{path}");
            }
        }
    }
    assert_eq!(switch.admin(Method::GET, "book", None).await["transfers"], json!([]));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_with_references_also_finds_transfers_by_its_own_id(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    let id = accepted(&switch, order("r")).await;
    let path = format!("/v1/transfers/by-id/{id}");
    assert_eq!(switch.get(&path).await, switch.query("r").await);
    assert_eq!(switch.submit(order("r")).await.1["transfer_id"], json!(id));
    assert_eq!(switch.post(&format!("{path}/cancel")).await.1["code"], "idempotency_key_required");

    // The shape, the scripts and the retention apply by id too.
    switch.set_behaviour("r", json!({"query": ["error_503"]})).await;
    assert_eq!(switch.get(&path).await.0, 503);
    switch.set_shape(json!({"query": false, "cancel": false, "recall": false})).await;
    assert_eq!(switch.get(&path).await.1["code"], "query_not_supported");
    for (operation, answer) in [("cancel", "CANNOT_CANCEL"), ("recall", "CANNOT_RECALL")] {
        let path = format!("{path}/{operation}");
        let answer_body = switch.send(Method::POST, &path, Some("k"), None).await.unwrap();
        let (_, answer_body) = read(answer_body).await;
        assert_eq!((&answer_body["answer"], &answer_body["reference"]), (&json!(answer), &json!("r")));
    }
    switch.set_shape(json!({"retention_s": 60})).await;
    switch.admin(Method::PUT, "clock", Some(json!({"offset_ms": 61_000}))).await;
    assert_eq!(switch.get(&path).await.1["code"], "unknown_transfer");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_lists_every_transfer_to_a_creditor_account(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"keys": false})).await;
    let listing = |more: &str| format!("/v1/transfers?creditor_account=DE%201{more}");
    let to = |account: &str| order_with("r", json!({"creditor_account": account}));
    let (_, none) = switch.get(&listing("&last=1")).await;
    assert_eq!(none, json!({"transfers": [], "next": null}));

    accepted(&switch, to("DE 2")).await;
    let mut ids = Vec::new();
    for _ in 0..102 {
        ids.push(accepted(&switch, to("DE 1")).await);
    }
    let (_, newest) = switch.get(&listing("&last=2")).await;
    let listed = |page: &Value| -> Vec<_> {
        let transfers = page["transfers"].as_array().unwrap();
        transfers.iter().map(|listed| listed["transfer_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(listed(&newest), ids[100..]);
    let (_, first) = switch.get(&listing("")).await;
    assert_eq!((listed(&first), &first["next"]), (ids[..100].to_vec(), &json!(ids[99])));
    let (_, rest) = switch.get(&listing(&format!("&after={}", ids[99]))).await;
    assert_eq!((listed(&rest), &rest["next"]), (ids[100..].to_vec(), &Value::Null));
    let answer_body = &rest["transfers"][0];
    assert!(answer_body["received_at"].is_string());
    assert_eq!((&answer_body["status"], &answer_body["amount_minor"]), (&json!("PENDING"), &json!(1250)));
    assert_eq!((&answer_body["currency"], &answer_body["creditor_account"]), (&json!("EUR"), &json!("DE 1")));
    assert_eq!(answer_body.as_object().unwrap().len(), 6);

    for wrong in ["&last=0", "&last=101", "&after=x", "&last=1&after=1", "&other=1"] {
        assert_eq!(switch.get(&listing(wrong)).await.0, 400, "{wrong}");
    }
    switch.set_behaviour("listing", json!({"listing": ["error_500"]})).await;
    assert_eq!(switch.get(&listing("")).await.0, 500);
    assert_eq!(switch.get(&listing("")).await.0, 200);
    assert_eq!(switch.book("listing").await["requests"]["listing"], 6);
    switch.set_shape(json!({"listing": false})).await;
    let (status, problem) = switch.get(&listing("")).await;
    assert_eq!((status, &problem["code"]), (501, &json!("listing_not_supported")));
    switch.stop().await;
}
