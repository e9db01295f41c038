//! The OpenAPI document, beside what each route says of itself.

use openapi_kit::{ProblemDocument, problem};
use utoipa::openapi;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

/// The document without its paths, which the router adds.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Operators",
        description = "For the bank's operators: log in, see what waits, propose, and confirm what another operator proposed. Who acts is \
                       who has the session. Errors are problem documents (RFC 9457) with a stable `code`."
    ),
    tags(
        (name = "sessions", description = "Log in and out"),
        (name = "decisions", description = "Payments that wait, and decisions about them; what moves money takes two operators"),
        (name = "exceptions", description = "Recorded contradictions, and decisions about them"),
        (name = "changes", description = "What operators do to accounts, limits, kill switches and API keys, and administrators to operators; what lets money move takes two"),
        (name = "settings", description = "Accounts, limits, kill switches, API keys and operators as they are"),
    ),
    components(schemas(ProblemDocument)),
    modifiers(&SessionToken),
)]
struct Description;

/// Adds the scheme of sessions.
struct SessionToken;

impl Modify for SessionToken {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "The token of your session. The roles are: viewer (read), operator (propose, withdraw, close), approver (confirm), administrator (manage operators)",
            ))
            .build();
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("session", SecurityScheme::Http(scheme));
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
        [&mut item.get, &mut item.post, &mut item.delete].into_iter().flatten().for_each(complete_operation);
    }
    document
}

/// Adds the responses that every operation can return.
fn complete_operation(operation: &mut Operation) {
    let has_body = operation.responses.responses.contains_key("413");
    let mut add = |status: &str, description: &str| {
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| problem(description).into());
    };
    add(
        "400",
        "malformed_json, malformed_path, malformed_query: a part of the request is malformed; the detail names it",
    );
    if operation.security.is_some() {
        add("401", "unauthorized: the session is missing, unknown or has ended");
        add(
            "403",
            "role_missing: the operator lacks the role. not_allowed: the session ended, or a role was taken away, in this moment",
        );
    }
    if has_body {
        add("408", "body_timeout: the request body was not received in time and nothing was done");
        add("415", "unsupported_media_type: the body is not application/json");
    }
    add("500", "internal: an error on our side; a repeat is safe");
    add(
        "503",
        "store_unavailable, request_timeout: the outcome is unknown; a repeat records a decision once, and a change is to be looked up first",
    );
}
