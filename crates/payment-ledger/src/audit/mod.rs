//! Audits of the ledger: the hash chains over the journal and the audit log, and reconciliation with switch statements and workflows.

pub mod log;
pub mod reconcile;
pub mod seal;
