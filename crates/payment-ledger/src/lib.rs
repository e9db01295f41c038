//! All SQL about money: accounts, the append-only journal, holds, operations, payments, the inbox.
//!
//! Every step is one transaction: lock the payment row, read the facts, ask
//! [`payment_protocol::rules`], write operation key, journal, hold, payment row and timeline
//! together. A COMMIT without an answer is unknown, not failed: the caller repeats the step and its
//! key gives the recorded outcome.
//!
//! | folder | question |
//! |---|---|
//! | [`accounts`] | What does an account hold? Which internal accounts exist? |
//! | [`steps`] | How does each step of a payment change the books: accept, start, reserve, submit, cancel, debit, recall, release? |
//! | [`admission`] | Which limits and kill switches does a payment have to pass? |
//! | [`switch`] | What did the switch say: callbacks, the final status, the submission log? |
//! | [`operator`] | What does an operator have to see, and what did operators decide? |
//! | [`events`] | Which events are published, and which notifications did a customer get? |
//! | [`reads`] | What do the API, payctl and the metrics read? |
//! | [`audit`] | Was history changed (seal)? Do ledger, switch statements and workflows agree (reconcile)? |
//! | [`access`] | Who may call the API, and what may the services do in the database? |

pub mod access;
pub mod accounts;
pub mod admission;
pub mod audit;
mod connect;
mod error;
pub mod events;
pub mod operator;
pub mod reads;
mod row_lock;
pub mod steps;
pub mod switch;
mod writes;

use sqlx::PgPool;
use sqlx::migrate::Migrator;

pub use connect::{DatabaseOptions, DatabaseOptionsError};
pub use error::LedgerError;
pub use writes::Exception;

/// Migrations of the ledger's tables, and of the outbox's, which its steps write into.
pub static MIGRATOR: Migrator = sqlx::migrate!();

/// The ledger over a pool of connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: PgPool,
}

impl Ledger {
    /// A ledger over `pool`; the tables must be migrated.
    #[must_use]
    pub fn new(pool: PgPool) -> Self {
        Self { pool }
    }

    /// The pool, for transactions that the ledger shares with another part (the acceptance of a
    /// payment and the claim of its idempotency key are one transaction).
    #[must_use]
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Whether the database answers now.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn ping(&self) -> Result<(), LedgerError> {
        sqlx::query!("SELECT 1 AS one").fetch_one(&self.pool).await?;
        Ok(())
    }
}
