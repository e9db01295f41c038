//! One lane: takes what waits, carries it out in one transaction, and tells each its own result.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Effect, Outcome, Verdict, Waiting};
use crate::answer::Answer;
use crate::breaker::Breaker;
use crate::claims::{self, Keyed, Turn};
use crate::partition;
use crate::{IdempotencyError, Terms};

/// A lane that has had nothing to do for so long gives its connection back.
const IDLE: Duration = Duration::from_millis(20);

/// Longest wait for a rollback. A connection that is lost takes its locks with it.
const ROLLBACK: Duration = Duration::from_secs(1);

/// One of the tasks that empty the queue.
pub(super) struct Lane<E: Effect> {
    pub(super) effect: Arc<E>,
    pub(super) pool: PgPool,
    /// Whether the pool has more connections than there are lanes.
    pub(super) may_keep: bool,
    /// Of the last batch, if it went well.
    pub(super) connection: Option<PoolConnection<Postgres>>,
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
                    self.connection = None;
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

    /// One transaction. The connection stays with the lane while all goes well: asking the pool for one each time would
    /// cost a round trip for each batch. After a failure its state is not known.
    async fn within_lease(
        &mut self,
        batch: &[Waiting<E>],
    ) -> Result<Vec<Outcome<E::Refusal>>, IdempotencyError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.pool.acquire().await?,
        };
        let lease = self.terms.lease();
        let came = timeout(lease, self.transaction(&mut connection, batch))
            .await
            .unwrap_or(Err(IdempotencyError::Late));
        if came.is_err() {
            // Waits for the rollback: until it is done the keys stay locked, and the redone requests would find them so.
            let _ = timeout(ROLLBACK, connection.ping()).await;
        } else if self.may_keep {
            self.connection = Some(connection);
        }
        came
    }

    async fn transaction(
        &self,
        connection: &mut PgConnection,
        batch: &[Waiting<E>],
    ) -> Result<Vec<Outcome<E::Refusal>>, IdempotencyError> {
        let mut tx = connection.begin().await?;
        let keyed: Vec<&Keyed> = batch.iter().map(|one| &one.keyed).collect();
        let claims = claims::take(&mut tx, &keyed, &self.terms).await?;
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
            self.effect.carry_out(&mut tx, claims.claimed_at, &requests).await.map_err(Into::into)?
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
            // Awaited: a dropped transaction would hold the keys for a moment longer.
            tx.rollback().await?;
        } else {
            claims::complete(&mut tx, &answered, &self.terms).await?;
            tx.commit().await?;
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
