//! Implementations of the protocol's attempt ports with our ledger and the switch client.
//!
//! | file | content |
//! |---|---|
//! | `session` | calls to the switch about one payment's transfer |
//! | `submit` | port of one submit attempt |
//! | `cancel` | port of one cancel attempt or one poll |
//! | `debit` | port of one debit attempt |
//! | `decision` | port of applying an operator decision |
//! | `recall` | port of one recall attempt |

mod cancel;
pub(crate) mod debit;
mod decision;
mod recall;
pub(crate) mod session;
mod submit;

pub(crate) use cancel::CancelAdapter;
pub(crate) use recall::RecallAdapter;
pub(crate) use session::SwitchSession;
pub(crate) use submit::{SubmitAdapter, SubmitAdapterError};
