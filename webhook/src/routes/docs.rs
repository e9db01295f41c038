//! `/openapi.json`, and `/docs`, a page for it that needs nothing from the internet.

use axum::Router;
use serde::Serialize;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{self, ContentBuilder, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};
use utoipa_swagger_ui::{Config, SwaggerUi};

/// A problem as RFC 9457 has it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemDocument {
    /// `urn:problem:` and the code.
    #[schema(example = "urn:problem:invalid_amount")]
    r#type: String,
    /// What kind of problem.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// For programs: stable.
    #[schema(example = "invalid_amount")]
    code: String,
    /// What was wrong this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The document without its paths, which the router adds.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Payments",
        description = "Sends money through a payment switch. A customer is charged exactly once when the money left, and not \
                       at all when it did not. Errors are problem documents (RFC 9457); look at `code`. What a client may \
                       still ask for is told in `RateLimit-Policy` and `RateLimit`."
    ),
    tags(
        (name = "payments", description = "Make, watch and cancel payments"),
        (name = "accounts", description = "What an account holds"),
        (name = "callbacks", description = "For switches"),
        (name = "webhooks", description = "Be told of what happens to payments"),
    ),
    components(schemas(ProblemDocument)),
    modifiers(&ApiKey),
)]
struct Description;

/// How a caller says who it is.
struct ApiKey;

impl Modify for ApiKey {
    fn modify(&self, document: &mut openapi::OpenApi) {
        let scheme =
            HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
                "Your API key. It is good for the scopes it was made with: pay (make and cancel payments), read (look at \
                 payments and accounts), webhooks (manage webhook endpoints), operate (nothing here needs it yet)",
            )).build();
        if let Some(components) = document.components.as_mut() {
            components.add_security_scheme("api_key", SecurityScheme::Http(scheme));
        }
    }
}

/// What the router starts from.
pub(crate) fn description() -> openapi::OpenApi {
    Description::openapi()
}

/// The routes of the finished document.
pub(crate) fn routes(mut document: openapi::OpenApi) -> Router {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.delete, &mut item.patch];
        operations.into_iter().flatten().for_each(complete);
    }
    // No validator: it would send the document's address to a service on the internet.
    let config = Config::default().validator_url("none").use_base_layout().try_it_out_enabled(true);
    SwaggerUi::new("/docs").url("/openapi.json", document).config(config).into()
}

/// Adds the answers that every operation can give, so that no route repeats them.
fn complete(operation: &mut Operation) {
    let takes_a_body = operation.responses.responses.contains_key("413");
    let mut add = |status: &str, description: &str| {
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| problem(description).into());
    };
    add("400", "malformed_path or malformed_query");
    if operation.security.is_some() {
        add("401", "unauthorized: no key, or one that is not known, was revoked or has expired");
        add("403", "insufficient_scope: the key is good, but not for this");
        add(
            "429",
            "rate_limited: the client has no quota; Retry-After says when it has some again. A repeat of a \
             request that was carried out is never refused so",
        );
    }
    if takes_a_body {
        add("408", "body_timeout: the body took too long to come; nothing was done");
    }
    add("500", "internal: a defect on our side");
    add(
        "503",
        "store_unavailable, overloaded, request_timeout, or for new payments switch_stopped, corridor_stopped, for webhook endpoints webhooks_not_configured: repeat it, with the same Idempotency-Key",
    );
}

fn problem(description: &str) -> openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDocument"))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", content).build()
}
