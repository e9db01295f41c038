//! Follows a payment to its end: each line of its timeline is written once, as it comes.
//!
//! An API that does not answer for a while is asked again: the payment goes on without it.

use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use payment_protocol::ids::PaymentId;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::api::{Answer, Api, Payment, Step};
use crate::out::{Out, plain};

/// Seconds that the API is asked to wait for the end; new lines are seen at least so often.
const LOOK_S: u64 = 1;
/// Shortest time between two calls, whatever the API does.
const PAUSE: Duration = Duration::from_millis(200);

/// One line of a timeline, for people.
pub(crate) struct Line<'a> {
    /// When the payment was accepted.
    pub(crate) since: Timestamp,
    /// What happened then.
    pub(crate) step: &'a Step,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { status, detail, at } = self.step;
        let elapsed = seconds(self.since, *at);
        // The longest state has 14 letters.
        write!(f, "{elapsed:>9} s   {:14}   {}", plain(status), plain(detail))
    }
}

/// Seconds with three decimals, from the database's own times. The row's time is that of its
/// transaction's begin, so that no line is before it.
pub(crate) fn seconds(since: Timestamp, at: Timestamp) -> String {
    let elapsed_ms = at.as_millisecond().saturating_sub(since.as_millisecond()).max(0);
    format!("{}.{:03}", elapsed_ms / 1_000, elapsed_ms % 1_000)
}

/// Waits for the end of a payment until `deadline`. Lines go to `out`, unless it is None.
///
/// Returns the payment as it was last seen, if it was seen.
///
/// # Errors
/// When the API refuses to show the payment, or `out` cannot be written.
pub(crate) async fn follow(
    api: &Api,
    id: &PaymentId,
    deadline: Instant,
    mut out: Option<&mut Out<'_>>,
) -> anyhow::Result<Option<Answer<Payment>>> {
    let mut seen: Option<Answer<Payment>> = None;
    let mut shown = 0;
    let mut troubled = false;
    loop {
        let asked = Instant::now();
        match timeout_at(deadline, api.payment(id, LOOK_S)).await {
            Ok(Ok(answer)) => {
                troubled = false;
                let (payment, ended) = (&answer.read, answer.read.status.end().is_some());
                if let Some(out) = &mut out {
                    for step in payment.timeline.iter().skip(shown) {
                        out.line(Line { since: payment.created_at, step })?;
                    }
                }
                shown = shown.max(payment.timeline.len());
                seen = Some(answer);
                if ended {
                    return Ok(seen);
                }
            }
            Ok(Err(error)) if error.may_pass() => {
                if !troubled {
                    troubled = true;
                    // Only a remark: without stderr the watch goes on.
                    let _ = writeln!(std::io::stderr(), "payctl: {error}; asking again");
                }
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Ok(seen),
        }
        if Instant::now() >= deadline {
            return Ok(seen);
        }
        sleep_until(deadline.min(asked + PAUSE)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_elapsed_seconds_state_and_detail() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let since = at("2026-01-01T00:00:00.100Z");
        let line = |status: &str, time: &str| {
            let step = Step { status: status.into(), detail: "transfer\u{7} sent".into(), at: at(time) };
            Line { since, step: &step }.to_string()
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
