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
        Self { router: operator_api::router(config, own, CancellationToken::new()).unwrap(), owner }
    }

    async fn create(&self, name: &str, password: &str, roles: &[OperatorRole]) {
        let hash = Password::new(password.into()).unwrap().to_stored().unwrap();
        self.owner.create_operator(name, roles, &hash).await.unwrap();
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
    let payment = "/operator/v1/payments/pay_00000000000000000000000000000000";
    let decision = "/operator/v1/decisions/dec_00000000000000000000";
    let actions = [
        (format!("{payment}/decisions"), &debit, 404, "payment_not_found"),
        (format!("{payment}/exceptions"), &reason, 404, "payment_not_found"),
        ("/operator/v1/exceptions/7/decisions".to_owned(), &close, 404, "exception_not_found"),
        (format!("{decision}/withdraw"), &reason, 404, "decision_not_found"),
        (format!("{decision}/confirm"), &reason, 403, "role_missing"),
    ];
    for (path, body, status, code) in actions {
        api.post(&path, "", body.clone()).await.assert_problem(401, "unauthorized");
        api.post(&path, &viewer, body.clone()).await.assert_problem(403, "role_missing");
        api.post(&path, &operator, body.clone()).await.assert_problem(status, code);
    }
    let reads = ["/operator/v1/payments/waiting", "/operator/v1/exceptions", CURRENT];
    for path in reads {
        api.get(path, "").await.assert_problem(401, "unauthorized");
        assert_eq!(api.get(path, &viewer).await.status, StatusCode::OK, "{path}");
    }
    api.get(decision, &viewer).await.assert_problem(404, "decision_not_found");
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
            let is_login = path == SESSIONS;
            assert_eq!(operation["security"].is_null(), is_login, "{method} {path}");
            for status in ["400", "401", "500", "503"] {
                assert!(
                    operation["responses"][status].is_object(),
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
