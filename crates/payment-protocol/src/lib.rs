//! The payment protocol: what makes a customer be charged exactly once when the money left, and
//! not at all when it did not.
//!
//! The rule under everything: **the switch decides, the bank follows**, and there is one port to
//! releasing money, the switch's own answer to our own cancel ([`cancel`]).
//!
//! This crate performs no I/O and knows neither Temporal nor SQL. It holds three layers, each
//! written once and driven from outside through a small trait:
//!
//! | layer | question | driven by |
//! |---|---|---|
//! | [`pay`] over [`port::PaymentPort`] | in which order do the steps of one payment happen? | the workflow |
//! | [`submit`], [`poll`], [`cancel`], [`recall`], [`decision`] over their doors | how is the switch asked once? | an activity, once per attempt |
//! | [`rules`] over [`facts::Facts`] | what may be written next to what is written? | the ledger, under the payment row's lock |

pub mod cancel;
pub mod cause;
pub mod compensation;
pub mod decision;
pub mod facts;
pub mod ids;
pub mod inbox;
pub mod keys;
pub mod money;
pub mod pay;
pub mod payment;
pub mod poll;
pub mod port;
pub mod profile;
pub mod recall;
pub mod report;
pub mod rules;
pub mod state;
pub mod submit;

pub use cause::{Cause, OperatorReason, PaymentError};
pub use payment::Payment;
pub use profile::SwitchProfile;
pub use state::{FinalState, PaymentState};
