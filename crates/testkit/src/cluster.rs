//! One PostgreSQL server per test, for faults that would affect every other test on the shared server.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};
use uuid::Uuid;

use crate::authority::Certified;
use crate::preload::Preload;
use crate::reserved_port::ReservedPort;
use crate::wait::until;

/// Time limit for the server to start or to stop.
const WITHIN: Duration = Duration::from_secs(60);
/// Time for an immediate shutdown. PostgreSQL kills its own processes after five seconds.
const STOPS_WITHIN: Duration = Duration::from_secs(20);
/// Name of the file with a server's private key.
const KEY: &str = "server.key";

/// A running server. Dropping it stops the server and removes its folder.
#[derive(Debug)]
pub struct Cluster {
    /// URL of the maintenance database.
    pub url: String,
    /// Folder with the data, the log and the preloaded library.
    pub folder: PathBuf,
    /// Listen address, `127.0.0.1:port`.
    pub address: String,
    server: Child,
    /// Starts the server.
    start: Command,
    /// Folder of PostgreSQL's programs.
    programs: PathBuf,
    user: ServerUser,
    /// Whether the folder ends with the value.
    is_discarded: bool,
    _port: ReservedPort,
}

impl Cluster {
    /// Starts a server with a fault, in a folder under the test's name.
    ///
    /// # Errors
    /// If PostgreSQL's programs are missing or the server does not start; the error has its log.
    pub async fn start(name: &str, preload: Preload) -> anyhow::Result<Self> {
        Self::start_with(name, Some(preload), None, &[]).await
    }

