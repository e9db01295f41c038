//! Reads the statement.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use service_kit::problem::{Json, Query};

use super::faults::{apply_http_fault, next_fault};
use super::{input, not_supported};
use crate::book::ids::Cursor;
use crate::book::requests::Operation;
use crate::book::statement;
use crate::error::RequestError;
use crate::state::SharedSwitch;

/// Upper bound of entries on one page.
const MAX_LIMIT: i64 = 1000;
/// The reference under which requests are counted and scripts are found.
const NAME: &str = "statement";

/// Query parameters of a page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatementQuery {
    /// The entries after this one; absent: from the start.
    #[serde(default)]
    after: Option<Cursor>,
    /// Upper bound of entries on the page.
    #[serde(default = "default_limit")]
    limit: i64,
}

fn default_limit() -> i64 {
    100
}

/// `GET /v1/statement?after=&limit=`
pub(super) async fn read(
    State(switch): State<SharedSwitch>,
    Query(query): Query<StatementQuery>,
) -> Result<Response, RequestError> {
    input::within("limit", query.limit, MAX_LIMIT)?;
    let (_, fault) = next_fault(&switch, NAME, Operation::Statement, None, |b| b.statement.as_ref()).await?;
    if let Some(fault) = &fault
        && let Some(response) = apply_http_fault(fault).await
    {
        return Ok(response);
    }
    if !switch.settings.current().shape.statement {
        return Err(not_supported("statement_not_supported", "This switch has no statement").into());
    }
    Ok(Json(statement::page(&switch, query.after, query.limit).await?).into_response())
}
