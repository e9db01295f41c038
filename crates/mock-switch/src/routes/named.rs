//! The two ways to name what a request is about: the client's own reference,
//! and the switch's id of one transfer.

use axum::http::HeaderMap;
use service_kit::problem::Problem;

use super::{input, not_supported};
use crate::book::ids::TransferId;
use crate::book::named::{Named, reference_of};
use crate::error::Failure;
use crate::switch::Switch;

/// By reference; a switch without keys has no such path.
pub(super) fn by_reference(switch: &Switch, reference: String) -> Result<Named, Problem> {
    input::reference(&reference)?;
    if !switch.settings.current().shape.keys {
        return Err(not_supported("references_not_supported", "This switch knows no references"));
    }
    Ok(Named { reference, id: None, keys: true })
}

/// By the switch's own id. What is no id of a transfer is counted and scripted
/// as if it were a reference.
pub(super) async fn by_id(switch: &Switch, text: String) -> Result<Named, Failure> {
    input::reference(&text)?;
    let id = TransferId::try_from(text.clone()).unwrap_or(TransferId::NONE);
    let reference = reference_of(&switch.pool, id).await?.unwrap_or(text);
    Ok(Named { reference, id: Some(id), keys: switch.settings.current().shape.keys })
}

/// The idempotency key that cancel and recall must have, where keys mean anything.
pub(super) fn key<'h>(named: &Named, headers: &'h HeaderMap) -> Result<Option<&'h str>, Problem> {
    named.keys.then(|| input::idempotency_key(headers)).transpose()
}
