//! The payment protocol: a customer is charged exactly once if the money left, and not at all if it did not.
//!
//! The main rule: **the switch decides, and the bank follows**. Money is released only after the switch
//! answered our own cancel ([`cancel`]), or rejected the transfer where the rail guarantees that its reject is final ([`reject`]).
//!
//! This crate performs no I/O and knows neither Temporal nor SQL. Each of its three layers acts through a
//! small trait (a port) that the caller implements:
//!
//! | layer | question | driven by |
//! |---|---|---|
//! | [`pay`] over [`port::PaymentPort`] | in which order do the steps of one payment happen? | the workflow |
//! | [`submit`], [`poll`], [`look`], [`debit`], [`cancel`], [`recall`], [`decision`] over their ports | what does one attempt do at the switch? | an activity, once per attempt |
//! | [`rules`] over [`facts::Facts`] | what may be written next to what is written? | the ledger, under the payment row's lock |

pub mod action;
pub mod alert;
pub mod cancel;
pub mod cause;
pub mod compensation;
pub mod debit;
pub mod decision;
pub mod drift;
pub mod exception;
pub mod facts;
pub mod ids;
pub mod inbox;
pub mod keys;
pub mod look;
pub mod money;
pub mod pay;
pub mod payment;
pub mod poll;
pub mod port;
pub mod profile;
pub mod rail_id;
pub mod recall;
pub mod reject;
pub mod report;
pub mod returns;
pub mod rules;
pub mod state;
pub mod submit;

pub use cause::{Cause, OperatorReason, PaymentError};
pub use payment::Payment;
pub use profile::SwitchProfile;
pub use state::{FinalState, PaymentState};
