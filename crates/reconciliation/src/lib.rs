//! Three-way reconciliation: the switches' statements, our ledger and the running workflows (S0.15).
//!
//! A reconciliation_run reads on in each statement, lists the workflows that run, and goes through all payments and through whatever
//! belongs to none, in batches: memory is bounded by a batch, and a reconciliation_run costs the same whether it finds nothing or
//! everything. What it finds it names and opens an exception for; it moves no money. A book that cannot be read is said
//! to be missing, and nothing is concluded from it.
//!
//! | file | question |
//! |---|---|
//! | `reconciliation_run` | in which order are the books read? |
//! | [`report`] | what was found? |

pub mod report;
mod run;

pub use payment_ledger::audit::reconcile::drift::{Drift, Tolerance};
pub use report::Report;
pub use run::{Reconciler, ReconciliationError};
