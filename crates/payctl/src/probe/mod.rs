//! Finds out what a switch can do, with harmless transfers: the smallest amount, an account for probes,
//! references of its own. What was sent is cancelled again where the switch can, and named where not.
//!
//! | file | question |
//! |---|---|
//! | `wire` | how is a switch called? |
//! | `book` | what was sent, and how does it stand? |
//! | `measure` | what is done in which order, and what does it show? |
//! | `findings` | in which words? |
//! | `judge` | what does it mean for the configured profile? |

mod book;
mod findings;
mod judge;
mod measure;
mod wire;

pub(crate) use findings::{Clock, Findings, Left, Measured};
pub(crate) use judge::{Judged, judge};
pub(crate) use measure::Probe;
pub(crate) use wire::{Order, Wire, is_loopback};
