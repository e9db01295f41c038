//! The statement: every finished transfer once or twice, in order, regardless of the retention.

use std::sync::Arc;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::test_switch::{TestSwitch, eventually, order, order_with};

fn entries(page: &Value) -> &[Value] {
    page["entries"].as_array().unwrap()
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn mock_switch_statement_entries_are_in_the_order_of_transfer_ends(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_behaviour("refused", json!({"submit": ["refuse"], "reject_reason": "closed"})).await;
    switch.submit(order_with("settled", json!({"end_to_end_id": "e2e-1"}))).await;
    for reference in ["rejected", "cancelled", "pending", "refused"] {
        switch.submit(order(reference)).await;
    }
    switch.cancel("cancelled", "k1").await;
    switch.cancel("never-came", "k2").await;
    switch.admin(Method::POST, "transfers/settled/settle", None).await;
    switch.admin(Method::POST, "transfers/rejected/reject", None).await;
    switch.recall("settled", "k3").await;
    switch.recall("settled", "k4").await;

    let (_, page) = switch.get("/v1/statement").await;
    let order_of_ends: Vec<_> = entries(&page)
        .iter()
        .map(|entry| (entry["reference"].as_str().unwrap(), entry["status"].as_str().unwrap()))
        .collect();
    let expected = [
        ("refused", "REJECTED"),
        ("cancelled", "CANCELLED"),
        ("settled", "SETTLED"),
        ("rejected", "REJECTED"),
        ("settled", "RETURNED"),
    ];
    assert_eq!(order_of_ends, expected);
    assert_eq!(page["next"], Value::Null);
    let settled = &entries(&page)[2];
    assert_eq!((&settled["amount_minor"], &settled["currency"]), (&json!(1250), &json!("EUR")));
    assert_eq!(settled["creditor_account"], "DE02120300000000202051");
    assert_eq!((&settled["end_to_end_id"], &settled["reason"]), (&json!("e2e-1"), &Value::Null));
    assert_eq!(settled["transfer_id"], switch.query("settled").await.1["transfer_id"]);
    assert_eq!(entries(&page)[0]["reason"], "closed");
    let finished: Vec<_> = entries(&page).iter().map(|entry| time(&entry["finished_at"])).collect();
    assert!(finished.is_sorted() && time(&settled["received_at"]) < finished[2]);

    // A transfer that ends now is not before `complete_until` of an earlier page.
    assert!(finished[4] <= time(&page["complete_until"]));
    switch.admin(Method::POST, "transfers/pending/settle", None).await;
    let last = entries(&page)[4]["cursor"].as_str().unwrap();
    let (_, more) = switch.get(&format!("/v1/statement?after={last}")).await;
    assert_eq!((entries(&more).len(), &entries(&more)[0]["reference"]), (1, &json!("pending")));
    assert!(time(&entries(&more)[0]["finished_at"]) >= time(&page["complete_until"]));
    switch.stop().await;
}

/// A switch that loses its record of the listed entries lists them again.
#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn a_mock_switch_statement_that_repeats_lists_each_entry_twice_on_pages_of_any_size(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.set_shape(json!({"statement_repeats": true})).await;
    for reference in ["a", "b"] {
        switch.submit(order(reference)).await;
        switch.admin(Method::POST, &format!("transfers/{reference}/settle"), None).await;
    }
    for limit in 1..=5 {
        let (mut listed, mut cursors) = (Vec::new(), Vec::new());
        let mut after = String::new();
        loop {
            let (_, page) = switch.get(&format!("/v1/statement?limit={limit}{after}")).await;
            for entry in entries(&page) {
                listed.push(entry["reference"].as_str().unwrap().to_owned());
                cursors.push(entry["cursor"].as_str().unwrap().to_owned());
            }
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(listed, ["a", "a", "b", "b"], "limit {limit}");
        cursors.dedup();
        assert_eq!(cursors.len(), 4, "limit {limit}");
    }
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_statement_follows_its_clock_and_ignores_retention(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    switch.submit(order("r")).await;
    switch.cancel("r", "k").await;
    switch.set_shape(json!({"retention_s": 60})).await;
    switch.admin(Method::PUT, "clock", Some(json!({"offset_ms": 86_400_000}))).await;
    assert_eq!(switch.query("r").await.0, 404);
    let (_, page) = switch.get("/v1/statement").await;
    assert_eq!(entries(&page)[0]["status"], "CANCELLED");
    let ahead_s = time(&page["complete_until"]).as_second() - Timestamp::now().as_second();
    assert!((86_390..=86_410).contains(&ahead_s), "{ahead_s}");
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn the_mock_switch_statement_checks_queries_and_obeys_faults_and_shape(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let switch = TestSwitch::start(options, connect).await;
    for wrong in ["limit=0", "limit=1001", "after=x", "other=1"] {
        assert_eq!(switch.get(&format!("/v1/statement?{wrong}")).await.0, 400, "{wrong}");
    }
    switch.set_behaviour("default", json!({"statement": ["error_503"]})).await;
    assert_eq!(switch.get("/v1/statement?limit=1000").await.0, 503);
    assert_eq!(switch.get("/v1/statement?limit=1000").await.0, 200);
    assert_eq!(switch.book("statement").await["requests"]["statement"], 2);
    switch.set_shape(json!({"statement": false})).await;
    let (status, problem) = switch.get("/v1/statement").await;
    assert_eq!((status, &problem["code"]), (501, &json!("statement_not_supported")));
    switch.stop().await;
}

#[sqlx::test(migrator = "mock_switch::MIGRATOR")]
async fn mock_switch_statement_pages_read_while_transfers_end_are_complete(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    const TRANSFERS: usize = 200;
    let switch = Arc::new(TestSwitch::start(options, connect).await);
    let mut ending = tokio::task::JoinSet::new();
    for n in 0..TRANSFERS {
        let reference = format!("r-{n}");
        switch.set_behaviour(&reference, json!({"settle_after_ms": n})).await;
        let switch = switch.clone();
        ending.spawn(async move {
            switch.submit(order(&reference)).await;
            if n % 3 == 0 {
                switch.cancel(&reference, &reference).await;
            }
        });
    }
    let mut after = String::new();
    let mut read = Vec::new();
    while read.len() < TRANSFERS {
        let page = eventually("another page", || async {
            let (_, page) = switch.get(&format!("/v1/statement?limit=7{after}")).await;
            (!entries(&page).is_empty()).then_some(page)
        })
        .await;
        for entry in entries(&page) {
            assert!(time(&entry["finished_at"]) <= time(&page["complete_until"]));
            read.push(entry["reference"].as_str().unwrap().to_owned());
            after = format!("&after={}", entry["cursor"].as_str().unwrap());
        }
    }
    ending.join_all().await;
    read.sort_unstable();
    read.dedup();
    assert_eq!(read.len(), TRANSFERS);
    Arc::into_inner(switch).unwrap().stop().await;
}
