//! Level-triggered waits: check a condition repeatedly until it holds or the time limit has passed.
//!
//! A check that fails with an HTTP error counts as "not yet", since processes are killed and connections cut on purpose.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// Pause between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Repeats `check` until it returns a value. `expected` names the condition in the error.
///
/// # Errors
/// If `within` has passed, with `expected` and the last result; or the error of `check`, unless it is an HTTP error.
pub async fn until<T, F>(expected: &str, within: Duration, mut check: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let started = Instant::now();
    loop {
        let last = match check().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "not yet".to_owned(),
            Err(error) if error.is::<reqwest::Error>() => format!("{error:#}"),
            Err(error) => return Err(error),
        };
        if started.elapsed() > within {
            bail!("timed out after {within:?}, expected: {expected}; last check: {last}");
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}
