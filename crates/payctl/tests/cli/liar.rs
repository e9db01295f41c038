//! A switch that says one thing and does another, and one that knows no references.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// How it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Calls a repeat a duplicate and makes a second transfer of it.
    TwiceAllTheSame,
    /// Answers that it cancelled, and lets the transfer go on.
    NotReallyCancelled,
    /// None: it has ids of its own and knows no references.
    Keyless,
    /// The connection of every submit ends without an answer.
    NoAnswer,
}

struct Stage {
    lie: Lie,
    /// State by transfer id, from 1.
    book: Mutex<Vec<&'static str>>,
}

type Shared = State<Arc<Stage>>;

/// Serves it; returns where.
pub(crate) async fn serve(lie: Lie) -> String {
    let stage = Arc::new(Stage { lie, book: Mutex::default() });
    let router = Router::new()
        .route("/health", get(async || "fine"))
        .route("/v1/statement", get(async || Json(json!({"entries": []}))))
        .route("/v1/transfers", post(submit).get(list))
        .route("/v1/transfers/{reference}", get(query))
        .route("/v1/transfers/{reference}/cancel", post(cancel))
        .route("/v1/transfers/by-id/{id}", get(query_id))
        .route("/v1/transfers/by-id/{id}/cancel", post(cancel_id))
        .with_state(stage);
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn submit(State(stage): Shared, Json(order): Json<Value>) -> Response {
    let mut book = stage.book.lock().unwrap();
    if stage.lie == Lie::NoAnswer {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    book.push("PENDING");
    let body = match stage.lie {
        Lie::Keyless => json!({"transfer_id": book.len().to_string(), "status": "PENDING"}),
        _ => json!({"reference": order["reference"], "status": "PENDING", "duplicate": book.len() > 1}),
    };
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

async fn list(State(stage): Shared) -> Json<Value> {
    let ids = 1..=stage.book.lock().unwrap().len();
    let transfers: Vec<Value> = ids.map(|id| json!({"transfer_id": id.to_string()})).collect();
    Json(json!({ "transfers": transfers }))
}

async fn query(State(stage): Shared) -> Response {
    match stage.lie {
        Lie::Keyless => StatusCode::NOT_IMPLEMENTED.into_response(),
        _ => Json(json!({"status": "PENDING"})).into_response(),
    }
}

async fn cancel(State(stage): Shared) -> Response {
    match stage.lie {
        Lie::Keyless => StatusCode::NOT_IMPLEMENTED.into_response(),
        _ => Json(json!({"answer": "CANCELLED", "known": true})).into_response(),
    }
}

async fn query_id(State(stage): Shared, Path(id): Path<usize>) -> Json<Value> {
    Json(json!({"status": stage.book.lock().unwrap()[id - 1]}))
}

async fn cancel_id(State(stage): Shared, Path(id): Path<usize>) -> Json<Value> {
    stage.book.lock().unwrap()[id - 1] = "CANCELLED";
    Json(json!({"answer": "CANCELLED", "known": true}))
}
