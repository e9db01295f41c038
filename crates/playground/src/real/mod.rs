//! The real processes: a whole bank with its worker, its switch and a naive client beside it, started for the page alone. Crashes
//! are real signals, and the network between them is a gate that holds each message until the schedule says what becomes of it.
//!
//! | file | question |
//! |---|---|
//! | `gate.rs` | which message is on its way, and what becomes of it? |
//! | `bank.rs` | which processes carry the payment with keys? |
//! | `with_keys.rs` | what does a schedule do to this service? |
//! | `naive.rs` | which processes carry the order without keys, and on which account? |
//! | `without_keys.rs` | what does a schedule do to the naive client? |
//! | `reporter.rs` | what does the page show meanwhile? |
//!
//! The bank is the system of the fault tests ([`testkit::System`]), and its independent auditor compares the books after each run.

mod bank;
mod error;
mod gate;
mod naive;
mod reporter;
mod with_keys;
mod without_keys;

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use testkit::environment::TestEnvironment;
use tokio::sync::{Mutex, mpsc};

use crate::run::{Run, Step};
use crate::schedule::Schedule;
use bank::Bank;
pub use error::RealError;
use naive::NaiveClient;
use reporter::Reporter;

/// A run that takes longer has failed: a stopped worker's tasks wait 10 s for another one, an SLA takes 20 s.
const RUN_WITHIN: Duration = Duration::from_secs(180);

/// The servers that the real processes use.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// URL of a PostgreSQL database, as a role that may create databases.
    pub database_url: String,
    /// URL of the Temporal frontend.
    pub temporal_address: String,
    /// Folder for the logs of the processes.
    pub logs: PathBuf,
    /// URL of the workflows in the Temporal UI; the page links the payment's workflow there.
    #[serde(default)]
    pub temporal_ui: Option<String>,
}

/// Runs schedules on the real processes, one at a time.
pub struct Engine {
    servers: TestEnvironment,
    temporal_ui: Option<String>,
    /// Started by the first run. A failed run leaves none, so that the next one starts with new processes.
    processes: Mutex<Option<Processes>>,
}

struct Processes {
    bank: Bank,
    naive: NaiveClient,
}

impl Engine {
    /// An engine whose processes are in the folder of this one. It starts nothing yet.
    ///
    /// # Errors
    /// If this process does not know its folder.
    pub fn new(config: Config) -> Result<Self, RealError> {
        let this = std::env::current_exe().map_err(|error| RealError::Processes(error.into()))?;
        // A test's binary is in a folder below.
        let binaries = this.ancestors().skip(1).find(|folder| folder.join("payment-worker").exists());
        let binaries = binaries.ok_or(RealError::NoBinaries)?.to_owned();
        let servers = TestEnvironment {
            database_url: config.database_url,
            temporal_address: config.temporal_address,
            binaries,
            scratch: config.logs,
        };
        Ok(Self { servers, temporal_ui: config.temporal_ui, processes: Mutex::new(None) })
    }

    /// Runs a schedule; `reader` gets each step as it happens, as long as it keeps up.
    ///
    /// # Errors
    /// Another run is under way, a fault found no moment, a process failed, or the books differ.
    pub async fn run(&self, schedule: &Schedule, reader: mpsc::Sender<Step>) -> Result<Run, RealError> {
        let mut slot = self.processes.try_lock().map_err(|_| RealError::Busy)?;
        let reporter = Reporter::new(reader);
        let mut processes = match slot.take() {
            Some(processes) => processes,
            None => self.start().await.map_err(RealError::Processes)?,
        };
        let Processes { bank, naive } = &mut processes;
        let both = async {
            tokio::try_join!(
                with_keys::run(bank, schedule, &reporter, self.temporal_ui.as_deref()),
                without_keys::run(naive, schedule, &reporter),
            )
        };
        let (with_keys, without_keys) =
            tokio::time::timeout(RUN_WITHIN, both).await.map_err(|_| RealError::TooLong(RUN_WITHIN))??;
        *slot = Some(processes);
        Ok(Run { steps: reporter.into_steps(), with_keys, without_keys })
    }

    async fn start(&self) -> anyhow::Result<Processes> {
        let (bank, naive) =
            tokio::try_join!(Bank::start(self.servers.clone()), NaiveClient::start(self.servers.clone()))?;
        Ok(Processes { bank, naive })
    }
}
