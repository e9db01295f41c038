//! One tenant against another: nothing of the other's can be seen, repeated, stopped or guessed, and the
//! answer never tells what is there from what is not.

use payment_protocol::ids::{ClientId, PaymentId, TenantId};
use serde_json::json;
use sqlx::PgPool;

use crate::support::{ACME, ACME_TILL, Answer, Api, GLOBEX, PAYMENTS, order, order_with};

/// The id that a payment of this origin has: it is derived, so anybody can compute it.
fn derived(tenant: &str, client: &str, key: &str) -> String {
    let (tenant, client) = (TenantId::new(tenant).unwrap(), ClientId::new(client).unwrap());
    PaymentId::derive(&tenant, &client, key).to_string()
}

/// An answer with what the caller itself sent taken out.
fn without(answer: &Answer, sent: &str) -> (u16, String) {
    (answer.status.as_u16(), String::from_utf8(answer.bytes.clone()).unwrap().replace(sent, "ID"))
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn anothers_payment_reads_as_one_that_is_not_there(pool: PgPool) {
    let api = Api::new(pool).await;
    let (theirs, tx_id) = api.paid("k").await;
    assert_eq!(theirs, derived("acme", "shop", "k"), "the id can be guessed, and that must not help");
    let (ended, _) = api.paid("ended").await;
    api.end(&ended, "settled").await;
    let nobodys = derived("acme", "shop", "never used");
    let before = api.trace().await;

    for id in [&theirs, &ended, &tx_id] {
        for query in ["", "?wait=30", "/events"] {
            let there = api.get(GLOBEX, &format!("{PAYMENTS}/{id}{query}")).await;
            there.assert_problem(404, "payment_not_found", id);
            let not_there = api.get(GLOBEX, &format!("{PAYMENTS}/{nobodys}{query}")).await;
            assert_eq!(without(&there, id), without(&not_there, &nobodys));
        }
        // Under a fresh key, and under the key that acme used.
        for key in ["fresh", "k"] {
            let there = api.post(GLOBEX, &format!("{PAYMENTS}/{id}/cancel"), key, "").await;
            there.assert_problem(404, "payment_not_found", id);
            let not_there = api.post(GLOBEX, &format!("{PAYMENTS}/{nobodys}/cancel"), key, "").await;
            assert_eq!(without(&there, id), without(&not_there, &nobodys));
        }
    }
    assert_eq!(api.trace().await, before, "nothing was asked, noted or claimed");
    assert_eq!(api.get(ACME_TILL, &format!("{PAYMENTS}/{theirs}")).await.status, 200, "the tenant's own");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_list_holds_ones_own_whatever_is_asked_for(pool: PgPool) {
    let api = Api::new(pool).await;
    let named = order_with("end_to_end_id", json!("invoice 7"));
    let theirs = api.pay("k", &named).await.json["payment_id"].as_str().unwrap().to_owned();
    let globex = order_with("source_account", json!("globex-eur")).to_string();
    let own = api.post(GLOBEX, PAYMENTS, "own", &globex).await;
    let own = own.json["payment_id"].as_str().unwrap();
    let nobodys = derived("acme", "shop", "never used");

    let ids = async |query: &str| -> Vec<String> {
        let page = api.get(GLOBEX, &format!("{PAYMENTS}?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {page:?}");
        let payments = page.json["payments"].as_array().unwrap();
        payments.iter().map(|payment| payment["payment_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids("").await, [own]);
    assert_eq!(ids("state=accepted").await, [own]);
    for theirs in ["source_account=acme-eur", "end_to_end_id=invoice%207"] {
        assert_eq!(ids(theirs).await, [""; 0], "{theirs}");
    }
    // A page after another's payment is a page after nothing.
    let after = api.get(GLOBEX, &format!("{PAYMENTS}?after={theirs}")).await;
    let after_nothing = api.get(GLOBEX, &format!("{PAYMENTS}?after={nobodys}")).await;
    assert_eq!(without(&after, &theirs), without(&after_nothing, &nobodys));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s4_2_anothers_key_and_body_are_a_request_of_ones_own(pool: PgPool) {
    let api = Api::new(pool).await;
    let (theirs, _) = api.paid("k").await;
    let before = api.trace().await;
    // The very bytes that acme sent, under its Idempotency-Key.
    let copied = api.post(GLOBEX, PAYMENTS, "k", &order().to_string()).await;
    copied.assert_problem(422, "unknown_account", "acme's account is none of globex's");
    let unheard = order_with("source_account", json!("unheard-of")).to_string();
    let not_there = api.post(GLOBEX, PAYMENTS, "k", &unheard).await;
    assert_eq!(without(&copied, "acme-eur"), without(&not_there, "unheard-of"));
    assert_eq!(api.trace().await, before);

    // With an account of its own it is a payment of its own: not a replay, not a mismatch.
    let globex = order_with("source_account", json!("globex-eur")).to_string();
    let own = api.post(GLOBEX, PAYMENTS, "k", &globex).await;
    assert_eq!((own.status.as_u16(), own.header("idempotent-replay")), (201, "false"), "{own:?}");
    assert_ne!(own.json["payment_id"], json!(theirs));
    assert_eq!(own.json["payment_id"], json!(derived("globex", "shop", "k")));

    // So for cancels: acme cancels under a key, and globex uses that key for its own.
    assert_eq!(api.post(ACME, &format!("{PAYMENTS}/{theirs}/cancel"), "c", "").await.status, 202);
    let own = own.json["payment_id"].as_str().unwrap();
    let cancel = api.post(GLOBEX, &format!("{PAYMENTS}/{own}/cancel"), "c", "").await;
    assert_eq!((cancel.status.as_u16(), cancel.header("idempotent-replay")), (202, "false"));
    assert_eq!(cancel.json["payment_id"], json!(own));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn anothers_account_reads_as_one_that_is_not_there(pool: PgPool) {
    let api = Api::new(pool).await;
    let not_there = api.get(GLOBEX, "/api/v1/accounts/unheard-of").await;
    not_there.assert_problem(404, "account_not_found", "unheard-of");
    for account in ["acme-eur", "acme-jpy", "internal:holding:EUR"] {
        for of in ["", "/balance", "/statement?from=2026-01-01T00:00:00Z"] {
            let there = api.get(GLOBEX, &format!("/api/v1/accounts/{account}{of}")).await;
            assert_eq!(without(&there, account), without(&not_there, "unheard-of"), "{account}{of}");
        }
    }
    assert_eq!(api.get(GLOBEX, "/api/v1/accounts/globex-eur").await.status, 200);
}
