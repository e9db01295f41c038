//! Event streams: how many, for how long, and updates of the streamed payments.
//!
//! A waiting stream holds neither a connection to the database nor a permit of `admission`: it costs a socket and little
//! memory, which its own limits bound. The streams of a revoked key stay open until the end of their life.
//!
//! | file | responsibility |
//! |---|---|
//! | `options` | number and life of streams |
//! | `slots` | limits of open streams |
//! | `updates` | polls the streamed payments for new timeline entries |

mod options;
mod slots;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::access::api_keys::Caller;
use payment_protocol::ids::PaymentId;
use service_kit::problem::Problem;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use self::slots::StreamSlots;
use self::updates::PaymentUpdates;
use crate::config::{ApiOptions, SetupError};

pub use self::options::StreamOptions;
pub(crate) use self::slots::StreamSlot;

/// Longest silence on a stream. Proxies close after about a minute, our own connections after `idle_timeout_s`.
const HEARTBEAT_MAX: Duration = Duration::from_secs(15);
/// Upper bound of streams that read the database concurrently, so that most connections stay available for payments.
const READS_MAX: usize = 4;

/// All streams of this process.
pub(crate) struct Streams {
    slots: Arc<StreamSlots>,
    updates: Arc<PaymentUpdates>,
    reads: Semaphore,
    /// Longest life of a stream; the client reconnects with the last event id.
    pub(crate) lifetime: Duration,
    /// Silence after which a comment is sent as a heartbeat.
    pub(crate) heartbeat: Duration,
}

impl Streams {
    /// No open streams, and the task that polls for updates until `stopping`.
    ///
    /// # Errors
    /// [`SetupError::Zero`] or [`SetupError::Head`].
    pub(crate) fn start(
        options: &ApiOptions,
        ledger: Ledger,
        stopping: CancellationToken,
    ) -> Result<Self, SetupError> {
        // Twice within the idle limit of a connection.
        let heartbeat = HEARTBEAT_MAX.min(options.connection_bounds()?.idle / 2);
        let lifetime = options.streams.lifetime()?;
        Ok(Self {
            slots: Arc::new(StreamSlots::new(options.streams)),
            updates: PaymentUpdates::start(ledger, stopping),
            reads: Semaphore::new(READS_MAX),
            lifetime,
            heartbeat,
        })
    }

    /// Acquires the slot of one more stream, which is released when dropped.
    ///
    /// # Errors
    /// 429 `too_many_streams` of this client; 503 `overloaded`.
    pub(crate) fn acquire_slot(&self, caller: &Caller) -> Result<StreamSlot, Problem> {
        self.slots.acquire(caller)
    }

    /// Changes whenever the payment has a new timeline entry. Entries written before this call are not reported: read the
    /// timeline after it.
    pub(crate) fn subscribe(&self, payment_id: &PaymentId) -> watch::Receiver<i64> {
        self.updates.subscribe(payment_id)
    }

    /// Waits for a permit to read the database.
    pub(crate) async fn acquire_read(&self) -> Option<SemaphorePermit<'_>> {
        self.reads.acquire().await.ok()
    }
}
