//! One Temporal server per test, with a database file: a real development server, killed and paused by real signals.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::reserved_port::ReservedPort;
use crate::wait::until;

/// Time limit for the server to become healthy.
const WITHIN: Duration = Duration::from_secs(60);
/// File of the server's database.
const DATABASE: &str = "temporal.db";
/// Settings of the server, as in `scripts/temporal.sh`.
const SETTINGS: [&str; 4] = [
    "history.transferProcessorMaxPollRPS=200",
    "system.enableActivityEagerExecution=true",
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
];

/// A Temporal server. Killed when dropped; its database file survives [`TemporalServer::kill`].
#[derive(Debug)]
pub struct TemporalServer {
    /// Listen address, `127.0.0.1:port`.
    pub address: String,
    folder: PathBuf,
    child: Option<Child>,
    _port: ReservedPort,
}

impl TemporalServer {
    /// Starts a server on a free port, with a folder under the test's name.
    ///
    /// # Errors
    /// If the command line tool of Temporal is not installed, or the server is not healthy in time; the error has the server's log.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let binary = std::env::current_exe()?;
        let binaries = binary.ancestors().nth(2).context("the test binary is not in a target folder")?;
        let folder = binaries.join("system-tests").join(format!("{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        let port = ReservedPort::reserve()?;
        let address = format!("127.0.0.1:{}", port.number());
        let mut server = Self { address, folder, child: None, _port: port };
        server.spawn()?;
        server.wait_healthy().await?;
        Ok(server)
    }

    /// Starts the server after it was killed, on the same port and with its database file, without waiting.
    ///
    /// # Errors
    /// If the command line tool of Temporal is not installed.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("temporal.log"))?;
        let (ip, port) = self.address.split_once(':').context("the address has no port")?;
        let mut command = Command::new(program());
        command
            .args(["server", "start-dev", "--headless", "--log-level", "warn"])
            .args(["--ip", ip, "--port", port])
            .args(["--search-attribute", "PaymentSwitch=Keyword"])
            .args(["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=NORMAL"])
            .arg("--db-filename")
            .arg(self.folder.join(DATABASE));
        for setting in SETTINGS {
            command.args(["--dynamic-config-value", setting]);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("the Temporal server cannot be started; `./dev install` installs it")?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the server is healthy. The port opens before that.
    ///
    /// # Errors
    /// If it is not in time; the error has the server's log.
    pub async fn wait_healthy(&mut self) -> anyhow::Result<()> {
        let address = self.address.clone();
        until("the test's own Temporal server is healthy", WITHIN, || {
            let exited = self.child.as_mut().map(Child::try_wait);
            let mut health = Command::new(program());
            health.args(["operator", "cluster", "health", "--address", &address]);
            health.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            async move {
                if let Some(Ok(Some(status))) = exited {
                    bail!("the Temporal server exited with {status}");
                }
                Ok(health.status().await?.success().then_some(()))
            }
        })
        .await
        .with_context(|| std::fs::read_to_string(self.folder.join("temporal.log")).unwrap_or_default())
    }

    /// Whether the server, which was not killed, has exited by itself.
    ///
    /// # Errors
    /// If the operating system does not say.
    pub fn has_exited(&mut self) -> anyhow::Result<bool> {
        Ok(match &mut self.child {
            Some(child) => child.try_wait()?.is_some(),
            None => false,
        })
    }

    /// Sends SIGKILL and waits until the server has exited.
    ///
    /// # Errors
    /// If the server is not running.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.take().context("the Temporal server is not running")?.kill().await?;
        Ok(())
    }

    /// Takes a backup, in place of an earlier one. The server is killed for it and started again.
    ///
    /// # Errors
    /// If the files cannot be copied, or the server does not start.
    pub async fn back_up(&mut self) -> anyhow::Result<()> {
        self.kill().await?;
        let backup = self.backup();
        if backup.exists() {
            std::fs::remove_dir_all(&backup)?;
        }
        std::fs::create_dir(&backup)?;
        copy_database(&self.folder, &backup)?;
        self.spawn()?;
        self.wait_healthy().await
    }

    /// Kills the server, and starts one with the data of the backup at the same address: what it recorded since then is lost.
    ///
    /// # Errors
    /// If there is no backup, or the server does not start.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        let backup = self.backup();
        ensure!(backup.exists(), "there is no backup of the Temporal server");
        self.kill().await?;
        for file in database_files(&self.folder)? {
            std::fs::remove_file(file)?;
        }
        copy_database(&backup, &self.folder)?;
        self.spawn()?;
        self.wait_healthy().await
    }

    fn backup(&self) -> PathBuf {
        self.folder.join("backup")
    }

    /// Sends SIGSTOP: the server keeps its connections and answers nothing.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT, which resumes the server.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// URL of the frontend.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        kill_process(id.and_then(Pid::from_raw).context("the Temporal server is not running")?, signal)?;
        Ok(())
    }
}

/// The files of the database in a folder: the database, and what SQLite has not written into it yet.
fn database_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(DATABASE) {
            files.push(entry.path());
        }
    }
    ensure!(!files.is_empty(), "{} has no database of a Temporal server", folder.display());
    Ok(files)
}

fn copy_database(from: &Path, to: &Path) -> anyhow::Result<()> {
    for file in database_files(from)? {
        std::fs::copy(&file, to.join(file.file_name().context("a file has a name")?))?;
    }
    Ok(())
}

/// The command line tool of Temporal, which is the development server too.
fn program() -> std::ffi::OsString {
    std::env::var_os("TEMPORAL_CLI").unwrap_or_else(|| "temporal".into())
}
