//! Token buckets, one per client.

use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota as Replenishing, RateLimiter};
use payment_ledger::access::api_keys::Caller;

use super::options::Rate;

/// The quota of a client after one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    /// `writes` or `reads`.
    pub(super) policy: &'static str,
    /// The agreed rate.
    pub(super) rate: Rate,
    /// Requests that the client may send at once; 0 after a refusal.
    pub(super) remaining: u32,
    /// Seconds, rounded up, at least 1: until the bucket is full or, after a refusal, until it holds a token again.
    pub(super) reset_s: u64,
    /// Whether the request is admitted.
    pub(super) is_admitted: bool,
}

/// A bucket for each recently active client.
pub(super) struct Buckets<C: Clock = DefaultClock> {
    policy: &'static str,
    rate: Rate,
    clients: RateLimiter<Caller, HashMapStateStore<Caller>, C, StateInformationMiddleware>,
    clock: C,
}

impl Buckets {
    pub(super) fn new(policy: &'static str, rate: Rate) -> Self {
        Self::with_clock(policy, rate, DefaultClock::default())
    }
}

impl<C: Clock + Clone> Buckets<C> {
    fn with_clock(policy: &'static str, rate: Rate, clock: C) -> Self {
        let replenishing = Replenishing::per_second(rate.per_s).allow_burst(rate.burst);
        let clients = RateLimiter::new(replenishing, HashMapStateStore::default(), clock.clone());
        Self { policy, rate, clients, clock }
    }

    /// Takes a token of the client if one is left.
    pub(super) fn take(&self, client: &Caller) -> Quota {
        let Self { policy, rate, .. } = *self;
        match self.clients.check_key(client) {
            Ok(left) => {
                let remaining = left.remaining_burst_capacity();
                let missing = u64::from(rate.burst.get().saturating_sub(remaining));
                let reset_s = missing.div_ceil(rate.per_s.get().into()).max(1);
                Quota { policy, rate, remaining, reset_s, is_admitted: true }
            }
            Err(not_until) => {
                let wait = not_until.wait_time_from(self.clock.now());
                let reset_s = whole_seconds(wait).max(1);
                Quota { policy, rate, remaining: 0, reset_s, is_admitted: false }
            }
        }
    }

    /// Removes full buckets, which equal new ones. So the map holds only clients that were active within the time that a
    /// bucket takes to fill.
    pub(super) fn remove_full(&self) {
        self.clients.retain_recent();
        self.clients.shrink_to_fit();
    }
}

/// Whole seconds, rounded up.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;
    use payment_protocol::ids::{ClientId, TenantId};

    use super::*;
    use crate::limits::RateOptions;

    fn client(tenant: &str, client: &str) -> Caller {
        Caller { tenant: TenantId::new(tenant).unwrap(), client: ClientId::new(client).unwrap() }
    }

    fn buckets(per_s: u32, burst: u32) -> (Buckets<FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        let rate = RateOptions { per_s, burst }.check("api.writes").unwrap();
        (Buckets::with_clock("writes", rate, clock.clone()), clock)
    }

    /// Remaining tokens and seconds until the reset; -1 for a refusal.
    fn take(buckets: &Buckets<FakeRelativeClock>, client: &Caller) -> (i64, u64) {
        let quota = buckets.take(client);
        assert!(quota.is_admitted || quota.remaining == 0);
        (if quota.is_admitted { quota.remaining.into() } else { -1 }, quota.reset_s)
    }

    #[test]
    fn a_rate_limit_bucket_admits_its_burst_and_then_its_rate() {
        let (buckets, clock) = buckets(2, 6);
        let shop = client("acme", "shop");
        let taken: Vec<_> = (0..8).map(|_| take(&buckets, &shop)).collect();
        assert_eq!(taken, [(5, 1), (4, 1), (3, 2), (2, 2), (1, 3), (0, 3), (-1, 1), (-1, 1)]);
        clock.advance(Duration::from_millis(499));
        assert_eq!(take(&buckets, &shop), (-1, 1));
        clock.advance(Duration::from_millis(1));
        assert_eq!(take(&buckets, &shop), (0, 3));
        assert_eq!(take(&buckets, &shop), (-1, 1), "expected a refusal to neither cost nor add a token");
        clock.advance(Duration::from_secs(60));
        assert_eq!(take(&buckets, &shop), (5, 1), "expected a full bucket");
    }

    #[test]
    fn each_client_of_each_tenant_has_its_own_rate_limit_bucket() {
        let (buckets, _) = buckets(1, 1);
        for (tenant, name) in [("acme", "shop"), ("acme", "till"), ("globex", "shop")] {
            let client = client(tenant, name);
            assert_eq!(take(&buckets, &client), (0, 1), "{tenant} {name}");
            assert_eq!(take(&buckets, &client), (-1, 1), "{tenant} {name}");
        }
    }

    #[test]
    fn only_full_rate_limit_buckets_are_removed() {
        let (buckets, clock) = buckets(1, 10);
        for n in 0..1_000 {
            take(&buckets, &client("acme", &format!("c{n}")));
        }
        let busy = client("acme", "busy");
        while buckets.take(&busy).is_admitted {}
        buckets.remove_full();
        assert_eq!(buckets.clients.len(), 1_001);
        clock.advance(Duration::from_secs(3));
        buckets.remove_full();
        assert_eq!(buckets.clients.len(), 1, "expected only the busy client to remain");
        assert_eq!(take(&buckets, &busy), (2, 8));
    }
}
