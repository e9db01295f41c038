//! Options of the rate limits.

use std::num::NonZeroU32;

use serde::Deserialize;

use crate::config::SetupError;

/// Largest burst; a larger one would limit nothing.
const BURST_MAX: u32 = 1_000_000;

/// Rate of one client at one process. The defaults are high: they stop a runaway client, not a busy one. Set the rates that
/// were agreed with the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateOptions {
    /// Sustained requests per second, 1 to `burst`. Default 20,000.
    pub per_s: u32,
    /// Requests at once after a pause, at most 1,000,000. Default 20,000.
    pub burst: u32,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self { per_s: 20_000, burst: 20_000 }
    }
}

/// A checked rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) per_s: NonZeroU32,
    pub(crate) burst: NonZeroU32,
}

impl RateOptions {
    /// Checks the numbers of the configuration section `section`.
    ///
    /// # Errors
    /// [`SetupError::Rate`].
    pub(crate) fn check(self, section: &'static str) -> Result<Rate, SetupError> {
        let Self { per_s, burst } = self;
        match (NonZeroU32::new(per_s), NonZeroU32::new(burst)) {
            (Some(per_s), Some(burst)) if per_s <= burst && burst.get() <= BURST_MAX => {
                Ok(Rate { per_s, burst })
            }
            _ => Err(SetupError::Rate { section, per_s, burst, burst_max: BURST_MAX }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_that_admits_no_or_every_request_is_refused() {
        let check = |per_s, burst| RateOptions { per_s, burst }.check("api.writes");
        assert!(RateOptions::default().check("api.writes").is_ok());
        assert!(check(1, 1).is_ok() && check(1, BURST_MAX).is_ok() && check(BURST_MAX, BURST_MAX).is_ok());
        for (per_s, burst) in [(0, 1), (0, 0), (2, 1), (1, BURST_MAX + 1)] {
            let error = check(per_s, burst).unwrap_err().to_string();
            assert!(
                error.starts_with(
                    "the configuration section [api.writes] requires 1 <= per_s <= burst <= 1000000"
                ),
                "{error}"
            );
        }
    }
}
