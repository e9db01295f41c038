//! Waits at start-up for what the process cannot begin without.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval between two tries.
const INTERVAL: Duration = Duration::from_millis(500);
/// Interval between two errors that are logged.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Asks again until an answer arrives; `None` if `stop` comes first. The first error is logged, and one each minute after it.
#[expect(clippy::disallowed_methods, reason = "the process waits outside workflow code")]
pub(crate) async fn until_answered<T, E: std::error::Error>(
    mut ask: impl AsyncFnMut() -> Result<T, E>,
    log: impl Fn(&E),
    stop: &CancellationToken,
) -> Option<T> {
    let mut logged: Option<Instant> = None;
    loop {
        match stop.run_until_cancelled(ask()).await? {
            Ok(answer) => return Some(answer),
            Err(error) => {
                if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    logged = Some(Instant::now());
                    log(&error);
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}
