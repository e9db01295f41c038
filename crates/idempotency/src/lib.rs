//! The `Idempotency-Key` of an HTTP API: a repeat gets the first answer, and the change happens once.
//!
//! A claim lives in the transaction of the change it protects: an advisory lock on the key for the length of that
//! transaction, then the key looked up, the change, the answer stored; one commit makes change and answer true together.
//! So the lease *is* the transaction: a holder that dies frees its key with its connection, one that stands still is cut
//! off by the database, and neither can commit afterwards. For effects outside the transaction the lease is a row.
//!
//! This crate knows nothing of what is protected.
//!
//! | file | question |
//! |---|---|
//! | [`http`] | which key has this request, and how is an outcome written as an answer? |
//! | [`IdempotencyKey`], [`Scope`] | is this header a key, and whose? |
//! | [`Fingerprint`], [`canonical`] | is it the same request? |
//! | [`Terms`] | for how long is it kept, for how long may it be held? |
//! | [`Batcher`] | how do many requests share one transaction? |
//! | [`claim`] | how does one request use a transaction of its own? |
//! | [`outside`] | and where the effect is not in the database? |
//! | `claims`, `record` | who carries a request out; what is a row? |
//! | [`keeper`], `partition` | how does the table stay small? |
//! | [`Breaker`] | and when the store does not answer? |

mod answer;
mod batch;
mod breaker;
pub mod canonical;
mod claim;
mod claims;
mod error;
mod fingerprint;
pub mod http;
pub mod keeper;
mod key;
pub mod outside;
mod partition;
mod record;
mod scope;
mod terms;

use sqlx::migrate::Migrator;

pub use answer::Answer;
pub use batch::{Batcher, Effect, Outcome, Verdict, Width};
pub use breaker::Breaker;
pub use claim::{Claim, Lease, claim};
pub use error::IdempotencyError;
pub use fingerprint::Fingerprint;
pub use key::{IdempotencyKey, KEY_BYTES_MAX, KeyError};
pub use partition::{Days, keep_days, make_days};
pub use scope::Scope;
pub use terms::{Terms, TermsError};

/// Migrations of the table `idempotency_keys`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
