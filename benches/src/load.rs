//! Load generators: closed (a number of callers, each waits for its answer) and open (a rate of requests).

use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::task::JoinSet;

/// Result of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Successful requests.
    pub(crate) succeeded: u64,
    /// Failed requests.
    pub(crate) failed: u64,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Latencies of successful requests in microseconds, sorted.
    latencies_us: Vec<u64>,
}

impl Load {
    /// Successful requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.succeeded as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// The latency that `fraction` (0 to 1) of the requests did not exceed, in milliseconds.
    pub(crate) fn percentile_ms(&self, fraction: f64) -> f64 {
        let last = self.latencies_us.len().saturating_sub(1);
        let index = (fraction * last as f64).round() as usize;
        self.latencies_us.get(index).map_or(0.0, |us| *us as f64 / 1_000.0)
    }

    fn new(started: Instant, mut latencies_us: Vec<u64>, failed: u64) -> Self {
        latencies_us.sort_unstable();
        let succeeded = latencies_us.len() as u64;
        Self { succeeded, failed, seconds: started.elapsed().as_secs_f64(), latencies_us }
    }
}

/// Closed load: `callers` tasks, each sends its next request when the last one is answered, for `time`.
pub(crate) async fn closed<F>(
    callers: usize,
    time: Duration,
    request: impl Fn() -> F + Clone + Send + 'static,
) -> Load
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let started = Instant::now();
    let tasks = (0..callers).map(|_| {
        let request = request.clone();
        tokio::spawn(async move {
            let (mut latencies, mut failed) = (Vec::new(), 0_u64);
            while started.elapsed() < time {
                let sent = Instant::now();
                match request().await {
                    Ok(()) => latencies.push(micros(sent.elapsed())),
                    Err(_) => failed += 1,
                }
            }
            (latencies, failed)
        })
    });
    let (mut latencies, mut failed) = (Vec::new(), 0);
    for (task_latencies, task_failed) in join_all(tasks).await.into_iter().flatten() {
        latencies.extend(task_latencies);
        failed += task_failed;
    }
    Load::new(started, latencies, failed)
}

/// Open load: `rate` requests per second for `time`, each at its scheduled instant. A latency counts from that instant, so
/// that it includes queueing.
pub(crate) async fn open<F>(
    rate: f64,
    time: Duration,
    request: impl Fn() -> F + Clone + Send + 'static,
) -> Load
where
    F: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let started = Instant::now();
    let mut requests = JoinSet::new();
    let all = (rate * time.as_secs_f64()) as u64;
    for n in 0..all {
        let due = started + Duration::from_secs_f64(n as f64 / rate);
        tokio::time::sleep_until(due.into()).await;
        let request = request.clone();
        requests.spawn(async move { request().await.map(|()| micros(due.elapsed())) });
    }
    let (mut latencies, mut failed) = (Vec::new(), 0);
    while let Some(result) = requests.join_next().await {
        match result {
            Ok(Ok(us)) => latencies.push(us),
            _ => failed += 1,
        }
    }
    Load::new(started, latencies, failed)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The median of several measurements.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
