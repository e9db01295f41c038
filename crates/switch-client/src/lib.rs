//! Talks to a switch, and knows which switches there are.
//!
//! | file | question |
//! |---|---|
//! | [`config`] | which switches are configured, are their profiles safe, which one serves a destination? |
//! | [`client`] | what did the switch answer, in the protocol's words? |
//! | [`wire`] | how does it look on the wire? |
//! | `breaker` | is the switch to be left in peace for a moment? |
//! | [`clock`] | what time is it on the switch's clock? |
//!
//! No answer is ever turned into a failure: what is not a definite answer is unknown. Whether to ask
//! again is not decided here.

mod breaker;
pub mod client;
pub mod clock;
pub mod config;
pub mod wire;

pub use client::{Answered, SwitchClient, TransferOrder};
pub use config::{CheckedSwitches, SwitchConfigError, Switches};
