//! The OpenAPI document, beside what each route says of itself.

use openapi_kit::{ProblemDocument, problem};
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{self, Object, RefOr, Type};
use utoipa::{Modify, OpenApi};

/// The document without its paths, which the router adds.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Payments",
        description = "Sends payments through payment switches. A customer is charged exactly once if the money left, and not \
                       at all if it did not. Errors are problem documents (RFC 9457) with a stable `code`. The headers \
                       `RateLimit-Policy` and `RateLimit` show the remaining quota of your client."
    ),
    tags(
        (name = "payments", description = "Create, retrieve, list, stream and cancel payments"),
        (name = "accounts", description = "Balances and statements of your accounts"),
        (name = "callbacks", description = "Callbacks of switches"),
        (name = "webhooks", description = "Receive events of your payments at your own URL"),
    ),
    components(schemas(ProblemDocument)),
    modifiers(&ApiKey),
)]
struct Description;

/// Adds the API key scheme.
struct ApiKey;

impl Modify for ApiKey {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let scheme =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
                "Your API key. Its scopes are: pay (create and cancel payments), read (retrieve payments and accounts), \
                 webhooks (manage webhook endpoints)",
            )).build();
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("api_key", SecurityScheme::Http(scheme));
        }
    }
}

/// The document that the router extends.
pub(crate) fn description() -> openapi::OpenApi {
    Description::openapi()
}

/// Adds to every operation what no route repeats.
pub(crate) fn complete(mut document: openapi::OpenApi) -> openapi::OpenApi {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch];
        operations.into_iter().flatten().for_each(complete_operation);
    }
    document
}

/// Adds the responses that every operation can return.
fn complete_operation(operation: &mut Operation) {
    let has_body = operation.responses.responses.contains_key("413");
    let mut add = |status: &str, description: &str| {
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| problem(description).into());
    };
    add("400", "malformed_path, malformed_query: a parameter is malformed; the detail names it");
    if operation.security.is_some() {
        add("401", "unauthorized: the API key is missing, unknown, revoked or expired");
        add("403", "insufficient_scope: the API key does not have the required scope");
        add(
            "429",
            "rate_limited: your client exceeded its rate; retry after Retry-After. A retry of an executed request is never \
             refused for the rate",
        );
    }
    if has_body {
        add("408", "body_timeout: the request body was not received in time and nothing was done");
    }
    add("500", "internal: an error on our side; a retry with the same Idempotency-Key is safe");
    add(
        "503",
        "store_unavailable, overloaded, request_timeout; for new payments also switch_stopped, corridor_stopped; for webhook endpoints also \
         webhooks_not_configured. Retry later with the same Idempotency-Key",
    );
    add_headers(operation);
}

/// Adds the headers that responses of every operation can have.
fn add_headers(operation: &mut Operation) {
    let is_counted = operation.security.is_some();
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        let mut add = |name: &str, kind: Type, description: &str| {
            let header = HeaderBuilder::new().schema(Some(Object::with_type(kind)));
            let header = header.description(Some(description)).build();
            response.headers.entry(name.to_owned()).or_insert_with(|| header.into());
        };
        if ["409", "429", "503"].contains(&status.as_str()) {
            let description = "Seconds to wait before the retry, with the same Idempotency-Key; missing if a retry does not help";
            add("Retry-After", Type::Integer, description);
        }
        if is_counted && (status.starts_with('2') || status == "429") {
            add("RateLimit", Type::String, "Remaining quota of your client; missing on replays");
            add("RateLimit-Policy", Type::String, "Agreed rate of your client; missing on replays");
        }
    }
}
