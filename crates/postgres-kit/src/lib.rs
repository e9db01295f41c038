//! Shared by the crates that store rows in PostgreSQL. It has no tables and knows nothing of payments and events.

pub mod deletion;
pub mod text;
pub mod timeout;
pub mod transaction;
pub mod wake_up;