    /// Starts a server without a fault, in a folder under the test's name; a test stops it and starts it again.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_sound(name: &str) -> anyhow::Result<Self> {
        Self::start_with(name, None, None, &[]).await
    }

    /// Starts a server that counts the statements of its databases, in a folder under the test's name.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_counting(name: &str) -> anyhow::Result<Self> {
        let settings = ["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=top"];
        Self::start_with(name, None, None, &settings).await
    }

    /// Starts a server with this certificate, in a folder under the test's name. It takes connections in clear too, so that a test sees one.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_encrypted(name: &str, certified: &Certified) -> anyhow::Result<Self> {
        Self::start_with(name, None, Some(certified), &["ssl=on"]).await
    }

    /// Gives an encrypted server another certificate for the connections that follow.
    ///
    /// # Errors
    /// If the files cannot be written, or the server does not answer.
    pub async fn set_certificate(&self, certified: &Certified) -> anyhow::Result<()> {
        write_certificate(&self.folder.join("data"), certified)?;
        let mut connection = PgConnectOptions::from_str(&self.url)?.connect().await?;
        let loaded: String =
            sqlx::query_scalar("SELECT pg_conf_load_time()::text").fetch_one(&mut connection).await?;
        sqlx::query("SELECT pg_reload_conf()").execute(&mut connection).await?;
        until("PostgreSQL has read its files again", WITHIN, async || {
            let mut connection = PgConnectOptions::from_str(&self.url)?.connect().await?;
            let now: String =
                sqlx::query_scalar("SELECT pg_conf_load_time()::text").fetch_one(&mut connection).await?;
            Ok((now != loaded).then_some(()))
        })
        .await
    }

    async fn start_with(
        name: &str,
        preload: Option<Preload>,
        certified: Option<&Certified>,
        settings: &[&str],
    ) -> anyhow::Result<Self> {
        let programs = std::env::var_os("TEST_PG_BIN").map(PathBuf::from).context(
            "TEST_PG_BIN, the folder of PostgreSQL's programs, is not set: run the tests by `./dev test`",
        )?;
        let user = ServerUser::find()?;
        // In the temporary folder: the user that runs the server may not enter the target folder.
        let folder =
            std::env::temp_dir().join(format!("instant-payments-{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&folder)?;
        let environment =
            preload.map(|preload| preload.environment(&folder)).transpose()?.unwrap_or_default();
        user.take_ownership(&folder)?;
        let data = folder.join("data");

        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["-U", "payments", "--auth=trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"]);
        let output = initdb.arg(&data).output().context("initdb cannot be started")?;
        ensure!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));

        if let Some(certified) = certified {
            write_certificate(&data, certified)?;
            user.take_ownership(&data.join(KEY))?;
        }
        let port = ReservedPort::reserve()?;
        let log = std::fs::File::create(folder.join("server.log"))?;
        let mut server = user.command(&programs.join("postgres"));
        server.envs(environment).arg("-D").arg(&data).args(["-p", &port.number().to_string()]);
        // fsync is off because the kernel keeps the pages of a killed server. A commit is still written before it is answered.
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "timezone=UTC",
            "fsync=off",
            "max_connections=200",
        ]
        .iter()
        .chain(settings)
        {
            server.args(["-c", setting]);
        }
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mode = if certified.is_some() { "?sslmode=require" } else { "" };
        let address = format!("127.0.0.1:{}", port.number());
        let url = format!("postgres://payments@{address}/postgres{mode}");
        let cluster = Self {
            url,
            folder,
            address,
            server: server.spawn()?,
            start: server,
            programs,
            user,
            is_discarded: false,
            _port: port,
        };
        cluster.wait_ready().await?;
        Ok(cluster)
    }

    /// Stops the server at once, in the middle of its transactions: PostgreSQL's immediate shutdown. The next start recovers from
    /// the write-ahead log. A server that does not end is killed with its processes, as an operator would; they are returned.
    ///
    /// # Errors
    /// If it does not end even then; the error has its processes and its log.
    pub async fn stop_immediately(&mut self) -> anyhow::Result<Vec<(String, String)>> {
        self.quit();
        if self.wait_ended(STOPS_WITHIN).await.is_ok() {
            return Ok(Vec::new());
        }
        let stuck = processes_of(self.server.id());
        let postmaster = i32::try_from(self.server.id()).ok();
        for pid in stuck.iter().filter_map(|(pid, _)| pid.parse().ok()).chain(postmaster) {
            self.kill_session(pid);
        }
        self.wait_ended(WITHIN).await.with_context(|| {
            format!(
                "{stuck:?}\n{}",
                std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default()
            )
        })?;
        Ok(stuck)
    }

    async fn wait_ended(&mut self, within: Duration) -> anyhow::Result<()> {
        until("PostgreSQL has stopped", within, || {
            let ended = self.server.try_wait();
            async move { Ok(ended?.map(|_| ())) }
        })
        .await
    }

    /// Takes a backup of the running server, in place of an earlier one.
    ///
    /// # Errors
    /// If `pg_basebackup` fails; the error has its words.
    pub async fn back_up(&self) -> anyhow::Result<()> {
        let folder = self.backup();
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let mut backup = self.user.command(&self.programs.join("pg_basebackup"));
        backup.args(["--checkpoint=fast", "--wal-method=stream", "--no-sync"]);
        backup.arg("-d").arg(&self.url).arg("-D").arg(&folder).stdin(Stdio::null());
        let output = tokio::process::Command::from(backup).kill_on_drop(true).output();
        let output = tokio::time::timeout(WITHIN, output).await.context("pg_basebackup does not end")??;
        ensure!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Replaces the server by one with the data of the backup, at the same address: what was committed since then is lost.
    ///
    /// # Errors
    /// If there is no backup, or the server does not stop or start.
    pub async fn restore(&mut self) -> anyhow::Result<()> {
        let backup = self.backup();
        ensure!(backup.exists(), "there is no backup of the cluster");
        self.stop_immediately().await?;
        let data = self.folder.join("data");
        std::fs::remove_dir_all(&data)?;
        std::fs::rename(backup, data)?;
        self.spawn()?;
        self.wait_ready().await
    }

    fn backup(&self) -> PathBuf {
        self.folder.join("backup")
    }

    /// Says that the folder ends with the value: a test does so when it has passed. The folder of a test that fails stays, with the data
    /// and the log.
    pub fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// Starts a stopped server again, without waiting until it answers.
    ///
    /// # Errors
    /// If the program cannot be executed.
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        self.server = self.start.spawn()?;
        Ok(())
    }

    /// SIGKILL for one session if it still runs, by the process id that PostgreSQL has for it: the server ends every session and
    /// recovers.
    pub fn kill_session(&self, pid: i32) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// SIGSTOP for the server and each of its processes: the connections stay open, and nothing answers. Linux only.
    ///
    /// # Errors
    /// If a process cannot be signalled.
    pub fn pause(&self) -> anyhow::Result<()> {
        let server = self.server.id();
        // The server first: it then starts no other process.
        signal(server, Signal::STOP)?;
        processes_of(server).into_iter().try_for_each(|(pid, _)| signal(pid.parse()?, Signal::STOP))
    }

    /// SIGCONT: the server and its processes go on as if no time had passed.
    ///
    /// # Errors
    /// As [`Cluster::pause`].
    pub fn resume(&self) -> anyhow::Result<()> {
        let server = self.server.id();
        processes_of(server).into_iter().try_for_each(|(pid, _)| signal(pid.parse()?, Signal::CONT))?;
        signal(server, Signal::CONT)
    }

    /// SIGQUIT is PostgreSQL's immediate shutdown. SIGKILL would leave its shared memory behind.
    fn quit(&self) {
        let _ = signal(self.server.id(), Signal::QUIT);
    }

    /// Makes the disk full, or frees it; for a server started with [`Preload::FullDisk`].
    ///
    /// # Errors
    /// If the flag file cannot be written or removed.
    pub fn set_disk_full(&self, full: bool) -> anyhow::Result<()> {
        let flag = self.folder.join(Preload::FULL_DISK);
        if full {
            std::fs::write(flag, "")?
        } else {
            std::fs::remove_file(flag)?
        }
        Ok(())
    }

    /// Waits until the server answers.
    ///
    /// # Errors
    /// If it does not in time; the error has its log.
    pub async fn wait_ready(&self) -> anyhow::Result<()> {
        let options = PgConnectOptions::from_str(&self.url)?;
        until("the test's own PostgreSQL answers", WITHIN, || async {
            let Ok(connection) = options.connect().await else { return Ok(None) };
            Ok(connection.close().await.ok())
        })
        .await
        .with_context(|| std::fs::read_to_string(self.folder.join("server.log")).unwrap_or_default())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // One that a test has stopped would not end.
        let _ = self.resume();
        self.quit();
        let started = Instant::now();
        while matches!(self.server.try_wait(), Ok(None)) && started.elapsed() < WITHIN {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.is_discarded {
            let _ = std::fs::remove_dir_all(&self.folder);
        } else {
            eprintln!("the test's own PostgreSQL is kept in {}", self.folder.display());
        }
    }
}

