//! Reading the statement.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use service_kit::problem::{Json, Query};

use super::faults::{meet, suffer};
use super::{input, not_supported};
use crate::book::ids::Cursor;
use crate::book::requests::Operation;
use crate::book::statement;
use crate::error::Failure;
use crate::switch::Shared;

/// Most entries of one page.
const MAX_LIMIT: i64 = 1000;
/// The word under which requests are counted and scripts are found.
const NAME: &str = "statement";

/// Which page of the statement.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Entries after this one.
    #[serde(default)]
    after: Option<Cursor>,
    /// So many entries at most.
    #[serde(default = "default_limit")]
    limit: i64,
}

fn default_limit() -> i64 {
    100
}

/// `GET /v1/statement?after=&limit=`
pub(super) async fn read(
    State(switch): State<Shared>,
    Query(page): Query<Page>,
) -> Result<Response, Failure> {
    input::within("limit", page.limit, MAX_LIMIT)?;
    let (_, fault) = meet(&switch, NAME, Operation::Statement, None, |b| b.statement.as_ref()).await?;
    if let Some(fault) = &fault
        && let Some(answer) = suffer(fault).await
    {
        return Ok(answer);
    }
    if !switch.settings.current().shape.statement {
        return Err(not_supported("statement_not_supported", "This switch has no statement").into());
    }
    Ok(Json(statement::page(&switch, page.after, page.limit).await?).into_response())
}
