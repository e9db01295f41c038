//! The `Idempotency-Key` of an HTTP API: a repeat gets the first answer, and the change happens once.
//!
//! A claim lives in the transaction of the change it protects. [`claim`] takes an advisory lock on
//! the key for the length of that transaction, then looks the key up; [`Lease::complete`] stores the
//! answer; one commit makes change and answer true together. So the lease *is* the transaction: a
//! holder that dies frees its key with its connection, one that stands still is cut off by the
//! database, and neither can commit afterwards.
//!
//! This crate knows nothing of what is protected, and nothing of HTTP beyond the header's value.
//!
//! | file | question |
//! |---|---|
//! | [`IdempotencyKey`] | is this header a key? |
//! | [`Fingerprint`] | is it the same request? |
//! | [`Terms`] | for how long is it kept, for how long may it be held? |
//! | [`claim`] | who carries the request out? |

mod claim;
mod error;
mod fingerprint;
mod key;
mod scope;
mod terms;

use sqlx::migrate::Migrator;

pub use claim::{Claim, Lease, claim};
pub use error::IdempotencyError;
pub use fingerprint::Fingerprint;
pub use key::{IdempotencyKey, KEY_BYTES_MAX, KeyError};
pub use scope::Scope;
pub use terms::{Terms, TermsError};

/// Migrations of the table `idempotency_keys`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
