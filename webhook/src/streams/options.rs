//! How many streams, for how long.

use std::time::Duration;

use serde::Deserialize;

use crate::config::{SetupError, not_zero};

/// Streams of events at one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StreamOptions {
    /// Open at once; the next one is answered 503 `overloaded`. Each is a socket. Default 256.
    pub max: usize,
    /// Of those, one client's; the next one is answered 429 `too_many_streams`. Default 32.
    pub per_client_max: usize,
    /// How long one may be open; then it ends, and the client comes again with the last id it saw. Default 600 s.
    pub lifetime_s: u64,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self { max: 256, per_client_max: 32, lifetime_s: 600 }
    }
}

impl StreamOptions {
    /// Checks the numbers and gives the longest life of a stream.
    ///
    /// # Errors
    /// [`SetupError::Zero`].
    pub(crate) fn lifetime(&self) -> Result<Duration, SetupError> {
        not_zero("webhook.streams.max", self.max)?;
        not_zero("webhook.streams.per_client_max", self.per_client_max)?;
        not_zero("webhook.streams.lifetime_s", self.lifetime_s)?;
        Ok(Duration::from_secs(self.lifetime_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_nobody_could_open_are_refused() {
        let good = StreamOptions::default();
        assert_eq!(good.lifetime().unwrap(), Duration::from_secs(600));
        for (bad, setting) in [
            (StreamOptions { max: 0, ..good }, "webhook.streams.max"),
            (StreamOptions { per_client_max: 0, ..good }, "webhook.streams.per_client_max"),
            (StreamOptions { lifetime_s: 0, ..good }, "webhook.streams.lifetime_s"),
        ] {
            assert!(matches!(bad.lifetime(), Err(SetupError::Zero(named)) if named == setting), "{bad:?}");
        }
    }
}
