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
    let mut last: Option<ApiResponse<PaymentDocument>> = None;
    let mut lines_written = 0;
    let mut is_failing = false;
    loop {
        let called_at = Instant::now();
        match timeout_at(deadline, api.payment(id, LONG_POLL_S)).await {
            Ok(Ok(response)) => {
                is_failing = false;
                let payment = &response.document;
                let has_ended = payment.status.end().is_some();
                if let Some(out) = &mut out {
                    for step in payment.timeline.iter().skip(lines_written) {
                        out.write_line(TimelineLine { accepted_at: payment.created_at, step })?;
                    }
                }
                lines_written = lines_written.max(payment.timeline.len());
                last = Some(response);
                if has_ended {
                    return Ok(last);
                }
            }
            Ok(Err(error)) if error.is_transient() => {
                if !is_failing {
                    is_failing = true;
                    // A remark: the watch continues without stderr.
                    let _ =
                        writeln!(std::io::stderr(), "payctl: payment {id} cannot be read: {error}; retrying");
                }
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Ok(last),
        }
        if Instant::now() >= deadline {
            return Ok(last);
        }
        sleep_until(deadline.min(called_at + POLL_INTERVAL)).await;
    }
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
