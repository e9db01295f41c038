//! `GET /api/v1/payments/{payment_id}/events`: the timeline as server-sent events.
//!
//! An event's id is the position of its entry in the payment's timeline, from 1. The position never changes, so a client that
//! reconnects with the last id misses nothing and receives nothing twice. (The numbers of the rows are shared by all tenants and
//! would disclose the volume of others.)

mod event_stream;

use openapi_kit::ProblemDocument;
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

use self::event_stream::EventStream;
use super::payment_id;
use super::retrieve::find;
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, excerpt};
use crate::request_span::record_payment;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Reconnection time of clients.
const RETRY: Duration = Duration::from_secs(2);
/// Id and name of the final event.
const END: &str = "end";
/// Upper bound of digits of a position.
const POSITION_DIGITS_MAX: usize = 9;

/// Query of an event stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StreamEventsQuery {
    /// The same as the header `Last-Event-ID`, for clients that cannot set headers. The header takes precedence.
    #[param(pattern = "^([0-9]{1,9}|end)$")]
    last_event_id: Option<String>,
}

/// The last event that a client received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastEvent {
    /// The entry at this position; 0 if none was received.
    Entry(i64),
    /// The final event.
    End,
}

impl FromStr for LastEvent {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let is_position = text.len() <= POSITION_DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            _ if text == END => Ok(Self::End),
            Ok(position) if is_position => Ok(Self::Entry(position)),
            _ => Err(Problem::bad_request(
                "malformed_last_event_id",
                format!(
                    "Last-Event-ID {:?} is not an event id; send the id of the last received event, a position from 1 or {END}",
                    excerpt(text)
                ),
            )),
        }
    }
}

/// The body of an event stream: a text, in which each event has these fields.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it documents the body, which is written event by event")]
enum EventStreamBody {
    Event(StreamEvent),
    Text(String),
}

/// One event of the stream.
#[derive(Serialize, ToSchema)]
struct StreamEvent {
    /// Position of the entry in the payment's timeline, from 1; `end` for the final event.
    #[schema(pattern = "^([0-9]{1,9}|end)$")]
    id: String,
    /// The `status` of the entry; `end` for the final event.
    event: String,
    /// JSON: the timeline entry; the payment for the final event.
    data: String,
}

/// Stream the events of a payment
///
/// Server-sent events: one for each timeline entry, past and future, in order. The event's name is the entry's `status`, its data is
/// the entry as `GET /api/v1/payments/{payment_id}` returns it. Once the payment has ended, the final event `end` follows, with the
/// payment as data, and the stream is closed. To continue a stream that was interrupted or reached its longest life, reconnect with
/// `Last-Event-ID`.
#[utoipa::path(
    get, path = "/api/v1/payments/{payment_id}/events", tag = "payments", security(("api_key" = ["read"])),
    params(
        ("payment_id" = String, Path, description = "Id of the payment"),
        StreamEventsQuery,
        ("Last-Event-ID" = Option<String>, Header, nullable = false, pattern = "^([0-9]{1,9}|end)$",
         description = "Id of the last received event", example = "3"),
    ),
    responses(
        (status = 200, description = "The events until the payment has ended", body = EventStreamBody, content_type = "text/event-stream"),
        (status = 204, description = "The final event was received: nothing follows, and a browser does not reconnect"),
        (status = 400, description = "malformed_query, malformed_last_event_id",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "payment_not_found: no payment with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "unknown_event: the payment has no event with this id",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 429, description = "rate_limited: your client exceeded its rate. too_many_streams: your client has reached its limit of open streams",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn stream_payment_events(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(query): Query<StreamEventsQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let id = payment_id(&id)?;
    record_payment(id.as_str());
    let last = last_event(&headers, query.last_event_id.as_deref())?;
    let payment = find(&app, &caller, &id).await?;

    // The last event must exist; otherwise the client would wait for events that it has missed.
    let sent = match last {
        LastEvent::End if payment.state.end().is_some() => return Ok(StatusCode::NO_CONTENT.into_response()),
        LastEvent::End => return Err(unknown_event(END).into()),
        LastEvent::Entry(0) => 0,
        LastEvent::Entry(position) if app.reads.timeline(&id, position - 1, 1).await?.is_empty() => {
            return Err(unknown_event(&position.to_string()).into());
        }
        LastEvent::Entry(position) => position,
    };

    let slot = app.streams.acquire_slot(&caller)?;
    let retry = stream::once(async { Ok(Event::default().retry(RETRY)) });
    let event_stream = EventStream::open(&app, caller, id, sent, slot).await?;
    let events = retry.chain(stream::unfold(event_stream, EventStream::next));
    let alive = KeepAlive::new().interval(app.streams.heartbeat).text("heartbeat");
    // A proxy that buffers the response would delay every event.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(events).keep_alive(alive)).into_response())
}

/// The header takes precedence over the query, because a browser sends it when it reconnects to the same URL.
fn last_event(headers: &HeaderMap, query: Option<&str>) -> Result<LastEvent, Problem> {
    let header = headers.get(LAST_EVENT_ID).map(|value| String::from_utf8_lossy(value.as_bytes()));
    // Both must be valid, whichever is used.
    let query = query.map(str::parse).transpose()?;
    let header = header.as_deref().map(str::parse).transpose()?;
    Ok(header.or(query).unwrap_or(LastEvent::Entry(0)))
}

fn unknown_event(id: &str) -> Problem {
    Problem::unprocessable(
        "unknown_event",
        format!("the payment has no event {id}; reconnect without Last-Event-ID"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_id_is_a_position_or_end_and_its_header_has_precedence() {
        let parse = |header: Option<&str>, query: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(text) = header {
                headers.insert(LAST_EVENT_ID, text.parse().unwrap());
            }
            last_event(&headers, query).map_err(|problem| problem.code)
        };
        assert_eq!(parse(None, None), Ok(LastEvent::Entry(0)));
        assert_eq!(parse(None, Some("0")), Ok(LastEvent::Entry(0)));
        assert_eq!(parse(Some("7"), None), Ok(LastEvent::Entry(7)));
        assert_eq!(parse(Some("8"), Some("7")), Ok(LastEvent::Entry(8)));
        assert_eq!(parse(None, Some("end")), Ok(LastEvent::End));
        assert_eq!(parse(Some("8"), Some("")), Err("malformed_last_event_id".into()));
        assert_eq!(parse(None, Some("999999999")), Ok(LastEvent::Entry(999_999_999)));
        for bad in ["", "-1", "+1", "1.0", "x", "END", "1000000000", "١"] {
            assert_eq!(parse(None, Some(bad)), Err("malformed_last_event_id".into()), "{bad:?}");
        }
    }
}
