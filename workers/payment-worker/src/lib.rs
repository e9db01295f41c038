//! The Temporal worker of payments: workflows, activities, and the starter.
//!
//! | file | content |
//! |---|---|
//! | [`workflow`] | the payment workflow: a thin shell around [`payment_protocol::pay`] |
//! | `payment_port` | implements the protocol's payment port with activities, signals and timers |
//! | [`account_lock`] | the workflow that locks a destination account at a switch without references |
//! | [`reconciliation`] | the workflow and schedule of the reconciliation run |
//! | [`activities`] | one attempt of each step, at our ledger or at a switch |
//! | `adapters` | implement the protocol's attempt ports with the ledger and the switch client |
//! | `starter` | starts a workflow for each accepted payment, and a recovery workflow for each lost one |
//! | `attributes` | the search attributes of payments |
//! | [`process`] | start-up and shutdown of the process |

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
