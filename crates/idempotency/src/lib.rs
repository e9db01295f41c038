//! The `Idempotency-Key` of an HTTP API: a retry gets the first response, and the change is made once.
//!
//! A claim lives in the transaction of the change it protects: an advisory lock on the key until that transaction ends,
//! then the lookup of the key, the change, the stored response; one commit makes change and response valid together. So the
//! lease *is* the transaction: a holder that crashes frees its key with its connection, a stalled holder is disconnected by
//! the database, and neither can commit afterwards. For effects outside the transaction the lease is a row with a token.
//!
//! This crate knows nothing of the changes it protects.
//!
//! | file | responsibility |
//! |---|---|
//! | [`http`] | the key of a request; an outcome as an HTTP response |
//! | [`IdempotencyKey`], [`KeyScope`] | the header value; its tenant and client |
//! | [`Fingerprint`], [`canonical`] | whether two requests are the same |
//! | [`IdempotencyOptions`] | retention and lease of a key |
//! | [`Batcher`] | many requests in one transaction |
//! | [`claim`] | one request in a transaction of its own |
//! | [`token_claim`] | one request whose effect is outside the database |
//! | `claim_request`, `claims`, `rows` | which request is executed; the SQL |
//! | [`maintenance`], `partition` | partitions and expired holders |
//! | [`StoreBreaker`] | fast refusals while the store is unavailable |

mod batch;
mod breaker;
pub mod canonical;
mod claim_request;
mod claims;
mod error;
mod fingerprint;
pub mod http;
mod key;
pub mod maintenance;
mod options;
mod partition;
mod rows;
mod scope;
mod stored_response;
pub mod token_claim;
mod transaction_claim;

use sqlx::migrate::Migrator;

pub use batch::{BatchEffect, BatchOptions, Batcher, EffectOutcome, RequestOutcome};
pub use breaker::StoreBreaker;
pub use error::IdempotencyError;
pub use fingerprint::Fingerprint;
pub use key::{IdempotencyKey, KEY_BYTES_MAX, KeyError};
pub use options::{IdempotencyOptions, IdempotencyOptionsError};
pub use partition::{PartitionChanges, create_partitions, maintain_partitions};
pub use scope::KeyScope;
pub use stored_response::StoredResponse;
pub use transaction_claim::{ClaimOutcome, Lease, claim};

/// Migrations of the table `idempotency.keys`.
pub static MIGRATOR: Migrator = sqlx::migrate!();
