//! Creation, update and deletion of endpoints.

use outbound_webhooks::{EndpointId, endpoints};
use postgres_kit::Pool;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{ENDPOINTS, HOOK, id, path, request};
use crate::support::{ACME, Api, ApiResponse, GLOBEX};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_webhook_endpoint_with_a_forbidden_url_is_refused(pool: PgPool) {
    let api = Api::new(pool).await;
    let before = api.row_counts().await;
    for url in [
        "http://bank.example/",
        "https://user:password@bank.example/",
        "https://127.0.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://bank.example:6379/",
        "https://bank.example/#x",
        "bank.example",
        "",
    ] {
        let response = api.post(ACME, ENDPOINTS, "k", &request(url)).await;
        response.assert_problem(422, "invalid_url", url);
    }
    let body = json!({"url": HOOK, "kinds": ["transfer_imagined"]}).to_string();
    api.post(ACME, ENDPOINTS, "k", &body).await.assert_problem(422, "unknown_kind", "kind");
    let body = json!({"url": HOOK, "secret": "whsec_mine"}).to_string();
    api.post(ACME, ENDPOINTS, "k", &body).await.assert_problem(
        400,
        "malformed_json",
        "a secret chosen by the client",
    );
    assert_eq!(api.row_counts().await, before, "expected no stored rows");
    let endpoint = api.created_endpoint("k").await;
    let change = json!({"url": "https://10.0.0.1/"}).to_string();
    let changed = api.send_keyed("PATCH", ACME, &path(&endpoint), "c", &change).await;
    changed.assert_problem(422, "invalid_url", "update to a forbidden URL");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_tenant_has_at_most_ten_webhook_endpoints(pool: PgPool) {
    let api = Api::new(pool).await;
    for n in 0..10 {
        api.created_endpoint(&format!("k{n}")).await;
    }
    let refused = api.post(ACME, ENDPOINTS, "k10", &request(HOOK)).await;
    refused.assert_problem(422, "too_many_endpoints", "the eleventh");
    let retry = api.post(ACME, ENDPOINTS, "k9", &request(HOOK)).await;
    assert_eq!(retry.status, 200, "expected a replay");
    let first = api.get(ACME, ENDPOINTS).await.json["webhook_endpoints"][0].clone();
    let deleted = api.send_keyed("DELETE", ACME, &path(&first), "d", "").await;
    assert_eq!((deleted.status.as_u16(), &deleted.json["status"]), (200, &json!("deleted")));
    let retry = api.send_keyed("DELETE", ACME, &path(&first), "d", "").await;
    assert_eq!((retry.status.as_u16(), &retry.bytes), (200, &deleted.bytes));
    api.get(ACME, &path(&first)).await.assert_problem(404, "endpoint_not_found", "deleted");
    // The refused key was released.
    assert_eq!(api.post(ACME, ENDPOINTS, "k10", &request(HOOK)).await.status, 201);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_webhook_endpoint_of_another_tenant_is_answered_like_an_unknown_one(pool: PgPool) {
    let api = Api::new(pool).await;
    let others = path(&api.created_endpoint("k").await);
    api.fan_out_event("e1").await;
    api.fail_all_deliveries().await;
    let missing = format!("{ENDPOINTS}/{}", EndpointId::random());
    let rows = async || -> String {
        let rows = "SELECT string_agg(d::text || e::text, '') FROM webhook_deliveries d JOIN webhook_endpoints e USING (endpoint_id)";
        sqlx::query_scalar(rows).fetch_one(&api.pool).await.unwrap()
    };
    let before = rows().await;
    let since = json!({"since": "2020-01-01T00:00:00Z"}).to_string();
    let requests = [
        ("GET", "", ""),
        ("PATCH", "", r#"{"status": "disabled"}"#),
        ("DELETE", "", ""),
        ("POST", "/rotate-secret", ""),
        ("GET", "/deliveries", ""),
        ("POST", "/deliveries/e1/replay", ""),
        ("POST", "/replay-failed", &since),
    ];
    for (n, (method, rest, body)) in requests.into_iter().enumerate() {
        let send = async |path: &str, key: &str| {
            let response = api.send_keyed(method, GLOBEX, &format!("{path}{rest}"), key, body).await;
            response.assert_problem(404, "endpoint_not_found", &format!("{method} {rest}"));
            let text = String::from_utf8(response.bytes).unwrap();
            text.replace(path.rsplit('/').next().unwrap(), "ID")
        };
        assert_eq!(send(&others, &format!("a{n}")).await, send(&missing, &format!("b{n}")).await);
    }
    assert_eq!(rows().await, before);
    assert_eq!(api.get(GLOBEX, ENDPOINTS).await.json, json!({"webhook_endpoints": []}));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_webhook_endpoint_is_updated_unless_an_operator_disabled_it(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    let change = async |key: &str, body: Value| -> ApiResponse {
        api.send_keyed("PATCH", ACME, &path(&endpoint), key, &body.to_string()).await
    };
    let changed =
        change("c1", json!({"url": "https://bank.example/other", "kinds": ["transfer_sent"]})).await;
    assert_eq!(changed.json["url"], "https://bank.example/other");
    assert_eq!(changed.json["kinds"], json!(["transfer_sent"]));
    let disabled = change("c2", json!({"status": "disabled"})).await.json;
    assert_eq!(
        (&disabled["status"], &disabled["disabled_reason"]),
        (&json!("disabled"), &json!("by_tenant"))
    );
    assert_eq!(disabled["url"], "https://bank.example/other", "expected omitted fields to stay unchanged");
    assert_eq!(change("c3", json!({"status": "active"})).await.json["status"], "active");
    change("c4", json!({"status": "unknown"})).await.assert_problem(422, "invalid_status", "unknown");

    let mut connection = Pool::from(api.pool.clone()).acquire().await.unwrap();
    assert!(endpoints::disable_as_operator(&mut connection, &id(&endpoint), "ann: a flood").await.unwrap());
    let refused = change("c5", json!({"status": "active", "url": HOOK})).await;
    refused.assert_problem(409, "disabled_by_operator", "enabled by its tenant");
    let refused =
        change("c6", json!({"kinds": ["transfer_sent"], "url": "https://elsewhere.example/"})).await;
    refused.assert_problem(409, "disabled_by_operator", "updated by its tenant");
    let refused = api.send_keyed("DELETE", ACME, &path(&endpoint), "d1", "").await;
    refused.assert_problem(409, "disabled_by_operator", "deleted by its tenant");
    // A new endpoint on the same host, in any spelling, would circumvent the operator.
    for (key, url) in [("n1", "https://bank.example/new"), ("n2", "https://BANK.example.:443/")] {
        let refused = api.post(ACME, ENDPOINTS, key, &request(url)).await;
        refused.assert_problem(409, "disabled_by_operator", "recreated on the same host");
    }
    let other = api.post(ACME, ENDPOINTS, "n1", &request("https://elsewhere.example/")).await;
    assert_eq!(other.status.as_u16(), 201, "expected the refused key to be unused: {other:?}");
    let refused = api.send_keyed("PATCH", ACME, &path(&other.json), "c7", &request(HOOK)).await;
    refused.assert_problem(409, "disabled_by_operator", "another endpoint moved to that host");

    let read = api.get(ACME, &path(&endpoint)).await.json;
    assert_eq!(read["disabled_note"], "ann: a flood");
    assert_eq!(read["url"], "https://bank.example/other", "expected no update of the disabled endpoint");
    assert!(endpoints::enable_as_operator(&mut connection, &id(&endpoint)).await.unwrap());
    let deleted = api.send_keyed("DELETE", ACME, &path(&endpoint), "d1", "").await;
    assert_eq!(
        deleted.status.as_u16(),
        200,
        "expected the tenant to delete the enabled endpoint: {deleted:?}"
    );
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_unknown_event_kind_in_a_webhook_endpoint_update_is_refused(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    let change = json!({"kinds": ["transfer_sent", "transfer_imagined"]}).to_string();
    let changed = api.send_keyed("PATCH", ACME, &path(&endpoint), "c", &change).await;
    changed.assert_problem(422, "unknown_kind", "unknown kind");
    assert_eq!(api.get(ACME, &path(&endpoint)).await.json["kinds"], json!([]));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_1_every_webhook_endpoint_change_requires_an_idempotency_key(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = path(&api.created_endpoint("k").await);
    for (method, path) in [
        ("POST", ENDPOINTS.to_owned()),
        ("PATCH", endpoint.clone()),
        ("DELETE", endpoint.clone()),
        ("POST", format!("{endpoint}/rotate-secret")),
        ("POST", format!("{endpoint}/deliveries/e1/replay")),
        ("POST", format!("{endpoint}/replay-failed")),
    ] {
        let request = axum::http::Request::builder()
            .method(method)
            .uri(&path)
            .header("authorization", format!("Bearer {ACME}"))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(request(HOOK)));
        let response = api.send(request.unwrap()).await;
        response.assert_problem(400, "idempotency_key_missing", &format!("{method} {path}"));
    }
}
