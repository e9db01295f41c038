//! `/api/v1/webhook-endpoints`: made, seen, changed, rotated, deleted; what was sent, and sent again. What is sent, and how, is
//! tested where it is done (`crates/outbound-webhooks`).

use outbound_webhooks::endpoints;
use outbound_webhooks::{EndpointId, WebhookEvent, fan_out};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{ACME, Answer, Api, GLOBEX};

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
    async fn made(&self, key: &str) -> Value {
        let answer = self.post(ACME, ENDPOINTS, key, &request(HOOK)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json
    }

    /// An event of acme's.
    async fn happens(&self, event_id: &str) {
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

    /// Neither as text nor in the bytes of a stored answer.
    async fn assert_stored_nowhere(&self, secret: &str) {
        let secret = secret.trim_start_matches("whsec_");
        for table in ["webhook_endpoints", "idempotency_keys"] {
            let rows = format!("SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t");
            let rows: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(&self.pool).await.unwrap();
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!rows.is_empty() && !rows.contains(secret) && !rows.contains(&hex), "{table}");
        }
    }

    async fn all_failed(&self) {
        sqlx::query("UPDATE webhook_deliveries SET state = 'failed', tries = 10, ended_at = now()")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    async fn due(&self) -> Vec<String> {
        let due =
            "SELECT event_id FROM webhook_deliveries WHERE state = 'pending' AND tries = 0 ORDER BY event_id";
        sqlx::query_scalar(due).fetch_all(&self.pool).await.unwrap()
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_endpoint_is_made_once_and_its_secret_is_stored_nowhere(pool: PgPool) {
    let api = Api::new(pool).await;
    let body =
        json!({"url": HOOK, "kinds": ["transfer_sent", "transfer_failed", "transfer_sent"]}).to_string();
    let first = api.post(ACME, ENDPOINTS, "k", &body).await;
    assert_eq!((first.status.as_u16(), first.header("idempotent-replay")), (201, "false"), "{first:?}");
    assert_eq!(first.json["kinds"], json!(["transfer_failed", "transfer_sent"]));
    assert_eq!((&first.json["status"], &first.json["secret_version"]), (&json!("active"), &json!(1)));
    let secret = first.json["secret"].as_str().unwrap();
    assert!(secret.parse::<service_kit::signature::Secret>().is_ok(), "{secret}");

    let repeat = api.post(ACME, ENDPOINTS, "k", &body).await;
    assert_eq!((repeat.status.as_u16(), &repeat.bytes), (200, &first.bytes));
    assert_eq!(repeat.header("idempotent-replay"), "true");
    api.post(ACME, ENDPOINTS, "k", &request(HOOK)).await.assert_problem(422, "payload_mismatch", "another");

    let listed = api.get(ACME, ENDPOINTS).await.json;
    assert_eq!(listed["webhook_endpoints"].as_array().unwrap().len(), 1);
    let read = api.get(ACME, &path(&first.json)).await.json;
    assert_eq!(listed["webhook_endpoints"][0], read);
    assert_eq!(read["secret"], Value::Null);
    api.assert_stored_nowhere(secret).await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn who_asked_for_a_secret_is_shown_it_and_nobody_else(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = api.made("k").await;
    let path = path(&made);
    api.happens("e1").await;
    let rotated = api.post(ACME, &format!("{path}/rotate-secret"), "r", "").await.json;
    api.assert_stored_nowhere(rotated["secret"].as_str().unwrap()).await;
    for (verb, path, body) in [
        ("GET", ENDPOINTS, ""),
        ("GET", &path, ""),
        ("GET", &format!("{path}/deliveries"), ""),
        ("PATCH", &path, r#"{"status": "active"}"#),
        ("POST", &format!("{path}/deliveries/e1/replay"), ""),
        ("DELETE", &path, ""),
    ] {
        let answer = api.send_as(verb, ACME, path, verb, body).await;
        assert!(answer.status.is_success(), "{answer:?}");
        let text = String::from_utf8(answer.bytes).unwrap();
        assert!(!text.contains("secret\"") && !text.contains("whsec_"), "{verb} {path}: {text}");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn where_we_must_not_go_no_endpoint_is_made(pool: PgPool) {
    let api = Api::new(pool).await;
    let before = api.trace().await;
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
        let answer = api.post(ACME, ENDPOINTS, "k", &request(url)).await;
        answer.assert_problem(422, "invalid_url", url);
    }
    let body = json!({"url": HOOK, "kinds": ["transfer_imagined"]}).to_string();
    api.post(ACME, ENDPOINTS, "k", &body).await.assert_problem(422, "unknown_kind", "kind");
    let body = json!({"url": HOOK, "secret": "whsec_mine"}).to_string();
    api.post(ACME, ENDPOINTS, "k", &body).await.assert_problem(
        400,
        "malformed_json",
        "a secret of one's own",
    );
    assert_eq!(api.trace().await, before, "no key was used");
    let made = api.made("k").await;
    let change = json!({"url": "https://10.0.0.1/"}).to_string();
    let changed = api.send_as("PATCH", ACME, &path(&made), "c", &change).await;
    changed.assert_problem(422, "invalid_url", "nor is one moved there");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_tenant_has_ten_at_most(pool: PgPool) {
    let api = Api::new(pool).await;
    for n in 0..10 {
        api.made(&format!("k{n}")).await;
    }
    let refused = api.post(ACME, ENDPOINTS, "k10", &request(HOOK)).await;
    refused.assert_problem(422, "too_many_endpoints", "the eleventh");
    let repeat = api.post(ACME, ENDPOINTS, "k9", &request(HOOK)).await;
    assert_eq!(repeat.status, 200, "a repeat is no further one");
    let first = api.get(ACME, ENDPOINTS).await.json["webhook_endpoints"][0].clone();
    let deleted = api.send_as("DELETE", ACME, &path(&first), "d", "").await;
    assert_eq!((deleted.status.as_u16(), &deleted.json["status"]), (200, &json!("deleted")));
    let repeat = api.send_as("DELETE", ACME, &path(&first), "d", "").await;
    assert_eq!((repeat.status.as_u16(), &repeat.bytes), (200, &deleted.bytes));
    api.get(ACME, &path(&first)).await.assert_problem(404, "endpoint_not_found", "deleted");
    // Its key was given back.
    assert_eq!(api.post(ACME, ENDPOINTS, "k10", &request(HOOK)).await.status, 201);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn anothers_endpoint_reads_as_one_that_is_not_there(pool: PgPool) {
    let api = Api::new(pool).await;
    let theirs = path(&api.made("k").await);
    api.happens("e1").await;
    api.all_failed().await;
    let nobodys = format!("{ENDPOINTS}/{}", EndpointId::random());
    let rows = async || -> String {
        let rows = "SELECT string_agg(d::text || e::text, '') FROM webhook_deliveries d JOIN webhook_endpoints e USING (endpoint_id)";
        sqlx::query_scalar(rows).fetch_one(&api.pool).await.unwrap()
    };
    let before = rows().await;
    let since = json!({"since": "2020-01-01T00:00:00Z"}).to_string();
    let ways = [
        ("GET", "", ""),
        ("PATCH", "", r#"{"status": "disabled"}"#),
        ("DELETE", "", ""),
        ("POST", "/rotate-secret", ""),
        ("GET", "/deliveries", ""),
        ("POST", "/deliveries/e1/replay", ""),
        ("POST", "/replay-failed", &since),
    ];
    for (n, (verb, rest, body)) in ways.into_iter().enumerate() {
        let asked = async |path: &str, key: &str| {
            let answer = api.send_as(verb, GLOBEX, &format!("{path}{rest}"), key, body).await;
            answer.assert_problem(404, "endpoint_not_found", &format!("{verb} {rest}"));
            let text = String::from_utf8(answer.bytes).unwrap();
            text.replace(path.rsplit('/').next().unwrap(), "ID")
        };
        assert_eq!(asked(&theirs, &format!("a{n}")).await, asked(&nobodys, &format!("b{n}")).await);
    }
    assert_eq!(rows().await, before);
    assert_eq!(api.get(GLOBEX, ENDPOINTS).await.json, json!({"webhook_endpoints": []}));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_endpoint_is_changed_and_what_operators_disable_stays_so(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = api.made("k").await;
    let change = async |key: &str, body: Value| -> Answer {
        api.send_as("PATCH", ACME, &path(&made), key, &body.to_string()).await
    };
    let changed =
        change("c1", json!({"url": "https://bank.example/other", "kinds": ["transfer_sent"]})).await;
    assert_eq!(changed.json["url"], "https://bank.example/other");
    assert_eq!(changed.json["kinds"], json!(["transfer_sent"]));
    let disabled = change("c2", json!({"status": "disabled"})).await.json;
    assert_eq!((&disabled["status"], &disabled["disabled_for"]), (&json!("disabled"), &json!("asked")));
    assert_eq!(disabled["url"], "https://bank.example/other", "what is not named stays");
    assert_eq!(change("c3", json!({"status": "active"})).await.json["status"], "active");
    change("c4", json!({"status": "asleep"})).await.assert_problem(422, "invalid_status", "unknown");

    let mut connection = api.pool.acquire().await.unwrap();
    assert!(endpoints::disable_as_operator(&mut connection, &id(&made), "ann: a flood").await.unwrap());
    let refused = change("c5", json!({"status": "active", "url": HOOK})).await;
    refused.assert_problem(409, "disabled_by_operator", "lifted by its tenant");
    let refused =
        change("c6", json!({"kinds": ["transfer_sent"], "url": "https://elsewhere.example/"})).await;
    refused.assert_problem(409, "disabled_by_operator", "changed by its tenant");
    let refused = api.send_as("DELETE", ACME, &path(&made), "d1", "").await;
    refused.assert_problem(409, "disabled_by_operator", "deleted by its tenant");
    // One made anew where it stood would be the same, by whatever spelling of the host.
    for (key, url) in [("n1", "https://bank.example/anew"), ("n2", "https://BANK.example.:443/")] {
        let refused = api.post(ACME, ENDPOINTS, key, &request(url)).await;
        refused.assert_problem(409, "disabled_by_operator", "made anew");
    }
    let other = api.post(ACME, ENDPOINTS, "n1", &request("https://elsewhere.example/")).await;
    assert_eq!(other.status.as_u16(), 201, "the refused key is unused: {other:?}");
    let refused = api.send_as("PATCH", ACME, &path(&other.json), "c7", &request(HOOK)).await;
    refused.assert_problem(409, "disabled_by_operator", "another one moved there");

    let read = api.get(ACME, &path(&made)).await.json;
    assert_eq!(read["disabled_note"], "ann: a flood");
    assert_eq!(read["url"], "https://bank.example/other", "nothing of it was done");
    assert!(endpoints::enable_as_operator(&mut connection, &id(&made)).await.unwrap());
    let deleted = api.send_as("DELETE", ACME, &path(&made), "d1", "").await;
    assert_eq!(deleted.status.as_u16(), 200, "theirs again: {deleted:?}");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_secret_is_rotated_once_for_a_key(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = api.made("k").await;
    let rotate = format!("{}/rotate-secret", path(&made));
    let first = api.post(ACME, &rotate, "r1", "").await;
    assert_eq!((first.status.as_u16(), &first.json["secret_version"]), (200, &json!(2)), "{first:?}");
    assert_ne!(first.json["secret"], made["secret"]);
    let until: jiff::Timestamp = first.json["old_secret_until"].as_str().unwrap().parse().unwrap();
    let overlap_h = (until.duration_since(jiff::Timestamp::now()).as_secs() + 1_800) / 3_600;
    assert_eq!(overlap_h, 24);
    let repeat = api.post(ACME, &rotate, "r1", "").await;
    assert_eq!(repeat.bytes, first.bytes, "the same secret, not a third one");
    assert_eq!(api.post(ACME, &rotate, "r2", "").await.json["secret_version"], 3);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_was_sent_is_listed_and_sent_again(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = api.made("k").await;
    for n in 0..3 {
        api.happens(&format!("pay_1:e{n}")).await;
    }
    api.all_failed().await;
    sqlx::query(
        "INSERT INTO webhook_attempts (position, took_ms, status, error, answer)
         SELECT position, 12, 500, 'answered 500', 'sorry' FROM webhook_deliveries",
    )
    .execute(&api.pool)
    .await
    .unwrap();
    let deliveries = format!("{}/deliveries", path(&made));
    let page = api.get(ACME, &format!("{deliveries}?state=failed&limit=2")).await.json;
    assert_eq!(page["next"], "pay_1:e1");
    assert_eq!(page["deliveries"][0]["event_id"], "pay_1:e2");
    let attempts = &page["deliveries"][0]["attempts"];
    assert_eq!((&attempts[0]["status"], &attempts[0]["answer"]), (&json!(500), &json!("sorry")));
    let last = api.get(ACME, &format!("{deliveries}?limit=2&after=pay_1:e1")).await.json;
    assert_eq!((&last["deliveries"][0]["event_id"], &last["next"]), (&json!("pay_1:e0"), &Value::Null));
    for query in ["limit=0", "limit=201", "state=lost", "after=", "unknown=1"] {
        let answer = api.get(ACME, &format!("{deliveries}?{query}")).await;
        answer.assert_problem(400, "malformed_query", query);
    }

    let replay = |event: &str| format!("{deliveries}/{event}/replay");
    let again = api.post(ACME, &replay("pay_1:e1"), "p1", "").await;
    assert_eq!((again.status.as_u16(), &again.json["status"]), (202, &json!("due")), "{again:?}");
    assert_eq!(api.due().await, ["pay_1:e1"]);
    api.post(ACME, &replay("another"), "p2", "").await.assert_problem(404, "delivery_not_found", "another");

    let all = format!("{}/replay-failed", path(&made));
    let since = |at: &str| json!({ "since": at }).to_string();
    api.post(ACME, &all, "p3", &since("yesterday")).await.assert_problem(
        422,
        "invalid_instant",
        "no instant",
    );
    assert_eq!(api.post(ACME, &all, "p4", &since("2999-01-01T00:00:00Z")).await.json["replayed"], 0);
    assert_eq!(api.post(ACME, &all, "p5", &since("2020-01-01T00:00:00Z")).await.json["replayed"], 2);
    assert_eq!(api.due().await, ["pay_1:e0", "pay_1:e1", "pay_1:e2"]);

    api.all_failed().await;
    api.send_as("PATCH", ACME, &path(&made), "c", r#"{"status": "disabled"}"#).await;
    for (key, path, body) in
        [("p6", replay("pay_1:e1"), String::new()), ("p7", all, since("2020-01-01T00:00:00Z"))]
    {
        api.post(ACME, &path, key, &body).await.assert_problem(409, "endpoint_disabled", &path);
    }
    assert!(api.due().await.is_empty());
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_unknown_kind_is_refused_when_an_endpoint_is_changed_too(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = api.made("k").await;
    let change = json!({"kinds": ["transfer_sent", "transfer_imagined"]}).to_string();
    let changed = api.send_as("PATCH", ACME, &path(&made), "c", &change).await;
    changed.assert_problem(422, "unknown_kind", "it would never be told of it");
    assert_eq!(api.get(ACME, &path(&made)).await.json["kinds"], json!([]));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn deliveries_are_listed_by_their_state_and_one_under_way_is_left_alone(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = api.made("k").await;
    api.happens("e1").await;
    api.all_failed().await;
    api.happens("e2").await;
    let deliveries = format!("{}/deliveries", path(&made));
    for (state, events) in [("failed", json!(["e1"])), ("pending", json!(["e2"])), ("delivered", json!([]))] {
        let listed = api.get(ACME, &format!("{deliveries}?state={state}")).await.json;
        let listed: Value =
            listed["deliveries"].as_array().unwrap().iter().map(|one| one["event_id"].clone()).collect();
        assert_eq!(listed, events, "{state}");
    }
    // As while a sender makes the attempt.
    let lease = "UPDATE webhook_deliveries SET lease = gen_random_uuid(), next_at = now() + interval '1 hour'
                 WHERE event_id = 'e2' RETURNING lease::text";
    let lease: String = sqlx::query_scalar(lease).fetch_one(&api.pool).await.unwrap();
    let again = api.post(ACME, &format!("{deliveries}/e2/replay"), "p", "").await;
    assert_eq!((again.status.as_u16(), &again.json["status"]), (202, &json!("under_way")), "{again:?}");
    let held = "SELECT lease::text FROM webhook_deliveries WHERE event_id = 'e2'";
    let held: Option<String> = sqlx::query_scalar(held).fetch_one(&api.pool).await.unwrap();
    assert_eq!(held, Some(lease), "or it would be sent twice at once");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_1_whatever_changes_an_endpoint_needs_a_key(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = path(&api.made("k").await);
    for (verb, path) in [
        ("POST", ENDPOINTS.to_owned()),
        ("PATCH", made.clone()),
        ("DELETE", made.clone()),
        ("POST", format!("{made}/rotate-secret")),
        ("POST", format!("{made}/deliveries/e1/replay")),
        ("POST", format!("{made}/replay-failed")),
    ] {
        let request = axum::http::Request::builder()
            .method(verb)
            .uri(&path)
            .header("authorization", format!("Bearer {ACME}"))
            .header("content-type", "application/json")
            .body(axum::body::Body::from(request(HOOK)));
        let answer = api.send(request.unwrap()).await;
        answer.assert_problem(400, "idempotency_key_missing", &format!("{verb} {path}"));
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn without_a_master_key_no_endpoint_is_made_and_all_else_works(pool: PgPool) {
    let api = Api::new(pool).await;
    let made = path(&api.made("k").await);
    let mut config = crate::support::config(json!({}));
    config.outbound_webhooks.master_key = None;
    let other = Api::configured(api.pool.clone(), config);
    for (path, key) in [(ENDPOINTS.to_owned(), "k1"), (format!("{made}/rotate-secret"), "k2")] {
        let answer = other.post(ACME, &path, key, &request(HOOK)).await;
        answer.assert_problem(503, "webhooks_not_configured", &path);
    }
    assert_eq!(other.get(ACME, &made).await.json["secret_version"], 1);
    assert_eq!(other.send_as("DELETE", ACME, &made, "d", "").await.status, 200);
    assert_eq!(other.pay("pay", &crate::support::order()).await.status, 201, "payments need no master key");
}
