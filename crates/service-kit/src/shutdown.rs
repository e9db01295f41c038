//! Shutdown by signal: the first SIGTERM or SIGINT cancels a token, the second ends the process.
//!
//! The holder of the token decides how to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code after the second signal, the one that shells report for SIGINT.
const SECOND_SIGNAL_EXIT_CODE: i32 = 130;

/// A token cancelled by the first SIGTERM or SIGINT; the second one ends the process at once with code 130. Call it once,
/// inside a tokio runtime.
pub fn on_signals() -> CancellationToken {
    let token = CancellationToken::new();
    match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(terminate), Ok(interrupt)) => {
            tokio::spawn(watch(token.clone(), terminate, interrupt));
        }
        (Err(error), _) | (_, Err(error)) => {
            // A service without graceful stop is better than none.
            tracing::error!(%error, "the process could not install its signal handlers; a stop signal ends it without a graceful shutdown");
        }
    }
    token
}

async fn watch(token: CancellationToken, mut terminate: Signal, mut interrupt: Signal) {
    let name = next(&mut terminate, &mut interrupt).await;
    tracing::info!(signal = name, "the process received a stop signal and is stopping");
    token.cancel();
    let name = next(&mut terminate, &mut interrupt).await;
    tracing::warn!(signal = name, "the process received a second stop signal and exits at once");
    std::process::exit(SECOND_SIGNAL_EXIT_CODE);
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
