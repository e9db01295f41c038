//! Reads the listing of one creditor account.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use service_kit::problem::{Json, Problem, Query};

use super::faults::{apply_http_fault, next_fault};
use super::{input, not_supported};
use crate::book::ids::TransferId;
use crate::book::listing;
use crate::book::requests::Operation;
use crate::error::RequestError;
use crate::state::SharedSwitch;

/// The reference under which requests are counted and scripts are found.
const NAME: &str = "listing";

/// Query parameters: the transfers after one, or the newest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListingQuery {
    creditor_account: String,
    /// The transfers after this one; absent: from the start.
    #[serde(default)]
    after: Option<TransferId>,
    /// This many of the newest transfers.
    #[serde(default)]
    last: Option<i64>,
}

/// `GET /v1/transfers?creditor_account=&after=` or `&last=`
pub(super) async fn list(
    State(switch): State<SharedSwitch>,
    Query(query): Query<ListingQuery>,
) -> Result<Response, RequestError> {
    let creditor = query.creditor_account.as_str();
    input::text("creditor_account", creditor)?;
    if let Some(last) = query.last {
        input::within("last", last, listing::LIMIT)?;
    }
    if query.after.is_some() && query.last.is_some() {
        let detail = "the parameters after and last exclude each other; send one of them";
        return Err(Problem::bad_request("invalid_field", detail).into());
    }
    let (_, fault) = next_fault(&switch, NAME, Operation::Listing, None, |b| b.listing.as_ref()).await?;
    if let Some(fault) = &fault
        && let Some(response) = apply_http_fault(fault).await
    {
        return Ok(response);
    }
    if !switch.settings.current().shape.listing {
        return Err(not_supported("listing_not_supported", "This switch has no listing").into());
    }
    let page = match query.last {
        Some(count) => listing::last(&switch, creditor, count).await?,
        None => listing::after(&switch, creditor, query.after.unwrap_or(TransferId::NONE)).await?,
    };
    Ok(Json(page).into_response())
}
