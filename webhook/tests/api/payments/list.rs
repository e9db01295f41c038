//! `GET /api/v1/payments`: filters and pages.

use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, GLOBEX, PAYMENTS, order_with};

async fn ids(api: &Api, query: &str) -> Vec<String> {
    let response = api.get(ACME, &format!("{PAYMENTS}?{query}")).await;
    assert_eq!(response.status, 200, "{query}: {response:?}");
    let payments = response.json["payments"].as_array().unwrap().clone();
    payments.iter().map(|payment| payment["payment_id"].as_str().unwrap().to_owned()).collect()
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_filters_payments_by_state_age_account_and_id(pool: PgPool) {
    let api = Api::new(pool).await;
    let (old, _) = api.accepted_payment("old").await;
    let (ended, _) = api.accepted_payment("ended").await;
    api.end_payment(&ended, "rejected").await;
    let named = api.pay("named", &order_with("end_to_end_id", json!("invoice 7"))).await.json["payment_id"]
        .as_str()
        .unwrap()
        .to_owned();
    sqlx::query("UPDATE payments SET accepted_at = now() - interval '1 h' WHERE payment_id = $1")
        .bind(&old)
        .execute(&api.pool)
        .await
        .unwrap();

    assert_eq!(ids(&api, "").await, [named.as_str(), &ended, &old], "newest first");
    assert_eq!(ids(&api, "state=rejected").await, [ended.as_str()]);
    assert_eq!(ids(&api, "state=settled").await, [""; 0]);
    assert_eq!(ids(&api, "end_to_end_id=invoice%207").await, [named.as_str()]);
    assert_eq!(ids(&api, "older_than_s=1800").await, [old.as_str()]);
    assert_eq!(ids(&api, "source_account=acme-eur&state=accepted").await, [named.as_str(), &old]);
    assert_eq!(ids(&api, "source_account=acme-jpy").await, [""; 0]);
    let others = api.get(GLOBEX, PAYMENTS).await;
    assert_eq!(others.json, json!({"payments": []}));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn pages_of_payments_have_no_gap_and_no_repetition(pool: PgPool) {
    let api = Api::new(pool).await;
    for n in 0..5 {
        api.accepted_payment(&format!("k{n}")).await;
    }
    let all = ids(&api, "").await;
    let mut seen = Vec::new();
    let mut after = String::new();
    for _ in 0..3 {
        let page = api.get(ACME, &format!("{PAYMENTS}?limit=2{after}")).await.json;
        seen.extend(
            page["payments"].as_array().unwrap().iter().map(|p| p["payment_id"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, all);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn malformed_queries_for_a_list_of_payments_are_refused(pool: PgPool) {
    let api = Api::new(pool).await;
    for query in [
        "state=unknown",
        "limit=0",
        "limit=201",
        "limit=x",
        "older_than_s=-1",
        "older_than_s=315360001",
        "source_account=a%20b",
        "after=%00",
        "end_to_end_id=%00",
        "end_to_end_id=",
        "colour=red",
    ] {
        let response = api.get(ACME, &format!("{PAYMENTS}?{query}")).await;
        response.assert_problem(400, "malformed_query", query);
    }
    api.get("unknown", PAYMENTS).await.assert_problem(401, "unauthorized", "no key");
}
