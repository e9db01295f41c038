//! Logs: one line per event on stderr, filtered by `RUST_LOG` (default `info`), as text or, with `LOG_FORMAT=json`, as
//! JSON.
//!
//! Stdout is reserved for the results of commands.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging for the process called `service`. Further calls in the same process, as in tests, have no effect.
pub fn init(service: &'static str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let json = std::env::var("LOG_FORMAT").is_ok_and(|format| format == "json");
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let started = if json {
        registry.with(layer.json()).try_init()
    } else {
        // No escape codes in log files.
        use std::io::IsTerminal;
        registry.with(layer.with_ansi(std::io::stderr().is_terminal())).try_init()
    };
    if started.is_ok() {
        tracing::info!(service, version = env!("CARGO_PKG_VERSION"), "the process is starting");
    }
}
