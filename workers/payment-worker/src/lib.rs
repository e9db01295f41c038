//! The Temporal side of a payment.
//!
//! | file | question |
//! |---|---|
//! | [`workflow`] | what does Temporal run? A thin shell around [`payment_protocol::pay`] |
//! | [`account_lock`] | who has a destination account at a switch without references? |
//! | `world` | how are the protocol's steps made of activities, signals and timers? |
//! | [`activities`] | what does one attempt of a step do, to our ledger or at a switch? |
//! | `doors` | how does an attempt reach the ledger and the switch? |
//! | `starter` | how do accepted payments become workflows, and lost ones resume? |
//! | `attributes` | what are payments found by in the UI? |
//! | [`process`] | what runs in this process, and how does it stop? |

pub mod account_lock;
pub mod activities;
mod adapters;
mod attributes;
pub mod config;
mod payment_port;
pub mod process;
pub mod reconciliation;
mod starter;
pub mod workflow;
