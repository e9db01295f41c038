//! The steps of a payment, one file each. Every step is one transaction under the payment row's lock.

pub mod accept;
pub mod account_lock;
pub mod cancel;
pub mod debit;
pub mod first_steps;
pub mod recall;
pub mod release;
pub mod reserve;
pub mod restore;
pub mod start;
pub mod submit;
pub(crate) mod workflow_input;
