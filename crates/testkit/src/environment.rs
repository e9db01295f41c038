//! The servers and binaries that the tests run against. `./dev test` starts the servers and sets the environment variables.

use std::path::PathBuf;
use std::str::FromStr as _;

use anyhow::{Context as _, bail};
use sqlx::postgres::PgConnectOptions;

/// Addresses and folders that the tests use.
#[derive(Clone, Debug)]
pub struct TestEnvironment {
    /// URL of a maintenance database, as a role that may create databases.
    pub database_url: String,
    /// URL of the Temporal frontend.
    pub temporal_address: String,
    /// Folder of the built binaries: `TEST_BINARIES`, or beside the test.
    pub binaries: PathBuf,
    /// Folder for logs and configuration files of tests.
    pub scratch: PathBuf,
}

impl TestEnvironment {
    /// Reads the environment variables and finds the binaries.
    ///
    /// # Errors
    /// If a variable or a binary is missing; the error names it and the command that provides it.
    pub fn load() -> anyhow::Result<Self> {
        let variable = |name: &str| {
            std::env::var(name).with_context(|| {
                format!(
                    "{name} is not set: run the tests by `./dev test`, which starts the servers they need"
                )
            })
        };
        // target/debug/deps/some_test-0123 -> target/debug
        let of_tests = std::env::current_exe()?
            .ancestors()
            .nth(2)
            .map(PathBuf::from)
            .context("the test binary is not in a target folder")?;
        let scratch = of_tests.join("system-tests");
        // A figure is measured with release programs.
        let binaries = std::env::var_os("TEST_BINARIES").map_or(of_tests, PathBuf::from);
        if !binaries.join("payment-worker").exists() {
            bail!(
                "{} has no payment-worker: build the binaries by `cargo build --workspace --bins`, or with --release where TEST_BINARIES names their folder",
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

    /// Address (`host:port`) of the database server.
    ///
    /// # Errors
    /// If its URL is not one.
    pub fn database_address(&self) -> anyhow::Result<String> {
        let options = PgConnectOptions::from_str(&self.database_url)?;
        Ok(format!("{}:{}", options.get_host(), options.get_port()))
    }
}
