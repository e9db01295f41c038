//! Keys for effects outside the transaction: another service's call, a file, a mail.
//!
//! The claim is a row that says who is at it, committed before the effect. It is a lease: once it has passed, exactly one
//! repeat takes the key over, and the old holder, paused and come back, finds another token and can complete nothing.
//! What the effect did by then is its own to make harmless: hand [`Holder::token`] or the key on, so that the other side
//! knows the repeat.

use sqlx::PgPool;
use sqlx::types::Uuid;

use crate::answer::Answer;
use crate::claims::{self, Keyed, Turn};
use crate::scope::ScopeId;
use crate::{Fingerprint, IdempotencyError, Scope, Terms, partition, record};

/// A holder is reaped when its lease has passed for so long, in seconds: nobody repeats any more.
const REAP_AFTER_S: f64 = 60.0;
/// Rows of one statement of the reaper.
const REAP_BATCH: i64 = 1_000;

/// What a request with an effect outside may do.
#[derive(Debug)]
#[must_use]
pub enum Begun {
    /// Bring the effect about, then [`Holder::complete`] or [`Holder::give_back`].
    Held(Holder),
    /// It was carried out: this is the answer.
    Replay(Answer),
    /// Another request holds the key now.
    InProgress,
    /// The key was used for another request.
    Mismatch,
}

/// Who holds a key, until its lease has passed and another takes it over.
#[derive(Debug)]
#[must_use]
pub struct Holder {
    pool: PgPool,
    id: ScopeId,
    token: Uuid,
}

/// Claims a key for an effect outside the transaction, for the lease of `terms`.
///
/// # Errors
/// [`IdempotencyError::Database`] or [`IdempotencyError::LaterVersion`].
pub async fn begin(
    pool: &PgPool,
    scope: &Scope<'_>,
    fingerprint: &Fingerprint,
    terms: &Terms,
) -> Result<Begun, IdempotencyError> {
    let request = Keyed::new(scope, fingerprint);
    match take(pool, &request, terms).await {
        Err(IdempotencyError::DayMissing) => {
            partition::make_days(pool).await?;
            take(pool, &request, terms).await
        }
        came => came,
    }
}

async fn take(pool: &PgPool, request: &Keyed, terms: &Terms) -> Result<Begun, IdempotencyError> {
    let mut tx = pool.begin().await?;
    let claims = claims::take(&mut tx, &[request], terms).await?;
    let begun = match claims.turns.into_iter().next() {
        Some(Turn::New) => {
            record::hold(&mut tx, request, terms).await?;
            tx.commit().await?;
            return Ok(Begun::Held(Holder { pool: pool.clone(), id: request.id, token: request.token }));
        }
        Some(Turn::Replay(answer) | Turn::Own(answer)) => Begun::Replay(answer),
        Some(Turn::Mismatch) => Begun::Mismatch,
        Some(Turn::InProgress) | None => Begun::InProgress,
    };
    tx.rollback().await?;
    Ok(begun)
}

impl Holder {
    /// Names this attempt; another attempt under the same key has another.
    #[must_use]
    pub fn token(&self) -> Uuid {
        self.token
    }

    /// Stores the answer.
    ///
    /// # Errors
    /// [`IdempotencyError::Overtaken`] when another has taken the key over: its answer counts.
    /// [`IdempotencyError::NotStorable`] for a status outside 200 to 499, [`IdempotencyError::Database`].
    pub async fn complete(self, answer: &Answer) -> Result<(), IdempotencyError> {
        if !answer.is_storable() {
            return Err(IdempotencyError::NotStorable { status: answer.status });
        }
        let mut connection = self.pool.acquire().await?;
        let written = record::answer(&mut connection, self.id, self.token, answer).await?;
        if written { Ok(()) } else { Err(IdempotencyError::Overtaken) }
    }

    /// Gives the key back unused: nothing was brought about.
    ///
    /// # Errors
    /// [`IdempotencyError::Overtaken`] or [`IdempotencyError::Database`].
    pub async fn give_back(self) -> Result<(), IdempotencyError> {
        let mut connection = self.pool.acquire().await?;
        let removed = record::remove(&mut connection, self.id, self.token).await?;
        if removed { Ok(()) } else { Err(IdempotencyError::Overtaken) }
    }
}

/// Removes holders whose lease has passed for over a minute, in batches; how many (S3.4). Their keys are unused again,
/// as they were to any repeat before.
///
/// # Errors
/// [`IdempotencyError::Database`].
pub async fn reap(pool: &PgPool) -> Result<u64, IdempotencyError> {
    let mut reaped = 0;
    loop {
        let removed = sqlx::query!(
            "DELETE FROM idempotency_keys kept
             USING (SELECT scope_id, created_on, claim_token FROM idempotency_keys
                    WHERE lease_until < clock_timestamp() - $1 * interval '1 second'
                    LIMIT $2 FOR UPDATE SKIP LOCKED) AS stuck
             WHERE kept.scope_id = stuck.scope_id AND kept.created_on = stuck.created_on
               AND kept.claim_token = stuck.claim_token",
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
