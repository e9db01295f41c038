//! Tools for system tests: real PostgreSQL, a real Temporal server, and real processes that are stopped by real signals.
//!
//! | module | provides |
//! |---|---|
//! | [`environment`] | the addresses of PostgreSQL and Temporal, and the folder of the binaries |
//! | [`database`] | one database per test |
//! | [`cluster`] | one PostgreSQL server per test, for faults that affect the whole server |
//! | [`preload`] | a process with a wrong clock or a full disk |
//! | [`nats_server`] | one message broker per test |
//! | [`temporal_server`] | one Temporal server with a database file per test |
//! | [`oidc_provider`] | one OpenID provider per test, and the browser of its users |
//! | `reserved_port` | a port that a process keeps across restarts |
//! | [`process`] | one process: start, kill, pause, restart |
//! | [`authority`] | certificates, and a server that speaks TLS before another one |
//! | [`proxy`] | a TCP proxy that cuts, holds or delays a connection |
//! | [`system`] | a complete bank with a mock switch |
//! | `config_file` | the configuration file of those processes |
//! | [`callback`] | callbacks that the test signs as a switch would |
//! | [`row_lock`] | a lock that holds a step of the ledger |
//! | [`scripted_temporal`] | a Temporal frontend that answers each call as the test says |
//! | [`temporal`] | the recorded history of a workflow, reset and deletion |
//! | [`stream`] | the stream of a payment's events |
//! | [`switch`] | the admin interface of the mock switch: faults, and its transfers |
//! | [`auditor`] | the comparison of bank, switch and Temporal's histories; shares no code and no query with the service |
//! | [`wait`] | waiting for a condition without fixed sleeps |

pub mod auditor;
pub mod authority;
pub mod callback;
pub mod cluster;
mod config_file;
pub mod database;
pub mod environment;
pub mod nats_server;
pub mod oidc_provider;
pub mod preload;
pub mod process;
pub mod proxy;
mod reserved_port;
pub mod row_lock;
pub mod scripted_temporal;
pub mod stream;
pub mod switch;
pub mod system;
pub mod temporal;
pub mod temporal_server;
pub mod wait;

pub use callback::TestCallback;
pub use nats_server::NatsServer;
pub use oidc_provider::OidcProvider;
pub use system::{System, SystemOptions};
pub use temporal_server::TemporalServer;

/// An HTTP client for addresses on this machine, with a timeout of 60 s per request.
///
/// # Panics
/// If the TLS library cannot be initialized; no test can run then.
#[must_use]
#[allow(clippy::expect_used, reason = "set-up of a test: no caller could handle the error")]
pub fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // No root certificates: a fresh machine may have none, and all addresses are local.
    reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .timeout(std::time::Duration::from_secs(60))
        // Shorter than a server keeps an idle connection: a request on one that is being closed would fail.
        .pool_idle_timeout(std::time::Duration::from_secs(5))
        .build()
        .expect("an HTTP client without root certificates")
}
