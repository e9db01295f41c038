//! API keys at the door: what each scope opens, and when a key stops opening anything.

use std::collections::BTreeMap;

use payment_ledger::api_keys::{Rotation, Scope, Successor};
use payment_protocol::ids::KeyId;
use serde_json::Value;
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
                let path = path.replace("{payment_id}", &id).replace("{account_id}", "acme-eur");
                let answer = match verb.as_str() {
                    "get" => api.get(&key, &path).await,
                    _ => {
                        api.post(
                            &key,
                            &path,
                            &format!("{set} {path}").replace(' ', "-"),
                            &order().to_string(),
                        )
                        .await
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
        if !held(Scope::Pay) {
            assert_eq!(api.trace().await, before, "{scopes:?}");
        }
    }
    assert_eq!(asked, 7 * 8, "every set of scopes at every route that asks for a key");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn unknown_revoked_and_expired_keys_cannot_be_told_apart(pool: PgPool) {
    let api = Api::new(pool).await;
    let scopes = [Scope::Pay, Scope::Read];
    let revoked = api.make_key("revoked", "acme", "shop", &scopes).await;
    api.ledger.revoke_key(&revoked).await.unwrap();
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

    let (id, hash) = (KeyId::new("pk_0123456789ab").unwrap(), webhook::key_hash("new"));
    let successor = Successor { id: &id, hash: &hash, prefix: "test" };
    let rotation = api.ledger.rotate_key(&old, &successor, 3_600).await.unwrap();
    assert!(matches!(rotation, Rotation::Done(_)), "{rotation:?}");
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
