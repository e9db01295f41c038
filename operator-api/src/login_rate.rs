//! How often an address may try passwords: who guesses them is slowed down before one is compared. ID tokens are not limited: they are
//! checked quickly, and operators behind the same proxy can log in with them while others try passwords there.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::http::StatusCode;
use governor::clock::{Clock as _, DefaultClock};
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use service_kit::peers::PeerAddress;
use service_kit::problem::Problem;

/// Passwords of one address in a minute, and at once. Behind a proxy all operators share its address.
pub(crate) const LOGINS_PER_MINUTE: u32 = 60;
/// Addresses that are remembered; more are first searched for those that may log in as often as new ones.
const ADDRESSES_MAX: usize = 10_000;

/// The passwords of each address.
pub(crate) struct LoginRate(RateLimiter<PeerAddress, HashMapStateStore<PeerAddress>, DefaultClock>);

impl LoginRate {
    pub(crate) fn new() -> Self {
        let quota = Quota::per_minute(NonZeroU32::new(LOGINS_PER_MINUTE).unwrap_or(NonZeroU32::MIN));
        Self(RateLimiter::new(quota, HashMapStateStore::default(), DefaultClock::default()))
    }

    /// Counts a password of an address.
    ///
    /// # Errors
    /// 429: the address has tried too often.
    pub(crate) fn take(&self, peer: Option<PeerAddress>) -> Result<(), Problem> {
        // A connection without an address is this process's own, in tests.
        let Some(peer) = peer else { return Ok(()) };
        if self.0.len() > ADDRESSES_MAX {
            self.0.retain_recent();
        }
        self.0.check_key(&peer).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            let title = "Too many passwords of one address";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "login_rate_limited", title)
                .detail(format!(
                    "an address may try {LOGINS_PER_MINUTE} passwords a minute; wait and try again"
                ))
                .retry_after(Duration::from_secs(wait.as_secs() + 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn an_address_that_tries_too_often_is_refused_and_another_one_is_not() {
        let rate = LoginRate::new();
        let peer = |text: &str| Some(PeerAddress::from(text.parse::<SocketAddr>().unwrap()));
        for _ in 0..LOGINS_PER_MINUTE {
            rate.take(peer("10.0.0.1:1")).unwrap();
        }
        let refused = rate.take(peer("10.0.0.1:2")).unwrap_err();
        assert_eq!((refused.status, refused.retry_after.is_some()), (StatusCode::TOO_MANY_REQUESTS, true));
        rate.take(peer("10.0.0.2:1")).unwrap();
        rate.take(None).unwrap();
    }
}