/// Signals a process that has not ended; one that has is left alone.
fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    match kill_process(pid, signal) {
        Err(Errno::SRCH) => Ok(()),
        signalled => Ok(signalled?),
    }
}

/// The processes of a server, by id, with the name and state that the operating system shows; Linux only.
fn processes_of(postmaster: u32) -> Vec<(String, String)> {
    let parent = format!(" {postmaster} ");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // `pid (name) state ppid ...`
            let (name, rest) = stat.split_once(") ")?;
            let (state, rest) = rest.split_once(' ')?;
            let is_child = format!(" {rest}").starts_with(&parent);
            is_child.then(|| (entry.file_name().to_string_lossy().into_owned(), format!("{name}) {state}")))
        })
        .collect()
}

/// Writes a server's certificate and key, where PostgreSQL expects them in its data folder.
fn write_certificate(data: &Path, certified: &Certified) -> std::io::Result<()> {
    std::fs::write(data.join("server.crt"), &certified.pem)?;
    std::fs::write(data.join(KEY), &certified.key_pem)?;
    std::fs::set_permissions(data.join(KEY), Permissions::from_mode(0o600))
}

/// The user that runs the server. PostgreSQL refuses to run as root, so root starts it as another user.
#[derive(Clone, Copy, Debug)]
enum ServerUser {
    Current,
    Other { uid: u32, gid: u32 },
}

impl ServerUser {
    fn find() -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self::Current);
        }
        let users = std::fs::read_to_string("/etc/passwd")?;
        for name in ["postgres", "nobody"] {
            let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
            if let Some([_, _, uid, gid, ..]) = fields.into_iter().find(|line| line[0] == name).as_deref() {
                return Ok(Self::Other { uid: uid.parse()?, gid: gid.parse()? });
            }
        }
        bail!("root cannot run PostgreSQL, and there is no user `postgres` or `nobody`: create one")
    }

    fn take_ownership(self, folder: &Path) -> anyhow::Result<()> {
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
