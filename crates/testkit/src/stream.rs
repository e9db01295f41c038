//! Reads the stream of a payment's events, as a customer of the API does.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::System;
use crate::system::API_KEY;

/// Time limit for the next event or the end of the stream.
const WITHIN: Duration = Duration::from_secs(60);

/// One event of the stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentEvent {
    /// The id to send as `Last-Event-ID`.
    pub id: String,
    /// The event's name: the state of the payment, or `end`.
    pub name: String,
    /// The timeline entry.
    pub data: Value,
}

/// An open stream.
#[derive(Debug)]
pub struct PaymentEventStream {
    response: reqwest::Response,
    buffer: String,
}

impl System {
    /// Opens the stream of a payment's events, from the beginning or after the event `last_event_id`.
    ///
    /// # Errors
    /// If the API does not answer 200.
    pub async fn open_stream(
        &self,
        payment_id: &str,
        last_event_id: Option<&str>,
    ) -> anyhow::Result<PaymentEventStream> {
        let url = format!("{}/api/v1/payments/{payment_id}/events", self.api.url());
        let mut request = self.http.get(url).bearer_auth(API_KEY).timeout(2 * WITHIN);
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let response = request.send().await?;
        let status = response.status();
        ensure!(status == 200, "the event stream was refused: {status} {}", response.text().await?);
        Ok(PaymentEventStream { response, buffer: String::new() })
    }
}

impl PaymentEventStream {
    /// The next event; `None` if the API closed the stream.
    ///
    /// # Errors
    /// If no event arrives in time, or the connection was cut.
    pub async fn next(&mut self) -> anyhow::Result<Option<PaymentEvent>> {
        loop {
            while let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let event = parse(block)?;
                self.buffer = rest.to_owned();
                if event.is_some() {
                    return Ok(event);
                }
            }
            let chunk = tokio::time::timeout(WITHIN, self.response.chunk()).await;
            match chunk.with_context(|| format!("the event stream sent no event within {WITHIN:?}"))?? {
                Some(bytes) => self.buffer.push_str(std::str::from_utf8(&bytes)?),
                None if self.buffer.is_empty() => return Ok(None),
                None => bail!("the event stream ended inside an event: {:?}", self.buffer),
            }
        }
    }

    /// The next events up to and including the first with this name.
    ///
    /// # Errors
    /// As [`PaymentEventStream::next`], or if the stream ends before that event.
    pub async fn read_until(&mut self, name: &str) -> anyhow::Result<Vec<PaymentEvent>> {
        let mut events = Vec::new();
        loop {
            let event =
                self.next().await?.with_context(|| format!("the event stream ended after {events:?}"))?;
            let is_last = event.name == name;
            events.push(event);
            if is_last {
                return Ok(events);
            }
        }
    }
}

/// The event of one block of lines; `None` if the block is a comment.
fn parse(block: &str) -> anyhow::Result<Option<PaymentEvent>> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let Some(data) = field("data") else { return Ok(None) };
    let text = |name: &str| {
        field(name).map(str::to_owned).with_context(|| format!("the event has no {name}: {block:?}"))
    };
    Ok(Some(PaymentEvent { id: text("id")?, name: text("event")?, data: serde_json::from_str(data)? }))
}
