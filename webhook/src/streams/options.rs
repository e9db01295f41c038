//! Options of the event streams.

use std::time::Duration;

use serde::Deserialize;

use crate::config::{SetupError, not_zero};

/// Event streams of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamOptions {
    /// Upper bound of open streams, each with a socket; a further one is answered 503 `overloaded`. Default 256.
    pub max: usize,
    /// Upper bound of open streams of one client; a further one is answered 429 `too_many_streams`. Default 32.
    pub per_client_max: usize,
    /// Longest life of a stream; the client then reconnects with the last event id. Default 600 s.
    pub lifetime_s: u64,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { max: 256, per_client_max: 32, lifetime_s: 600 }
    }
}

impl StreamOptions {
    /// Checks the numbers and returns the longest life of a stream.
    ///
    /// # Errors
    /// [`SetupError::Zero`].
    pub(crate) fn lifetime(&self) -> Result<Duration, SetupError> {
        not_zero("api.streams.max", self.max)?;
        not_zero("api.streams.per_client_max", self.per_client_max)?;
        not_zero("api.streams.lifetime_s", self.lifetime_s)?;
        Ok(Duration::from_secs(self.lifetime_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_in_any_event_stream_option_is_refused() {
        let good = StreamOptions::default();
        assert_eq!(good.lifetime().unwrap(), Duration::from_secs(600));
        for (bad, setting) in [
            (StreamOptions { max: 0, ..good }, "api.streams.max"),
            (StreamOptions { per_client_max: 0, ..good }, "api.streams.per_client_max"),
            (StreamOptions { lifetime_s: 0, ..good }, "api.streams.lifetime_s"),
        ] {
            assert!(matches!(bad.lifetime(), Err(SetupError::Zero(name)) if name == setting), "{bad:?}");
        }
    }
}
