//! Logs: one line per event on stderr, filtered by `RUST_LOG` (default
//! `info`), as text or, with `LOG_FORMAT=json`, as JSON.
//!
//! Stdout stays free for what a command prints as its result.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging for the process called `service`.
///
/// Safe to call twice, as tests in one process do: the first call wins.
pub fn init(service: &'static str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let json = std::env::var("LOG_FORMAT").is_ok_and(|format| format == "json");
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = if json {
        registry.with(layer.json()).try_init()
    } else {
        // Escape codes in a log file help nobody.
        use std::io::IsTerminal;
        registry.with(layer.with_ansi(std::io::stderr().is_terminal())).try_init()
    };
    if started.is_ok() {
        tracing::info!(service, version = env!("CARGO_PKG_VERSION"), "starting");
    }
}
