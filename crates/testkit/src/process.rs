//! One real process: started, killed and paused by real signals, restarted on the same port.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use crate::reserved_port::ReservedPort;
use crate::wait::until;

/// Time limit for a process to become ready or to stop.
const WITHIN: Duration = Duration::from_secs(60);

/// A process under test. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    binary: PathBuf,
    log: PathBuf,
    /// Environment variable of the listen address, so that a restart uses the same port.
    listen_variable: &'static str,
    environment: BTreeMap<String, String>,
    child: Option<Child>,
    /// Where its log begins, in bytes, since the last start.
    log_from: u64,
    _port: ReservedPort,
    /// Listen address, `127.0.0.1:port`.
    pub address: String,
}

impl Process {
    /// Starts `name` from `binaries` and waits until it is ready.
    ///
    /// # Errors
    /// If the process does not become ready in time; the error has the end of its log.
    pub async fn start(
        name: &'static str,
        binaries: &Path,
        logs: &Path,
        listen_variable: &'static str,
        environment: BTreeMap<String, String>,
    ) -> anyhow::Result<Self> {
        let port = ReservedPort::reserve()?;
        let mut process = Self {
            name,
            binary: binaries.join(name),
            log: logs.join(format!("{name}.log")),
            listen_variable,
            environment,
            child: None,
            log_from: 0,
            address: format!("127.0.0.1:{}", port.number()),
            _port: port,
        };
        process.restart().await?;
        Ok(process)
    }

    /// Starts the process after it was killed or stopped, on the same port, and waits until it is ready.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.spawn()?;
        self.address = self.wait_for_address(self.log_from).await?;
        self.wait_ready().await
    }

    /// Starts the process after it was killed, stopped or has exited, on the same port, without waiting: what it needs may be down.
    ///
    /// # Errors
    /// If the program cannot be executed.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        self.log_from = log.metadata()?.len();
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
        Ok(())
    }

    /// Whether the process, which was not killed or stopped, has exited by itself.
    ///
    /// # Errors
    /// If the operating system does not say.
    pub fn has_exited(&mut self) -> anyhow::Result<bool> {
        Ok(match &mut self.child {
            Some(child) => child.try_wait()?.is_some(),
            None => false,
        })
    }

    /// The program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.binary
    }

    /// Replaces the program from the next start on, for example by that of another release.
    pub fn set_program(&mut self, program: PathBuf) {
        self.binary = program;
    }

    /// Sets an environment variable from the next start on.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    /// Removes an environment variable from the next start on.
    pub fn remove_variable(&mut self, name: &str) {
        self.environment.remove(name);
    }

    /// Sends SIGKILL and waits until the process has exited.
    ///
    /// # Errors
    /// If the process is not running.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().with_context(|| format!("{} is not running", self.name))?;
        child.kill().await?;
        Ok(())
    }

    /// Sends SIGTERM and waits until the process has exited.
    ///
    /// # Errors
    /// If the process does not exit within a minute, or exits with an error.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        self.terminate()?;
        let mut child = self.child.take().with_context(|| format!("{} is not running", self.name))?;
        let status = tokio::time::timeout(WITHIN, child.wait()).await.with_context(|| {
            format!("{} did not stop within {WITHIN:?} of SIGTERM\n{}", self.name, self.log_tail())
        })??;
        if !status.success() {
            bail!("{} exited with {status} after SIGTERM\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Sends SIGTERM, without waiting for the end of the process.
    ///
    /// # Errors
    /// If the process is not running.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGSTOP: the process keeps its connections and does nothing.
    ///
    /// # Errors
    /// If the process is not running.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT, which resumes the process.
    ///
    /// # Errors
    /// If the process is not running.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// The program's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The process id.
    ///
    /// # Errors
    /// If the process is not running.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.child.as_ref().and_then(Child::id).with_context(|| format!("{} is not running", self.name))
    }

    /// URL of the process, `http://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The last 40 lines of the process's log, for error messages.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(40)..];
        format!("--- {} ---\n{}", self.log.display(), tail.join("\n"))
    }

    /// Whether the process has logged `text` since its last start.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn has_logged(&self, text: &str) -> std::io::Result<bool> {
        Ok(self.times_logged(text)? > 0)
    }

    /// How often the process has logged `text` since its last start.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn times_logged(&self, text: &str) -> std::io::Result<usize> {
        let log = std::fs::read(&self.log)?;
        let since_start = log.get(usize::try_from(self.log_from).unwrap_or(0)..).unwrap_or_default();
        Ok(String::from_utf8_lossy(since_start).matches(text).count())
    }

    /// Waits until the log contains `text`, for a state of the process that nothing else shows.
    ///
    /// # Errors
    /// If it does not in time; the error has the end of the log.
    pub async fn wait_for_log(&self, text: &str) -> anyhow::Result<()> {
        until(&format!("{} logs {text:?}", self.name), WITHIN, || async {
            let logged = std::fs::read(&self.log).unwrap_or_default();
            Ok(String::from_utf8_lossy(&logged).contains(text).then_some(()))
        })
        .await
        .map_err(|error| error.context(self.log_tail()))
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(Pid::from_raw).with_context(|| format!("{} is not running", self.name))?;
        kill_process(pid, signal)?;
        Ok(())
    }

    /// Waits until the log has the listen address: the process listens from then on.
    async fn wait_for_address(&mut self, from: u64) -> anyhow::Result<String> {
        let log = self.log.clone();
        let child = self.child.as_mut().context("the process was not started")?;
        until(&format!("{} logs its listen address", self.name), WITHIN, || {
            let logged = std::fs::read(&log).unwrap_or_default();
            let new = logged.get(usize::try_from(from).unwrap_or(0)..).unwrap_or_default();
            let address = String::from_utf8_lossy(new).split("address=").nth(1).map(|rest| {
                rest.trim_start_matches('"')
                    .chars()
                    .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
                    .collect::<String>()
            });
            let exited = child.try_wait();
            async move {
                if let (None, Ok(Some(status))) = (&address, exited) {
                    bail!("the process exited with {status}");
                }
                Ok(address)
            }
        })
        .await
        .map_err(|error| error.context(self.log_tail()))
    }

    /// Whether `/ready` answers with success.
    pub async fn is_ready(&self) -> bool {
        let answer = crate::http().get(format!("{}/ready", self.url())).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Waits until `/ready` answers with success.
    ///
    /// # Errors
    /// If it does not in time; the error has the end of the log.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let url = format!("{}/ready", self.url());
        let http = crate::http();
        until(&format!("{} is ready", self.name), WITHIN, || {
            let request = http.get(&url).send();
            async move { Ok(request.await.ok().filter(|response| response.status().is_success()).map(|_| ())) }
        })
        .await
        .map_err(|error| error.context(self.log_tail()))
    }
}

/// No process may panic, whatever a test does to it: the test fails that finds a panic in the log.
impl Drop for Process {
    fn drop(&mut self) {
        let logged = std::fs::read(&self.log).unwrap_or_default();
        let logged = String::from_utf8_lossy(&logged);
        if let Some(line) = logged.lines().find(|line| line.contains("panicked at"))
            && !std::thread::panicking()
        {
            panic!("{} panicked: {line}\n{}", self.name, self.log_tail());
        }
    }
}
