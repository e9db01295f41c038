//! The identity of a namespace, and answers that are about a workflow rather than about the namespace.

use prost::Message as _;
use temporalio_client::Client;
use temporalio_client::tonic::{self, IntoRequest as _};
use temporalio_common::protos::google::rpc;
use temporalio_common::protos::temporal::api::workflowservice::v1::DescribeNamespaceRequest;

/// Detail of Temporal's "not found" for a workflow. For a namespace, the detail is `NamespaceNotFoundFailure`.
const NOT_FOUND: &str = "/temporal.api.errordetails.v1.NotFoundFailure";

/// Temporal did not answer with the id of a namespace.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceIdError {
    /// Temporal answered with an error.
    #[error("Temporal cannot describe the namespace {namespace}: {status}; check temporal.namespace")]
    Refused {
        /// The namespace.
        namespace: String,
        /// Temporal's error.
        status: Box<tonic::Status>,
    },
    /// The description lacks the id.
    #[error("Temporal's description of the namespace {0} has no id")]
    Missing(String),
}

/// The id of a namespace, which Temporal assigns when the namespace is created: a namespace of the same name at another server,
/// or at the same one after its data was lost, has another id.
///
/// # Errors
/// [`NamespaceIdError`].
pub async fn namespace_id(client: &Client, namespace: &str) -> Result<String, NamespaceIdError> {
    let request = DescribeNamespaceRequest { namespace: namespace.to_owned(), ..Default::default() };
    let description =
        client.connection().workflow_service().describe_namespace(request.into_request()).await.map_err(
            |status| NamespaceIdError::Refused { namespace: namespace.to_owned(), status: Box::new(status) },
        )?;
    let info = description.into_inner().namespace_info.filter(|info| !info.id.is_empty());
    info.map(|info| info.id).ok_or_else(|| NamespaceIdError::Missing(namespace.to_owned()))
}

/// Whether "not found" is about the workflow. Temporal answers with the same code if it does not know the namespace.
#[must_use]
pub fn is_missing_workflow(status: &tonic::Status) -> bool {
    status.code() == tonic::Code::NotFound
        && rpc::Status::decode(status.details())
            .is_ok_and(|status| status.details.iter().any(|detail| detail.type_url.ends_with(NOT_FOUND)))
}

#[cfg(test)]
mod tests {
    use temporalio_common::protos::utilities::pack_any;
    use tonic::{Code, Status};

    use super::*;

    fn status(code: Code, detail: Option<&str>) -> Status {
        let detail = detail.map(|name| {
            pack_any(format!("type.googleapis.com/temporal.api.errordetails.v1.{name}"), &()).unwrap()
        });
        let details = rpc::Status { details: detail.into_iter().collect(), ..Default::default() };
        Status::with_details(code, "not found", details.encode_to_vec().into())
    }

    #[test]
    fn an_unknown_namespace_does_not_make_a_workflow_missing() {
        #[rustfmt::skip]
        let table = [
            (Code::NotFound,    Some("NotFoundFailure"),          true),
            (Code::NotFound,    Some("NamespaceNotFoundFailure"), false),
            (Code::NotFound,    None,                             false),
            (Code::Unavailable, Some("NotFoundFailure"),          false),
        ];
        for (code, detail, missing) in table {
            assert_eq!(is_missing_workflow(&status(code, detail)), missing, "{code:?} {detail:?}");
        }
        assert!(!is_missing_workflow(&Status::not_found("a proxy's page")));
    }
}
