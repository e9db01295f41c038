//! The payments API as a test wants it: every look at the payment shows the next scene.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) const PAYMENT_ID: &str = "pay_0123456789abcdef0123456789abcdef";

/// What a look at the payment finds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scene {
    /// So many lines of the timeline, the last of which is the state.
    Lines(usize),
    /// 503.
    Down,
}

/// A played API.
#[derive(Clone, Debug)]
pub(crate) struct Stub {
    /// Status and body of the acceptance.
    pub(crate) acceptance: (u16, Value),
    /// The whole timeline: state and detail.
    pub(crate) timeline: Vec<(&'static str, &'static str)>,
    /// The last one stays.
    pub(crate) scenes: Vec<Scene>,
}

/// What was asked of it.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) order: Option<Value>,
    pub(crate) idempotency_key: Option<String>,
    looks: usize,
    accounts: usize,
}

struct Stage {
    stub: Stub,
    asked: Mutex<Asked>,
}

/// A served stub.
pub(crate) struct Served {
    pub(crate) url: String,
    stage: Arc<Stage>,
}

impl Default for Stub {
    fn default() -> Self {
        let accepted = json!({
            "payment_id": PAYMENT_ID, "transaction_id": "tx_1", "status": "accepted", "amount": "12.50",
            "currency": "EUR", "source_account": "A", "destination_account": "B",
            "created_at": "2026-01-01T00:00:00Z",
        });
        Self { acceptance: (201, accepted), timeline: vec![("accepted", "accepted")], scenes: vec![] }
    }
}

impl Stub {
    pub(crate) async fn serve(self) -> Served {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stage = Arc::new(Stage { stub: self, asked: Mutex::default() });
        let router = Router::new()
            .route("/api/v1/payments", post(accept))
            .route("/api/v1/payments/{id}", get(look))
            .route("/api/v1/accounts/{id}", get(account))
            .with_state(stage.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Served { url, stage }
    }

    fn payment(&self, lines: usize) -> Value {
        let steps = self.timeline[..lines].iter().enumerate();
        let timeline: Vec<Value> = steps
            .map(|(second, (status, detail))| {
                json!({"status": status, "detail": detail, "at": format!("2026-01-01T00:00:0{second}.250Z")})
            })
            .collect();
        let (status, _) = self.timeline[lines - 1];
        let ended_at = matches!(status, "settled" | "failed").then(|| timeline[lines - 1]["at"].clone());
        json!({
            "payment_id": PAYMENT_ID, "transaction_id": "tx_1", "status": status, "amount": "12.50", "amount_minor": 1250,
            "currency": "EUR", "source_account": "A", "destination_account": "B", "switch": "mock",
            "workflow_id": PAYMENT_ID, "created_at": "2026-01-01T00:00:00Z", "ended_at": ended_at, "timeline": timeline,
            "reason": (status == "failed").then_some("creditor_unknown"),
        })
    }
}

impl Served {
    pub(crate) fn asked(&self) -> std::sync::MutexGuard<'_, Asked> {
        self.stage.asked.lock().unwrap()
    }
}

async fn accept(State(stage): State<Arc<Stage>>, headers: HeaderMap, body: String) -> Response {
    assert_eq!(headers[header::AUTHORIZATION], "Bearer test-key");
    let mut asked = stage.asked.lock().unwrap();
    asked.order = serde_json::from_str(&body).ok();
    asked.idempotency_key = headers["idempotency-key"].to_str().ok().map(str::to_owned);
    let (status, body) = &stage.stub.acceptance;
    (StatusCode::from_u16(*status).unwrap(), body.to_string()).into_response()
}

async fn look(State(stage): State<Arc<Stage>>) -> Response {
    let mut asked = stage.asked.lock().unwrap();
    let scenes = &stage.stub.scenes;
    let scene = scenes[asked.looks.min(scenes.len() - 1)];
    asked.looks += 1;
    match scene {
        Scene::Lines(lines) => stage.stub.payment(lines).to_string().into_response(),
        Scene::Down => (StatusCode::SERVICE_UNAVAILABLE, "down").into_response(),
    }
}

async fn account(State(stage): State<Arc<Stage>>) -> Response {
    let mut asked = stage.asked.lock().unwrap();
    let available = if asked.accounts == 0 { "100.00" } else { "87.50" };
    asked.accounts += 1;
    json!({"account_id": "A", "currency": "EUR", "available": available, "held": "0.00"})
        .to_string()
        .into_response()
}
