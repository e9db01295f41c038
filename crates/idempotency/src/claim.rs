//! One key claimed in a transaction of the caller's own.

use jiff::Timestamp;
use sqlx::PgTransaction;

use crate::answer::Answer;
use crate::claims::{self, Keyed, Turn};
use crate::{Fingerprint, IdempotencyError, Scope, Terms};

/// What a request may do.
#[derive(Debug)]
#[must_use]
pub enum Claim {
    /// Carry it out, and [`Lease::complete`] it in the same transaction.
    New(Lease),
    /// It was carried out: this is the answer.
    Replay(Answer),
    /// Another request holds the key now: come back later.
    InProgress,
    /// The key was used for another request.
    Mismatch,
}

/// A key that this transaction holds, until it ends.
///
/// Only a completed lease leaves a row. Without it, or when the transaction is rolled back, the key is
/// as unused as before: a request that is refused burns no key.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    request: Keyed,
    terms: Terms,
    claimed_at: Timestamp,
}

/// Claims a key for the length of `tx`, which must be READ COMMITTED (the default of PostgreSQL) and hold no other
/// key.
///
/// From here on the database ends the connection when it stands still for longer than [`Terms::lease`] inside or
/// between statements. End the transaction on every path: one that is only dropped holds the lock a moment longer,
/// and a repeat that comes meanwhile is told [`Claim::InProgress`].
///
/// # Errors
/// [`IdempotencyError::DayMissing`] (make the day and begin again), [`IdempotencyError::Database`] or
/// [`IdempotencyError::LaterVersion`].
pub async fn claim(
    tx: &mut PgTransaction<'_>,
    scope: &Scope<'_>,
    fingerprint: &Fingerprint,
    terms: &Terms,
) -> Result<Claim, IdempotencyError> {
    let request = Keyed::new(scope, fingerprint);
    let claims = claims::take(tx, &[&request], terms).await?;
    let claimed_at = claims.claimed_at;
    Ok(match claims.turns.into_iter().next() {
        Some(Turn::New) => Claim::New(Lease { request, terms: *terms, claimed_at }),
        Some(Turn::Replay(answer) | Turn::Own(answer)) => Claim::Replay(answer),
        Some(Turn::Mismatch) => Claim::Mismatch,
        Some(Turn::InProgress) | None => Claim::InProgress,
    })
}

impl Lease {
    /// When the key was claimed, by the database's clock: later than everything that was committed before it was asked for.
    #[must_use]
    pub fn claimed_at(&self) -> Timestamp {
        self.claimed_at
    }

    /// Stores the answer in the transaction that holds the lease. It is true once that commits.
    ///
    /// # Errors
    /// [`IdempotencyError::NotStorable`] for a status outside 200 to 499,
    /// [`IdempotencyError::Overtaken`], or [`IdempotencyError::Database`].
    pub async fn complete(self, tx: &mut PgTransaction<'_>, answer: &Answer) -> Result<(), IdempotencyError> {
        claims::complete(tx, &[(&self.request, answer)], &self.terms).await
    }
}
