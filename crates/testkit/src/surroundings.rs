//! Where PostgreSQL, Temporal and the binaries are. `./dev test` starts the first two and says so in
//! the environment.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// What the tests run against.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// URL of a maintenance database, as a role that may create databases.
    pub database_url: String,
    /// URL of the Temporal frontend.
    pub temporal_address: String,
    /// Folder of the built binaries.
    pub binaries: PathBuf,
    /// Folder for logs and configuration files of tests.
    pub scratch: PathBuf,
}

impl Surroundings {
    /// Reads the environment.
    ///
    /// # Errors
    /// Names what is missing and how to get it.
    pub fn find() -> anyhow::Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).with_context(|| {
                format!("{name} is not set: run the tests by `./dev test`, which starts what they need")
            })
        };
        // target/debug/deps/some_test-0123 -> target/debug
        let binaries = std::env::current_exe()?
            .ancestors()
            .nth(2)
            .map(PathBuf::from)
            .context("the test binary lies nowhere")?;
        let scratch = binaries.join("system-tests");
        if !binaries.join("payment-worker").exists() {
            bail!(
                "{} has no payment-worker: build the binaries by `cargo build --workspace --bins`",
                binaries.display()
            );
        }
        Ok(Self {
            database_url: variable("TEST_DATABASE_URL")?,
            temporal_address: variable("TEST_TEMPORAL_ADDRESS")?,
            binaries,
            scratch,
        })
    }
}
