//! Why a run on the real processes has no result.

use crate::schedule::Instant;

/// Why a run on the real processes has no result.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// Another run is under way: runs kill processes, and would disturb each other.
    #[error("another run is under way on the real processes; wait until it has ended, or use the simulation")]
    Busy,
    /// The engine could not start.
    #[error("the engine cannot use the real processes: {what} failed: {detail}")]
    Start {
        /// What failed.
        what: &'static str,
        /// Why.
        detail: String,
    },
    /// The run did not end in time.
    #[error(
        "the run did not end within {bound_s} s: at {at} it waited for {expected}; see the logs in .dev/log/up"
    )]
    Timeout {
        /// The bound of a run, in seconds.
        bound_s: u64,
        /// The instant.
        at: Instant,
        /// What it waited for.
        expected: String,
    },
    /// A process, the database or Temporal did not do what the run needs.
    #[error("the run stopped at {at}: {doing} failed: {detail}")]
    Failed {
        /// The instant.
        at: Instant,
        /// What the engine did.
        doing: &'static str,
        /// Why it failed.
        detail: String,
    },
}
