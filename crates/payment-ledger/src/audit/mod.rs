//! Audits of the ledger: the hash chain over the journal, and reconciliation with switch statements and workflows.

pub mod reconcile;
pub mod seal;
