//! The routes of operator-api over a real database with the rights of its role: sessions, roles, refusals, and the document.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

use std::path::Path;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use operator_api::Config;
use payment_ledger::Ledger;
use payment_ledger::access::operators::{OperatorRole, Password};
use serde_json::{Value, json};
use service_kit::published::DEMO_OPERATOR_PASSWORD;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

const PASSWORD: &str = "correct horse battery";
const SESSIONS: &str = "/operator/v1/sessions";
const CURRENT: &str = "/operator/v1/sessions/current";
const PROVIDER: &str = "/operator/v1/oidc";
const ID_TOKEN_SESSIONS: &str = "/operator/v1/sessions/oidc";
const CHANGES: &str = "/operator/v1/changes";
/// Set to `1`, this variable makes the test write the document.
const UPDATE: &str = "UPDATE_OPENAPI";

/// The service under test, and the bank's owner, who creates operators.
struct Api {
    router: Router,
    owner: Ledger,
}

#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    json: Value,
}

impl Answer {
    #[track_caller]
    fn assert_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), &self.json["code"]), (status, &json!(code)), "{self:?}");
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
    }
}

impl Api {
    async fn new(connect: PgConnectOptions, options: Value) -> Self {
        let profile = json!({
            "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400, "tombstones": true,
            "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true, "can_recall": true, "has_callback": true,
        });
        let config: Config = serde_json::from_value(json!({
            "operator_api": options,
            "temporal": {"allow_clear_payloads": true},
            "switches": {"mock": {"base_url": "http://127.0.0.1:9", "api_token": "t", "routes": ["XX"], "profile": profile}},
        }))
        .unwrap();
        let owner = Ledger::new(PgPool::connect_with(connect.clone()).await.unwrap());
        let own = PgPoolOptions::new().max_connections(4);
        let own = own.connect_with(connect.options([("role", "operator_api")])).await.unwrap();
        Self { router: operator_api::router(config, own.into(), CancellationToken::new()).unwrap(), owner }
    }

    async fn create(&self, name: &str, password: &str, roles: &[OperatorRole]) {
        let hash = Password::new(password.into()).unwrap().to_stored().unwrap();
        self.owner.create_operator(name, roles, &hash.into()).await.unwrap();
    }

