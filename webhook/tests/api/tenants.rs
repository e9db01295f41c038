//! Isolation of tenants: a tenant can neither read, replay, cancel nor probe for another's objects; responses are the same for an
//! object of another tenant and for one that does not exist.

use payment_protocol::ids::{ClientId, PaymentId, TenantId};
use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, ACME_TILL, Api, ApiResponse, GLOBEX, PAYMENTS, order, order_with};

/// The id of a payment of this origin, which everyone can derive.
fn derived_id(tenant: &str, client: &str, key: &str) -> String {
    let (tenant, client) = (TenantId::new(tenant).unwrap(), ClientId::new(client).unwrap());
    PaymentId::derive(&tenant, &client, key).to_string()
}

/// Status and body, with the value that the client sent replaced.
fn normalised(response: &ApiResponse, sent: &str) -> (u16, String) {
    (response.status.as_u16(), String::from_utf8(response.bytes.clone()).unwrap().replace(sent, "ID"))
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_of_another_tenant_is_answered_like_an_unknown_payment(pool: PgPool) {
    let api = Api::new(pool).await;
    let (others, tx_id) = api.accepted_payment("k").await;
    assert_eq!(others, derived_id("acme", "shop", "k"), "the test relies on a derived id");
    let (ended, _) = api.accepted_payment("ended").await;
    api.end_payment(&ended, "settled").await;
    let unused = derived_id("acme", "shop", "never used");
    let before = api.row_counts().await;

    for id in [&others, &ended, &tx_id] {
        for query in ["", "?wait=30", "/events"] {
            let existing = api.get(GLOBEX, &format!("{PAYMENTS}/{id}{query}")).await;
            existing.assert_problem(404, "payment_not_found", id);
            let missing = api.get(GLOBEX, &format!("{PAYMENTS}/{unused}{query}")).await;
            assert_eq!(normalised(&existing, id), normalised(&missing, &unused));
        }
        // Under an unused key, and under the key that acme used.
        for key in ["fresh", "k"] {
            let existing = api.post(GLOBEX, &format!("{PAYMENTS}/{id}/cancel"), key, "").await;
            existing.assert_problem(404, "payment_not_found", id);
            let missing = api.post(GLOBEX, &format!("{PAYMENTS}/{unused}/cancel"), key, "").await;
            assert_eq!(normalised(&existing, id), normalised(&missing, &unused));
        }
    }
    assert_eq!(api.row_counts().await, before, "expected no stored rows");
    assert_eq!(
        api.get(ACME_TILL, &format!("{PAYMENTS}/{others}")).await.status,
        200,
        "expected another client of the tenant to see the payment"
    );
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_list_of_payments_has_those_of_the_own_tenant_only(pool: PgPool) {
    let api = Api::new(pool).await;
    let named = order_with("end_to_end_id", json!("invoice 7"));
    let others = api.pay("k", &named).await.json["payment_id"].as_str().unwrap().to_owned();
    let globex = order_with("source_account", json!("globex-eur")).to_string();
    let own = api.post(GLOBEX, PAYMENTS, "own", &globex).await;
    let own = own.json["payment_id"].as_str().unwrap();
    let unused = derived_id("acme", "shop", "never used");

    let ids = async |query: &str| -> Vec<String> {
        let page = api.get(GLOBEX, &format!("{PAYMENTS}?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {page:?}");
        let payments = page.json["payments"].as_array().unwrap();
        payments.iter().map(|payment| payment["payment_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("").await, [own]);
    assert_eq!(ids("state=accepted").await, [own]);
    for query in ["source_account=acme-eur", "end_to_end_id=invoice%207"] {
        assert_eq!(ids(query).await, [""; 0], "{query}");
    }
    // A cursor of another tenant's payment equals a cursor of no payment.
    let after = api.get(GLOBEX, &format!("{PAYMENTS}?after={others}")).await;
    let after_missing = api.get(GLOBEX, &format!("{PAYMENTS}?after={unused}")).await;
    assert_eq!(normalised(&after, &others), normalised(&after_missing, &unused));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s4_2_the_idempotency_key_and_body_of_another_tenant_are_new(pool: PgPool) {
    let api = Api::new(pool).await;
    let (others, _) = api.accepted_payment("k").await;
    let before = api.row_counts().await;
    // The same bytes as acme sent, with the same Idempotency-Key.
    let copied = api.post(GLOBEX, PAYMENTS, "k", &order().to_string()).await;
    copied.assert_problem(422, "unknown_account", "acme's account does not exist for globex");
    let unknown = order_with("source_account", json!("unknown-account")).to_string();
    let missing = api.post(GLOBEX, PAYMENTS, "k", &unknown).await;
    assert_eq!(normalised(&copied, "acme-eur"), normalised(&missing, "unknown-account"));
    assert_eq!(api.row_counts().await, before);

    // With its own account the payment is new: neither a replay nor a mismatch.
    let globex = order_with("source_account", json!("globex-eur")).to_string();
    let own = api.post(GLOBEX, PAYMENTS, "k", &globex).await;
    assert_eq!((own.status.as_u16(), own.header("idempotent-replay")), (201, "false"), "{own:?}");
    assert_ne!(own.json["payment_id"], json!(others));
    assert_eq!(own.json["payment_id"], json!(derived_id("globex", "shop", "k")));

    // The same holds for cancels under the same key.
    assert_eq!(api.post(ACME, &format!("{PAYMENTS}/{others}/cancel"), "c", "").await.status, 202);
    let own = own.json["payment_id"].as_str().unwrap();
    let cancel = api.post(GLOBEX, &format!("{PAYMENTS}/{own}/cancel"), "c", "").await;
    assert_eq!((cancel.status.as_u16(), cancel.header("idempotent-replay")), (202, "false"));
    assert_eq!(cancel.json["payment_id"], json!(own));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_account_of_another_tenant_is_answered_like_an_unknown_account(pool: PgPool) {
    let api = Api::new(pool).await;
    let missing = api.get(GLOBEX, "/api/v1/accounts/unknown-account").await;
    missing.assert_problem(404, "account_not_found", "unknown-account");
    for account in ["acme-eur", "acme-jpy", "internal:holding:EUR"] {
        for suffix in ["", "/balance", "/statement?from=2026-01-01T00:00:00Z"] {
            let existing = api.get(GLOBEX, &format!("/api/v1/accounts/{account}{suffix}")).await;
            assert_eq!(
                normalised(&existing, account),
                normalised(&missing, "unknown-account"),
                "{account}{suffix}"
            );
        }
    }
    assert_eq!(api.get(GLOBEX, "/api/v1/accounts/globex-eur").await.status, 200);
}
