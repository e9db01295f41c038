//! Shared by the crates that store rows in PostgreSQL. It has no tables and knows nothing of payments and events.

mod connection;
pub mod deletion;
mod pool;
pub mod text;
mod transaction;
pub mod wake_up;

pub use connection::{Connection, STATEMENT_LIMIT, unanswered};
pub use pool::Pool;
pub use transaction::Transaction;
