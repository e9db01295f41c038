//! The protocol's doors, opened by our ledger and the switch's client.
//!
//! | file | question |
//! |---|---|
//! | `line` | how is this payment's transfer named to its switch? |
//! | `send` | how does one attempt at submit get out? |
//! | `ask` | how is the switch asked to cancel, or looked at, and what is written? |
//! | `decide` | what does carrying a decision out write? |
//! | `back` | how is money asked back? |

mod ask;
mod back;
mod decide;
mod line;
mod send;

pub(crate) use ask::AskDoor;
pub(crate) use back::BackDoor;
pub(crate) use line::Line;
pub(crate) use send::{DoorError, SendDoor};
