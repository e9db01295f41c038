//! A stub of the payments API: each read of the payment returns the next of the prepared replies.

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

/// Reply to one read of the payment.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadReply {
    /// The payment with this many timeline lines; the last line is its state.
    Lines(usize),
    /// Status 503: the API is unavailable.
    Unavailable,
}

/// The prepared replies of a stub of the payments API.
#[derive(Clone, Debug)]
pub(crate) struct ApiStub {
    /// Status and body of the reply to the payment request.
    pub(crate) acceptance: (u16, Value),
    /// The complete timeline: state and detail.
    pub(crate) timeline: Vec<(&'static str, &'static str)>,
    /// Replies to reads, in order; the last one repeats.
    pub(crate) reads: Vec<ReadReply>,
}

/// The requests received so far.
#[derive(Debug, Default)]
pub(crate) struct ReceivedRequests {
    pub(crate) payment_request: Option<Value>,
    pub(crate) idempotency_key: Option<String>,
    reads: usize,
    account_reads: usize,
}

struct StubState {
    stub: ApiStub,
    received: Mutex<ReceivedRequests>,
}

/// A running stub.
pub(crate) struct RunningApiStub {
    pub(crate) url: String,
    state: Arc<StubState>,
}

impl Default for ApiStub {
    fn default() -> Self {
        let accepted = json!({
            "payment_id": PAYMENT_ID, "transaction_id": "tx_1", "status": "accepted", "amount": "12.50",
            "currency": "EUR", "source_account": "A", "destination_account": "B",
            "created_at": "2026-01-01T00:00:00Z",
        });
        Self { acceptance: (201, accepted), timeline: vec![("accepted", "accepted")], reads: vec![] }
    }
}

impl ApiStub {
    pub(crate) async fn serve(self) -> RunningApiStub {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(StubState { stub: self, received: Mutex::default() });
        let router = Router::new()
            .route("/api/v1/payments", post(accept))
            .route("/api/v1/payments/{id}", get(read_payment))
            .route("/api/v1/accounts/{id}", get(read_account))
            .with_state(state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        RunningApiStub { url, state }
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
            "created_at": "2026-01-01T00:00:00Z", "ended_at": ended_at, "timeline": timeline,
            "reason": (status == "failed").then_some("creditor_unknown"),
        })
    }
}

impl RunningApiStub {
    pub(crate) fn received(&self) -> std::sync::MutexGuard<'_, ReceivedRequests> {
        self.state.received.lock().unwrap()
    }
}

async fn accept(State(state): State<Arc<StubState>>, headers: HeaderMap, body: String) -> Response {
    assert_eq!(headers[header::AUTHORIZATION], "Bearer test-key");
    let mut received = state.received.lock().unwrap();
    received.payment_request = serde_json::from_str(&body).ok();
    received.idempotency_key = headers["idempotency-key"].to_str().ok().map(str::to_owned);
    let (status, body) = &state.stub.acceptance;
    (StatusCode::from_u16(*status).unwrap(), body.to_string()).into_response()
}

async fn read_payment(State(state): State<Arc<StubState>>) -> Response {
    let mut received = state.received.lock().unwrap();
    let reads = &state.stub.reads;
    let reply = reads[received.reads.min(reads.len() - 1)];
    received.reads += 1;
    match reply {
        ReadReply::Lines(lines) => state.stub.payment(lines).to_string().into_response(),
        ReadReply::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "down").into_response(),
    }
}

async fn read_account(State(state): State<Arc<StubState>>) -> Response {
    let mut received = state.received.lock().unwrap();
    let available = if received.account_reads == 0 { "100.00" } else { "87.50" };
    received.account_reads += 1;
    json!({"account_id": "A", "currency": "EUR", "available": available, "held": "0.00"})
        .to_string()
        .into_response()
}
