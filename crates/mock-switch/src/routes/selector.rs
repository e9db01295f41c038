//! Selects the transfer of a request: by the client's reference, or by the switch's own id.

use axum::http::HeaderMap;
use service_kit::problem::Problem;

use super::{input, not_supported};
use crate::book::ids::TransferId;
use crate::book::selector::{TransferSelector, reference_of};
use crate::error::RequestError;
use crate::state::Switch;

/// Selects a transfer by reference; 501 at a switch without keys.
pub(super) fn by_reference(switch: &Switch, reference: String) -> Result<TransferSelector, Problem> {
    input::reference(&reference)?;
    if !switch.settings.current().shape.keys {
        return Err(not_supported("references_not_supported", "This switch has no references"));
    }
    Ok(TransferSelector::of_reference(reference, true))
}

/// Selects a transfer by the switch's own id. An unknown id counts as a reference for scripts and request counts.
pub(super) async fn by_id(switch: &Switch, text: String) -> Result<TransferSelector, RequestError> {
    input::reference(&text)?;
    let id = TransferId::try_from(text.clone()).unwrap_or(TransferId::NONE);
    let reference = reference_of(&switch.pool, id).await?.unwrap_or(text);
    let shows_reference = switch.settings.current().shape.keys;
    Ok(TransferSelector { id: Some(id), ..TransferSelector::of_reference(reference, shows_reference) })
}

/// The idempotency key that cancel and recall require; `None` at a switch without keys.
pub(super) fn idempotency_key<'h>(
    selector: &TransferSelector,
    headers: &'h HeaderMap,
) -> Result<Option<&'h str>, Problem> {
    selector.shows_reference.then(|| input::idempotency_key(headers)).transpose()
}
