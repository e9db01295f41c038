//! `GET /api/v1/accounts/{account_id}`.

use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, GLOBEX};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_shows_available_and_held_balances_of_an_account(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let reserve = "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                   VALUES ('r', $1, 'reserve', 'acme-eur', 'internal:holding:EUR', 1250, 'EUR')";
    sqlx::query(reserve).bind(&id).execute(&api.pool).await.unwrap();
    let expected = json!({
        "account_id": "acme-eur", "currency": "EUR", "status": "active",
        "available": "987.50", "available_minor": 98_750, "held": "12.50", "held_minor": 1_250,
        "balance": "1000.00", "balance_minor": 100_000,
    });
    assert_eq!(api.get(ACME, "/api/v1/accounts/acme-eur").await.json, expected);
    let yen = api.get(ACME, "/api/v1/accounts/acme-jpy").await.json;
    assert_eq!((&yen["available"], &yen["held"]), (&json!("100000"), &json!("0")));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_answers_404_for_unknown_internal_and_foreign_accounts(pool: PgPool) {
    let api = Api::new(pool).await;
    for (key, account) in [
        (GLOBEX, "acme-eur"),
        (ACME, "unknown"),
        (ACME, "internal:holding:EUR"),
        (ACME, "a%20b"),
        (ACME, "%00"),
    ] {
        let response = api.get(key, &format!("/api/v1/accounts/{account}")).await;
        response.assert_problem(404, "account_not_found", account);
    }
    api.get("unknown", "/api/v1/accounts/acme-eur").await.assert_problem(401, "unauthorized", "no key");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_the_api_statement_and_balance_of_an_account_agree_at_an_instant(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let reserve = "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                   VALUES ('r', $1, 'reserve', 'acme-eur', 'internal:holding:EUR', 1250, 'EUR')";
    sqlx::query(reserve).bind(&id).execute(&api.pool).await.unwrap();
    let page = api.get(ACME, "/api/v1/accounts/acme-eur/statement?from=2026-01-01T00:00:00Z&limit=1").await;
    assert_eq!(page.status, 200, "{page:?}");
    let opening = &page.json["opening"];
    assert_eq!(
        (&opening["balance"], &opening["at"]),
        (&json!("0.00"), &json!("2025-12-31T23:59:59.999999Z"))
    );
    let closing = &page.json["closing"];
    assert_eq!(
        (&closing["available"], &closing["held"], &closing["balance_minor"]),
        (&json!("987.50"), &json!("12.50"), &json!(100_000))
    );
    let entry = &page.json["entries"][0];
    assert_eq!(
        (&entry["kind"], &entry["amount"], &entry["payment_id"]),
        (&json!("fund"), &json!("1000.00"), &json!(null))
    );

    let next = page.json["next"].as_str().unwrap();
    let path = format!("/api/v1/accounts/acme-eur/statement?from=2026-01-01T00:00:00Z&after={next}");
    let page = api.get(ACME, &path).await.json;
    let entry = &page["entries"][0];
    assert_eq!(
        (&entry["kind"], &entry["amount_minor"], &entry["available_after"], &entry["payment_id"]),
        (&json!("reserve"), &json!(-1_250), &json!("987.50"), &json!(id))
    );
    assert_eq!((page["entries"].as_array().unwrap().len(), &page["next"]), (1, &json!(null)));

    let before = entry["posted_at"].as_str().unwrap().replace('Z', "");
    let balance =
        async |at: &str| api.get(ACME, &format!("/api/v1/accounts/acme-eur/balance{at}")).await.json;
    assert_eq!(balance("").await["available"], "987.50");
    assert_eq!(balance(&format!("?at={before}Z")).await["available"], "987.50");
    assert_eq!(balance("?at=2026-01-01T00:00:00Z").await["balance_minor"], 0);
    assert_eq!(
        balance("?at=2999-01-01T00:00:00Z").await["held"],
        "12.50",
        "expected a future instant to be treated as now"
    );
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_refuses_malformed_account_history_queries(pool: PgPool) {
    let api = Api::new(pool).await;
    for query in [
        "statement?from=yesterday",
        "statement?from=2026-01-01T00:00:00Z&limit=0",
        "statement?from=2026-01-01T00:00:00Z&limit=201",
        "statement?from=2026-01-01T00:00:00Z&after=x",
        "statement?from=-005000-01-01T00:00:00Z",
        "statement?from=2026-01-01T00:00:00Z&unknown=7",
        "balance?at=now",
        "balance?at=1969-12-31T23:59:59Z",
    ] {
        let response = api.get(ACME, &format!("/api/v1/accounts/acme-eur/{query}")).await;
        response.assert_problem(400, "malformed_query", query);
    }
    let backwards = "statement?from=2026-01-01T00:00:00Z&to=2025-01-01T00:00:00Z";
    let response = api.get(ACME, &format!("/api/v1/accounts/acme-eur/{backwards}")).await;
    response.assert_problem(422, "empty_period", backwards);
}
