//! Samples the ledger of a system in the background, from its start to its audit.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{bail, ensure};
use sqlx::PgPool;
use tokio::task::JoinHandle;

use super::check_conservation;

/// Pause between two samples.
const INTERVAL: Duration = Duration::from_millis(250);

/// What the samples have found so far. Dropping it ends the sampling, and panics if a violation was found that nobody has read.
#[derive(Debug)]
pub(crate) struct Sampler {
    found: Arc<Mutex<Found>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Found {
    samples: usize,
    violation: Option<String>,
}

impl Sampler {
    /// Samples until the first violation, or until the value is dropped.
    pub(crate) fn start(pool: PgPool) -> Self {
        let found = Arc::new(Mutex::new(Found::default()));
        let noted = Arc::clone(&found);
        let task = tokio::spawn(async move {
            loop {
                let sample = check_conservation(&pool).await;
                {
                    let mut found = noted.lock().unwrap_or_else(PoisonError::into_inner);
                    match sample {
                        Ok(()) => found.samples += 1,
                        Err(error) if is_unavailable(&error) => {}
                        Err(violation) => {
                            let number = found.samples + 1;
                            found.violation = Some(format!("sample {number}: {violation:#}"));
                            return;
                        }
                    }
                }
                tokio::time::sleep(INTERVAL).await;
            }
        });
        Self { found, task }
    }

    /// Ends the sampling: the test damages the ledger.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// Whether every sample so far was in order.
    ///
    /// # Errors
    /// The first violation, that there was no sample, or that the sampling has ended.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let samples = self.found.lock().unwrap_or_else(PoisonError::into_inner).samples;
        ensure!(samples > 0, "the ledger was not sampled once while the test ran");
        if let Some(violation) = self.found.lock().unwrap_or_else(PoisonError::into_inner).violation.take() {
            bail!("the ledger was not in order while the test ran: {violation}");
        }
        ensure!(
            !self.task.is_finished(),
            "the sampling of the ledger has ended: it panicked, or the test has damaged the ledger"
        );
        Ok(())
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.task.abort();
        // A test without an audit fails, too.
        let violation = self.found.lock().unwrap_or_else(PoisonError::into_inner).violation.take();
        if let Some(violation) = violation
            && !std::thread::panicking()
        {
            panic!("the ledger was not in order while the test ran: {violation}");
        }
    }
}

/// Whether the database did not answer, because the test has taken it away: no connection, or one that was ended.
#[must_use]
pub fn is_unavailable(error: &anyhow::Error) -> bool {
    match error.downcast_ref() {
        Some(sqlx::Error::Database(error)) => {
            // Connection exceptions, the ends of sessions and databases, too many connections, a database that is gone.
            error
                .code()
                .is_some_and(|code| ["08", "57", "53", "3D"].iter().any(|class| code.starts_with(class)))
        }
        Some(
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed,
        ) => true,
        Some(_) | None => false,
    }
}
