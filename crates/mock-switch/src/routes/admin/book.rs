//! Shows the book.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Query};

use crate::book::read::{self, CallbackRow, TransferRow};
use crate::error::RequestError;
use crate::state::SharedSwitch;

/// Upper bound of rows on one page.
const MAX_LIMIT: i64 = 10_000;
/// Upper bound of rows of one reference.
const REFERENCE_LIMIT: i64 = 1000;

/// Query parameters of a page.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BookQuery {
    /// Rows with ids above this one.
    #[serde(default)]
    after: i64,
    /// Upper bound of rows on the page.
    #[serde(default = "default_limit")]
    limit: i64,
}

fn default_limit() -> i64 {
    1000
}

#[derive(Serialize)]
pub(super) struct BookBody {
    transfers: Vec<TransferRow>,
    /// `after` of the next page; `None` if this page is not full.
    next: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct ReferenceBody {
    reference: String,
    /// Requests received, by operation, even if none was recorded as a transfer.
    requests: serde_json::Value,
    transfers: Vec<TransferRow>,
    callbacks: Vec<CallbackRow>,
}

#[derive(Serialize)]
pub(super) struct CallbacksBody {
    callbacks: Vec<CallbackRow>,
}

/// `GET /admin/book?after=&limit=`
pub(super) async fn all(
    State(switch): State<SharedSwitch>,
    Query(query): Query<BookQuery>,
) -> Result<Json<BookBody>, RequestError> {
    let limit = query.limit.clamp(1, MAX_LIMIT);
    let since = switch.settings.current().remembered_since();
    let transfers = read::transfers(&switch.pool, None, since, query.after, limit).await?;
    let full = i64::try_from(transfers.len()).is_ok_and(|rows| rows == limit);
    let next = transfers.last().map(|entry| entry.id).filter(|_| full);
    Ok(Json(BookBody { transfers, next }))
}

/// `GET /admin/book/{reference}`
pub(super) async fn one(
    State(switch): State<SharedSwitch>,
    Path(reference): Path<String>,
) -> Result<Json<ReferenceBody>, RequestError> {
    let since = switch.settings.current().remembered_since();
    let requests = read::requests(&switch.pool, &reference).await?;
    let transfers = read::transfers(&switch.pool, Some(&reference), since, 0, REFERENCE_LIMIT).await?;
    let callbacks = read::callbacks(&switch.pool, Some(&reference), REFERENCE_LIMIT).await?;
    Ok(Json(ReferenceBody { reference, requests, transfers, callbacks }))
}

/// `GET /admin/callbacks?limit=`: newest first.
pub(super) async fn callbacks(
    State(switch): State<SharedSwitch>,
    Query(query): Query<BookQuery>,
) -> Result<Json<CallbacksBody>, RequestError> {
    let limit = query.limit.clamp(1, MAX_LIMIT);
    Ok(Json(CallbacksBody { callbacks: read::callbacks(&switch.pool, None, limit).await? }))
}
