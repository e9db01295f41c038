//! `GET /api/v1/accounts/{account_id}`.

use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, Api, GLOBEX};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_account_shows_what_can_be_spent_and_what_is_held(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
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
async fn other_accounts_are_not_found(pool: PgPool) {
    let api = Api::new(pool).await;
    for (key, account) in [
        (GLOBEX, "acme-eur"),
        (ACME, "nobody"),
        (ACME, "internal:holding:EUR"),
        (ACME, "a%20b"),
        (ACME, "%00"),
    ] {
        let answer = api.get(key, &format!("/api/v1/accounts/{account}")).await;
        answer.assert_problem(404, "account_not_found", account);
    }
    api.get("nobody", "/api/v1/accounts/acme-eur").await.assert_problem(401, "unauthorized", "no key");
}
