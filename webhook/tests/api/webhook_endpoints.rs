//! `/api/v1/webhook-endpoints`: endpoints, their secrets and their deliveries. Delivery itself is tested in
//! `crates/outbound-webhooks`.

use outbound_webhooks::endpoints;
use outbound_webhooks::{EndpointId, WebhookEvent, fan_out};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{ACME, Api, ApiResponse, GLOBEX};

pub(crate) const ENDPOINTS: &str = "/api/v1/webhook-endpoints";
const HOOK: &str = "https://bank.example/hooks";

fn request(url: &str) -> String {
    json!({ "url": url }).to_string()
}

fn path(endpoint: &Value) -> String {
    format!("{ENDPOINTS}/{}", endpoint["endpoint_id"].as_str().unwrap())
}

fn id(endpoint: &Value) -> EndpointId {
    EndpointId::new(endpoint["endpoint_id"].as_str().unwrap()).unwrap()
}

impl Api {
    async fn created_endpoint(&self, key: &str) -> Value {
        let response = self.post(ACME, ENDPOINTS, key, &request(HOOK)).await;
        assert_eq!(response.status, 201, "{response:?}");
        response.json
    }

    /// Creates the deliveries of an event of acme.
    async fn fan_out_event(&self, event_id: &str) {
        let data = json!({"payment_id": "pay_1"});
        let message = WebhookEvent {
            tenant: "acme",
            event_id,
            kind: "transfer_sent",
            version: 1,
            key: "pay_1",
            sequence: 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            data: &data,
        };
        let mut connection = self.pool.acquire().await.unwrap();
        fan_out(&mut connection, &message).await.unwrap();
    }