    async fn send(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !token.is_empty() {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header("Content-Type", "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let response = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status: parts.status, headers: parts.headers, json }
    }

    async fn get(&self, path: &str, token: &str) -> Answer {
        self.send("GET", path, token, None).await
    }

    async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        self.send("POST", path, token, Some(&body)).await
    }

    async fn log_in(&self, name: &str) -> String {
        let opened = self.post(SESSIONS, "", json!({"name": name, "password": PASSWORD})).await;
        assert_eq!(opened.status, StatusCode::CREATED, "{opened:?}");
        opened.json["token"].as_str().unwrap().to_owned()
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_session_is_opened_by_a_password_and_ended_by_a_logout(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let api = Api::new(connect, json!({})).await;
    api.create("ann", PASSWORD, &[OperatorRole::Operator, OperatorRole::Approver]).await;
    for (name, password) in [("ann", "wrong"), ("nobody", PASSWORD), ("", "")] {
        let refused = api.post(SESSIONS, "", json!({"name": name, "password": password})).await;
        refused.assert_problem(401, "login_refused");
    }
    let token = api.log_in("ann").await;
    let session = api.get(CURRENT, &token).await;
    assert_eq!(session.json["operator"], "ann");
    assert_eq!(session.json["roles"], json!(["operator", "approver"]));
    assert_eq!(session.headers["cache-control"], "no-store");
    assert!(session.json.get("token").is_none(), "{session:?}");

    for bad in ["", "ops_", "demo-key", &"0".repeat(68), &format!("ops_{}", "0".repeat(64))] {
        api.get(CURRENT, bad).await.assert_problem(401, "unauthorized");
    }
    assert_eq!(api.send("DELETE", CURRENT, &token, None).await.status, StatusCode::NO_CONTENT);
    api.get(CURRENT, &token).await.assert_problem(401, "unauthorized");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_demos_password_opens_no_session_where_other_machines_reach_the_listener(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let open = Api::new(connect.clone(), json!({"listen": "0.0.0.0:8081"})).await;
    open.create("ann", DEMO_OPERATOR_PASSWORD, &[OperatorRole::Operator]).await;
    let login = json!({"name": "ann", "password": DEMO_OPERATOR_PASSWORD});
    open.post(SESSIONS, "", login.clone()).await.assert_problem(401, "login_refused");
    let local = Api::new(connect, json!({})).await;
    assert_eq!(local.post(SESSIONS, "", login).await.status, StatusCode::CREATED);
}

/// Each route without a session, and with one whose operator lacks the role.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn every_route_needs_a_session_and_each_action_a_role(_: PgPoolOptions, connect: PgConnectOptions) {
    let api = Api::new(connect, json!({})).await;
    api.create("eve", PASSWORD, &[OperatorRole::Viewer]).await;
    api.create("ann", PASSWORD, &[OperatorRole::Operator]).await;
    let (viewer, operator) = (api.log_in("eve").await, api.log_in("ann").await);
    let (reason, debit) =
        (json!({"reason": "r"}), json!({"action": "debit", "reason": "r", "evidence": "e"}));
    let close = json!({"action": "close", "reason": "r"});
    let lift = json!({"change": {"kind": "lift_kill_switch", "kill_switch_id": 7}, "reason": "r"});
    let payment = "/operator/v1/payments/pay_00000000000000000000000000000000";
    let decision = "/operator/v1/decisions/dec_00000000000000000000";
    let actions = [
        (format!("{payment}/decisions"), &debit, 404, "payment_not_found"),
        (format!("{payment}/exceptions"), &reason, 404, "payment_not_found"),
        ("/operator/v1/exceptions/7/decisions".to_owned(), &close, 404, "exception_not_found"),
        (format!("{decision}/withdraw"), &reason, 404, "decision_not_found"),
        (format!("{decision}/confirm"), &reason, 403, "role_missing"),
        (CHANGES.to_owned(), &lift, 409, "change_refused"),
        (format!("{CHANGES}/chg_0/withdraw"), &reason, 404, "change_not_found"),
        (format!("{CHANGES}/chg_0/confirm"), &reason, 403, "role_missing"),
    ];
    for (path, body, status, code) in actions {
        api.post(&path, "", body.clone()).await.assert_problem(401, "unauthorized");
        api.post(&path, &viewer, body.clone()).await.assert_problem(403, "role_missing");
        api.post(&path, &operator, body.clone()).await.assert_problem(status, code);
    }
    let reads = [
        "/operator/v1/payments/waiting",
        "/operator/v1/exceptions",
        CURRENT,
        CHANGES,
        "/operator/v1/limits",
        "/operator/v1/kill-switches",
        "/operator/v1/api-keys",
    ];
    for path in reads {
        api.get(path, "").await.assert_problem(401, "unauthorized");
        assert_eq!(api.get(path, &viewer).await.status, StatusCode::OK, "{path}");
    }
    api.get(decision, &viewer).await.assert_problem(404, "decision_not_found");
    api.get(&format!("{CHANGES}/chg_0"), &viewer).await.assert_problem(404, "change_not_found");
    api.get("/operator/v1/tenants/t/accounts/a", &viewer).await.assert_problem(404, "account_not_found");
}

/// Each kind of change: done by one operator, or waiting for another one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_kind_of_change_takes_one_operator_or_two(_: PgPoolOptions, connect: PgConnectOptions) {
    let api = Api::new(connect, json!({})).await;
    api.create("ann", PASSWORD, &[OperatorRole::Operator, OperatorRole::Approver]).await;
    api.create("bob", PASSWORD, &[OperatorRole::Approver]).await;
    let (ann, bob) = (api.log_in("ann").await, api.log_in("bob").await);
    let account = json!({"tenant_id": "acme", "account_id": "acc-1"});
    let with = |kind: &str, more: Value| {
        let mut change = account.clone();
        change["kind"] = kind.into();
        change.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        change
    };
    let limit = |per_day: &str| json!({"kind": "set_limit", "account_id": "acc-1", "currency": "EUR", "per_day": per_day, "per_day_count": 3});
    let key = |digit: &str| (format!("pk_{}", digit.repeat(12)), digit.repeat(64));
    let ((one, one_hash), (two, two_hash)) = (key("1"), key("2"));
    let mut made = Vec::new();
    for (change, two_operators) in [
        (with("open_account", json!({"currency": "EUR"})), false),
        (with("fund_account", json!({"amount": "12.50", "currency": "EUR"})), true),
        (with("freeze_account", json!({})), false),
        (with("unfreeze_account", json!({})), true),
        (json!({"kind": "activate_kill_switch", "switch": "mock"}), false),
        (json!({"kind": "activate_kill_switch", "currency": "EUR", "destination_prefix": ""}), false),
        (json!({"kind": "lift_kill_switch", "kill_switch_id": 1}), true),
        (limit("100.00"), false),
        (limit("99.99"), false),
        (limit("100.00"), true),
        (
            json!({"kind": "create_api_key", "key_id": one, "key_sha256": one_hash, "tenant_id": "acme", "client_id": "shop",
            "scopes": ["pay", "read"], "expires_in_days": 30}),
            true,
        ),
        (
            json!({"kind": "rotate_api_key", "key_id": one, "successor_id": two, "successor_sha256": two_hash, "overlap_hours": 1}),
            true,
        ),
        (json!({"kind": "revoke_api_key", "key_id": two}), false),
    ] {
        let proposed = api.post(CHANGES, &ann, json!({"change": change, "reason": "a letter"})).await;
        assert_eq!(proposed.status, StatusCode::CREATED, "{change}: {proposed:?}");
        let expected = if two_operators { "proposed" } else { "done" };
        assert_eq!(
            (&proposed.json["status"], &proposed.json["needs_two"]),
            (&json!(expected), &json!(two_operators)),
            "{change}"
        );
        assert_eq!(proposed.json["proposed_by"], "ann");
        let id = proposed.json["change_id"].as_str().unwrap().to_owned();
        if two_operators {
            let waiting = api.get(CHANGES, &bob).await;
            assert_eq!(waiting.json["changes"][0]["change_id"], id, "{waiting:?}");
            let confirm = format!("{CHANGES}/{id}/confirm");
            let reason = json!({"reason": "seen"});
            api.post(&confirm, &ann, reason.clone()).await.assert_problem(403, "same_operator");
            let confirmed = api.post(&confirm, &bob, reason).await;
            assert_eq!(
                (&confirmed.json["status"], &confirmed.json["confirmed_by"]),
                (&json!("done"), &json!("bob")),
                "{confirmed:?}"
            );
        }
        made.push(id);
    }
    api.create("amy", PASSWORD, &[OperatorRole::Administrator]).await;
    api.create("abe", PASSWORD, &[OperatorRole::Administrator]).await;
    let (amy, abe) = (api.log_in("amy").await, api.log_in("abe").await);
    let (issuer, reason) = ("https://login.example", json!({"reason": "seen"}));
    for (change, two_operators) in [
        (
            json!({"kind": "create_operator", "name": "zoe", "roles": ["approver"], "issuer": issuer, "subject": "7"}),
            true,
        ),
        (
            json!({"kind": "set_operator_roles", "name": "zoe", "roles": ["viewer", "operator", "viewer"]}),
            true,
        ),
        (json!({"kind": "set_operator_identity", "name": "zoe", "issuer": issuer, "subject": "8"}), true),
        (json!({"kind": "disable_operator", "name": "zoe"}), false),
    ] {
        let body = json!({"change": change, "reason": "a new colleague"});
        api.post(CHANGES, &ann, body.clone()).await.assert_problem(403, "role_missing");
        let proposed = api.post(CHANGES, &amy, body).await;
        assert_eq!(proposed.json["needs_two"], two_operators, "{change}: {proposed:?}");
        let id = proposed.json["change_id"].as_str().unwrap().to_owned();
        if two_operators {
            let confirm = format!("{CHANGES}/{id}/confirm");
            api.post(&confirm, &bob, reason.clone()).await.assert_problem(403, "role_missing");
            let confirmed = api.post(&confirm, &abe, reason.clone()).await;
            assert_eq!(confirmed.json["status"], "done", "{confirmed:?}");
        }
        made.push(id);
    }
    let operators = api.get("/operator/v1/operators", &bob).await;
    let zoe =
        operators.json["operators"].as_array().unwrap().iter().find(|operator| operator["name"] == "zoe");
    let zoe = zoe.unwrap();
    assert_eq!((&zoe["roles"], &zoe["subject"]), (&json!(["viewer", "operator"]), &json!("8")), "{zoe}");
    assert!(zoe["disabled_at"].is_string(), "{zoe}");
    assert_eq!(api.get(CHANGES, &ann).await.json["changes"], json!([]));
    let all = api.get(&format!("{CHANGES}?with_closed=true&limit=100"), &ann).await;
    let ids: Vec<&str> = all.json["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| change["change_id"].as_str().unwrap())
        .collect();
    made.reverse();
    assert_eq!(ids, made, "newest first");
    assert!(!all.json.to_string().contains(&one_hash), "no hash of a key");

    let account = api.get("/operator/v1/tenants/acme/accounts/acc-1", &bob).await.json;
    assert_eq!(
        (&account["available_minor"], &account["status"]),
        (&json!(1_250), &json!("active")),
        "{account}"
    );
    let limits = api.get("/operator/v1/limits", &bob).await.json;
    assert_eq!(
        (&limits["limits"][0]["per_day_minor"], &limits["limits"][0]["set_by"]),
        (&json!(10_000), &json!("bob")),
        "{limits}"
    );
    let switches = api.get("/operator/v1/kill-switches?with_lifted=true", &bob).await.json;
    assert_eq!(switches["kill_switches"][1]["lifted_by"], "bob", "{switches}");
    let keys = api.get("/operator/v1/api-keys?tenant_id=acme", &bob).await.json;
    let keys: Vec<_> = keys["api_keys"]
        .as_array()
        .unwrap()
        .iter()
        .map(|key| (key["key_id"].clone(), key["status"].clone()))
        .collect();
    assert_eq!(keys, [(json!(one), json!("active")), (json!(two), json!("revoked"))]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_invalid_change_is_answered_with_what_to_send(_: PgPoolOptions, connect: PgConnectOptions) {
    let api = Api::new(connect, json!({})).await;
    api.create("ann", PASSWORD, &[OperatorRole::Operator]).await;
    let ann = api.log_in("ann").await;
    let fund = |amount: Value, currency: &str| json!({"kind": "fund_account", "tenant_id": "acme", "account_id": "acc-1", "amount": amount, "currency": currency});
    let create = |hash: &str, scopes: Value, days: i64| {
        json!({"kind": "create_api_key", "key_id": "pk_000000000000", "key_sha256": hash, "tenant_id": "acme", "client_id": "shop",
            "scopes": scopes, "expires_in_days": days})
    };
    let hash = "0".repeat(64);
    for (change, status, code) in [
        (json!({"kind": "steal"}), 400, "malformed_json"),
        (json!({"kind": "lift_kill_switch", "kill_switch_id": 1, "by": "bob"}), 400, "malformed_json"),
        (json!({"kind": "freeze_account", "tenant_id": "acme", "account_id": "a b"}), 400, "malformed_json"),
        (fund(json!(12.5), "EUR"), 400, "malformed_json"),
        (fund(json!("0.00"), "EUR"), 422, "invalid_amount"),
        (fund(json!("1.001"), "EUR"), 422, "invalid_amount"),
        (fund(json!("1.00"), "EURO"), 422, "invalid_currency"),
        (fund(json!("1.00"), "EUR"), 409, "change_refused"),
        (json!({"kind": "activate_kill_switch"}), 422, "invalid_change"),
        (json!({"kind": "activate_kill_switch", "switch": "mokc"}), 422, "invalid_change"),
        (json!({"kind": "disable_endpoint", "endpoint_id": "whe_1"}), 409, "change_refused"),
        (
            json!({"kind": "republish_events", "since": "yesterday", "published_before": "now"}),
            400,
            "malformed_json",
        ),
        (json!({"kind": "activate_kill_switch", "switch": "mock", "currency": "EUR"}), 422, "invalid_change"),
        (
            json!({"kind": "activate_kill_switch", "currency": "EUR", "destination_prefix": "F R"}),
            422,
            "invalid_change",
        ),
        (json!({"kind": "set_limit", "currency": "EUR"}), 422, "invalid_change"),
        (json!({"kind": "set_operator_roles", "name": "ann", "roles": ["root"]}), 403, "role_missing"),
        (
            json!({"kind": "set_limit", "tenant_id": "acme", "currency": "EUR", "per_day_count": -1}),
            422,
            "invalid_change",
        ),
        (json!({"kind": "set_limit", "tenant_id": "nobody", "currency": "EUR"}), 409, "change_refused"),
        (create("00", json!(["pay"]), 1), 422, "invalid_change"),
        (create(&hash, json!([]), 1), 422, "invalid_change"),
        (create(&hash, json!(["all"]), 1), 422, "invalid_change"),
        (create(&hash, json!(["pay"]), 0), 422, "invalid_change"),
    ] {
        let refused = api.post(CHANGES, &ann, json!({"change": change, "reason": "r"})).await;
        assert_eq!(
            (refused.status.as_u16(), refused.json["code"].as_str()),
            (status, Some(code)),
            "{change}: {refused:?}"
        );
    }
    let unreasoned = json!({"change": {"kind": "activate_kill_switch", "switch": "mock"}, "reason": " "});
    api.post(CHANGES, &ann, unreasoned).await.assert_problem(422, "text_invalid");
    assert_eq!(api.get(&format!("{CHANGES}?with_closed=true"), &ann).await.json["changes"], json!([]));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_malformed_request_of_an_operator_is_answered_with_what_to_change(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let api = Api::new(connect, json!({})).await;
    api.create("ann", PASSWORD, &[OperatorRole::Operator]).await;
    let token = api.log_in("ann").await;
    let decisions = "/operator/v1/payments/pay_00000000000000000000000000000000/decisions";
    for body in [
        json!({"action": "debit"}),
        json!({"action": "steal", "reason": "r"}),
        json!({"action": "debit", "reason": "r", "by": "bob"}),
        json!(["debit", "r", null]),
    ] {
        api.post(decisions, &token, body).await.assert_problem(400, "malformed_json");
    }
    api.post(decisions, &token, json!({"action": "debit", "reason": " "}))
        .await
        .assert_problem(422, "text_invalid");
    let long = json!({"action": "debit", "reason": "r".repeat(20_000)});
    api.post(decisions, &token, long).await.assert_problem(413, "body_too_large");
    api.get("/operator/v1/exceptions?limit=x", &token).await.assert_problem(400, "malformed_query");
    let too_long = "/operator/v1/decisions/dec_00000000000000000000?wait=31";
    api.get(too_long, &token).await.assert_problem(400, "malformed_query");
    api.get("/operator/v1/exceptions?order=x", &token).await.assert_problem(400, "malformed_query");
    api.get("/operator/v1/nothing", &token).await.assert_problem(404, "not_found");
    api.get(SESSIONS, &token).await.assert_problem(405, "method_not_allowed");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_operators_document_is_up_to_date_and_served_on_request(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
    let document = operator_api::openapi_document().unwrap();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&file, &document).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == document,
        "{} is stale: run UPDATE_OPENAPI=1 cargo test -p operator-api",
        file.display()
    );
    let document: Value = serde_json::from_str(&document).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            let is_open = [SESSIONS, PROVIDER, ID_TOKEN_SESSIONS].contains(&path.as_str());
            assert_eq!(operation["security"].is_null(), is_open, "{method} {path}");
            for status in ["400", "401", "500", "503"] {
                assert!(
                    // Nobody proves anything to learn the provider.
                    path == PROVIDER && status == "401" || operation["responses"][status].is_object(),
                    "{method} {path} does not document {status}"
                );
            }
        }
    }
    let closed = Api::new(connect.clone(), json!({})).await;
    closed.get("/openapi.json", "").await.assert_problem(404, "not_found");
    let open = Api::new(connect, json!({"docs": true})).await;
    assert_eq!(open.get("/openapi.json", "").await.json["paths"], document["paths"]);
}
