//! One client that follows one payment: it reads on from where it stands whenever there is news, until the end was told.
//!
//! Nothing is gathered for a client that does not read: while it does not take what was read, nothing more is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use payment_ledger::access::api_keys::Caller;
use payment_ledger::reads::view::TimelineEntry;
use payment_protocol::ids::PaymentId;
use tokio::sync::watch;
use tokio::time::Instant;

use super::END;
use crate::app::App;
use crate::error::ApiError;
use crate::routes::payments::read::find;
use crate::routes::payments::view::{Payment, Step};
use crate::streams::Place;

/// Lines that are read at once.
const PAGE: i64 = 100;
/// Before the database is asked again after it did not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// One client that follows one payment.
pub(super) struct Following {
    app: Arc<App>,
    caller: Caller,
    id: PaymentId,
    news: watch::Receiver<i64>,
    /// When the stream ends, whatever the payment does.
    until: Instant,
    /// Read and not sent.
    lines: VecDeque<TimelineEntry>,
    /// Lines that the client has.
    sent: i64,
    /// Lines may be there that were not read.
    is_behind: bool,
    /// The payment as it ended, to be told after the lines.
    end: Option<Box<Payment>>,
    /// The end was told.
    is_over: bool,
    _place: Place,
}

impl Following {
    /// Goes on after the first `sent` lines. The first look is taken here, so that a store that is out can be answered 503.
    pub(super) async fn begin(
        app: &Arc<App>,
        caller: Caller,
        id: PaymentId,
        sent: i64,
        place: Place,
    ) -> Result<Self, ApiError> {
        let mut following = Self {
            // Before the first look: what is written after it is news.
            news: app.streams.news_of(&id),
            until: Instant::now() + app.streams.lifetime,
            lines: VecDeque::new(),
            sent,
            is_behind: true,
            end: None,
            is_over: false,
            app: app.clone(),
            caller,
            id,
            _place: place,
        };
        following.look().await?;
        Ok(following)
    }

    /// The next event; none when the stream is to end.
    pub(super) async fn next(mut self) -> Option<(Result<Event, axum::Error>, Self)> {
        let stopping = self.app.stopping.clone();
        loop {
            if self.is_over || stopping.is_cancelled() || self.until <= Instant::now() {
                return None;
            }
            if let Some(line) = self.lines.pop_front() {
                self.sent += 1;
                return Some((event(self.sent, line), self));
            }
            if let Some(payment) = self.end.take() {
                self.is_over = true;
                return Some((Event::default().id(END).event(END).json_data(payment), self));
            }
            // No connection is held and nothing is asked while this waits.
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep_until(self.until) => return None,
                () = self.more() => {}
            }
        }
    }

    /// Waits until there may be more lines, and reads them. A database that does not answer is asked again: the client need
    /// not know.
    async fn more(&mut self) {
        if !self.is_behind {
            // It fails when the sender has gone, which stays as long as somebody follows_switch.
            let _ = self.news.changed().await;
            self.is_behind = true;
        }
        while let Err(error) = self.look().await {
            tracing::debug!(error = &error as &dyn std::error::Error, "a watched payment was not read");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Reads a page of what comes next.
    async fn look(&mut self) -> Result<(), ApiError> {
        let app = &self.app;
        let _turn = app.streams.turn().await;
        // The state first: an end that is seen here has its lines there.
        let payment = find(app, &self.caller, &self.id).await?;
        let lines = app.ledger.timeline(&self.id, self.sent, PAGE).await?;
        self.is_behind = i64::try_from(lines.len()).is_ok_and(|read| read >= PAGE);
        self.lines = lines.into();
        if !self.is_behind && payment.state.end().is_some() {
            self.end = Some(Box::new(Payment::of(payment)?));
        }
        Ok(())
    }
}

/// One line as it is sent.
fn event(place: i64, line: TimelineEntry) -> Result<Event, axum::Error> {
    let step = Step::from(line);
    Event::default().id(place.to_string()).event(step.status()).json_data(step)
}
