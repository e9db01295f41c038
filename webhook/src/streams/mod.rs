//! Streams of events: who may hold one open, for how long, and how all of them hear that a payment has moved.
//!
//! A stream waits without a connection to the database and without a request's place (`admission`): it costs a socket and
//! a little memory, which is what its own bounds are for. A key that is revoked keeps the streams that it opened for as
//! long as they may live.
//!
//! | file | question |
//! |---|---|
//! | `options` | how many streams, for how long? |
//! | `places` | is there room for one more? |
//! | `news` | which payments have moved? |

mod news;
mod options;
mod places;

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::Ledger;
use payment_ledger::access::api_keys::Caller;
use payment_protocol::ids::PaymentId;
use service_kit::problem::Problem;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use self::news::News;
use self::places::Places;
use crate::config::{ApiOptions, SetupError};

pub use self::options::StreamOptions;
pub(crate) use self::places::Place;

/// Longest silence on a stream. Proxies take a minute of it for death; our own connections `quiet_timeout_s`.
const HEARTBEAT_MAX: Duration = Duration::from_secs(15);
/// Streams that look at the database at once: however many have news, most connections are left to payments.
const LOOKS_MAX: usize = 4;

/// All streams of this process.
pub(crate) struct Streams {
    places: Arc<Places>,
    news: Arc<News>,
    looks: Semaphore,
    /// How long a stream may be open; who wants more comes again and goes on.
    pub(crate) lifetime: Duration,
    /// A comment is sent when nothing else was for so long.
    pub(crate) heartbeat: Duration,
}

impl Streams {
    /// Nobody streams yet. The task that looks for news runs until `stopping`.
    ///
    /// # Errors
    /// [`SetupError::Zero`] or [`SetupError::Head`].
    pub(crate) fn start(
        options: &ApiOptions,
        ledger: Ledger,
        stopping: CancellationToken,
    ) -> Result<Self, SetupError> {
        // Twice in the time after which a connection without a byte is closed.
        let heartbeat = HEARTBEAT_MAX.min(options.connection_bounds()?.quiet / 2);
        let lifetime = options.streams.lifetime()?;
        Ok(Self {
            places: Arc::new(Places::new(options.streams)),
            news: News::start(ledger, stopping),
            looks: Semaphore::new(LOOKS_MAX),
            lifetime,
            heartbeat,
        })
    }

    /// Room for one more stream, until the place is dropped.
    ///
    /// # Errors
    /// 429 `too_many_streams` of this client; 503 `overloaded`.
    pub(crate) fn enter(&self, caller: &Caller) -> Result<Place, Problem> {
        self.places.enter(caller)
    }

    /// Changes whenever the payment has a new line. What was written before this call is told by nobody: look after it.
    pub(crate) fn news_of(&self, payment_id: &PaymentId) -> watch::Receiver<i64> {
        self.news.of(payment_id)
    }

    /// A turn to look at the database; none is ever refused.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.looks.acquire().await.ok()
    }
}
