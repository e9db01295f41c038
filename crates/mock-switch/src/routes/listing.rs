//! Reading back what came for one creditor.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use service_kit::problem::{Json, Problem, Query};

use super::faults::{meet, suffer};
use super::{input, not_supported};
use crate::book::ids::TransferId;
use crate::book::listing;
use crate::book::requests::Operation;
use crate::error::Failure;
use crate::switch::Shared;

/// The word under which requests are counted and scripts are found.
const NAME: &str = "listing";

/// Which transfers: those after one, or the newest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    creditor_account: String,
    /// Those that came after this one; left out, from the beginning.
    #[serde(default)]
    after: Option<TransferId>,
    /// The newest so many.
    #[serde(default)]
    last: Option<i64>,
}

/// `GET /v1/transfers?creditor_account=&after=` or `&last=`
pub(super) async fn list(
    State(switch): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Failure> {
    let creditor = wanted.creditor_account.as_str();
    input::text("creditor_account", creditor)?;
    if let Some(last) = wanted.last {
        input::within("last", last, listing::LIMIT)?;
    }
    if wanted.after.is_some() && wanted.last.is_some() {
        let detail = "after and last cannot be given together";
        return Err(Problem::bad_request("invalid_field", detail).into());
    }
    let (_, fault) = meet(&switch, NAME, Operation::Listing, None, |b| b.listing.as_ref()).await?;
    if let Some(fault) = &fault
        && let Some(answer) = suffer(fault).await
    {
        return Ok(answer);
    }
    if !switch.settings.current().shape.listing {
        return Err(not_supported("listing_not_supported", "This switch lists no transfers").into());
    }
    let page = match wanted.last {
        Some(count) => listing::last(&switch, creditor, count).await?,
        None => listing::after(&switch, creditor, wanted.after.unwrap_or(TransferId::NONE)).await?,
    };
    Ok(Json(page).into_response())
}
