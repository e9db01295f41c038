//! Repeats a background task until the process stops.

use std::time::Duration;

use anyhow::Result;
use monitoring::background_task::BackgroundTask;
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
    mut round: impl AsyncFnMut() -> Result<RoundOutcome>,
) {
    while !stop.is_cancelled() {
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
            () = tokio::time::sleep(interval) => {}
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
