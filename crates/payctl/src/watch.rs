//! Follows a payment to its final state and writes each line of its timeline once.
//!
//! Transient API errors are retried: the payment proceeds without this process.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use payment_protocol::ids::PaymentId;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::{ApiClient, ApiResponse, PaymentDocument, TimelineStep};
use crate::output::{Output, escape_control};

/// Upper bound of the seconds that one call waits at the API for a new timeline line.
const LONG_POLL_S: u64 = 1;
/// Shortest time between two calls.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One formatted line of a timeline.
pub(crate) struct TimelineLine<'a> {
    /// When the payment was accepted.
    pub(crate) accepted_at: Timestamp,
    /// The event.
    pub(crate) step: &'a TimelineStep,
}

impl fmt::Display for TimelineLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TimelineStep { status, detail, at } = self.step;
        let elapsed = elapsed_seconds(self.accepted_at, *at);
        // The longest state has 14 letters.
        write!(f, "{elapsed:>9} s   {:14}   {}", escape_control(status), escape_control(detail))
    }
}

/// Seconds between two database times, with three decimals. Never negative.
pub(crate) fn elapsed_seconds(from: Timestamp, to: Timestamp) -> String {
    let elapsed_ms = to.as_millisecond().saturating_sub(from.as_millisecond()).max(0);
    format!("{}.{:03}", elapsed_ms / 1_000, elapsed_ms % 1_000)
}

/// One payment, read again and again until a deadline.
pub(crate) struct Watch<'a> {
    api: &'a ApiClient,
    id: &'a PaymentId,
    deadline: Instant,
    lines_written: usize,
    is_failing: bool,
    read_at: Option<Instant>,
}

impl<'a> Watch<'a> {
    /// Reads nothing yet.
    pub(crate) fn new(api: &'a ApiClient, id: &'a PaymentId, deadline: Instant) -> Self {
        Self { api, id, deadline, lines_written: 0, is_failing: false, read_at: None }
    }

    /// Reads the payment and writes the new lines of its timeline to `out`, if given. The API answers once the payment has
    /// ended, after `wait_s` seconds at the latest. `None` after the deadline.
    ///
    /// # Errors
    /// The API refuses to show the payment, or `out` cannot be written.
    pub(crate) async fn read(
        &mut self,
        wait_s: u64,
        mut out: Option<&mut Output<'_>>,
    ) -> anyhow::Result<Option<ApiResponse<PaymentDocument>>> {
        loop {
            if let Some(read_at) = self.read_at {
                if Instant::now() >= self.deadline {
                    return Ok(None);
                }
                sleep_until(self.deadline.min(read_at + POLL_INTERVAL)).await;
            }
            self.read_at = Some(Instant::now());
            match timeout_at(self.deadline, self.api.payment(self.id, wait_s)).await {
                Ok(Ok(response)) => {
                    self.is_failing = false;
                    let PaymentDocument { created_at: accepted_at, timeline, .. } = &response.document;
                    if let Some(out) = &mut out {
                        for step in timeline.iter().skip(self.lines_written) {
                            out.write_line(TimelineLine { accepted_at: *accepted_at, step })?;
                        }
                    }
                    self.lines_written = self.lines_written.max(timeline.len());
                    return Ok(Some(response));
                }
                Ok(Err(error)) if error.is_transient() => {
                    if !self.is_failing {
                        self.is_failing = true;
                        // A remark: the watch continues without stderr.
                        let _ = writeln!(
                            std::io::stderr(),
                            "payctl: payment {} cannot be read: {error}; retrying",
                            self.id
                        );
                    }
                }
                Ok(Err(error)) => return Err(error.into()),
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Waits until the payment has ended, or until `deadline`. Writes new timeline lines to `out`, if given.
///
/// Returns the payment as last read; `None` if it was never read.
///
/// # Errors
/// The API refuses to show the payment, or `out` cannot be written.
pub(crate) async fn follow_payment(
    api: &ApiClient,
    id: &PaymentId,
    deadline: Instant,
    mut out: Option<&mut Output<'_>>,
) -> anyhow::Result<Option<ApiResponse<PaymentDocument>>> {
    let mut watch = Watch::new(api, id, deadline);
    let mut last = None;
    while let Some(response) = watch.read(LONG_POLL_S, out.as_deref_mut()).await? {
        let has_ended = response.document.status.end().is_some();
        last = Some(response);
        if has_ended {
            break;
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payctl_watch_line_shows_elapsed_seconds_state_and_detail() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let accepted_at = at("2026-01-01T00:00:00.100Z");
        let line = |status: &str, time: &str| {
            let step =
                TimelineStep { status: status.into(), detail: "transfer\u{7} sent".into(), at: at(time) };
            TimelineLine { accepted_at, step: &step }.to_string()
        };
        assert_eq!(
            line("settled", "2026-01-01T00:00:01.702Z"),
            "    1.602 s   settled          transfer\\u{7} sent"
        );
        assert_eq!(
            line("needs_operator", "2026-01-01T00:02:00.105Z"),
            "  120.005 s   needs_operator   transfer\\u{7} sent"
        );
        assert!(line("accepted", "2026-01-01T00:00:00.050Z").starts_with("    0.000 s"));
    }
}
