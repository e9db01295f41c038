//! One batch worker: takes queued requests, executes them in one transaction, and replies to each.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use postgres_kit::{Connection, Pool, Transaction};
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{BatchEffect, EffectOutcome, QueuedRequest, RequestOutcome};
use crate::breaker::StoreBreaker;
use crate::claim_request::ClaimRequest;
use crate::claims::{self, KeyState};
use crate::partition;
use crate::stored_response::StoredResponse;
use crate::{IdempotencyError, IdempotencyOptions};

/// Idle time after which a batch worker releases its connection. A key expires relative to the start of its
/// transaction, so this is also how much too early it may expire.
const IDLE: Duration = Duration::from_millis(20);

/// Longest wait for a rollback. A lost connection releases its locks by itself.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

/// One of the tasks that empty the queue.
pub(super) struct BatchWorker<E: BatchEffect> {
    pub(super) effect: Arc<E>,
    pub(super) pool: Pool,
    /// Whether the pool has more connections than there are workers.
    pub(super) keeps_connection: bool,
    /// The next transaction, begun when the last batch was committed (`COMMIT AND CHAIN`): it has locked and read
    /// nothing yet.
    pub(super) next_tx: Option<Transaction>,
    pub(super) options: IdempotencyOptions,
    pub(super) breaker: Arc<StoreBreaker>,
    pub(super) queue: Arc<Mutex<mpsc::Receiver<QueuedRequest<E>>>>,
    pub(super) batch_max: usize,
}

