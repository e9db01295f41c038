//! Talks to a switch, and knows which switches there are.
//!
//! | file | question |
//! |---|---|
//! | [`config`] | which switches are configured, are their profiles safe, which one serves a destination? |
//! | [`client`] | what did the switch answer, in the protocol's words? |
//! | [`read_back`] | which transfer is ours at a switch without references? |
//! | [`statement`] | what does the switch's statement say of a transfer? |
//! | `http` | how is one call made, and what came back? |
//! | [`wire`] | how does it look on the wire? |
//! | `breaker` | is the switch to be left in peace for a moment? |
//! | `quiet` | has it asked for that itself? |
//! | [`clock`] | what time is it on the switch's clock? |
//!
//! No answer is ever turned into a failure: what is not a definite answer is unknown. Whether to ask
//! again is not decided here.

mod breaker;
pub mod client;
pub mod clock;
pub mod config;
mod http;
mod quiet;
pub mod read_back;
pub mod statement;
pub mod wire;

pub use client::{SwitchClient, SwitchReply, TransferOrder, TransferRef};
pub use config::{CheckedSwitches, SwitchConfigError, Switches};
pub use read_back::LookupKey;
