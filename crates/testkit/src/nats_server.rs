//! One message broker per test: a real nats-server, killed and paused by real signals.

use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::authority::{Authority, Certified};
use crate::reserved_port::ReservedPort;
use crate::wait::until;

/// Configuration of `./dev up`. A nats-server that is too old to sync every event refuses it.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats/local.conf");
/// Time limit for the server to listen.
const WITHIN: Duration = Duration::from_secs(30);

/// A nats-server. Killed when dropped; its store on disk survives [`NatsServer::kill`].
#[derive(Debug)]
pub struct NatsServer {
    folder: PathBuf,
    child: Option<Child>,
    port: ReservedPort,
    tls: Vec<OsString>,
}

impl NatsServer {
    /// What the log says of a connection that did not become an encrypted one.
    pub const REFUSED: &str = "TLS handshake error";

    /// Starts a server on a free port, with a folder under the test's name.
    ///
    /// # Errors
    /// If nats-server is not installed or does not listen in time.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let mut server = Self::new(name)?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts a server that takes encrypted connections only, with this certificate, from clients with one of `clients`.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn start_encrypted(
        name: &str,
        certified: &Certified,
        clients: &Authority,
    ) -> anyhow::Result<Self> {
        let mut server = Self::new(name)?;
        server.tls = vec!["--tls".into(), "--tlsverify".into()];
        for (option, text) in
            [("tlscert", &certified.pem), ("tlskey", &certified.key_pem), ("tlscacert", &clients.pem())]
        {
            let path = server.folder.join(format!("{option}.pem"));
            std::fs::write(&path, text)?;
            server.tls.extend([format!("--{option}").into(), path.into()]);
        }
        server.restart().await?;
        // The connection that waited for the port was no handshake either, so that a test may count those that follow.
        until("nats-server logs the end of the first connection", WITHIN, async || {
            Ok((server.count_in_log(Self::REFUSED)? > 0).then_some(()))
        })
        .await?;
        Ok(server)
    }

    /// A server that is not started.
    fn new(name: &str) -> anyhow::Result<Self> {
        let binary = std::env::current_exe()?;
        let binaries = binary.ancestors().nth(2).context("the test binary is not in a target folder")?;
        let folder = binaries.join("system-tests").join(format!("{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, child: None, port: ReservedPort::reserve()?, tls: Vec::new() })
    }

    /// Starts the server after it was killed, on the same port and with its store, and waits until it listens.
    ///
    /// # Errors
    /// As [`NatsServer::start`].
    pub async fn restart(&mut self) -> anyhow::Result<()> {
        self.spawn()?;
        let port = self.port.number();
        until("nats-server listens", WITHIN, || {
            let exited = self.child.as_mut().map(Child::try_wait);
            async move {
                if let Some(Ok(Some(status))) = exited {
                    bail!("nats-server exited with {status}");
                }
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok().map(drop))
            }
        })
        .await
    }

    /// Starts the server after it was killed, on the same port and with its store, without waiting.
    ///
    /// # Errors
    /// If nats-server is not installed.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("nats-server.log"))?;
        let program = std::env::var_os("TEST_NATS_SERVER").unwrap_or_else(|| "nats-server".into());
        let child = Command::new(program)
            .arg("--config")
            .arg(CONFIG)
            .args(["--addr", "127.0.0.1", "--port", &self.port.number().to_string(), "--store_dir"])
            .arg(self.folder.join("store"))
            .args(&self.tls)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("nats-server cannot be started; `./dev install` installs it")?;
        self.child = Some(child);
        Ok(())
    }

    /// Sends SIGKILL and waits until the process has exited.
    ///
    /// # Errors
    /// If the server is not running.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.take().context("nats-server is not running")?.kill().await?;
        Ok(())
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

    /// URL of the server, `nats://127.0.0.1:port`; `tls:` if it takes encrypted connections only.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_empty() { "nats" } else { "tls" };
        format!("{scheme}://127.0.0.1:{}", self.port.number())
    }

    /// How many lines of the server's log contain this text.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn count_in_log(&self, text: &str) -> std::io::Result<usize> {
        Ok(std::fs::read_to_string(self.folder.join("nats-server.log"))?.matches(text).count())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        kill_process(id.and_then(Pid::from_raw).context("nats-server is not running")?, signal)?;
        Ok(())
    }
}
