//! `GET /api/v1/payments/{payment_id}/events`: the timeline as it comes, as server-sent events.
//!
//! An event's id is the place of its line in the payment's timeline, from 1: a line keeps its place for ever, so whoever
//! comes again with the last id it saw misses nothing and sees nothing twice. (The rows' own numbers run through the
//! payments of all tenants, and would tell one of the others' trade.)

mod following;

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Path, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use self::following::Following;
use super::payment_id;
use super::read::find;
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, excerpt};
use crate::routes::docs::ProblemDocument;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How long a client waits before it comes again.
const RETRY: Duration = Duration::from_secs(2);
/// Id and name of the last event.
const END: &str = "end";
/// A place in a timeline has no more digits than that.
const DIGITS_MAX: usize = 9;

/// Where to go on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Resume {
    /// The same as the header `Last-Event-ID`, for those who cannot set one. The header counts where both are given.
    #[param(pattern = "^([0-9]{1,9}|end)$")]
    last_event_id: Option<String>,
}

/// The last event that a client has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// So many lines; none is 0.
    Lines(i64),
    /// The last one of all.
    End,
}

impl FromStr for Seen {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let is_place = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            _ if text == END => Ok(Self::End),
            Ok(place) if is_place => Ok(Self::Lines(place)),
            _ => Err(Problem::bad_request(
                "malformed_last_event_id",
                format!("{:?} is no event's id: they are 1, 2, 3 .. and {END}", excerpt(text)),
            )),
        }
    }
}

/// One event of the stream.
#[derive(Serialize, ToSchema)]
pub(crate) struct StreamEvent {
    /// The place of the line in the payment's timeline, from 1; `end` of the last event.
    #[schema(pattern = "^([0-9]{1,9}|end)$")]
    id: String,
    /// The `status` of the line; `end` of the last event.
    event: String,
    /// JSON: a line of the timeline; of the last event the payment.
    data: String,
}

/// Watch a payment
///
/// Server-sent events: one for each line of the timeline, past and to come, in order. Its name is the line's `status`, its
/// data what the timeline of `GET /api/v1/payments/{payment_id}` holds. After the payment's end comes the event `end`, whose
/// data is the payment, and the stream is closed. A stream that is cut before, or closed since it was open for long, goes
/// on after the event that `Last-Event-ID` names.
#[utoipa::path(
    get, path = "/api/v1/payments/{payment_id}/events", tag = "payments", security(("api_key" = ["read"])),
    params(
        ("payment_id" = String, Path, description = "From the acceptance"),
        Resume,
        ("Last-Event-ID" = Option<String>, Header, nullable = false, pattern = "^([0-9]{1,9}|end)$",
         description = "The id of the last event that was seen", example = "3"),
    ),
    responses(
        (status = 200, description = "The events, until the payment's end", body = StreamEvent, content_type = "text/event-stream"),
        (status = 204, description = "The end was seen: nothing is to come, and a browser does not ask again"),
        (status = 400, description = "malformed_query, malformed_last_event_id",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found; another tenant's payment is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "unknown_event: this payment has no event of that id",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 429, description = "rate_limited; too_many_streams: this client has as many open as it may",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn watch_payment(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(resume): Query<Resume>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let id = payment_id(&id)?;
    tracing::Span::current().record("payment.id", id.as_str());
    let seen = last_seen(&headers, resume.last_event_id.as_deref())?;
    let payment = find(&app, &caller, &id).await?;

    // What the client says it saw must be there: else it would wait for what it has missed.
    let seen = match seen {
        Seen::End if payment.state.end().is_some() => return Ok(StatusCode::NO_CONTENT.into_response()),
        Seen::End => return Err(unknown_event(END).into()),
        Seen::Lines(0) => 0,
        Seen::Lines(place) if app.ledger.timeline(&id, place - 1, 1).await?.is_empty() => {
            return Err(unknown_event(&place.to_string()).into());
        }
        Seen::Lines(place) => place,
    };

    let place = app.streams.enter(&caller)?;
    let opening = stream::once(async { Ok(Event::default().retry(RETRY)) });
    let following = Following::begin(&app, caller, id, seen, place).await?;
    let events = opening.chain(stream::unfold(following, Following::next));
    let alive = KeepAlive::new().interval(app.streams.heartbeat).text("heartbeat");
    // A proxy that gathers an answer before it passes it on would hold all of it back.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(events).keep_alive(alive)).into_response())
}

/// The header before the query: it is what a browser sends when it comes again to the same address.
fn last_seen(headers: &HeaderMap, query: Option<&str>) -> Result<Seen, Problem> {
    let header = headers.get(LAST_EVENT_ID).map(|value| String::from_utf8_lossy(value.as_bytes()));
    // Both must be ids, whichever counts.
    let query = query.map(str::parse).transpose()?;
    let header = header.as_deref().map(str::parse).transpose()?;
    Ok(header.or(query).unwrap_or(Seen::Lines(0)))
}

fn unknown_event(id: &str) -> Problem {
    Problem::unprocessable("unknown_event", format!("this payment has no event {id}; come without one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_place_or_the_end_and_the_header_comes_before_the_query() {
        let seen = |header: Option<&str>, query: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(text) = header {
                headers.insert(LAST_EVENT_ID, text.parse().unwrap());
            }
            last_seen(&headers, query).map_err(|problem| problem.code)
        };
        assert_eq!(seen(None, None), Ok(Seen::Lines(0)));
        assert_eq!(seen(None, Some("0")), Ok(Seen::Lines(0)));
        assert_eq!(seen(Some("7"), None), Ok(Seen::Lines(7)));
        assert_eq!(seen(Some("8"), Some("7")), Ok(Seen::Lines(8)));
        assert_eq!(seen(None, Some("end")), Ok(Seen::End));
        assert_eq!(seen(Some("8"), Some("")), Err("malformed_last_event_id".into()));
        assert_eq!(seen(None, Some("999999999")), Ok(Seen::Lines(999_999_999)));
        for bad in ["", "-1", "+1", "1.0", "x", "END", "1000000000", "١"] {
            assert_eq!(seen(None, Some(bad)), Err("malformed_last_event_id".into()), "{bad:?}");
        }
    }
}
