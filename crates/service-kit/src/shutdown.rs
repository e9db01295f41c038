//! Stopping on purpose: the first SIGTERM or SIGINT asks, the second insists.
//!
//! What stopping means is the business of whoever holds the token.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process told to stop twice, as shells give it for SIGINT.
const INSISTED: i32 = 130;

/// A token cancelled by the first SIGTERM or SIGINT; the second one ends the
/// process at once with code 130. Call it once, inside a tokio runtime.
pub fn on_signals() -> CancellationToken {
    let token = CancellationToken::new();
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => {
            tokio::spawn(watch(token.clone(), terminate, interrupt));
        }
        (Err(error), _) | (_, Err(error)) => {
            // Worse than no graceful stop would be no service at all.
            tracing::error!(%error, "signals cannot be watched; stopping will not be graceful");
        }
    }
    token
}

async fn watch(token: CancellationToken, mut terminate: Signal, mut interrupt: Signal) {
    let name = next(&mut terminate, &mut interrupt).await;
    tracing::info!(signal = name, "stopping");
    token.cancel();
    let name = next(&mut terminate, &mut interrupt).await;
    tracing::warn!(signal = name, "told to stop a second time, leaving at once");
    std::process::exit(INSISTED);
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
