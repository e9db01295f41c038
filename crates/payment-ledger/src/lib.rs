//! All SQL about money: accounts, the append-only journal, holds, operations, payments, the inbox.
//!
//! Every step is one transaction: lock the payment row, read the facts, ask
//! [`payment_protocol::rules`], then write operation key, journal, hold, payment row and timeline
//! together. Concurrent steps in their plain case share one transaction (`group_commit`). A COMMIT without an answer is unknown, not failed: the caller repeats the step, and its
//! key returns the recorded outcome.
//!
//! | folder | question |
//! |---|---|
//! | [`accounts`] | What does an account hold? Which internal accounts exist? |
//! | [`steps`] | Accept, start, reserve, submit, cancel, debit, recall, release, restore: how does each change the books? |
//! | [`claims`] | What has the bank paid that nobody has paid back? |
//! | [`admission`] | Which limits and kill switches does a payment have to pass? |
//! | [`switch`] | Which callbacks, final status and submissions are recorded? |
//! | [`operator`] | Which payments need an operator, and what did operators decide? Which Temporal namespace has the workflows? |
//! | [`events`] | Which events are published, and which notifications did a customer get? |
//! | [`reads`] | What do the API, payctl and the metrics read? |
//! | [`audit`] | Was the journal changed (seal)? Do ledger, switch statements and workflows agree (reconcile)? |
//! | [`durability`] | May the server lose a commit that it confirmed? |
//! | [`access`] | Who may call the API, who is an operator, and what may the services do in the database? |

pub mod access;
pub mod accounts;
pub mod admission;
mod amount_text;
pub mod audit;
mod batches;
mod charged;
pub mod claims;
mod connect;
pub mod durability;
mod error;
pub mod events;
mod group_commit;
mod marks;
pub mod operator;
mod profiles;
pub mod reads;
mod row_lock;
pub mod steps;
mod stored_id;
pub mod switch;
mod transaction;
mod writes;

use postgres_kit::Pool;
use sqlx::migrate::Migrator;

pub use connect::{DatabaseOptions, DatabaseOptionsError, connect_options};
pub use error::LedgerError;

use crate::access::api_keys::KeyLookups;
use crate::access::operators::SessionToken;
use crate::group_commit::GroupCommit;
use crate::marks::Marks;

/// Migrations of the ledger's tables, including those of the outbox and of outbound webhooks.
pub static MIGRATOR: Migrator = sqlx::migrate!();

/// The ledger over a connection pool. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ledger {
    pool: Pool,
    group: GroupCommit,
    started: Marks<String>,
    delivered: Marks<i64>,
    key_lookups: KeyLookups,
    /// The session in which an operator decides.
    operator_session: Option<SessionToken>,
}

impl Ledger {
    /// A ledger over `pool`; the migrations must have run.
    #[must_use]
    pub fn new(pool: impl Into<Pool>) -> Self {
        let pool = pool.into();
        Self {
            group: GroupCommit::new(pool.clone()),
            pool,
            started: Marks::default(),
            delivered: Marks::default(),
            key_lookups: KeyLookups::default(),
            operator_session: None,
        }
    }

    /// The pool, for transactions that the ledger shares with another crate: accepting a payment and
    /// claiming its idempotency key are one transaction.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }
}
