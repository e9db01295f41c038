//! One real process: started, killed with real signals, started again on the same port.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::port::Port;
use crate::wait::until;

/// How long a process may take to be ready or to stop.
const WITHIN: Duration = Duration::from_secs(60);

/// A process under test. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    binary: PathBuf,
    log: PathBuf,
    /// Setting that fixes the port, so that a restart takes the same one.
    listen_variable: &'static str,
    environment: BTreeMap<String, String>,
    child: Option<Child>,
    _port: Port,
    /// Where it serves, `127.0.0.1:port`.
    pub address: String,
}

impl Process {
    /// Starts `name` from `binaries` and waits until it is ready.
    ///
    /// # Errors
    /// With the end of its log when it does not become ready.
    pub async fn start(
        name: &'static str,
        binaries: &Path,
        logs: &Path,
        listen_variable: &'static str,
        environment: BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let port = Port::free()?;
        let mut process = Self {
            name,
            binary: binaries.join(name),
            log: logs.join(format!("{name}.log")),
            listen_variable,
            environment,
            child: None,
            address: format!("127.0.0.1:{}", port.number()),
            _port: port,
        };
        process.start_again().await?;
        Ok(process)
    }

    /// Starts the process again after it was killed or stopped, on the same port.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let from = log.metadata()?.len();
        let child = Command::new(&self.binary)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("RUST_LOG", std::env::var("TEST_RUST_LOG").unwrap_or_else(|_| "info".into()))
            .env("NO_COLOR", "1")
            .envs(&self.environment)
            .env(self.listen_variable, &self.address)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} cannot be started", self.binary.display()))?;
        self.child = Some(child);
        self.address = self.wait_for_address(from).await?;
        self.wait_ready().await
    }

    /// SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// When it was not running.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().with_context(|| format!("{} is not running", self.name))?;
        child.kill().await?;
        Ok(())
    }

    /// SIGTERM, and waits for a graceful end.
    ///
    /// # Errors
    /// When it does not end within a minute, or not with success.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let mut child = self.child.take().with_context(|| format!("{} is not running", self.name))?;
        let status = tokio::time::timeout(WITHIN, child.wait()).await.with_context(|| {
            format!("{} did not stop within {WITHIN:?} of SIGTERM\n{}", self.name, self.log_tail())
        })??;
        if !status.success() {
            bail!("{} ended with {status} after SIGTERM\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// SIGSTOP: it stands still wherever it is.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// SIGCONT: it goes on where it stood.
    ///
    /// # Errors
    /// When it is not running.
    pub fn go_on(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The end of its log, for failures.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(40)..];
        format!("--- {} ---\n{}", self.log.display(), tail.join("\n"))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).with_context(|| format!("{} is not running", self.name))?;
        kill_process(pid, signal)?;
        Ok(())
    }

    /// Reads the address from the log: until it is there nothing follows_switch.
    async fn wait_for_address(&mut self, from: u64) -> anyhow::Result<String> {
        let log = self.log.clone();
        let child = self.child.as_mut().context("nothing was started")?;
        until(&format!("{} says where it follows_switch", self.name), WITHIN, || {
            let said = std::fs::read(&log).unwrap_or_default();
            let fresh = said.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
            let address = String::from_utf8_lossy(fresh).split("address=").nth(1).map(|rest| {
                rest.trim_start_matches('"')
                    .chars()
                    .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
                    .collect::<String>()
            });
            let ended = child.try_wait();
            async move {
                if let (None, Ok(Some(status))) = (&address, ended) {
                    bail!("it ended with {status}");
                }
                Ok(address)
            }
        })
        .await
        .map_err(|error| error.context(self.log_tail()))
    }

    /// Waits until `/ready` says so.
    ///
    /// # Errors
    /// With the end of its log.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let url = format!("{}/ready", self.url());
        let http = crate::http();
        until(&format!("{} is ready", self.name), WITHIN, || {
            let request = http.get(&url).send();
            async move { Ok(request.await.ok().filter(|answer| answer.status().is_success()).map(|_| ())) }
        })
        .await
        .map_err(|error| error.context(self.log_tail()))
    }
}