    /// Asserts that the secret is stored neither as text nor in the bytes of a response.
    async fn assert_not_stored(&self, secret: &str) {
        let secret = secret.trim_start_matches("whsec_");
        for table in ["webhook_endpoints", "idempotency_keys"] {
            let rows = format!("SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t");
            let rows: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(&self.pool).await.unwrap();
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!rows.is_empty() && !rows.contains(secret) && !rows.contains(&hex), "{table}");
        }
    }

    async fn fail_all_deliveries(&self) {
        sqlx::query("UPDATE webhook_deliveries SET state = 'failed', tries = 10, ended_at = now()")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    async fn scheduled_events(&self) -> Vec<String> {
        let due =
            "SELECT event_id FROM webhook_deliveries WHERE state = 'pending' AND tries = 0 ORDER BY event_id";
        sqlx::query_scalar(due).fetch_all(&self.pool).await.unwrap()
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_endpoint_is_created_once_and_its_secret_is_not_stored(pool: PgPool) {
    let api = Api::new(pool).await;
    let body =
        json!({"url": HOOK, "kinds": ["transfer_sent", "transfer_failed", "transfer_sent"]}).to_string();
    let first = api.post(ACME, ENDPOINTS, "k", &body).await;
    assert_eq!((first.status.as_u16(), first.header("idempotent-replay")), (201, "false"), "{first:?}");
    assert_eq!(first.json["kinds"], json!(["transfer_failed", "transfer_sent"]));
    assert_eq!((&first.json["status"], &first.json["secret_version"]), (&json!("active"), &json!(1)));
    let secret = first.json["secret"].as_str().unwrap();
    assert!(secret.parse::<service_kit::signature::Secret>().is_ok(), "{secret}");

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
async fn a_secret_is_returned_on_creation_and_rotation_only(pool: PgPool) {
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
async fn an_endpoint_with_a_forbidden_url_is_refused(pool: PgPool) {
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
async fn a_tenant_has_at_most_ten_endpoints(pool: PgPool) {
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
async fn an_endpoint_of_another_tenant_does_not_exist(pool: PgPool) {
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
async fn an_endpoint_is_updated_unless_an_operator_disabled_it(pool: PgPool) {
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
    assert_eq!((&disabled["status"], &disabled["disabled_reason"]), (&json!("disabled"), &json!("asked")));
    assert_eq!(disabled["url"], "https://bank.example/other", "expected omitted fields to stay unchanged");
    assert_eq!(change("c3", json!({"status": "active"})).await.json["status"], "active");
    change("c4", json!({"status": "unknown"})).await.assert_problem(422, "invalid_status", "unknown");

    let mut connection = api.pool.acquire().await.unwrap();
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
async fn a_secret_is_rotated_once_per_key(pool: PgPool) {
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
async fn deliveries_are_listed_and_replayed(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    for n in 0..3 {
        api.fan_out_event(&format!("pay_1:e{n}")).await;
    }
    api.fail_all_deliveries().await;
    sqlx::query(
        "INSERT INTO webhook_attempts (position, duration_ms, response_status, error, response_excerpt)
         SELECT position, 12, 500, 'answered 500', 'sorry' FROM webhook_deliveries",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let deliveries = format!("{}/deliveries", path(&endpoint));
    let page = api.get(ACME, &format!("{deliveries}?state=failed&limit=2")).await.json;
    assert_eq!(page["next"], "pay_1:e1");
    assert_eq!(page["deliveries"][0]["event_id"], "pay_1:e2");
    let attempts = &page["deliveries"][0]["attempts"];
    assert_eq!(
        (&attempts[0]["response_status"], &attempts[0]["response_body"]),
        (&json!(500), &json!("sorry"))
    );
    let last = api.get(ACME, &format!("{deliveries}?limit=2&after=pay_1:e1")).await.json;
    assert_eq!((&last["deliveries"][0]["event_id"], &last["next"]), (&json!("pay_1:e0"), &Value::Null));
    for query in ["limit=0", "limit=201", "state=lost", "after=", "unknown=1"] {
        let response = api.get(ACME, &format!("{deliveries}?{query}")).await;
        response.assert_problem(400, "malformed_query", query);
    }

    let replay = |event: &str| format!("{deliveries}/{event}/replay");
    let again = api.post(ACME, &replay("pay_1:e1"), "p1", "").await;
    assert_eq!((again.status.as_u16(), &again.json["status"]), (202, &json!("scheduled")), "{again:?}");
    assert_eq!(api.scheduled_events().await, ["pay_1:e1"]);
    api.post(ACME, &replay("another"), "p2", "").await.assert_problem(404, "delivery_not_found", "another");

    let all = format!("{}/replay-failed", path(&endpoint));
    let since = |at: &str| json!({ "since": at }).to_string();
    api.post(ACME, &all, "p3", &since("yesterday")).await.assert_problem(
        422,
        "invalid_instant",
        "not an instant",
    );
    assert_eq!(api.post(ACME, &all, "p4", &since("2999-01-01T00:00:00Z")).await.json["replayed"], 0);
    assert_eq!(api.post(ACME, &all, "p5", &since("2020-01-01T00:00:00Z")).await.json["replayed"], 2);
    assert_eq!(api.scheduled_events().await, ["pay_1:e0", "pay_1:e1", "pay_1:e2"]);

    api.fail_all_deliveries().await;
    api.send_keyed("PATCH", ACME, &path(&endpoint), "c", r#"{"status": "disabled"}"#).await;
    for (key, path, body) in
        [("p6", replay("pay_1:e1"), String::new()), ("p7", all, since("2020-01-01T00:00:00Z"))]
    {
        api.post(ACME, &path, key, &body).await.assert_problem(409, "endpoint_disabled", &path);
    }
    assert!(api.scheduled_events().await.is_empty());
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_unknown_kind_is_refused_in_an_update(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    let change = json!({"kinds": ["transfer_sent", "transfer_imagined"]}).to_string();
    let changed = api.send_keyed("PATCH", ACME, &path(&endpoint), "c", &change).await;
    changed.assert_problem(422, "unknown_kind", "unknown kind");
    assert_eq!(api.get(ACME, &path(&endpoint)).await.json["kinds"], json!([]));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn deliveries_are_filtered_by_state_and_a_leased_one_is_kept(pool: PgPool) {
    let api = Api::new(pool).await;
    let endpoint = api.created_endpoint("k").await;
    api.fan_out_event("e1").await;
    api.fail_all_deliveries().await;
    api.fan_out_event("e2").await;
    let deliveries = format!("{}/deliveries", path(&endpoint));
    for (state, events) in [("failed", json!(["e1"])), ("pending", json!(["e2"])), ("delivered", json!([]))] {
        let listed = api.get(ACME, &format!("{deliveries}?state={state}")).await.json;
        let listed: Value = listed["deliveries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|delivery| delivery["event_id"].clone())
            .collect();
        assert_eq!(listed, events, "{state}");
    }
    // As during a delivery attempt.
    let lease = "UPDATE webhook_deliveries SET lease = gen_random_uuid(), next_at = now() + interval '1 hour'
                 WHERE event_id = 'e2' RETURNING lease::text";
    let lease: String = sqlx::query_scalar(lease).fetch_one(&api.pool).await.unwrap();
    let again = api.post(ACME, &format!("{deliveries}/e2/replay"), "p", "").await;
    assert_eq!((again.status.as_u16(), &again.json["status"]), (202, &json!("in_progress")), "{again:?}");
    let held = "SELECT lease::text FROM webhook_deliveries WHERE event_id = 'e2'";
    let held: Option<String> = sqlx::query_scalar(held).fetch_one(&api.pool).await.unwrap();
    assert_eq!(
        held,
        Some(lease),
        "expected the lease to be unchanged; otherwise two attempts could run at once"
    );
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_1_every_change_of_an_endpoint_requires_a_key(pool: PgPool) {
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

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn without_a_master_key_only_secrets_are_unavailable(pool: PgPool) {
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
