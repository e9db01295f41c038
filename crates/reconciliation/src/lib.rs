//! Three-way reconciliation of the switch statements, the ledger and the running workflows (S0.15).
//!
//! A run reads the new lines of each statement, lists the running workflows, and compares all payments, and everything that
//! matches no payment, in batches. Memory is bounded by one batch, and a run costs the same whether it finds nothing or
//! everything. A run opens an exception for each drift. A run of payment-worker records the returns that a statement lists, as those that the
//! switch reports; one of payctl counts them and moves no money. A source that cannot be read is reported in `not_compared`, and no drift is
//! derived from it.
//!
//! | file | contents |
//! |---|---|
//! | `run.rs` | the order in which the sources are read and compared |
//! | `progress.rs` | how far a run has come, so that another process can continue it |
//! | [`report`] | the result of a run |
//! | [`restore`] | the check after commits may have been lost |
//! | [`transfer`] | one payment's transfer at its switch |
//! | [`correction`] | whether the switch agrees with a correction |

pub mod correction;
mod progress;
pub mod report;
pub mod restore;
mod run;
pub mod transfer;

pub use progress::ReconciliationProgress;
pub use report::ReconciliationReport;
pub use run::{ProgressCallback, Reconciler, ReconciliationError};
