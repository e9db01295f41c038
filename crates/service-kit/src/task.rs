//! Loops that run beside requests until a stop: an action that is triggered, and an action on an interval.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Runs an action in a task of its own soon after it is triggered. Triggers that arrive together, or during the pause
/// after a run, are coalesced into one run; so the caller never waits and the action's rate is bounded. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Trigger(Arc<Triggered>);

#[derive(Debug, Default)]
struct Triggered {
    run: Notify,
    /// Whether the trigger was fired since the last run began.
    since_run: AtomicBool,
}

impl Trigger {
    /// Starts the task, which runs `action` until `stop`. After a run it pauses: for `pause` if it is triggered again in the first half
    /// of that, otherwise only for this half. So what comes now and then hardly waits. Must be called inside a tokio runtime.
    #[must_use]
    pub fn start<F>(
        pause: Duration,
        stop: CancellationToken,
        action: impl FnMut() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send,
    {
        let triggered = Arc::new(Triggered::default());
        let trigger = Self(triggered.clone());
        tokio::spawn(async move {
            stop.run_until_cancelled(triggered.run_when_fired(pause, action, sleep)).await;
        });
        trigger
    }

    /// Requests one run and returns at once.
    pub fn fire(&self) {
        self.0.since_run.store(true, Ordering::Relaxed);
        self.0.run.notify_one();
    }
}

impl Triggered {
    async fn run_when_fired<F, W>(
        &self,
        pause: Duration,
        mut action: impl FnMut() -> F,
        wait: impl Fn(Duration) -> W,
    ) where
        F: Future<Output = ()>,
        W: Future<Output = ()>,
    {
        let half = pause / 2;
        loop {
            self.run.notified().await;
            self.since_run.store(false, Ordering::Relaxed);
            action().await;
            wait(half).await;
            if self.since_run.load(Ordering::Relaxed) {
                wait(half).await;
            }
        }
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
    use std::sync::atomic::AtomicUsize;

    use tokio::sync::mpsc::unbounded_channel;

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
    async fn only_a_task_that_is_triggered_again_soon_makes_the_whole_pause() {
        const HALF: Duration = Duration::from_millis(25);
        let (runs, mut ran) = unbounded_channel();
        let (waits, mut waited) = unbounded_channel();
        let resume = Arc::new(Notify::new());
        let (triggered, waiter) = (Arc::new(Triggered::default()), resume.clone());
        let trigger = Trigger(triggered.clone());
        let task = tokio::spawn(async move {
            let action = || {
                runs.send(()).expect("the test is there");
                std::future::ready(())
            };
            let wait = |length: Duration| {
                waits.send(length).expect("the test is there");
                waiter.notified()
            };
            triggered.run_when_fired(HALF * 2, action, wait).await;
        });
        let check = async {
            for fired_again in [false, true, false] {
                trigger.fire();
                ran.recv().await.expect("the action runs");
                assert_eq!(waited.recv().await, Some(HALF));
                if fired_again {
                    (0..10).for_each(|_| trigger.fire());
                    resume.notify_one();
                    assert_eq!(waited.recv().await, Some(HALF));
                    assert!(ran.is_empty(), "the action ran within the pause");
                    resume.notify_one();
                    ran.recv().await.expect("the action runs again, once");
                    assert_eq!(waited.recv().await, Some(HALF));
                }
                resume.notify_one();
                // The task goes on to wait for the next trigger.
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, check).await.expect("the task runs");
        assert!(ran.is_empty() && waited.is_empty());
        task.abort();
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
