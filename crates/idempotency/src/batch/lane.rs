//! One lane: takes what waits, carries it out in one transaction, and tells each its own result.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{PgConnection, PgPool, PgTransaction};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Effect, Outcome, Verdict, Waiting};
use crate::answer::Answer;
use crate::breaker::Breaker;
use crate::claims::{self, Keyed, Turn};
use crate::partition;
use crate::{IdempotencyError, Terms};

/// A lane that has had nothing to do for so long gives its connection back. A key expires by the start of its transaction,
/// so this is also by how much it may expire early.
const IDLE: Duration = Duration::from_millis(20);

/// Longest wait for a rollback. A connection that is lost takes its locks with it.
const ROLLBACK: Duration = Duration::from_secs(1);

/// One of the tasks that empty the queue.
pub(super) struct Lane<E: Effect> {
    pub(super) effect: Arc<E>,
    pub(super) pool: PgPool,
    /// Whether the pool has more connections than there are lanes.
    pub(super) may_keep: bool,
    /// Begun when the last batch was committed (`COMMIT AND CHAIN`): nothing is locked or seen in it yet.
    pub(super) begun: Option<PgTransaction<'static>>,
    pub(super) terms: Terms,
    pub(super) breaker: Arc<Breaker>,
    pub(super) waiting: Arc<Mutex<mpsc::Receiver<Waiting<E>>>>,
    pub(super) batch_max: usize,
}

impl<E: Effect> Lane<E> {
    pub(super) async fn run(mut self, stopping: CancellationToken) {
        let mut taken = Vec::with_capacity(self.batch_max);
        loop {
            let got = match timeout(IDLE, self.gather(&mut taken, &stopping)).await {
                Ok(got) => got,
                // Nobody came: others may need the connection more.
                Err(_) => {
                    self.give_back().await;
                    self.gather(&mut taken, &stopping).await
                }
            };
            if got == 0 {
                return;
            }
            self.batch(std::mem::take(&mut taken)).await;
        }
    }

    /// Whatever waits, up to a batch; 0 when there is nothing more to come.
    async fn gather(&self, taken: &mut Vec<Waiting<E>>, stopping: &CancellationToken) -> usize {
        let mut waiting = self.waiting.lock().await;
        tokio::select! {
            biased;
            got = waiting.recv_many(taken, self.batch_max) => got,
            () = stopping.cancelled() => 0,
        }
    }

    async fn batch(&mut self, taken: Vec<Waiting<E>>) {
        // Locks are re-entrant in a session, so twins in one transaction would both be granted theirs.
        let mut seen = HashSet::with_capacity(taken.len());
        let (first, twins): (Vec<_>, Vec<_>) = taken.into_iter().partition(|one| seen.insert(one.keyed.id));
        for twin in twins {
            let _ = twin.said.send(Ok(Outcome::InProgress));
        }
        metrics::histogram!("idempotency_batch_requests").record(first.len() as f64);
        match self.attempt(&first).await {
            Ok(outcomes) => {
                for (one, outcome) in first.into_iter().zip(outcomes) {
                    let _ = one.said.send(Ok(outcome));
                }
            }
            Err(error) if error.is_final() => {
                let mut error = Some(error);
                for one in first {
                    let _ = one.said.send(Err(error.take().unwrap_or(IdempotencyError::Unavailable)));
                }
            }
            Err(error) => {
                tracing::warn!(%error, requests = first.len(), "a batch is redone one by one");
                metrics::counter!("idempotency_batches_redone_total").increment(1);
                self.one_by_one(first).await;
            }
        }
    }

    /// What was committed after all is known by its token; what is bad fails alone.
    async fn one_by_one(&mut self, batch: Vec<Waiting<E>>) {
        let mut out_of_reach = false;
        for one in batch {
            // The store does not come back for each of hundreds: its callers repeat. The batch may have been committed,
            // so nobody is told that nothing was done.
            if out_of_reach {
                let _ = one.said.send(Err(IdempotencyError::Stopped));
                continue;
            }
            let said = match self.attempt(std::slice::from_ref(&one)).await {
                Ok(outcomes) => outcomes.into_iter().next().ok_or(IdempotencyError::Stopped),
                Err(error) => Err(error),
            };
            out_of_reach = said.as_ref().is_err_and(IdempotencyError::is_store_lost);
            let _ = one.said.send(said);
        }
    }

