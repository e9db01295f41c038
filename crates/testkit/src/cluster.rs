//! A PostgreSQL server of a test's own, for faults that would hit every other test at the common one.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use uuid::Uuid;

use crate::port::Port;
use crate::preload::Preload;
use crate::wait::until;

/// How long the server may take to be there or to go.
const WITHIN: Duration = Duration::from_secs(60);

/// A running server. It and its folder go when it is dropped.
#[derive(Debug)]
pub struct Cluster {
    /// URL of its maintenance database.
    pub url: String,
    /// Where it keeps everything.
    pub folder: PathBuf,
    server: Child,
    _port: Port,
}

impl Cluster {
    /// Starts a server under a test's name, with the fault it is to suffer.
    ///
    /// # Errors
    /// What is missing or what the server said.
    pub async fn start(name: &str, preload: Preload) -> anyhow::Result<Self> {
        let programs = std::env::var_os("TEST_PG_BIN").map(PathBuf::from).context(
            "TEST_PG_BIN, the folder of PostgreSQL's programs, is not set: run the tests by `./dev test`",
        )?;
        let user = ServerUser::find()?;
        // Not below our own folders, which another user may not enter.
        let folder =
            std::env::temp_dir().join(format!("instant-payments-{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&folder)?;
        let environment = preload.environment(&folder)?;
        user.give(&folder)?;
        let data = folder.join("data");

        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["-U", "payments", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]);
        let made = initdb.arg(&data).output().context("initdb cannot be started")?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));

        let port = Port::free()?;
        let log = std::fs::File::create(folder.join("server.log"))?;
        let mut server = user.command(&programs.join("postgres"));
        server.envs(environment).arg("-D").arg(&data).args(["-p", &port.number().to_string()]);
        // No flushing: the kernel keeps what a server wrote that dies. But a commit is written before it is answered.
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "timezone=UTC",
            "fsync=off",
            "max_connections=200",
        ] {
            server.args(["-c", setting]);
        }
        let server = server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let url = format!("postgres://payments@127.0.0.1:{}/postgres", port.number());
        let cluster = Self { url, folder, server, _port: port };
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// Fills its disk, or frees it; for a server started with [`Preload::FullDisk`].
    ///
    /// # Errors
    /// What the file system said.
    pub fn fill_disk(&self, full: bool) -> anyhow::Result<()> {
        let flag = self.folder.join(Preload::FULL_DISK);
        if full {
            std::fs::write(flag, "")?
        } else {
            std::fs::remove_file(flag)?
        }
        Ok(())
    }

    async fn wait_ready(&self) -> anyhow::Result<()> {
        let options = PgConnectOptions::from_str(&self.url)?;
        until("the private PostgreSQL answers", WITHIN, || async {
            let Ok(connection) = options.connect().await else { return Ok(None) };
            Ok(connection.close().await.ok())
        })
        .await
        .with_context(|| std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Immediate: nothing in it is wanted any more. SIGKILL would leave its shared memory behind.
        if let Some(pid) = i32::try_from(self.server.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let begun = Instant::now();
        while matches!(self.server.try_wait(), Ok(None)) && begun.elapsed() < WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Who runs the server: it refuses to run as root, so root hands it to somebody else.
#[derive(Clone, Copy, Debug)]
enum ServerUser {
    Myself,
    Other { uid: u32, gid: u32 },
}

impl ServerUser {
    fn find() -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self::Myself);
        }
        let users = std::fs::read_to_string("/etc/passwd")?;
        for wanted in ["postgres", "nobody"] {
            let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
            if let Some([_, _, uid, gid, ..]) = fields.into_iter().find(|line| line[0] == wanted).as_deref() {
                return Ok(Self::Other { uid: uid.parse()?, gid: gid.parse()? });
            }
        }
        bail!("root cannot run PostgreSQL, and there is neither a user postgres nor nobody")
    }

    fn give(self, folder: &Path) -> anyhow::Result<()> {
        if let Self::Other { uid, gid } = self {
            std::os::unix::fs::chown(folder, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn command(self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LC_ALL", "C").current_dir("/");
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        command
    }
}
