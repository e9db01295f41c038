//! Showing the book.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Query};

use crate::book::read::{self, Callback, Entry};
use crate::error::Failure;
use crate::switch::Shared;

/// Most rows of one page.
const MAX_LIMIT: i64 = 10_000;
/// Most rows shown for one reference.
const ONE_LIMIT: i64 = 1000;

/// Which page of the book.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    /// Rows with ids above this one.
    #[serde(default)]
    after: i64,
    /// So many rows at most.
    #[serde(default = "default_limit")]
    limit: i64,
}

fn default_limit() -> i64 {
    1000
}

#[derive(Serialize)]
pub(super) struct Book {
    transfers: Vec<Entry>,
    /// `after` of the next page, if this one was full.
    next: Option<i64>,
}

#[derive(Serialize)]
pub(super) struct One {
    reference: String,
    /// Requests received, by operation, whether or not anything was recorded.
    requests: serde_json::Value,
    transfers: Vec<Entry>,
    callbacks: Vec<Callback>,
}

#[derive(Serialize)]
pub(super) struct Callbacks {
    callbacks: Vec<Callback>,
}

/// `GET /admin/book?after=&limit=`
pub(super) async fn all(
    State(switch): State<Shared>,
    Query(page): Query<Page>,
) -> Result<Json<Book>, Failure> {
    let limit = page.limit.clamp(1, MAX_LIMIT);
    let since = switch.settings.current().remembered_since();
    let transfers = read::entries(&switch.pool, None, since, page.after, limit).await?;
    let full = i64::try_from(transfers.len()).is_ok_and(|rows| rows == limit);
    let next = transfers.last().map(|entry| entry.id).filter(|_| full);
    Ok(Json(Book { transfers, next }))
}

/// `GET /admin/book/{reference}`
pub(super) async fn one(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
) -> Result<Json<One>, Failure> {
    let since = switch.settings.current().remembered_since();
    let requests = read::requests(&switch.pool, &reference).await?;
    let transfers = read::entries(&switch.pool, Some(&reference), since, 0, ONE_LIMIT).await?;
    let callbacks = read::callbacks(&switch.pool, Some(&reference), ONE_LIMIT).await?;
    Ok(Json(One { reference, requests, transfers, callbacks }))
}

/// `GET /admin/callbacks?limit=`: the newest first.
pub(super) async fn callbacks(
    State(switch): State<Shared>,
    Query(page): Query<Page>,
) -> Result<Json<Callbacks>, Failure> {
    let limit = page.limit.clamp(1, MAX_LIMIT);
    Ok(Json(Callbacks { callbacks: read::callbacks(&switch.pool, None, limit).await? }))
}
