//! Signing secrets.

use serde_json::{Value, json};
use sqlx::PgPool;

use super::{ENDPOINTS, HOOK, path, request};
use crate::support::{ACME, Api};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_webhook_endpoint_is_created_once_and_its_secret_is_not_stored(pool: PgPool) {
    let api = Api::new(pool).await;
    let body =
        json!({"url": HOOK, "kinds": ["transfer_sent", "transfer_failed", "transfer_sent"]}).to_string();
    let first = api.post(ACME, ENDPOINTS, "k", &body).await;
    assert_eq!((first.status.as_u16(), first.header("idempotent-replay")), (201, "false"), "{first:?}");
    assert_eq!(first.json["kinds"], json!(["transfer_failed", "transfer_sent"]));
    assert_eq!((&first.json["status"], &first.json["secret_version"]), (&json!("active"), &json!(1)));
    let secret = first.json["secret"].as_str().unwrap();
    assert!(secret.parse::<webhook_signature::Secret>().is_ok(), "{secret}");

    let retry = api.post(ACME, ENDPOINTS, "k", &body).await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes));
    assert_eq!(retry.header("idempotent-replay"), "true");
    api.post(ACME, ENDPOINTS, "k", &request(HOOK)).await.assert_problem(422, "payload_mismatch", "another");

    let listed = api.get(ACME, ENDPOINTS).await.json;
    assert_eq!(listed["webhook_endpoints"].as_array().unwrap().len(), 1);
    let read = api.get(ACME, &path(&first.json)).await.json;
    assert_eq!(listed["webhook_endpoints"][0], read);
    assert_eq!(read["secret"], Value::Null);
    api.assert_not_stored(secret).await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_webhook_secret_is_returned_on_creation_and_rotation_only(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    let path = path(&endpoint);
    api.fan_out_event("e1").await;
    let rotated = api.post(ACME, &format!("{path}/rotate-secret"), "r", "").await.json;
    api.assert_not_stored(rotated["secret"].as_str().unwrap()).await;
    for (method, path, body) in [
        ("GET", ENDPOINTS, ""),
        ("GET", &path, ""),
        ("GET", &format!("{path}/deliveries"), ""),
        ("PATCH", &path, r#"{"status": "active"}"#),
        ("POST", &format!("{path}/deliveries/e1/replay"), ""),
        ("DELETE", &path, ""),
    ] {
        let response = api.send_keyed(method, ACME, path, method, body).await;
        assert!(response.status.is_success(), "{response:?}");
        let text = String::from_utf8(response.bytes).unwrap();
        assert!(!text.contains("secret\"") && !text.contains("whsec_"), "{method} {path}: {text}");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_webhook_secret_is_rotated_once_per_idempotency_key(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    let rotate = format!("{}/rotate-secret", path(&endpoint));
    let first = api.post(ACME, &rotate, "r1", "").await;
    assert_eq!((first.status.as_u16(), &first.json["secret_version"]), (200, &json!(2)), "{first:?}");
    assert_ne!(first.json["secret"], endpoint["secret"]);
    let until: jiff::Timestamp = first.json["old_secret_until"].as_str().unwrap().parse().unwrap();
    let overlap_h = (until.duration_since(jiff::Timestamp::now()).as_secs() + 1_800) / 3_600;
    assert_eq!(overlap_h, 24);
    let retry = api.post(ACME, &rotate, "r1", "").await;
    assert_eq!(retry.bytes, first.bytes, "expected the same secret from the replay");
    assert_eq!(api.post(ACME, &rotate, "r2", "").await.json["secret_version"], 3);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn without_a_master_key_only_webhook_secrets_are_unavailable(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = path(&api.created_endpoint("k").await);
    let mut config = crate::support::config(json!({}));
    config.outbound_webhooks.master_key = None;
    let other = Api::with_config(api.pool.clone(), config);
    for (path, key) in [(ENDPOINTS.to_owned(), "k1"), (format!("{endpoint}/rotate-secret"), "k2")] {
        let response = other.post(ACME, &path, key, &request(HOOK)).await;
        response.assert_problem(503, "webhooks_not_configured", &path);
    }
    assert_eq!(other.get(ACME, &endpoint).await.json["secret_version"], 1);
    assert_eq!(other.send_keyed("DELETE", ACME, &endpoint, "d", "").await.status, 200);
    assert_eq!(
        other.pay("pay", &crate::support::order()).await.status,
        201,
        "expected payments to work without a master key"
    );
}
