//! What the OpenAPI documents of the bank's processes share: the problem document, the words of enumerations, and `/docs`, the page of a
//! document, which loads nothing from the internet.

use axum::Router;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::{self, ContentBuilder, Ref, ResponseBuilder};
use utoipa_swagger_ui::{Config, SwaggerUi};

#[doc(hidden)]
pub use utoipa;

/// Documents the words of an enumeration of another crate, which has no schema, as a type of the clients.
#[macro_export]
macro_rules! documented_enum {
    ($visibility:vis $name:ident, $words:ty, $description:literal) => {
        #[doc = $description]
        $visibility struct $name;

        impl $crate::utoipa::PartialSchema for $name {
            fn schema() -> $crate::utoipa::openapi::RefOr<$crate::utoipa::openapi::Schema> {
                $crate::utoipa::openapi::ObjectBuilder::new()
                    .schema_type($crate::utoipa::openapi::Type::String)
                    .enum_values(Some(<$words>::ALL.iter().map(|word| word.as_str())))
                    .description(Some($description))
                    .into()
            }
        }

        impl $crate::utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    };
}

/// A problem document (RFC 9457).
#[derive(Serialize, ToSchema)]
pub struct ProblemDocument {
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

/// A response that is a [`ProblemDocument`].
#[must_use]
pub fn problem(description: &str) -> openapi::Response {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemDocument"))).build();
    ResponseBuilder::new().description(description).content("application/problem+json", content).build()
}

/// `/openapi.json` with the document, and `/docs`, its page.
pub fn page(document: openapi::OpenApi) -> Router {
    // No validator: it would send the document's address to an external service.
    let config = Config::default().validator_url("none").use_base_layout().try_it_out_enabled(true);
    SwaggerUi::new("/docs").url("/openapi.json", document).config(config).into()
}
