//! Repeats a background task until the process stops.

use std::time::Duration;

use anyhow::Result;
use monitoring::background_task::BackgroundTask;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Outcome of one round of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundOutcome {
    /// Nothing is left to do: the next round starts after the interval.
    Idle,
    /// More work is waiting: the next round starts at once.
    MoreWork,
}

/// Runs `round` every `interval` until `stop` is cancelled. Records each success; logs each failure and tries again after
/// the interval.
pub(crate) async fn run(
    task: BackgroundTask,
    interval: Duration,
    stop: &CancellationToken,
    round: impl AsyncFnMut() -> Result<RoundOutcome>,
) {
    repeat(task, stop, round, |_| interval).await;
}

/// The same for a round whose reads grow with the number of open payments: it takes at most a tenth of a database session, by
/// a longer pause after a long round, up to half of the time after which the task counts as stalled.
pub(crate) async fn run_sparingly(
    task: BackgroundTask,
    interval: Duration,
    stop: &CancellationToken,
    round: impl AsyncFnMut() -> Result<RoundOutcome>,
) {
    repeat(task, stop, round, |duration| sparing_pause(task, interval, duration)).await;
}

/// Pause after a round that took `duration`.
fn sparing_pause(task: BackgroundTask, interval: Duration, duration: Duration) -> Duration {
    interval.max((duration * 9).min(task.stalled_after() / 2))
}

async fn repeat(
    task: BackgroundTask,
    stop: &CancellationToken,
    mut round: impl AsyncFnMut() -> Result<RoundOutcome>,
    pause_after: impl Fn(Duration) -> Duration,
) {
    while !stop.is_cancelled() {
        let started = Instant::now();
        match round().await {
            Ok(outcome) => {
                task.record_success();
                if outcome == RoundOutcome::MoreWork {
                    continue;
                }
            }
            Err(error) => {
                let error = &*error as &dyn std::error::Error;
                tracing::warn!(
                    task = task.as_str(),
                    error,
                    "a round of the background task {} failed; the task runs again after its interval",
                    task.as_str()
                );
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause_after(started.elapsed())) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    /// The interval is longer than the test may take, so that only `MoreWork` and `stop` end a round's pause early.
    #[tokio::test]
    async fn a_background_round_with_more_work_is_followed_at_once() {
        let stop = CancellationToken::new();
        let mut rounds = 0;
        let round = async || {
            rounds += 1;
            if rounds < 3 {
                return Ok(RoundOutcome::MoreWork);
            }
            stop.cancel();
            Ok(RoundOutcome::Idle)
        };
        run(BackgroundTask::InboxDelivery, Duration::from_secs(3_600), &stop, round).await;
        assert_eq!(rounds, 3);
    }

    #[test]
    fn a_long_round_is_followed_by_a_longer_pause() {
        let interval = Duration::from_secs(5);
        for (round_ms, pause_ms) in [(0, 5_000), (500, 5_000), (1_000, 9_000), (10_000, 30_000)] {
            let pause =
                sparing_pause(BackgroundTask::MetricsCollection, interval, Duration::from_millis(round_ms));
            assert_eq!(pause, Duration::from_millis(pause_ms), "after {round_ms} ms");
        }
        // An interval that is longer than the longest pause stays.
        let pause =
            sparing_pause(BackgroundTask::HoldAudit, Duration::from_secs(500), Duration::from_secs(30));
        assert_eq!(pause, Duration::from_secs(500));
    }

    #[tokio::test]
    async fn a_failed_background_round_is_repeated_after_the_interval() {
        let stop = CancellationToken::new();
        let mut rounds = 0;
        let round = async || {
            rounds += 1;
            if rounds < 3 {
                bail!("unavailable");
            }
            stop.cancel();
            Ok(RoundOutcome::Idle)
        };
        run(BackgroundTask::InboxDelivery, Duration::from_millis(1), &stop, round).await;
        assert_eq!(rounds, 3);
    }
}
