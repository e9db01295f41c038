//! Group commit: concurrent requests share statements and one commit.
//!
//! A batch worker takes all waiting requests, up to a bound, and executes them in one transaction; meanwhile the next batch
//! gathers. So no request waits for others while the store is idle, and a request becomes cheaper as the load grows. A batch
//! that fails, or whose commit is not confirmed, is retried one by one: then a bad request fails alone, and a request that had
//! been committed is recognised by its token. A waiting request holds no connection.

mod worker;

use std::sync::Arc;

use jiff::Timestamp;
use postgres_kit::{Connection, Pool};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::breaker::StoreBreaker;
use crate::claim_request::ClaimRequest;
use crate::stored_response::StoredResponse;
use crate::{Fingerprint, IdempotencyError, IdempotencyOptions, KeyScope};
use worker::BatchWorker;

/// The change that a batch of requests makes in one transaction.
pub trait BatchEffect: Send + Sync + 'static {
    /// One request, as the effect reads it.
    type Request: Send + Sync + 'static;
    /// Why a request is refused. A refused request leaves no trace and uses up no key.
    type Refusal: Send + 'static;
    /// The effect's own failure: the batch is rolled back and retried one by one.
    type Error: Into<IdempotencyError> + Send;

    /// Applies `requests`, whose keys are claimed, on the connection that holds them; returns one outcome for each, in their
    /// order. `claimed_at` is the database's time after all of them had arrived. Everything that must be committed together
    /// with the responses uses `tx`. A request is passed again when its batch is retried: it must change nothing else.
    fn apply(
        &self,
        tx: &mut Connection,
        claimed_at: Timestamp,
        requests: &[&Self::Request],
    ) -> impl Future<Output = Result<Vec<EffectOutcome<Self::Refusal>>, Self::Error>> + Send;
}

/// Outcome of applying an effect to one request.
#[derive(Debug)]
pub enum EffectOutcome<R> {
    /// The change was made; the response is stored under the key.
    Applied(StoredResponse),
    /// The change was made earlier, and the key has expired since: the effect's own record decides, and nothing is stored.
    AppliedEarlier(StoredResponse),
    /// The key was used for a different request, and has expired since.
    Mismatch,
    /// Nothing was changed; the key stays unused.
    Refused(R),
}

/// Outcome of a request under its key.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestOutcome<R> {
    /// The request was executed now, once.
    Executed(StoredResponse),
    /// The request was executed earlier: the same response.
    Replayed(StoredResponse),
    /// Another request holds the key: retry later.
    InProgress,
    /// The key was used for a different request.
    Mismatch,
    /// The request was not executed; the key is unused.
    Refused(R),
}

/// Concurrency of a [`Batcher`]. `./dev bench idempotency --workers N` measures another number of workers.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// Batch workers, each with a connection of its own.
    pub workers: usize,
    /// Upper bound of requests in one batch.
    pub batch_max: usize,
    /// Upper bound of queued requests; a further one gets [`IdempotencyError::QueueFull`].
    pub queue_max: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self { workers: 2, batch_max: 256, queue_max: 4_096 }
    }
}

/// Queues requests and executes them in batches. Cheap to clone.
pub struct Batcher<E: BatchEffect> {
    queue: mpsc::Sender<QueuedRequest<E>>,
    breaker: Arc<StoreBreaker>,
}

impl<E: BatchEffect> Clone for Batcher<E> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), breaker: Arc::clone(&self.breaker) }
    }
}

impl<E: BatchEffect> std::fmt::Debug for Batcher<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

type RequestResult<E> = Result<RequestOutcome<<E as BatchEffect>::Refusal>, IdempotencyError>;

/// A request that waits for its batch.
struct QueuedRequest<E: BatchEffect> {
    claim: ClaimRequest,
    request: E::Request,
    reply: oneshot::Sender<RequestResult<E>>,
}

impl<E: BatchEffect> Batcher<E> {
    /// Starts the workers, which end once `stop` is cancelled and the queue is empty. Must be called inside a tokio runtime.
    /// If `pool` has more connections than there are workers, each worker keeps its own while it is busy.
    #[must_use]
    pub fn start(
        effect: E,
        pool: impl Into<Pool>,
        options: IdempotencyOptions,
        batch: BatchOptions,
        breaker: Arc<StoreBreaker>,
        stop: &CancellationToken,
    ) -> Self {
        let pool = pool.into();
        let (queue, receiver) = mpsc::channel(batch.queue_max.max(1));
        let (receiver, effect) = (Arc::new(Mutex::new(receiver)), Arc::new(effect));
        for _ in 0..batch.workers.max(1) {
            let (pool, effect, queue) = (pool.clone(), Arc::clone(&effect), Arc::clone(&receiver));
            let breaker = Arc::clone(&breaker);
            let worker = move || BatchWorker {
                effect: Arc::clone(&effect),
                pool: pool.clone(),
                keeps_connection: pool.inner().options().get_max_connections() as usize > batch.workers,
                next_tx: None,
                options,
                breaker: Arc::clone(&breaker),
                queue: Arc::clone(&queue),
                batch_max: batch.batch_max.max(1),
            };
            tokio::spawn(run_again_after_panics(worker, stop.clone()));
        }
        Self { queue, breaker }
    }

    /// Executes `request` once under its key, or returns the outcome of the first request. Ends within the lease, plus the
    /// time of the batches queued before it.
    ///
    /// # Errors
    /// [`IdempotencyError`]. After every error except `QueueFull` and `Unavailable` it is unknown whether the request was
    /// executed: retry it with the same key.
    pub async fn execute(
        &self,
        scope: &KeyScope<'_>,
        fingerprint: &Fingerprint,
        request: E::Request,
    ) -> RequestResult<E> {
        self.breaker.check()?;
        let (reply, response) = oneshot::channel();
        let queued = QueuedRequest { claim: ClaimRequest::new(scope, fingerprint), request, reply };
        self.queue.try_send(queued).map_err(|_| IdempotencyError::QueueFull)?;
        // A worker that ended took the request with it; a retry finds out its outcome.
        response.await.unwrap_or(Err(IdempotencyError::OutcomeUnknown))
    }
}

/// Runs a worker until it ends by itself. One that panics takes the requests of its batch with it, and another one takes its place: without
/// workers, every request would be refused for ever.
async fn run_again_after_panics<E: BatchEffect>(
    worker: impl Fn() -> BatchWorker<E>,
    stop: CancellationToken,
) {
    while let Err(error) = tokio::spawn(worker().run(stop.clone())).await {
        if !error.is_panic() {
            return;
        }
        tracing::error!(%error, "a batch worker of the idempotency store panicked; the outcome of its requests is unknown, and another worker goes on");
    }
}
