//! How many requests a client may make: a token bucket for its writes and one for its reads.
//!
//! A bucket belongs to a client of a tenant, whichever of its keys it calls with, and to this process: of
//! n processes a client may have n times as much. A write is counted once it turned out to be no repeat
//! (S3.8), so a repeat costs nothing and is never refused here; a read is counted when its caller is known.
//!
//! | file | question |
//! |---|---|
//! | `options` | how much may a client do? |
//! | `bucket` | has it any left? |
//! | `told` | what does its answer say of it? |

mod bucket;
mod options;
mod told;

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::access::api_keys::Caller;
use service_kit::problem::Problem;
use tokio_util::sync::CancellationToken;

use self::bucket::Buckets;
use crate::config::{ApiOptions, SetupError};
use crate::error::ApiError;
use crate::idempotent::Held;

pub use self::options::RateOptions;
pub(crate) use self::told::{Told, tell};

/// How often clients are forgotten whose bucket is full again.
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// All buckets of this process.
pub(crate) struct Limits {
    writes: Buckets,
    reads: Buckets,
}

impl Limits {
    /// Full buckets, and the task that forgets idle clients until `stopping`.
    ///
    /// # Errors
    /// [`SetupError::Rate`].
    pub(crate) fn start(options: &ApiOptions, stopping: CancellationToken) -> Result<Arc<Self>, SetupError> {
        let limits = Arc::new(Self {
            writes: Buckets::new("writes", options.writes.check("api.writes")?),
            reads: Buckets::new("reads", options.reads.check("api.reads")?),
        });
        tokio::spawn(forget(limits.clone(), stopping));
        Ok(limits)
    }

    /// Counts a read, and tells the answer.
    ///
    /// # Errors
    /// 429 `rate_limited`.
    pub(crate) fn admit_read(&self, caller: &Caller, told: &Told) -> Result<(), Problem> {
        told.admitted(self.reads.take(caller))
    }

    /// The caller's way to count its write, once it is known to be one.
    pub(crate) fn writes(self: &Arc<Self>, caller: Caller, told: Told) -> Writes {
        Writes { limits: self.clone(), caller, told }
    }
}

async fn forget(limits: Arc<Limits>, stopping: CancellationToken) {
    let forgetting = async {
        loop {
            tokio::time::sleep(FORGET_EVERY).await;
            limits.writes.forget_idle();
            limits.reads.forget_idle();
        }
    };
    stopping.run_until_cancelled(forgetting).await;
}

/// Counts one caller's write. It may be asked from any task.
#[derive(Clone)]
pub(crate) struct Writes {
    limits: Arc<Limits>,
    caller: Caller,
    told: Told,
}

impl Writes {
    /// Counts a write that is no repeat, and tells the answer.
    ///
    /// # Errors
    /// 429 `rate_limited`: nothing may be done.
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        self.told.admitted(self.limits.writes.take(&self.caller))
    }

    /// The same for a write that holds its key, which is given back unused when there is no quota.
    ///
    /// # Errors
    /// 429 `rate_limited`, or a store without an answer.
    pub(crate) async fn admit_held(&self, held: Held) -> Result<Held, ApiError> {
        match self.admit() {
            Ok(()) => Ok(held),
            Err(refused) => {
                held.give_back().await?;
                Err(refused.into())
            }
        }
    }
}
