//! `/openapi.json` and `/docs`: every route is documented, and the page loads nothing from other hosts.

use std::path::Path;

use axum::http::StatusCode;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::Api;

/// Set to `1`, this variable makes the test write the document that the clients are generated from.
const UPDATE: &str = "UPDATE_OPENAPI";

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn every_api_route_is_documented_with_its_problems(pool: PgPool) {
    let api = Api::with_options(pool, json!({"docs": true}));
    let document = api.get("", "/openapi.json").await.json;
    let mut documented: Vec<String> = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            documented.push(format!("{method} {path}"));
            assert!(operation["summary"].is_string(), "{method} {path} has no summary");
            for status in ["500", "503"] {
                assert!(
                    operation["responses"][status].is_object(),
                    "{method} {path} does not document {status}"
                );
            }
            let is_public = path.starts_with("/callbacks");
            assert_eq!(operation["security"].is_null(), is_public, "{method} {path}");
            assert!(operation["responses"]["401"].is_object(), "{method} {path}");
            for status in ["403", "429"] {
                assert_eq!(operation["responses"][status].is_null(), is_public, "{method} {path} {status}");
            }
            assert_eq!(
                operation["responses"]["408"].is_object(),
                ["post", "patch"].contains(&method.as_str()),
                "{method} {path}"
            );
        }
    }
    documented.sort();
    assert_eq!(
        documented,
        [
            "delete /api/v1/webhook-endpoints/{endpoint_id}",
            "get /api/v1/accounts/{account_id}",
            "get /api/v1/accounts/{account_id}/balance",
            "get /api/v1/accounts/{account_id}/statement",
            "get /api/v1/payments",
            "get /api/v1/payments/{payment_id}",
            "get /api/v1/payments/{payment_id}/events",
            "get /api/v1/webhook-endpoints",
            "get /api/v1/webhook-endpoints/{endpoint_id}",
            "get /api/v1/webhook-endpoints/{endpoint_id}/deliveries",
            "patch /api/v1/webhook-endpoints/{endpoint_id}",
            "post /api/v1/payments",
            "post /api/v1/payments/{payment_id}/cancel",
            "post /api/v1/webhook-endpoints",
            "post /api/v1/webhook-endpoints/{endpoint_id}/deliveries/{event_id}/replay",
            "post /api/v1/webhook-endpoints/{endpoint_id}/replay-failed",
            "post /api/v1/webhook-endpoints/{endpoint_id}/rotate-secret",
            "post /callbacks/{switch}",
        ]
    );
    let references = references(&document);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.trim_start_matches('#');
        assert!(document.pointer(pointer).is_some(), "{reference} does not resolve");
    }
}

/// All `$ref`s of a document.
fn references(value: &Value) -> Vec<String> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match value {
                Value::String(target) if name == "$ref" => vec![target.clone()],
                other => references(other),
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_api_documentation_page_loads_files_of_this_service_only(pool: PgPool) {
    let api = Api::with_options(pool, json!({"docs": true}));
    assert!(api.get("", "/docs").await.status.is_redirection());
    let page = String::from_utf8(api.get("", "/docs/").await.bytes).unwrap();
    let loaded: Vec<&str> = page
        .split(['"', '\''])
        .filter(|text| [".js", ".css", ".png"].iter().any(|end| text.ends_with(end)))
        .collect();
    assert!(loaded.len() >= 3, "{page}");
    for file in loaded {
        assert!(!file.contains("//"), "{file} is loaded from another host");
        let path = format!("/docs/{}", file.trim_start_matches("./"));
        let response = api.get("", &path).await;
        assert_eq!((response.status, response.bytes.is_empty()), (StatusCode::OK, false), "{path}");
    }
    let start = api.get("", "/docs/swagger-initializer.js").await.bytes;
    let start = String::from_utf8(start).unwrap();
    assert!(start.contains("/openapi.json"), "{start}");
    assert!(!start.contains("https://"), "{start}");
}

#[test]
fn the_committed_openapi_document_matches_the_code() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/openapi.json");
    let expected = payments_api::openapi_document().unwrap();
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        std::fs::write(&file, &expected).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == expected,
        "{} differs from the routes of payments-api; regenerate it and the clients with ./dev generate-clients",
        file.display()
    );
}
