//! The HTTP client of a switch, and the configuration of all switches.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the configured switches, the check of their profiles, and the routing of destinations |
//! | [`client`] | submit, query, cancel and recall, with the switch's answers as the protocol's types |
//! | [`read_back`] | lookup of a transfer in the listing of a switch without references |
//! | [`statement`] | lookup of a transfer in the statement, and the statement's pages |
//! | `http` | one HTTP call and its response |
//! | `bodies` | JSON bodies of requests and responses |
//! | `breaker` | the circuit breaker of submits |
//! | `retry_after` | the pause that the switch requires with `Retry-After` |
//! | [`clock`] | the switch's clock |
//!
//! An answer is definite only if it has the documented status and body and names our transfer. Any other is unknown, no
//! answer or our fault; the client never turns it into a failure. The caller decides whether to repeat a call.

mod bodies;
mod breaker;
pub mod client;
pub mod clock;
pub mod config;
mod http;
pub mod read_back;
mod retry_after;
pub mod statement;

pub use client::{SwitchClient, SwitchReply, TransferOrder, TransferRef};
pub use config::{CheckedSwitches, SwitchConfigError, Switches};
pub use read_back::LookupKey;
