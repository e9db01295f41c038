//! Level-triggered waits: look at the state until it is as wanted, or the deadline has passed.
//!
//! A look over HTTP that was refused or cut off saw nothing, so there is another one.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::bail;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until `look` gives a value.
///
/// # Errors
/// When `within` has passed, with `what` was waited for; or the look's own error, if it is not one of HTTP.
pub async fn until<T, F>(what: &str, within: Duration, mut look: impl FnMut() -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<Option<T>>>,
{
    let begun = Instant::now();
    loop {
        let saw = match look().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => "not yet".to_owned(),
            Err(error) if error.is::<reqwest::Error>() => format!("{error:#}"),
            Err(error) => return Err(error),
        };
        if begun.elapsed() > within {
            bail!("waited {within:?} in vain: {what}: {saw}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