impl<E: BatchEffect> BatchWorker<E> {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(self.batch_max);
        loop {
            let received = match timeout(IDLE, self.receive(&mut batch, &stop)).await {
                Ok(received) => received,
                Err(_) => {
                    self.release_connection().await;
                    self.receive(&mut batch, &stop).await
                }
            };
            if received == 0 {
                return;
            }
            self.execute_batch(std::mem::take(&mut batch)).await;
        }
    }

    /// Receives all queued requests, up to a batch; 0 once the queue is empty and the stop was requested.
    async fn receive(&self, batch: &mut Vec<QueuedRequest<E>>, stop: &CancellationToken) -> usize {
        let mut queue = self.queue.lock().await;
        tokio::select! {
            biased;
            received = queue.recv_many(batch, self.batch_max) => received,
            () = stop.cancelled() => 0,
        }
    }

    async fn execute_batch(&mut self, batch: Vec<QueuedRequest<E>>) {
        // Advisory locks are re-entrant in a session, so duplicates in one transaction would all be granted.
        let mut ids = HashSet::with_capacity(batch.len());
        let (batch, duplicates): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|queued| ids.insert(queued.claim.id));
        for duplicate in duplicates {
            let _ = duplicate.reply.send(Ok(RequestOutcome::InProgress));
        }
        metrics::histogram!("idempotency_batch_requests").record(batch.len() as f64);
        match self.attempt(&batch).await {
            Ok(outcomes) => {
                for (queued, outcome) in batch.into_iter().zip(outcomes) {
                    let _ = queued.reply.send(Ok(outcome));
                }
            }
            Err(error) if error.is_final() => {
                let mut error = Some(error);
                for queued in batch {
                    let _ = queued.reply.send(Err(error.take().unwrap_or(IdempotencyError::Unavailable)));
                }
            }
            Err(error) => {
                tracing::warn!(%error, requests = batch.len(), "the batch worker of the idempotency store could not commit a batch of requests; it retries the requests one by one");
                metrics::counter!("idempotency_batches_redone_total").increment(1);
                self.retry_one_by_one(batch).await;
            }
        }
    }

    /// A request that had been committed is recognised by its token; a bad request fails alone.
    async fn retry_one_by_one(&mut self, batch: Vec<QueuedRequest<E>>) {
        let mut is_store_unavailable = false;
        for queued in batch {
            // Hundreds of timeouts in a row would help no caller. The batch may have been committed, so the outcome is
            // unknown, not "not executed".
            if is_store_unavailable {
                let _ = queued.reply.send(Err(IdempotencyError::OutcomeUnknown));
                continue;
            }
            let result = match self.attempt(std::slice::from_ref(&queued)).await {
                Ok(outcomes) => outcomes.into_iter().next().ok_or(IdempotencyError::OutcomeUnknown),
                Err(error) => Err(error),
            };
            is_store_unavailable = result.as_ref().is_err_and(IdempotencyError::is_store_unavailable);
            let _ = queued.reply.send(result);
        }
    }

    async fn attempt(
        &mut self,
        batch: &[QueuedRequest<E>],
    ) -> Result<Vec<RequestOutcome<E::Refusal>>, IdempotencyError> {
        let mut result = self.execute_within_lease(batch).await;
        if matches!(result, Err(IdempotencyError::PartitionMissing)) {
            partition::create_partitions(&self.pool).await?;
            result = self.execute_within_lease(batch).await;
        }
        self.breaker.record(result.as_ref().err());
        result
    }

    /// Executes a batch in one transaction. After a success the worker keeps the connection and the next transaction, which
    /// saves two round trips for each batch; after a failure the state of the connection is unknown.
    async fn execute_within_lease(
        &mut self,
        batch: &[QueuedRequest<E>],
    ) -> Result<Vec<RequestOutcome<E::Refusal>>, IdempotencyError> {
        let mut tx = match self.next_tx.take() {
            Some(tx) => tx,
            None => self.pool.begin().await?,
        };
        let lease = self.options.lease();
        let result = timeout(lease, self.execute_in(&mut tx, batch))
            .await
            .unwrap_or(Err(IdempotencyError::LeaseExceeded));
        let succeeded = result.is_ok();
        self.next_tx = Some(tx);
        if !(succeeded && self.keeps_connection) {
            self.release_connection().await;
        }
        result
    }

    /// Waits for the rollback: until it is done the keys of a failed batch stay locked, and its retries would be refused.
    async fn release_connection(&mut self) {
        if let Some(tx) = self.next_tx.take() {
            let _ = timeout(ROLLBACK_TIMEOUT, tx.rollback()).await;
        }
    }

    /// Executes a batch in `tx`, commits it, and begins the next transaction on the same connection.
    async fn execute_in(
        &self,
        tx: &mut Connection,
        batch: &[QueuedRequest<E>],
    ) -> Result<Vec<RequestOutcome<E::Refusal>>, IdempotencyError> {
        let requests: Vec<&ClaimRequest> = batch.iter().map(|queued| &queued.claim).collect();
        let claims = claims::claim_keys(tx, &requests, &self.options).await?;
        let new: Vec<&QueuedRequest<E>> = batch
            .iter()
            .zip(&claims.states)
            .filter(|(_, state)| **state == KeyState::New)
            .map(|(queued, _)| queued)
            .collect();
        let outcomes = if new.is_empty() {
            Vec::new()
        } else {
            let requests: Vec<&E::Request> = new.iter().map(|queued| &queued.request).collect();
            self.effect.apply(tx, claims.claimed_at, &requests).await.map_err(Into::into)?
        };
        if outcomes.len() != new.len() {
            return Err(IdempotencyError::OutcomeCount { requests: new.len(), outcomes: outcomes.len() });
        }
        let completed: Vec<(&ClaimRequest, &StoredResponse)> = new
            .iter()
            .zip(&outcomes)
            .filter_map(|(queued, outcome)| match outcome {
                EffectOutcome::Applied(response) => Some((&queued.claim, response)),
                _ => None,
            })
            .collect();
        if completed.is_empty() {
            sqlx::raw_sql("ROLLBACK AND CHAIN").execute(&mut *tx).await?;
        } else {
            claims::complete(tx, &completed, &self.options).await?;
            sqlx::raw_sql("COMMIT AND CHAIN").execute(&mut *tx).await?;
        }
        Ok(request_outcomes(claims.states, outcomes))
    }
}

/// The outcome of each request: that of the effect for new ones, that of the claim for all others.
fn request_outcomes<R>(states: Vec<KeyState>, outcomes: Vec<EffectOutcome<R>>) -> Vec<RequestOutcome<R>> {
    let mut outcomes = outcomes.into_iter();
    states
        .into_iter()
        .map(|state| match state {
            KeyState::New => match outcomes.next() {
                Some(EffectOutcome::Applied(response)) => RequestOutcome::Executed(response),
                Some(EffectOutcome::AppliedEarlier(response)) => RequestOutcome::Replayed(response),
                Some(EffectOutcome::Refused(refusal)) => RequestOutcome::Refused(refusal),
                Some(EffectOutcome::Mismatch) | None => RequestOutcome::Mismatch,
            },
            KeyState::OwnResponse(response) => RequestOutcome::Executed(response),
            KeyState::Replay(response) => RequestOutcome::Replayed(response),
            KeyState::InProgress => RequestOutcome::InProgress,
            KeyState::Mismatch => RequestOutcome::Mismatch,
        })
        .collect()
}
