//! Why a run on the real processes has no result.

use std::time::Duration;

use crate::schedule::Drop;

/// Why a run on the real processes has no result.
#[derive(Debug, thiserror::Error)]
pub enum RealError {
    /// The programs are not beside this one.
    #[error(
        "the programs of the service are not in the folder of the playground: build them with cargo build --workspace --bins"
    )]
    NoBinaries,
    /// Another visitor's run is under way.
    #[error("another run is under way on the real processes; wait for its end, or use the simulation")]
    Busy,
    /// A fault of the schedule found no moment.
    #[error("{0} did not happen: the payment ended before; remove this fault or another one")]
    NeverHappened(Drop),
    /// The run did not end.
    #[error("the run did not end within {0:?}; the next run starts new processes")]
    TooLong(Duration),
    /// A process did not do what it must.
    #[error("{0:#}; the next run starts new processes")]
    Processes(anyhow::Error),
}

impl From<anyhow::Error> for RealError {
    fn from(error: anyhow::Error) -> Self {
        Self::Processes(error)
    }
}
