//! A switch with one fault: its replies contradict what it does, or it has no references.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// The fault of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Marks a repeated submit as a duplicate and makes a second transfer.
    DuplicateTransfer,
    /// Answers a cancel with CANCELLED and leaves the transfer pending.
    CancelWithoutEffect,
    /// Has its own transfer ids and no references.
    NoReferences,
    /// Answers every submit with 503.
    SubmitUnavailable,
}

struct SwitchState {
    fault: Fault,
    /// Status by transfer id, from 1.
    transfers: Mutex<Vec<&'static str>>,
}

type Shared = State<Arc<SwitchState>>;

/// Starts the switch; returns its URL.
pub(crate) async fn serve(fault: Fault) -> String {
    let state = Arc::new(SwitchState { fault, transfers: Mutex::default() });
    let router = Router::new()
        .route("/health", get(async || "ok"))
        .route("/v1/statement", get(async || Json(json!({"entries": []}))))
        .route("/v1/transfers", post(submit).get(list))
        .route("/v1/transfers/{reference}", get(query))
        .route("/v1/transfers/{reference}/cancel", post(cancel))
        .route("/v1/transfers/by-id/{id}", get(query_id))
        .route("/v1/transfers/by-id/{id}/cancel", post(cancel_id))
        .with_state(state);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn submit(State(state): Shared, Json(order): Json<Value>) -> Response {
    let mut transfers = state.transfers.lock().unwrap();
    if state.fault == Fault::SubmitUnavailable {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    transfers.push("PENDING");
    let body = match state.fault {
        Fault::NoReferences => json!({"transfer_id": transfers.len().to_string(), "status": "PENDING"}),
        _ => json!({"reference": order["reference"], "status": "PENDING", "duplicate": transfers.len() > 1}),
    };
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

async fn list(State(state): Shared) -> Json<Value> {
    let ids = 1..=state.transfers.lock().unwrap().len();
    let transfers: Vec<Value> = ids.map(|id| json!({"transfer_id": id.to_string()})).collect();
    Json(json!({ "transfers": transfers }))
}

async fn query(State(state): Shared) -> Response {
    match state.fault {
        Fault::NoReferences => StatusCode::NOT_IMPLEMENTED.into_response(),
        _ => Json(json!({"status": "PENDING"})).into_response(),
    }
}

async fn cancel(State(state): Shared) -> Response {
    match state.fault {
        Fault::NoReferences => StatusCode::NOT_IMPLEMENTED.into_response(),
        _ => Json(json!({"answer": "CANCELLED", "known": true})).into_response(),
    }
}

async fn query_id(State(state): Shared, Path(id): Path<usize>) -> Json<Value> {
    Json(json!({"status": state.transfers.lock().unwrap()[id - 1]}))
}

async fn cancel_id(State(state): Shared, Path(id): Path<usize>) -> Json<Value> {
    state.transfers.lock().unwrap()[id - 1] = "CANCELLED";
    Json(json!({"answer": "CANCELLED", "known": true}))
}
