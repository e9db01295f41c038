//! `/openapi.json`, and `/docs`, its page, which loads nothing from the internet.

use axum::Router;
use serde::Serialize;
use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{self, ContentBuilder, Object, Ref, RefOr, ResponseBuilder, Type};
use utoipa::{Modify, OpenApi, ToSchema};
use utoipa_swagger_ui::{Config, SwaggerUi};

/// Documents the words of an enumeration of another crate, which has no schema, as a type of the clients.
macro_rules! documented_enum {
    ($visibility:vis $name:ident, $words:ty, $description:literal) => {
        #[doc = $description]
        $visibility struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .enum_values(Some(<$words>::ALL.iter().map(|word| word.as_str())))
                    .description(Some($description))
                    .into()
            }
        }

        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}
pub(crate) use documented_enum;

/// A problem document (RFC 9457).
#[derive(Serialize, ToSchema)]
pub(crate) struct ProblemDocument {
    /// `urn:problem:` and the code.
    #[schema(example = "urn:problem:invalid_amount")]
    r#type: String,
    /// Kind of problem.
    title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// Stable code for programs.
    #[schema(example = "invalid_amount")]
    code: String,
    /// What happened, to which object, and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    detail: Option<String>,
}

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

/// The routes of the complete document.
pub(crate) fn routes(document: openapi::OpenApi) -> Router {
    // No validator: it would send the document's address to an external service.
    let config = Config::default().validator_url("none").use_base_layout().try_it_out_enabled(true);
    SwaggerUi::new("/docs").url("/openapi.json", document).config(config).into()
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

fn problem(description: &str) -> openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDocument"))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", content).build()
}
