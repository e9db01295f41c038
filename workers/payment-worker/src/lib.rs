//! The Temporal worker of payments: workflows, activities, and the starter.
//!
//! | file | content |
//! |---|---|
//! | [`workflow`] | the payment workflow: a thin shell around [`payment_protocol::pay`] |
//! | `payment_port` | implements the protocol's payment port with activities, signals and timers |
//! | [`account_lock`] | the workflow that locks a destination account at a switch without references |
//! | [`reconciliation`] | the workflow and schedules of the reconciliation run |
//! | [`activities`] | one attempt of each step, at our ledger or at a switch |
//! | `adapters` | implement the protocol's attempt ports with the ledger and the switch client |
//! | `starter` | starts a workflow for each accepted payment |
//! | `recovery` | starts a recovery workflow for each open payment whose workflow is lost |
//! | `bounded` | works on claimed payments, a bounded number at once |
//! | [`namespace`] | refuses a Temporal namespace that is not the one of the open payments' workflows |
//! | `attributes` | the search attribute of payments |
//! | `temporal_setup` | sets up the search attribute and the schedules at Temporal, until it has answered |
//! | `sdk_metrics` | exports metrics of the Temporal SDK beside those of the process |
//! | `traces` | spans of activities, workflow starts and workflows |
//! | `until_answered` | waits at start-up for Temporal and the database |
//! | [`process`] | start-up and shutdown of the process |

pub mod account_lock;
pub mod activities;
mod adapters;
mod attributes;
mod bounded;
pub mod config;
mod crash_points;
pub mod namespace;
mod payment_port;
pub mod process;
mod recalls;
pub mod reconciliation;
mod recovery;
mod restore;
mod sdk_metrics;
mod starter;
mod temporal_setup;
mod traces;
mod until_answered;
pub mod workflow;
