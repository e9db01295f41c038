//! Retention and lease of a key.

use std::ops::RangeInclusive;
use std::time::Duration;

const HOUR_S: u64 = 3_600;
/// Allowed retention of a key, in hours (S4.2).
const RETENTION_H: RangeInclusive<u64> = 24..=RETENTION_MAX_H;
const RETENTION_MAX_H: u64 = 72;
/// Longest lease (S4.4).
const LEASE_MAX: Duration = Duration::from_secs(30);
/// Shortest lease: PostgreSQL counts timeouts in milliseconds, and 0 would disable the timeout.
const LEASE_MIN: Duration = Duration::from_millis(1);

/// Retention and lease of a key. Default: 24 hours, 30 seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyOptions {
    retention: Duration,
    lease: Duration,
}

/// An option is outside its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdempotencyOptionsError {
    /// The retention is too short for retries, or longer than the store is sized for.
    #[error(
        "the retention of an idempotency key must be {} to {} hours, not {retention_h}",
        RETENTION_H.start(),
        RETENTION_H.end()
    )]
    Retention {
        /// The given hours.
        retention_h: u64,
    },
    /// The lease is zero, or would block its key for too long.
    #[error("the lease of an idempotency key must be {LEASE_MIN:?} to {LEASE_MAX:?}, not {0:?}")]
    Lease(Duration),
}

impl IdempotencyOptions {
    /// Longest time that a completed key is stored.
    pub const RETENTION_MAX: Duration = Duration::from_secs(RETENTION_MAX_H * HOUR_S);

    /// Keys are retained for `retention_h` hours (24 to 72); a holder may stall for `lease` (1 ms to 30 s).
    ///
    /// # Errors
    /// [`IdempotencyOptionsError`] if either is outside its bounds.
    pub fn new(retention_h: u64, lease: Duration) -> Result<Self, IdempotencyOptionsError> {
        if !RETENTION_H.contains(&retention_h) {
            return Err(IdempotencyOptionsError::Retention { retention_h });
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&lease) {
            return Err(IdempotencyOptionsError::Lease(lease));
        }
        Ok(Self { retention: Duration::from_secs(retention_h * HOUR_S), lease })
    }

    /// How long a completed key is stored.
    #[must_use]
    pub fn retention(&self) -> Duration {
        self.retention
    }

    /// How long a holder may stall before the database disconnects it.
    #[must_use]
    pub fn lease(&self) -> Duration {
        self.lease
    }
}

impl Default for IdempotencyOptions {
    fn default() -> Self {
        Self { retention: Duration::from_secs(RETENTION_H.start() * HOUR_S), lease: LEASE_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_options_outside_their_bounds_are_refused() {
        assert_eq!(IdempotencyOptions::new(24, LEASE_MAX), Ok(IdempotencyOptions::default()));
        let longest = IdempotencyOptions::new(72, LEASE_MIN).unwrap();
        assert_eq!(longest.retention(), Duration::from_secs(72 * 3_600));
        assert_eq!(longest.retention(), IdempotencyOptions::RETENTION_MAX);
        for retention_h in [0, 23, 73] {
            let error = IdempotencyOptionsError::Retention { retention_h };
            assert_eq!(IdempotencyOptions::new(retention_h, LEASE_MAX), Err(error));
        }
        for lease in [Duration::ZERO, Duration::from_micros(999), Duration::from_secs(31)] {
            assert_eq!(IdempotencyOptions::new(24, lease), Err(IdempotencyOptionsError::Lease(lease)));
        }
    }
}
