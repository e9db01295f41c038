//! A client of event streams.

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use futures::StreamExt as _;
use serde_json::Value;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::{LONG, insert_entry};
use crate::support::{ACME, Api, PAYMENTS};

/// One received event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) data: Value,
}

/// The response to a stream request; dropping it closes the stream.
pub(super) struct StreamResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: BodyDataStream,
    text: String,
}

impl StreamResponse {
    pub(super) async fn open(
        api: &Api,
        key: &str,
        id: &str,
        query: &str,
        last_event_id: Option<&str>,
    ) -> Self {
        let path = format!("{PAYMENTS}/{id}/events{query}");
        let mut request = Request::get(path).header("authorization", format!("Bearer {key}"));
        if let Some(last_event_id) = last_event_id {
            request = request.header("last-event-id", last_event_id);
        }
        let response = api.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.into_data_stream();
        Self { status: parts.status, headers: parts.headers, body, text: String::new() }
    }

    /// The text up to the next empty line; `None` at the end of the stream.
    pub(super) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Some(block);
            }
            let chunk = timeout(LONG, self.body.next()).await.expect("no data was received");
            let Some(chunk) = chunk else {
                assert_eq!(self.text, "", "expected no incomplete event at the end");
                return None;
            };
            self.text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
    }

    /// The next event; `None` at the end of the stream. Heartbeats are skipped.
    pub(super) async fn next(&mut self) -> Option<Event> {
        timeout(LONG, self.next_after_heartbeats()).await.expect("only heartbeats were received")
    }

    async fn next_after_heartbeats(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| {
                let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                value.map(str::to_owned)
            };
            if let Some(data) = field("data") {
                let data = serde_json::from_str(&data).unwrap();
                return Some(Event { id: field("id").unwrap(), name: field("event").unwrap(), data });
            }
        }
    }

    pub(super) async fn take(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.next().await.expect("the stream ended"));
        }
        events
    }

    pub(super) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// Opens a stream of acme from the start, or after the last event.
pub(super) async fn open(api: &Api, id: &str, last_event_id: Option<&str>) -> StreamResponse {
    let stream = StreamResponse::open(api, ACME, id, "", last_event_id).await;
    assert_eq!(stream.status, StatusCode::OK);
    stream
}

/// Status, code and `Retry-After` of a refused stream.
pub(super) async fn refused(
    api: &Api,
    key: &str,
    id: &str,
    query: &str,
    last_event_id: Option<&str>,
) -> (u16, Value, String) {
    let response = StreamResponse::open(api, key, id, query, last_event_id).await;
    let wait = response.headers.get("retry-after").map_or("", |wait| wait.to_str().unwrap()).to_owned();
    let mut body = response.body;
    let bytes = body.next().await.unwrap().unwrap();
    let problem: Value = serde_json::from_slice(&bytes).unwrap();
    (response.status.as_u16(), problem["code"].clone(), wait)
}

pub(super) fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

/// A stream that has sent one full page: it reads the next page without an update.
pub(super) async fn open_before_next_page(api: &Api) -> (String, StreamResponse) {
    let (id, _) = api.accepted_payment("k").await;
    for n in 1..100 {
        insert_entry(&api.pool, &id, "cancelling", &format!("attempt {n}"), false).await;
    }
    let mut stream = open(api, &id, None).await;
    stream.take(100).await;
    (id, stream)
}
