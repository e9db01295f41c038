//! For how long a key is kept and may be held.

use std::ops::RangeInclusive;
use std::time::Duration;

const HOUR_S: u64 = 3_600;
/// For how long a key may be kept, in hours (S4.2).
const TTL_H: RangeInclusive<u64> = 24..=72;
/// Longest lease (S4.4).
const LEASE_MAX: Duration = Duration::from_secs(30);
/// Shortest lease the database can keep: it counts in milliseconds, and 0 would switch its timeout off.
const LEASE_MIN: Duration = Duration::from_millis(1);

/// How keys are kept. Default: 24 hours, a lease of 30 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    ttl: Duration,
    lease: Duration,
}

/// Terms outside their bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    /// Kept too short for honest repeats, or longer than the store is sized for.
    #[error("an idempotency key is kept for {} to {} hours, not {ttl_h}", TTL_H.start(), TTL_H.end())]
    Ttl {
        /// The hours asked for.
        ttl_h: u64,
    },
    /// A lease that is none, or that blocks its key for too long.
    #[error("the lease of an idempotency key lasts {LEASE_MIN:?} to {LEASE_MAX:?}, not {0:?}")]
    Lease(Duration),
}

impl Terms {
    /// Keeps keys for `ttl_h` hours (24 to 72); a holder may stand still for `lease` (1 ms to 30 s).
    ///
    /// # Errors
    /// [`TermsError`] when either is outside its bounds.
    pub fn new(ttl_h: u64, lease: Duration) -> Result<Self, TermsError> {
        if !TTL_H.contains(&ttl_h) {
            return Err(TermsError::Ttl { ttl_h });
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Err(TermsError::Lease(lease));
        }
        Ok(Self { ttl: Duration::from_secs(ttl_h * HOUR_S), lease })
    }

    /// How long a key is kept.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long a holder may stand still before the database cuts it off.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(TTL_H.start() * HOUR_S), lease: LEASE_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_outside_their_bounds_are_refused() {
        assert_eq!(Terms::new(24, LEASE_MAX), Ok(Terms::default()));
        assert!(Terms::new(72, LEASE_MIN).is_ok());
        for ttl_h in [0, 23, 73] {
            assert_eq!(Terms::new(ttl_h, LEASE_MAX), Err(TermsError::Ttl { ttl_h }));
        }
        for lease in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(31)] {
            assert_eq!(Terms::new(24, lease), Err(TermsError::Lease(lease)));
        }
    }
}
