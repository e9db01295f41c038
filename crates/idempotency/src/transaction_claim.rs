//! One key claimed in a transaction of the caller.

use jiff::Timestamp;
use postgres_kit::Transaction;

use crate::claim_request::ClaimRequest;
use crate::claims::{self, KeyState};
use crate::stored_response::StoredResponse;
use crate::{Fingerprint, IdempotencyError, IdempotencyOptions, KeyScope};

/// Outcome of claiming a key.
#[derive(Debug)]
#[must_use]
pub enum ClaimOutcome {
    /// The key is unused: execute the request and call [`Lease::complete`] in the same transaction.
    Claimed(Lease),
    /// The request was executed: replay this response.
    Replay(StoredResponse),
    /// Another request holds the key: retry later.
    InProgress,
    /// The key was used for a different request.
    Mismatch,
}

/// A key held by a transaction until the transaction ends.
///
/// Only a completed lease leaves a row. If it is not completed or the transaction is rolled back, the key stays unused: a
/// refused request uses up no key.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    request: ClaimRequest,
    options: IdempotencyOptions,
    claimed_at: Timestamp,
}

/// Claims a key until the end of `tx`, which must be READ COMMITTED (PostgreSQL's default) and must hold no other key.
///
/// From here on the database closes the connection if it stays idle, or in one statement, for longer than
/// [`IdempotencyOptions::lease`]. End the transaction on every path: a dropped transaction holds the lock a moment longer,
/// and a retry in that moment gets [`ClaimOutcome::InProgress`].
///
/// # Errors
/// [`IdempotencyError::PartitionMissing`] (call [`crate::create_partitions`] and begin again),
/// [`IdempotencyError::Database`] or [`IdempotencyError::UnsupportedSchemaVersion`].
pub async fn claim(
    tx: &mut Transaction,
    scope: &KeyScope<'_>,
    fingerprint: &Fingerprint,
    options: &IdempotencyOptions,
) -> Result<ClaimOutcome, IdempotencyError> {
    let request = ClaimRequest::new(scope, fingerprint);
    let claims = claims::claim_keys(tx, &[&request], options).await?;
    let claimed_at = claims.claimed_at;
    Ok(match claims.states.into_iter().next() {
        Some(KeyState::New) => ClaimOutcome::Claimed(Lease { request, options: *options, claimed_at }),
        Some(KeyState::Replay(response) | KeyState::OwnResponse(response)) => ClaimOutcome::Replay(response),
        Some(KeyState::Mismatch) => ClaimOutcome::Mismatch,
        Some(KeyState::InProgress) | None => ClaimOutcome::InProgress,
    })
}

impl Lease {
    /// When the key was claimed, by the database's clock: later than every commit that preceded the claim.
    #[must_use]
    pub fn claimed_at(&self) -> Timestamp {
        self.claimed_at
    }

    /// Stores the response in the transaction that holds the lease; it becomes valid with the commit.
    ///
    /// # Errors
    /// [`IdempotencyError::NotStorable`] for a status outside 200 to 499, [`IdempotencyError::ClaimLost`], or
    /// [`IdempotencyError::Database`].
    pub async fn complete(
        self,
        tx: &mut Transaction,
        response: &StoredResponse,
    ) -> Result<(), IdempotencyError> {
        claims::complete(tx, &[(&self.request, response)], &self.options).await
    }
}
