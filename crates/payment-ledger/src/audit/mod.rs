//! Whether the books are whole: the hash chain over the journal, and reconciliation with the other books.

pub mod reconcile;
pub mod seal;
