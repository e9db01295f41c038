//! What system tests are made of: the real PostgreSQL, the real Temporal server, real processes that
//! are killed with real signals.
//!
//! | file | question |
//! |---|---|
//! | [`surroundings`] | where are PostgreSQL, Temporal and the binaries? |
//! | [`database`] | how does a test get a database of its own? |
//! | [`cluster`] | how does it get a whole PostgreSQL of its own, to break it? |
//! | [`preload`] | how is a process's clock set wrong, or its disk filled? |
//! | [`broker`] | how does a test get a message broker of its own? |
//! | `port` | how does a process keep its port while it is dead? |
//! | [`process`] | how is one process started, killed, paused, started again? |
//! | [`proxy`] | how is a link cut, held back, made slow? |
//! | [`system`] | how does a test get a whole bank and a switch? |
//! | `configuration` | what are the processes told? |
//! | [`callback`] | how does a test speak as a switch? |
//! | [`temporal`] | what has Temporal recorded, and how is a workflow reset? |
//! | [`stream`] | how does a test watch a payment? |
//! | [`switch`] | how is the mock switch told to misbehave, and what does its book say? |
//! | [`auditor`] | do the books agree? Shares no code and no query with the service. |
//! | [`wait`] | how does a test wait without sleeping? |

pub mod auditor;
pub mod broker;
pub mod callback;
pub mod cluster;
mod configuration;
pub mod database;
mod port;
pub mod preload;
pub mod process;
pub mod proxy;
pub mod stream;
pub mod surroundings;
pub mod switch;
pub mod system;
pub mod temporal;
pub mod wait;

pub use broker::Broker;
pub use callback::Callback;
pub use system::{Options, System};

/// A client for plain HTTP on this machine, with a timeout on every request.
///
/// # Panics
/// When the TLS library is broken; no test can run then.
#[must_use]
#[allow(clippy::expect_used, reason = "a test's own set-up, with nobody to hand the error to")]
pub fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // No certificates: a fresh machine may have none, and nothing here leaves it.
    reqwest::Client::builder()
        .tls_certs_only([])
        .no_proxy()
        .timeout(std::time::Duration::from_secs(60))
        .build()
        .expect("an HTTP client without certificates can be made")
}
