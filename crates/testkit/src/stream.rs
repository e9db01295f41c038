//! Watches a payment as a customer of the API does: by its stream of events.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::System;
use crate::system::API_KEY;

/// How long an event, or the end of a stream, may take to come.
const WITHIN: Duration = Duration::from_secs(60);

/// One event, as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What to go on after.
    pub id: String,
    /// What happened.
    pub name: String,
    /// The line of the timeline.
    pub data: Value,
}

/// A stream that is open.
#[derive(Debug)]
pub struct Events {
    answer: reqwest::Response,
    text: String,
}

impl System {
    /// Watches a payment from its beginning, or after the event of that id.
    ///
    /// # Errors
    /// What the API said instead.
    pub async fn watch(&self, payment_id: &str, last_event_id: Option<&str>) -> anyhow::Result<Events> {
        let url = format!("{}/api/v1/payments/{payment_id}/events", self.api.url());
        let mut request = self.http.get(url).bearer_auth(API_KEY).timeout(2 * WITHIN);
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        let answer = request.send().await?;
        let status = answer.status();
        ensure!(status == 200, "the payment cannot be watched: {status} {}", answer.text().await?);
        Ok(Events { answer, text: String::new() })
    }
}

impl Events {
    /// The next event; none when the API closed the stream.
    ///
    /// # Errors
    /// Nothing comes in time, or the connection was cut.
    pub async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = read(block)?;
                self.text = rest.to_owned();
                if event.is_some() {
                    return Ok(event);
                }
            }
            let more = tokio::time::timeout(WITHIN, self.answer.chunk()).await;
            match more.context("no event comes")?? {
                Some(bytes) => self.text.push_str(std::str::from_utf8(&bytes)?),
                None if self.text.is_empty() => return Ok(None),
                None => bail!("half an event: {:?}", self.text),
            }
        }
    }

    /// The next events up to one of that name, with it.
    ///
    /// # Errors
    /// As [`Events::next`], or the stream ends before.
    pub async fn until(&mut self, name: &str) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        loop {
            let event = self.next().await?.with_context(|| format!("the stream ended after {events:?}"))?;
            let is_last = event.name == name;
            events.push(event);
            if is_last {
                return Ok(events);
            }
        }
    }
}

/// What stands between two empty lines; none of a comment.
fn read(block: &str) -> anyhow::Result<Option<Event>> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let Some(data) = field("data") else { return Ok(None) };
    let text = |name: &str| field(name).map(str::to_owned).with_context(|| format!("no {name} in {block:?}"));
    Ok(Some(Event { id: text("id")?, name: text("event")?, data: serde_json::from_str(data)? }))
}
