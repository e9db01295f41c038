//! Waits at start-up for what the process cannot begin without.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Interval between two tries.
const INTERVAL: Duration = Duration::from_millis(500);

/// Asks again until an answer arrives; `None` if `stop` comes first. Only the first error is logged.
#[expect(clippy::disallowed_methods, reason = "the process waits outside workflow code")]
pub(crate) async fn until_answered<T, E: std::error::Error>(
    mut ask: impl AsyncFnMut() -> Result<T, E>,
    log: impl FnOnce(&E),
    stop: &CancellationToken,
) -> Option<T> {
    let mut log = Some(log);
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) => {
                if let Some(log) = log.take() {
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
