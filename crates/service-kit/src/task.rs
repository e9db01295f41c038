//! Loops that run beside requests until a stop: an action that is triggered, and an action on an interval.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Runs an action in a task of its own soon after it is triggered. Triggers that arrive together, or during the pause
/// after a run, are coalesced into one run; so the caller never waits and the action's rate is bounded. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Trigger(Arc<Notify>);

impl Trigger {
    /// Starts the task, which runs `action` at most once in each `pause` until `stop`. Must be called inside a tokio
    /// runtime.
    #[must_use]
    pub fn start<F>(
        pause: Duration,
        stop: CancellationToken,
        mut action: impl FnMut() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let triggered = Arc::new(Notify::new());
        let trigger = Self(triggered.clone());
        tokio::spawn(async move {
            let runs = async {
                loop {
                    triggered.notified().await;
                    action().await;
                    sleep(pause).await;
                }
            };
            stop.run_until_cancelled(runs).await;
        });
        trigger
    }

    /// Requests one run and returns at once.
    pub fn fire(&self) {
        self.0.notify_one();
    }
}

/// Runs `action` after each `interval` until `stop`; a run that is in progress at the stop is dropped.
pub async fn every<F>(interval: Duration, stop: CancellationToken, mut action: impl FnMut() -> F + Send)
where
    F: Future<Output = ()> + Send,
{
    let runs = async {
        loop {
            sleep(interval).await;
            action().await;
        }
    };
    stop.run_until_cancelled(runs).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn task_triggers_before_a_run_are_coalesced_and_a_stop_ends_the_task() {
        let (runs, stop) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let (counted, ran) = (runs.clone(), Arc::new(Notify::new()));
        let done = ran.clone();
        let trigger = Trigger::start(LONG * 3, stop.clone(), move || {
            counted.fetch_add(1, Ordering::SeqCst);
            let done = done.clone();
            async move { done.notify_one() }
        });
        (0..10).for_each(|_| trigger.fire());
        tokio::time::timeout(LONG, ran.notified()).await.expect("the action runs");
        // The pause after the first run has not ended.
        trigger.fire();
        tokio::task::yield_now().await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        stop.cancel();
    }

    #[tokio::test]
    async fn a_periodic_task_runs_until_the_stop() {
        let (stop, runs) = (CancellationToken::new(), AtomicUsize::new(0));
        let action = || {
            if runs.fetch_add(1, Ordering::SeqCst) == 2 {
                stop.cancel();
            }
            std::future::ready(())
        };
        let runner = every(Duration::from_millis(1), stop.clone(), action);
        tokio::time::timeout(LONG, runner).await.expect("the loop ends with the stop");
        assert_eq!(runs.load(Ordering::SeqCst), 3);
    }
}
