//! The protocol's doors, opened by our ledger and the switch's client.
//!
//! | file | question |
//! |---|---|
//! | `session` | how is this payment's transfer named to its switch? |
//! | `send` | how does one attempt at submit get out? |
//! | `ask` | how is the switch asked to cancel, or looked at, and what is written? |
//! | `decide` | what does carrying a decision out write? |
//! | `back` | how is money asked back? |

mod cancel;
mod decision;
mod recall;
mod session;
mod submit;

pub(crate) use cancel::CancelAdapter;
pub(crate) use recall::RecallAdapter;
pub(crate) use session::SwitchSession;
pub(crate) use submit::{SubmitAdapter, SubmitAdapterError};
