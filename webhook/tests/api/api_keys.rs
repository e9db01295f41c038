//! API keys: which routes each scope permits, and when a key stops being valid.

use std::collections::BTreeMap;

use payment_ledger::access::api_keys::ApiKeyScope;
use serde_json::{Value, json};
use service_kit::published::DEMO_API_KEY;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::support::{ACME, Api, ApiResponse, NORTH, PAYMENTS, order, switch};

/// Headers that differ between responses.
const PER_REQUEST: [&str; 1] = ["x-request-id"];

/// Status, headers and body of a response.
fn complete_response(response: &ApiResponse) -> (u16, BTreeMap<String, Vec<u8>>, Vec<u8>) {
    let headers = response.headers.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()));
    let headers = headers.filter(|(name, _)| !PER_REQUEST.contains(&name.as_str())).collect();
    (response.status.as_u16(), headers, response.bytes.clone())
}

const ENDPOINT: &str = "whe_00000000000000000000000000000001";

/// Resets the tables to one webhook endpoint of acme with one delivery.
async fn reset_endpoint(pool: &PgPool) {
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

/// Every documented route with every set of scopes: a key is admitted exactly if it has the scope of the route.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_api_key_is_admitted_exactly_to_the_routes_of_its_scopes(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("first").await;
    let document: Value = serde_json::from_str(&payments_api::openapi_document().unwrap()).unwrap();
    let mut requests = 0;
    for set in 1..1_u8 << ApiKeyScope::ALL.len() {
        let has = |scope: ApiKeyScope| {
            set & 1 << ApiKeyScope::ALL.iter().position(|other| *other == scope).unwrap() != 0
        };
        let scopes: Vec<ApiKeyScope> = ApiKeyScope::ALL.into_iter().filter(|scope| has(*scope)).collect();
        let key = format!("key-{set}");
        api.create_key(&key, "acme", "shop", &scopes).await;
        let before = api.row_counts().await;
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let Value::Array(required) = &operation["security"][0]["api_key"] else { continue };
                let [Value::String(required)] = &required[..] else {
                    panic!("{method} {path}: {required:?}")
                };
                let required: ApiKeyScope = required.parse().unwrap();
                let body = match (method.as_str(), path.rsplit('/').next().unwrap_or_default()) {
                    ("post", "webhook-endpoints") => json!({"url": "https://bank.example/hooks"}),
                    ("patch", _) => json!({"status": "active"}),
                    ("post", "replay-failed") => json!({"since": "2020-01-01T00:00:00Z"}),
                    _ => order(),
                };
                let path = path.replace("{payment_id}", &id).replace("{account_id}", "acme-eur");
                let path = path.replace("{endpoint_id}", ENDPOINT).replace("{event_id}", "e1");
                reset_endpoint(&api.pool).await;
                let response = match method.as_str() {
                    "get" => api.get(&key, &path).await,
                    method => {
                        let unused = format!("{set} {method} {path}").replace(' ', "-");
                        api.send_keyed(&method.to_uppercase(), &key, &path, &unused, &body.to_string()).await
                    }
                };
                requests += 1;
                let case = format!("{method} {path} with {scopes:?}");
                if has(required) {
                    assert!(response.status.is_success(), "{case}: {response:?}");
                    continue;
                }
                response.assert_problem(403, "insufficient_scope", &case);
                let detail = format!("the API key does not have the scope {required}; use a key that has it");
                assert_eq!(response.json["detail"], detail, "{case}");
                let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{required}\"");
                assert_eq!(response.header("www-authenticate"), challenge, "{case}");
            }
        }
        if !has(ApiKeyScope::Pay) && !has(ApiKeyScope::Webhooks) {
            assert_eq!(api.row_counts().await, before, "{scopes:?}");
        }
    }
    assert_eq!(requests, 7 * 17, "expected every set of scopes at every route that requires a key");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn unknown_revoked_and_expired_api_keys_get_the_same_response(pool: PgPool) {
    let api = Api::new(pool).await;
    let scopes = [ApiKeyScope::Pay, ApiKeyScope::Read];
    let revoked = api.create_key("revoked", "acme", "shop", &scopes).await;
    let revoke = "UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = $1";
    sqlx::query(revoke).bind(revoked.as_str()).execute(&api.pool).await.unwrap();
    let expired = api.create_key("expired", "acme", "shop", &scopes).await;
    sqlx::query("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1")
        .bind(expired.as_str())
        .execute(&api.pool)
        .await
        .unwrap();
    let (id, _) = api.accepted_payment("k").await;
    for path in [PAYMENTS.to_owned(), format!("{PAYMENTS}/{id}"), "/api/v1/accounts/acme-eur".to_owned()] {
        let unknown = api.get("unknown", &path).await;
        unknown.assert_problem(401, "unauthorized", &path);
        assert_eq!(unknown.header("www-authenticate"), "Bearer error=\"invalid_token\"");
        for key in ["revoked", "expired"] {
            assert_eq!(
                complete_response(&api.get(key, &path).await),
                complete_response(&unknown),
                "{key} {path}"
            );
        }
    }
    for path in [PAYMENTS.to_owned(), format!("{PAYMENTS}/{id}/cancel")] {
        // Under a used idempotency key: an unknown caller gets no replay either.
        let unknown = api.post("unknown", &path, "k", &order().to_string()).await;
        unknown.assert_problem(401, "unauthorized", &path);
        for key in ["revoked", "expired"] {
            let response = api.post(key, &path, "k", &order().to_string()).await;
            assert_eq!(complete_response(&response), complete_response(&unknown), "{key} {path}");
        }
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_rotated_api_key_is_valid_during_the_overlap(pool: PgPool) {
    let api = Api::new(pool).await;
    let old = api.create_key("old", "acme", "shop", &[ApiKeyScope::Pay]).await;
    let body = order().to_string();
    let first = api.post("old", PAYMENTS, "k", &body).await;
    assert_eq!(first.status, 201);

    sqlx::query("SELECT apply_change('chg_1', 'rotate_api_key', $1, $2, 'ann', 'a test')")
        .bind(json!({"key_id": old, "successor_id": "pk_0123456789ab", "overlap_s": 3_600}))
        .bind(payments_api::key_hash("new"))
        .execute(&api.pool)
        .await
        .unwrap();
    for key in ["old", "new"] {
        let retry = api.post(key, PAYMENTS, "k", &body).await;
        assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &first.bytes), "{key}");
    }
    api.get("new", PAYMENTS).await.assert_problem(
        403,
        "insufficient_scope",
        "the new key has the scopes of the old one",
    );

    sqlx::query("UPDATE api_keys SET expires_at = clock_timestamp() WHERE id = $1")
        .bind(old.as_str())
        .execute(&api.pool)
        .await
        .unwrap();
    api.post("old", PAYMENTS, "k", &body).await.assert_problem(401, "unauthorized", "the overlap has ended");
    assert_eq!(api.post("new", PAYMENTS, "k", &body).await.status, 200);
    assert_eq!(api.get(ACME, PAYMENTS).await.json["payments"].as_array().unwrap().len(), 1);
}

