//! API keys at the door: what each scope opens, and when a key kill_switches opening anything.

use std::collections::BTreeMap;

use payment_ledger::access::api_keys::{RotateKeyOutcome, Scope, SuccessorKey};
use payment_protocol::ids::KeyId;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{ACME, Answer, Api, PAYMENTS, order};

/// Headers that differ from answer to answer.
const PER_REQUEST: [&str; 1] = ["x-request-id"];

/// An answer as bytes: status, headers and body.
fn whole(answer: &Answer) -> (u16, BTreeMap<String, Vec<u8>>, Vec<u8>) {
    let headers = answer.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    let headers = headers.filter(|(name, _)| !PER_REQUEST.contains(&name.as_str())).collect();
    (answer.status.as_u16(), headers, answer.bytes.clone())
}

const ENDPOINT: &str = "whe_00000000000000000000000000000001";

/// Leaves one webhook endpoint of acme's, which has one delivery.
async fn endpoint_anew(pool: &PgPool) {
    for sql in [
        "DELETE FROM webhook_deliveries",
        "DELETE FROM webhook_endpoints",
        "INSERT INTO webhook_endpoints (endpoint_id, tenant_id, url, secret_check)
         VALUES ('whe_00000000000000000000000000000001', 'acme', 'https://bank.example/', '')",
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body)
         VALUES ('whe_00000000000000000000000000000001', 'e1', 'transfer_sent', '{}')",
    ] {
        sqlx::query(sql).execute(pool).await.unwrap();
    }
}

/// Every route by its scope in the document, asked with every set of scopes: a key opens a route exactly
/// if it has the route's scope.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_key_opens_what_its_scopes_name(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("first").await;
    let document = api.get("", "/openapi.json").await.json;
    let mut asked = 0;
    for set in 1..1_u8 << Scope::ALL.len() {
        let held = |scope: Scope| set & 1 << Scope::ALL.iter().position(|one| *one == scope).unwrap() != 0;
        let scopes: Vec<Scope> = Scope::ALL.into_iter().filter(|scope| held(*scope)).collect();
        let key = format!("key-{set}");
        api.make_key(&key, "acme", "shop", &scopes).await;
        let before = api.trace().await;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (verb, operation) in item.as_object().unwrap() {
                let Value::Array(needed) = &operation["security"][0]["api_key"] else { continue };
                let [Value::String(needed)] = &needed[..] else { panic!("{verb} {path}: {needed:?}") };
                let needed: Scope = needed.parse().unwrap();
                let body = match (verb.as_str(), path.rsplit('/').next().unwrap_or_default()) {
                    ("post", "webhook-endpoints") => json!({"url": "https://bank.example/hooks"}),
                    ("patch", _) => json!({"status": "active"}),
                    ("post", "replay-failed") => json!({"since": "2020-01-01T00:00:00Z"}),
                    _ => order(),
                };
                let path = path.replace("{payment_id}", &id).replace("{account_id}", "acme-eur");
                let path = path.replace("{endpoint_id}", ENDPOINT).replace("{event_id}", "e1");
                endpoint_anew(&api.pool).await;
                let answer = match verb.as_str() {
                    "get" => api.get(&key, &path).await,
                    verb => {
                        let once = format!("{set} {verb} {path}").replace(' ', "-");
                        api.send_as(&verb.to_uppercase(), &key, &path, &once, &body.to_string()).await
                    }
                };
                asked += 1;
                let case = format!("{verb} {path} with {scopes:?}");
                if held(needed) {
                    assert!(answer.status.is_success(), "{case}: {answer:?}");
                    continue;
                }
                answer.assert_problem(403, "insufficient_scope", &case);
                assert_eq!(answer.json["detail"], format!("it needs the scope {needed}"), "{case}");
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                assert_eq!(answer.header("www-authenticate"), challenge, "{case}");
            }
        }
        if !held(Scope::Pay) && !held(Scope::Webhooks) {
            assert_eq!(api.trace().await, before, "{scopes:?}");
        }
    }
    assert_eq!(asked, 15 * 17, "every set of scopes at every route that asks for a key");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn unknown_revoked_and_expired_keys_cannot_be_told_apart(pool: PgPool) {
    let api = Api::new(pool).await;
    let scopes = [Scope::Pay, Scope::Read];
    let revoked = api.make_key("revoked", "acme", "shop", &scopes).await;
    api.ledger.revoke_api_key(&revoked).await.unwrap();
    let expired = api.make_key("expired", "acme", "shop", &scopes).await;
    sqlx::query("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1")
        .bind(expired.as_str())
        .execute(&api.pool)
        .await
        .unwrap();
    let (id, _) = api.paid("k").await;
    for path in [PAYMENTS.to_owned(), format!("{PAYMENTS}/{id}"), "/api/v1/accounts/acme-eur".to_owned()] {
        let unknown = api.get("unknown", &path).await;
        unknown.assert_problem(401, "unauthorized", &path);
        assert_eq!(unknown.header("www-authenticate"), "Bearer error=\"invalid_token\"");
        for key in ["revoked", "expired"] {
            assert_eq!(whole(&api.get(key, &path).await), whole(&unknown), "{key} {path}");
        }
    }
    for path in [PAYMENTS.to_owned(), format!("{PAYMENTS}/{id}/cancel")] {
        // Under a key that was used: a replay is not given to a stranger either.
        let unknown = api.post("unknown", &path, "k", &order().to_string()).await;
        unknown.assert_problem(401, "unauthorized", &path);
        for key in ["revoked", "expired"] {
            let answer = api.post(key, &path, "k", &order().to_string()).await;
            assert_eq!(whole(&answer), whole(&unknown), "{key} {path}");
        }
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_rotated_key_works_on_while_they_overlap_and_the_client_stays_the_same(pool: PgPool) {
    let api = Api::new(pool).await;
    let old = api.make_key("old", "acme", "shop", &[Scope::Pay]).await;
    let body = order().to_string();
    let first = api.post("old", PAYMENTS, "k", &body).await;
    assert_eq!(first.status, 201);

    let (id, hash) = (KeyId::new("pk_0123456789ab").unwrap(), payments_api::key_hash("new"));
    let successor = SuccessorKey { id: &id, hash: &hash, prefix: "test" };
    let rotation = api.ledger.rotate_api_key(&old, &successor, 3_600).await.unwrap();
    assert!(matches!(rotation, RotateKeyOutcome::Rotated(_)), "{rotation:?}");
    for key in ["old", "new"] {
        let repeat = api.post(key, PAYMENTS, "k", &body).await;
        assert_eq!((repeat.status.as_u16(), &repeat.bytes), (200, &first.bytes), "{key}");
    }
    api.get("new", PAYMENTS).await.assert_problem(403, "insufficient_scope", "its scopes are the old one's");

    sqlx::query("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1")
        .bind(old.as_str())
        .execute(&api.pool)
        .await
        .unwrap();
    api.post("old", PAYMENTS, "k", &body).await.assert_problem(401, "unauthorized", "the overlap is over");
    assert_eq!(api.post("new", PAYMENTS, "k", &body).await.status, 200);
    assert_eq!(api.get(ACME, PAYMENTS).await.json["payments"].as_array().unwrap().len(), 1);
}