    async fn attempt(&mut self, batch: &[Waiting<E>]) -> Result<Vec<Outcome<E::Refusal>>, IdempotencyError> {
        let mut came = self.within_lease(batch).await;
        if matches!(came, Err(IdempotencyError::DayMissing)) {
            partition::make_days(&self.pool).await?;
            came = self.within_lease(batch).await;
        }
        self.breaker.note(came.as_ref().err());
        came
    }

    /// One transaction. The connection stays with the lane while all goes well, and with it the next transaction: asking
    /// the pool, and beginning, would cost a round trip each for each batch. After a failure its state is not known.
    async fn within_lease(
        &mut self,
        batch: &[Waiting<E>],
    ) -> Result<Vec<Outcome<E::Refusal>>, IdempotencyError> {
        let mut tx = match self.begun.take() {
            Some(begun) => begun,
            None => self.pool.begin().await?,
        };
        let lease = self.terms.lease();
        let came =
            timeout(lease, self.transaction(&mut tx, batch)).await.unwrap_or(Err(IdempotencyError::Late));
        let went_well = came.is_ok();
        self.begun = Some(tx);
        if !(went_well && self.may_keep) {
            self.give_back().await;
        }
        came
    }

    /// Waits for the rollback: until it is done the keys of a failed batch stay locked, and the redone requests would
    /// find them so.
    async fn give_back(&mut self) {
        if let Some(begun) = self.begun.take() {
            let _ = timeout(ROLLBACK, begun.rollback()).await;
        }
    }

    /// Carries a batch out in the transaction that was begun, and leaves the next one begun.
    async fn transaction(
        &self,
        tx: &mut PgConnection,
        batch: &[Waiting<E>],
    ) -> Result<Vec<Outcome<E::Refusal>>, IdempotencyError> {
        let keyed: Vec<&Keyed> = batch.iter().map(|one| &one.keyed).collect();
        let claims = claims::take(tx, &keyed, &self.terms).await?;
        let new: Vec<&Waiting<E>> = batch
            .iter()
            .zip(&claims.turns)
            .filter(|(_, turn)| **turn == Turn::New)
            .map(|(one, _)| one)
            .collect();
        let verdicts = if new.is_empty() {
            Vec::new()
        } else {
            let requests: Vec<&E::Request> = new.iter().map(|one| &one.request).collect();
            self.effect.carry_out(tx, claims.claimed_at, &requests).await.map_err(Into::into)?
        };
        if verdicts.len() != new.len() {
            return Err(IdempotencyError::Miscounted { requests: new.len(), verdicts: verdicts.len() });
        }
        let answered: Vec<(&Keyed, &Answer)> = new
            .iter()
            .zip(&verdicts)
            .filter_map(|(one, verdict)| match verdict {
                Verdict::Answered(answer) => Some((&one.keyed, answer)),
                _ => None,
            })
            .collect();
        if answered.is_empty() {
            sqlx::raw_sql("ROLLBACK AND CHAIN").execute(&mut *tx).await?;
        } else {
            claims::complete(tx, &answered, &self.terms).await?;
            sqlx::raw_sql("COMMIT AND CHAIN").execute(&mut *tx).await?;
        }
        let mut verdicts = verdicts.into_iter();
        Ok(claims
            .turns
            .into_iter()
            .map(|turn| match turn {
                Turn::New => match verdicts.next() {
                    Some(Verdict::Answered(answer)) => Outcome::Answered(answer),
                    Some(Verdict::Before(answer)) => Outcome::Replayed(answer),
                    Some(Verdict::Refused(refusal)) => Outcome::Refused(refusal),
                    Some(Verdict::Mismatch) | None => Outcome::Mismatch,
                },
                Turn::Own(answer) => Outcome::Answered(answer),
                Turn::Replay(answer) => Outcome::Replayed(answer),
                Turn::InProgress => Outcome::InProgress,
                Turn::Mismatch => Outcome::Mismatch,
            })
            .collect())
    }
}
