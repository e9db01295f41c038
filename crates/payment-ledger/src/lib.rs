//! All SQL about money: accounts, the append-only journal, holds, operations, payments, the inbox.
//!
//! Every step is one transaction: lock the payment row, read the facts, ask
//! [`payment_protocol::rules`], write operation key, journal, hold, payment row and timeline
//! together. A COMMIT without an answer is unknown, not failed: the caller repeats the step and its
//! key gives the recorded outcome.
//!
//! | file | question |
//! |---|---|
//! | [`accounts`] | what does an account hold? |
//! | [`statement`] | what did it hold at an instant, what moved it? |
//! | [`seal`] | was history changed? |
//! | [`account_lock`] | who has a destination account at a switch without references? |
//! | [`accept`] | how does a payment come in? |
//! | [`starter`] | which payments are to be started, which were lost? |
//! | [`reserve`], [`settle`], [`release`] | how does money move? |
//! | [`limits`], [`stops`] | what may leave, what takes no new payments? |
//! | [`submissions`], [`cancelling`], [`recall`] | what was asked of the switch, what did it say? |
//! | [`sent`] | what do our own books know of what was sent? |
//! | [`verdict`] | what was the switch's first definite answer? |
//! | [`inbox`] | what came in for a payment? |
//! | [`events`], [`notifications`] | what are others told, what was the customer told? |
//! | [`operator`], [`decisions`] | what must a person see, what did people decide? |
//! | [`view`] | what does a payment look like from outside? |
//! | [`reconcile`] | do the switches' statements, our books and the workflows agree? |
//! | [`queues`], [`explain`] | what do operators look at? |
//! | [`measure`] | how much is open, held, undelivered, waiting for people? |
//! | [`api_keys`] | who may call, and what for? |
//! | [`service_role`] | what may the services do in the database? |

pub mod accept;
pub mod account_lock;
pub mod accounts;
pub mod api_keys;
pub mod cancelling;
mod connect;
pub mod decisions;
mod error;
pub mod events;
pub mod explain;
pub mod inbox;
pub mod limits;
mod locked;
pub mod measure;
pub mod notifications;
pub mod operator;
pub mod queues;
pub mod recall;
pub mod reconcile;
mod record;
pub mod release;
pub mod reserve;
pub mod seal;
pub mod sent;
pub mod service_role;
pub mod settle;
pub mod starter;
pub mod statement;
pub mod stops;
pub mod submissions;
pub mod verdict;
pub mod view;

use sqlx::PgPool;
use sqlx::migrate::Migrator;

pub use connect::{DatabaseOptions, DatabaseOptionsError};
pub use error::LedgerError;
pub use record::Exception;

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
