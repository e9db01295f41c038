//! The switches: their configuration, and the seam behind which each kind of switch speaks its own format.
//!
//! | file | content |
//! |---|---|
//! | [`config`] | the configured switches, the check of their profiles, and the routing of destinations |
//! | [`client`] | the seam: what the protocol asks of a switch, and the kinds of switches |
//! | [`link`] | TLS to the switch, or plaintext where that is accepted |
//! | [`http_json`] | the kind that speaks JSON over HTTP |
//! | `breaker` | the circuit breaker of submits |
//! | `retry_after` | the pause that the switch requires |
//! | [`clock`] | the switch's clock |

mod breaker;
pub mod client;
pub mod clock;
pub mod config;
pub mod http_json;
pub mod link;
mod retry_after;

pub use client::{
    LookupKey, SwitchClient, SwitchKind, SwitchReply, SwitchReports, TransferOrder, TransferRef,
};
pub use config::{CheckedSwitches, SecretsOf, SwitchConfigError, Switches};
pub use http_json::HttpJsonClient;
