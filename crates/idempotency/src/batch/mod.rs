//! Group commit: requests that come at the same moment share statements and one commit.
//!
//! A lane takes whatever waits, up to a bound, and carries it out in one transaction; while it does, the next batch
//! gathers. So nothing waits for company when the store is idle, and the busier it is the cheaper a request becomes.
//! A batch that fails, or whose commit has no answer, is redone one by one: then one bad request fails alone, and
//! whoever had been committed is known by its token. A waiting request holds no connection.
//!
//! | file | question |
//! |---|---|
//! | `mod` | how does a request get in, and its result out? |
//! | `lane` | what becomes of a batch? |

mod lane;

use std::sync::Arc;

use jiff::Timestamp;
use sqlx::{PgConnection, PgPool};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::breaker::Breaker;
use crate::claims::Keyed;
use crate::{Fingerprint, IdempotencyError, Scope, Terms};
use lane::Lane;

/// What requests change, many at once.
pub trait Effect: Send + Sync + 'static {
    /// One request, as the effect reads it.
    type Request: Send + Sync + 'static;
    /// Why a request is not carried out. It leaves no trace and burns no key.
    type Refusal: Send + 'static;
    /// The effect's own failure: the batch is rolled back and redone one by one.
    type Error: Into<IdempotencyError> + Send;

    /// Carries out `requests`, whose keys are claimed, on the connection that holds them; one verdict for each, in their
    /// order. `claimed_at` is the database's clock after all of them had come. Everything that must be true together with
    /// the answers goes through it. A request is handed in again when its batch is redone: nothing else may be touched.
    fn carry_out(
        &self,
        tx: &mut PgConnection,
        claimed_at: Timestamp,
        requests: &[&Self::Request],
    ) -> impl Future<Output = Result<Vec<Verdict<Self::Refusal>>, Self::Error>> + Send;
}

/// What an effect made of a request.
#[derive(Debug)]
pub enum Verdict<R> {
    /// Carried out; the answer is stored under the key.
    Answered(Answer),
    /// Carried out long ago, when its key was still kept: the effect has the last word, and nothing is stored.
    Before(Answer),
    /// Carried out long ago for another request.
    Mismatch,
    /// Nothing was changed, the key stays unused.
    Refused(R),
}

/// What became of a request under its key.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<R> {
    /// Carried out now, once.
    Answered(Answer),
    /// Carried out before: the same answer.
    Replayed(Answer),
    /// Another request holds the key now: come back later.
    InProgress,
    /// The key was used for another request.
    Mismatch,
    /// Not carried out; the key is unused.
    Refused(R),
}

/// How many requests share what. `./dev bench idempotency --batch-workers N` measures another number of lanes.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    /// Batches at once, each on a connection of its own.
    pub lanes: usize,
    /// Requests of one batch at most.
    pub batch_max: usize,
    /// Requests that may wait; one more is [`IdempotencyError::Busy`].
    pub waiting_max: usize,
}

impl Default for Width {
    fn default() -> Self {
        Self { lanes: 2, batch_max: 256, waiting_max: 4_096 }
    }
}

/// Takes requests and carries them out in batches. Cheap to clone.
pub struct Batcher<E: Effect> {
    queue: mpsc::Sender<Waiting<E>>,
    breaker: Arc<Breaker>,
}

impl<E: Effect> Clone for Batcher<E> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), breaker: Arc::clone(&self.breaker) }
    }
}

impl<E: Effect> std::fmt::Debug for Batcher<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").finish_non_exhaustive()
    }
}

type Said<E> = Result<Outcome<<E as Effect>::Refusal>, IdempotencyError>;

/// A request that waits for its batch.
struct Waiting<E: Effect> {
    keyed: Keyed,
    request: E::Request,
    said: oneshot::Sender<Said<E>>,
}

impl<E: Effect> Batcher<E> {
    /// Starts the lanes, which end when `stopping` is cancelled and nothing waits any more. Must be called inside a
    /// tokio runtime. `pool` should have more connections than there are lanes: then each keeps its own while it is busy.
    #[must_use]
    pub fn start(
        effect: E,
        pool: PgPool,
        terms: Terms,
        width: Width,
        breaker: Arc<Breaker>,
        stopping: &CancellationToken,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(width.waiting_max.max(1));
        let (waiting, effect) = (Arc::new(Mutex::new(waiting)), Arc::new(effect));
        for _ in 0..width.lanes.max(1) {
            let lane = Lane {
                effect: Arc::clone(&effect),
                pool: pool.clone(),
                may_keep: pool.options().get_max_connections() as usize > width.lanes,
                begun: None,
                terms,
                breaker: Arc::clone(&breaker),
                waiting: Arc::clone(&waiting),
                batch_max: width.batch_max.max(1),
            };
            tokio::spawn(lane.run(stopping.clone()));
        }
        Self { queue, breaker }
    }

    /// Carries `request` out once under its key, or says what became of the first. Ends within the lease of the terms,
    /// plus the time that the batches before it take.
    ///
    /// # Errors
    /// [`IdempotencyError`]. After anything but `Busy` and `Unavailable` it is not known whether it was carried out:
    /// repeat it under the same key.
    pub async fn carry_out(
        &self,
        scope: &Scope<'_>,
        fingerprint: &Fingerprint,
        request: E::Request,
    ) -> Said<E> {
        self.breaker.check()?;
        let (said, heard) = oneshot::channel();
        let waiting = Waiting { keyed: Keyed::new(scope, fingerprint), request, said };
        self.queue.try_send(waiting).map_err(|_| IdempotencyError::Busy)?;
        // A lane that is gone took the request with it: what became of it is for the repeat to find out.
        heard.await.unwrap_or(Err(IdempotencyError::Stopped))
    }
}
