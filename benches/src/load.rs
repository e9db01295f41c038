//! Load: as much as goes through, or so many requests a second whatever becomes of them.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::task::JoinSet;

/// What a load brought.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Requests that were answered.
    pub(crate) answered: u64,
    /// Requests that were not.
    pub(crate) failed: u64,
    /// Over the whole time, in seconds.
    pub(crate) seconds: f64,
    /// Latencies in microseconds, sorted.
    latencies_us: Vec<u64>,
}

impl Load {
    /// Answered requests a second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// The latency that `share` (0 to 1) of the requests stayed within, in milliseconds.
    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        let last = self.latencies_us.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.latencies_us.get(at).map_or(0.0, |us| *us as f64 / 1_000.0)
    }

    fn of(began: Instant, mut latencies_us: Vec<u64>, failed: u64) -> Self {
        latencies_us.sort_unstable();
        let answered = latencies_us.len() as u64;
        Self { answered, failed, seconds: began.elapsed().as_secs_f64(), latencies_us }
    }
}

/// `tasks` callers, each asking again as soon as it is answered, for `time`.
pub(crate) async fn closed<F>(
    tasks: usize,
    time: Duration,
    ask: impl Fn() -> F + Clone + Send + 'static,
) -> Load
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let began = Instant::now();
    let callers = (0..tasks).map(|_| {
        let ask = ask.clone();
        tokio::spawn(async move {
            let (mut latencies, mut failed) = (Vec::new(), 0_u64);
            while began.elapsed() < time {
                let asked = Instant::now();
                match ask().await {
                    Ok(()) => latencies.push(micros(asked.elapsed())),
                    Err(_) => failed += 1,
                }
            }
            (latencies, failed)
        })
    });
    let (mut latencies, mut failed) = (Vec::new(), 0);
    for (of_one, failed_one) in join_all(callers).await.into_iter().flatten() {
        latencies.extend(of_one);
        failed += failed_one;
    }
    Load::of(began, latencies, failed)
}

/// `rate` requests a second for `time`, each at its own moment. A latency counts from that moment, so that a queue in
/// front of us is seen.
pub(crate) async fn open<F>(rate: f64, time: Duration, ask: impl Fn() -> F + Clone + Send + 'static) -> Load
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let began = Instant::now();
    let mut asked = JoinSet::new();
    let all = (rate * time.as_secs_f64()) as u64;
    for n in 0..all {
        let due = began + Duration::from_secs_f64(n as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        let ask = ask.clone();
        asked.spawn(async move { ask().await.map(|()| micros(due.elapsed())) });
    }
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while let Some(came) = asked.join_next().await {
        match came {
            Ok(Ok(us)) => latencies.push(us),
            _ => failed += 1,
        }
    }
    Load::of(began, latencies, failed)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The middle of several measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
