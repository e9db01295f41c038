//! Problems as a client receives them, through a router without sockets.

use axum::body::{Body, to_bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::Request;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

#[derive(serde::Deserialize, Serialize)]
struct Sample {
    number: i64,
}

fn app() -> Router {
    let router = Router::new()
        .route("/sample", post(|Json(sample): Json<Sample>| async { Json(sample) }))
        .route("/sample/{id}", get(|Path(id): Path<u32>| async move { id.to_string() }))
        .route("/busy", get(|| async { Problem::unavailable("soon") }));
    with_fallbacks(router).layer(DefaultBodyLimit::max(64))
}

async fn send(method: &str, path: &str, kind: &str, body: &str) -> (Response, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Body::from(body.to_owned()))
        .unwrap();
    let response = app().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, 1 << 16).await.unwrap();
    let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    (Response::from_parts(parts, Body::empty()), value)
}

#[tokio::test]
async fn a_malformed_http_request_is_answered_with_a_problem_document() {
    let long = format!("{{\"number\": {}}}", "1".repeat(100));
    let cases = [
        ("POST", "/sample", "application/json", "{", 400, "malformed_json"),
        ("POST", "/sample", "application/json", "{}", 400, "malformed_json"),
        ("POST", "/sample", "application/json", "{\"number\": \"1\"}", 400, "malformed_json"),
        ("POST", "/sample", "text/plain", "{\"number\": 1}", 415, "unsupported_media_type"),
        ("POST", "/sample", "application/json", long.as_str(), 413, "body_too_large"),
        ("GET", "/sample/x", "", "", 400, "malformed_path"),
        ("GET", "/sample", "", "", 405, "method_not_allowed"),
        ("GET", "/nowhere", "", "", 404, "not_found"),
    ];
    for (method, path, kind, body, status, code) in cases {
        let (response, document) = send(method, path, kind, body).await;
        assert_eq!(response.status().as_u16(), status, "{method} {path} {body}");
        assert_eq!(response.headers()["content-type"], "application/problem+json");
        assert_eq!(document["code"], code, "{method} {path} {body}");
        assert_eq!(document["status"], status);
        assert_eq!(document["type"], format!("urn:problem:{code}"));
    }
}

#[tokio::test]
async fn a_valid_json_request_body_is_accepted() {
    let (response, value) = send("POST", "/sample", "application/json", "{\"number\": 1}").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(value, json!({"number": 1}));
}

#[tokio::test]
async fn retry_after_of_a_problem_response_is_rounded_up_to_seconds() {
    let (response, _) = send("GET", "/busy", "", "").await;
    assert_eq!(response.headers()["retry-after"], "1");
    let half = Problem::unavailable("").retry_after(Duration::from_millis(1500)).into_response();
    assert_eq!(half.headers()["retry-after"], "2");
}