/// What the demo publishes protects nothing where other machines can reach the API.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn published_secrets_are_refused_where_other_machines_can_reach_the_api(pool: PgPool) {
    let api = Api::new(pool.clone()).await;
    api.create_key(DEMO_API_KEY, "acme", "demo", &[ApiKeyScope::Read]).await;
    let account = "/api/v1/accounts/acme-eur";
    assert_eq!(api.get(DEMO_API_KEY, account).await.status, 200, "on this machine it is accepted");

    for listen in ["0.0.0.0:8080", "[::]:8080", "10.1.2.3:8080"] {
        let open = Api::with_options(pool.clone(), json!({"listen": listen}));
        let response = open.get(DEMO_API_KEY, account).await;
        response.assert_problem(401, "unauthorized", listen);
        assert_eq!(response.header("www-authenticate"), "Bearer error=\"invalid_token\"");
        assert_eq!(open.get(ACME, account).await.status, 200);
    }

    let published = "whsec_ZGVtby1vbmx5LXNlY3JldC1kby1ub3QtdXNlLWl0ISE=";
    for (options, is_refused) in [
        (json!({"listen": "0.0.0.0:8080"}), true),
        (json!({"metrics_listen": "0.0.0.0:9104"}), true),
        (json!({}), false),
    ] {
        let config = json!({"api": options, "switches": {NORTH: switch("DE", &[published])}});
        let config = serde_json::from_value(config).unwrap();
        let started =
            payments_api::router(config, pool.clone().into(), pool.clone().into(), CancellationToken::new());
        assert_eq!(started.is_err(), is_refused, "{options}");
        if let Err(error) = started {
            let text = error.to_string();
            assert!(
                text.starts_with("switches.north.callback_secrets is a secret that the demo publishes"),
                "{text}"
            );
        }
    }
}
