//! Rate limits of a client: a token bucket for its writes and one for its reads.
//!
//! A bucket belongs to one client of one tenant, whichever of its API keys is used, and to this process: with n processes a
//! client has n times the rate. A write is counted once it is known not to be a retry (S3.8), so a retry costs nothing and is
//! never refused here; a read is counted once its caller is authenticated.

mod bucket;
mod options;
mod rate_limit_headers;

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::access::api_keys::Caller;
use service_kit::problem::Problem;
use service_kit::task;
use tokio_util::sync::CancellationToken;

use self::bucket::Buckets;
use crate::config::{ApiOptions, SetupError};
use crate::error::ApiError;
use crate::idempotent::ClaimedTransaction;

pub use self::options::RateOptions;
pub(crate) use self::rate_limit_headers::{ChargedQuota, write_rate_limit_headers};

/// How often full buckets are removed.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(60);

/// All buckets of this process.
pub(crate) struct Limits {
    writes: Buckets,
    reads: Buckets,
}

impl Limits {
    /// Empty maps of buckets, and the task that removes full buckets until `stop`.
    ///
    /// # Errors
    /// [`SetupError::Rate`].
    pub(crate) fn start(options: &ApiOptions, stop: CancellationToken) -> Result<Arc<Self>, SetupError> {
        let limits = Arc::new(Self {
            writes: Buckets::new("writes", options.writes.check("api.writes")?),
            reads: Buckets::new("reads", options.reads.check("api.reads")?),
        });
        let cleaned = limits.clone();
        tokio::spawn(task::every(CLEANUP_INTERVAL, stop, move || {
            cleaned.writes.remove_full();
            cleaned.reads.remove_full();
            std::future::ready(())
        }));
        Ok(limits)
    }

    /// Counts a read.
    ///
    /// # Errors
    /// 429 `rate_limited`.
    pub(crate) fn admit_read(&self, caller: &Caller, charged: &ChargedQuota) -> Result<(), Problem> {
        charged.charge(self.reads.take(caller))
    }

    /// The write quota of the caller, to be charged once the request is known not to be a retry.
    pub(crate) fn writes(self: &Arc<Self>, caller: Caller, charged: ChargedQuota) -> WriteQuota {
        WriteQuota { limits: self.clone(), caller, charged }
    }
}

/// The write quota of one request. It may be charged from any task.
#[derive(Clone)]
pub(crate) struct WriteQuota {
    limits: Arc<Limits>,
    caller: Caller,
    charged: ChargedQuota,
}

impl WriteQuota {
    /// Counts a write, once: a request whose batch failed is executed again, alone.
    ///
    /// # Errors
    /// 429 `rate_limited`: the write must not be executed.
    pub(crate) fn admit(&self) -> Result<(), Problem> {
        if self.charged.is_admitted() {
            return Ok(());
        }
        self.charged.charge(self.limits.writes.take(&self.caller))
    }

    /// Counts a write that holds its idempotency key; without quota the key is released unused.
    ///
    /// # Errors
    /// 429 `rate_limited`, or the store does not answer.
    pub(crate) async fn admit_claimed(
        &self,
        claimed: ClaimedTransaction,
    ) -> Result<ClaimedTransaction, ApiError> {
        match self.admit() {
            Ok(()) => Ok(claimed),
            Err(problem) => {
                claimed.release().await?;
                Err(problem.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use payment_protocol::ids::{ClientId, TenantId};

    use super::*;

    #[tokio::test]
    async fn a_request_that_is_executed_again_is_counted_once() {
        let options = ApiOptions { writes: RateOptions { per_s: 1, burst: 1 }, ..ApiOptions::default() };
        let limits = Limits::start(&options, CancellationToken::new()).unwrap();
        let shop = Caller { tenant: TenantId::new("acme").unwrap(), client: ClientId::new("shop").unwrap() };
        let quota = || limits.writes(shop.clone(), ChargedQuota::default());
        let first = quota();
        assert!(first.admit().is_ok());
        assert!(first.clone().admit().is_ok(), "the same request");
        assert!(quota().admit().is_err(), "another one");
    }
}
