//! Deciding instead of the script: ending a transfer now, sending a callback
//! now, true or not.

use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem};

use crate::book::events::{self, Event, Fact};
use crate::book::finish::finish_now;
use crate::book::named::Named;
use crate::book::{self, Status};
use crate::error::Failure;
use crate::routes::input;
use crate::switch::{Shared, Switch};

/// `POST /admin/transfers/{reference}/settle`
pub(super) async fn settle(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
) -> Result<StatusCode, Failure> {
    end(&switch, &reference, Status::Settled, None).await
}

/// `POST /admin/transfers/{reference}/reject`
pub(super) async fn reject(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
) -> Result<StatusCode, Failure> {
    end(&switch, &reference, Status::Rejected, Some("rejected_by_admin".to_owned())).await
}

async fn end(
    switch: &Switch,
    reference: &str,
    status: Status,
    reason: Option<String>,
) -> Result<StatusCode, Failure> {
    if !finish_now(switch, reference, status, reason).await? {
        let detail = "there is no pending transfer under this reference";
        return Err(Problem::conflict("not_pending", detail).into());
    }
    switch.call_now.notify_one();
    Ok(StatusCode::NO_CONTENT)
}

/// A callback to send. What is left out comes from the transfer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    status: Option<Told>,
    #[serde(default)]
    amount_minor: Option<i64>,
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    /// An id already used makes two events with one id.
    #[serde(default)]
    event_id: Option<String>,
    #[serde(default)]
    delay_ms: u32,
}

/// The two words a callback knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Told {
    Success,
    Failure,
}

/// The callback that will be sent.
#[derive(Serialize)]
pub(super) struct Queued {
    event_id: String,
}

/// `POST /admin/transfers/{reference}/callback`: the reference need not be known.
pub(super) async fn callback(
    State(switch): State<Shared>,
    Path(reference): Path<String>,
    Json(wanted): Json<Wanted>,
) -> Result<(StatusCode, Json<Queued>), Failure> {
    input::reference(&reference)?;
    let known = book::find(&switch.pool, &Named::inside(&reference), Timestamp::UNIX_EPOCH).await?;
    let known = known.as_ref();
    let truth = known.map(|transfer| match transfer.status {
        Status::Settled | Status::Recalled => Told::Success,
        Status::Pending | Status::Rejected | Status::Cancelled => Told::Failure,
    });
    let amount = wanted.amount_minor.or(known.and_then(|transfer| transfer.amount_minor));
    let currency = wanted.currency.or(known.and_then(|transfer| transfer.currency.clone()));
    let (Some(told), Some(amount_minor), Some(currency)) = (wanted.status.or(truth), amount, currency) else {
        let detail = "of a transfer that is not in the book, say status, amount_minor, currency";
        return Err(Problem::bad_request("invalid_field", detail).into());
    };
    let fact = Fact {
        reference: &reference,
        settled: told == Told::Success,
        amount_minor,
        currency: &currency,
        reason: wanted.reason.as_deref(),
    };
    let mut event = Event::of(&fact, switch.settings.current().now())?;
    event.delay_ms = i64::from(wanted.delay_ms);
    if let Some(event_id) = wanted.event_id {
        input::reference(&event_id)?;
        event.event_id = event_id;
    }
    let mut tx = switch.pool.begin().await?;
    events::insert(&mut tx, &[event.clone()]).await?;
    tx.commit().await?;
    switch.call_now.notify_one();
    Ok((StatusCode::ACCEPTED, Json(Queued { event_id: event.event_id })))
}
