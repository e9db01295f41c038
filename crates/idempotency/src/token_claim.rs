//! Keys for effects outside the transaction: a call to another service, a file, a mail.
//!
//! The claim is a row with the holder's token, committed before the effect. It is a lease: once it has expired, exactly one
//! retry takes the key over; the old holder's token no longer matches, so it can complete nothing. The effect itself must
//! tolerate the repetition: pass [`Holder::token`] or the key on, so that the other side can deduplicate.

use postgres_kit::Pool;
use sqlx::types::Uuid;

use crate::claim_request::ClaimRequest;
use crate::claims::{self, KeyState};
use crate::scope::ScopeId;
use crate::stored_response::StoredResponse;
use crate::{Fingerprint, IdempotencyError, IdempotencyOptions, KeyScope, partition, rows};

/// A holder is removed this many seconds after its lease expired.
const REAP_AFTER_S: f64 = 60.0;
/// Rows of one statement of the reaper.
const REAP_BATCH: i64 = 1_000;

/// Outcome of claiming a key with a token.
#[derive(Debug)]
#[must_use]
pub enum TokenClaimOutcome {
    /// The key is unused: execute the effect, then call [`Holder::complete`] or [`Holder::release`].
    Claimed(Holder),
    /// The request was executed: replay this response.
    Replay(StoredResponse),
    /// Another request holds the key.
    InProgress,
    /// The key was used for a different request.
    Mismatch,
}

/// The holder of a key, until its lease has expired and another request takes the key over.
#[derive(Debug)]
#[must_use]
pub struct Holder {
    pool: Pool,
    id: ScopeId,
    token: Uuid,
}

/// Claims a key for an effect outside the transaction, for the lease in `options`.
///
/// # Errors
/// [`IdempotencyError::Database`] or [`IdempotencyError::UnsupportedSchemaVersion`].
pub async fn claim(
    pool: &Pool,
    scope: &KeyScope<'_>,
    fingerprint: &Fingerprint,
    options: &IdempotencyOptions,
) -> Result<TokenClaimOutcome, IdempotencyError> {
    let request = ClaimRequest::new(scope, fingerprint);
    match attempt(pool, &request, options).await {
        Err(IdempotencyError::PartitionMissing) => {
            partition::create_partitions(pool).await?;
            attempt(pool, &request, options).await
        }
        outcome => outcome,
    }
}

async fn attempt(
    pool: &Pool,
    request: &ClaimRequest,
    options: &IdempotencyOptions,
) -> Result<TokenClaimOutcome, IdempotencyError> {
    let mut tx = pool.begin().await?;
    let claims = claims::claim_keys(&mut tx, &[request], options).await?;
    let outcome = match claims.states.into_iter().next() {
        Some(KeyState::New) => {
            rows::insert_in_progress(&mut tx, request, options).await?;
            tx.commit().await?;
            let holder = Holder { pool: pool.clone(), id: request.id, token: request.token };
            return Ok(TokenClaimOutcome::Claimed(holder));
        }
        Some(KeyState::Replay(response) | KeyState::OwnResponse(response)) => {
            TokenClaimOutcome::Replay(response)
        }
        Some(KeyState::Mismatch) => TokenClaimOutcome::Mismatch,
        Some(KeyState::InProgress) | None => TokenClaimOutcome::InProgress,
    };
    tx.rollback().await?;
    Ok(outcome)
}

impl Holder {
    /// The token of this claim; every claim of a key has a new one.
    #[must_use]
    pub fn token(&self) -> Uuid {
        self.token
    }

    /// Stores the response.
    ///
    /// # Errors
    /// [`IdempotencyError::ClaimLost`] if another request took the key over: its response counts.
    /// [`IdempotencyError::NotStorable`] for a status outside 200 to 499, [`IdempotencyError::Database`].
    pub async fn complete(self, response: &StoredResponse) -> Result<(), IdempotencyError> {
        if !response.is_storable() {
            return Err(IdempotencyError::NotStorable { status: response.status });
        }
        let mut connection = self.pool.acquire().await?;
        let written = rows::complete_in_progress(&mut connection, self.id, self.token, response).await?;
        if written { Ok(()) } else { Err(IdempotencyError::ClaimLost) }
    }

    /// Releases the key unused, because the effect was not executed.
    ///
    /// # Errors
    /// [`IdempotencyError::ClaimLost`] or [`IdempotencyError::Database`].
    pub async fn release(self) -> Result<(), IdempotencyError> {
        let mut connection = self.pool.acquire().await?;
        let removed = rows::delete_in_progress(&mut connection, self.id, self.token).await?;
        if removed { Ok(()) } else { Err(IdempotencyError::ClaimLost) }
    }
}

/// Removes, in batches, holders whose lease expired over a minute ago, and returns their number (S3.4). Their keys are
/// unused again, as they already were for a retry.
///
/// # Errors
/// [`IdempotencyError::Database`].
pub async fn reap(pool: &Pool) -> Result<u64, IdempotencyError> {
    let mut reaped = 0;
    loop {
        let removed = sqlx::query!(
            "DELETE FROM idempotency.keys k
             USING (SELECT scope_id, created_on, claim_token FROM idempotency.keys
                    WHERE lease_until < clock_timestamp() - $1 * interval '1 second'
                    LIMIT $2 FOR UPDATE SKIP LOCKED) AS expired
             WHERE k.scope_id = expired.scope_id AND k.created_on = expired.created_on
               AND k.claim_token = expired.claim_token",
            REAP_AFTER_S,
            REAP_BATCH,
        )
        .execute(pool)
        .await?
        .rows_affected();
        reaped += removed;
        if i64::try_from(removed).unwrap_or(0) < REAP_BATCH {
            return Ok(reaped);
        }
    }
}
