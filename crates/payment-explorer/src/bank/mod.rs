//! The simulated bank: one payment's row and the money it moved, in memory.
//!
//! Each function is one transaction of `payment-ledger`: it reads the facts, calls the protocol's own
//! [`payment_protocol::rules`], and writes what the ledger would write. A test of the ledger compares the two,
//! with this very type.
//!
//! | file | content |
//! |---|---|
//! | `record.rs` | the payment's row |
//! | `exceptions.rs` | the open exceptions |
//! | `steps.rs` | reserve, debit, release, recall, recovery |
//! | `switch_messages.rs` | submit attempts, cancel attempts, and the switch's reports |
//! | `returns.rs` | returns by messages of their own |
//! | `decisions.rs` | operator decisions and corrections |

mod decisions;
mod exceptions;
mod record;
mod returns;
mod steps;
mod switch_messages;

pub use exceptions::{Exception, Exceptions};
pub use record::{Bank, Journal, OpenDecision, RunNumber};
