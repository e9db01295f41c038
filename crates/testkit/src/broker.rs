//! A message broker of a test's own: a real nats-server that confirms what is on the disk, killed and paused
//! with real signals.

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

use crate::port::Port;
use crate::wait::until;

/// What `./dev up` uses, too. A nats-server that is too old to sync what it confirms refuses it.
const CONFIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/nats/local.conf");
/// How long it may take to be there.
const WITHIN: Duration = Duration::from_secs(30);

/// A broker. Killed when dropped; what it keeps on disk outlives [`Broker::kill`].
#[derive(Debug)]
pub struct Broker {
    folder: PathBuf,
    child: Option<Child>,
    port: Port,
}

impl Broker {
    /// Starts a broker on a free port, with a folder under the test's name.
    ///
    /// # Errors
    /// There is no nats-server, or it does not start.
    pub async fn start(name: &str) -> anyhow::Result<Self> {
        let beside = std::env::current_exe()?;
        let beside = beside.ancestors().nth(2).context("the test binary lies nowhere")?;
        let folder = beside.join("system-tests").join(format!("{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        let mut broker = Self { folder, child: None, port: Port::free()? };
        broker.start_again().await?;
        Ok(broker)
    }

    /// Starts it again after it was killed, on the same port and with what it had.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("nats-server.log"))?;
        let program = std::env::var_os("TEST_NATS_SERVER").unwrap_or_else(|| "nats-server".into());
        let port = self.port.number();
        let mut child = Command::new(program)
            .arg("--config")
            .arg(CONFIG)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--store_dir"])
            .arg(self.folder.join("store"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("nats-server cannot be started; `./dev install` installs it")?;
        until("nats-server follows_switch", WITHIN, || {
            let ended = child.try_wait();
            async move {
                if let Ok(Some(status)) = ended {
                    bail!("it ended with {status}");
                }
                Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok().map(drop))
            }
        })
        .await?;
        self.child = Some(child);
        Ok(())
    }

    /// SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    /// When it was not running.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.take().context("the broker is not running")?.kill().await?;
        Ok(())
    }

    /// SIGSTOP: it keeps its connections and answers nothing.
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

    /// `nats://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port.number())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).and_then(|id| i32::try_from(id).ok());
        kill_process(id.and_then(Pid::from_raw).context("the broker is not running")?, signal)?;
        Ok(())
    }
}
