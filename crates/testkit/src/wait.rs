//! Level-triggered waits: look at the state until it is as wanted, or the deadline has passed.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until `look` gives a value.
///
/// # Errors
/// When `within` has passed, with `what` was waited for; or the look's own error.
pub async fn until<T, F>(what: &str, within: Duration, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let begun = Instant::now();
    loop {
        if let Some(value) = look().await? {
            return Ok(value);
        }
        if begun.elapsed() > within {
            bail!("waited {within:?} in vain: {what}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
