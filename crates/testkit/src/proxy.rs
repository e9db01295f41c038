//! A TCP proxy between a process and its server that injects faults: connections cut now or after a number of bytes,
//! silent for ever, one or both directions held or delayed, new connections refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes read at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// How long the server keeps a silent connection that its client has given up: until its own keepalive finds that nobody is there.
const SERVER_NOTICES_AFTER: Duration = Duration::from_secs(60);

/// Direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Bytes that the process sends to its server.
    ToServer,
    /// From the server to the process.
    ToClient,
}

/// Faults and byte count of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Flow {
    /// Whether bytes are held back.
    held: bool,
    /// Delay of each chunk.
    delay: Duration,
    /// Bytes that still pass, over all connections, before every connection is cut; `None` if no cut is planned.
    cut_after: Option<u64>,
    /// Bytes that have passed.
    passed: u64,
    /// Whether bytes were held back or delayed since the last [`FaultProxy::heal`].
    affected: bool,
}

/// State shared by all connections.
#[derive(Debug)]
struct Link {
    to_server: Mutex<Flow>,
    to_client: Mutex<Flow>,
    /// Changes with every flow, to wake waiting connections.
    changed: watch::Sender<()>,
    /// Number of cuts. A change ends the connections opened before.
    cuts: watch::Sender<u64>,
    /// Number of silences. A change silences the connections opened before.
    silences: watch::Sender<u64>,
    refusing: AtomicBool,
    /// `host:port` of the server; empty until it is known.
    target: Mutex<String>,
}

/// A running proxy. Dropping it cuts all connections.
#[derive(Debug)]
pub struct FaultProxy {
    /// Listen address, `127.0.0.1:port`.
    pub address: String,
    link: Arc<Link>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts a proxy to `target` (`host:port`) without faults. An empty target closes each connection until
    /// [`FaultProxy::set_target`] names one: for a server that is to know the address of its proxy when it starts.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start(target: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let link = Arc::new(Link {
            to_server: Mutex::default(),
            to_client: Mutex::default(),
            changed: watch::Sender::new(()),
            cuts: watch::Sender::new(0),
            silences: watch::Sender::new(0),
            refusing: AtomicBool::new(false),
            target: Mutex::new(target.to_owned()),
        });
        let shared = Arc::clone(&link);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Dropping the socket closes the connection.
                if !shared.refusing.load(Ordering::Relaxed) {
                    tokio::spawn(forward(Arc::clone(&shared), client));
                }
            }
        });
        Ok(Self { address, link, accepting })
    }

    /// Sets the server (`host:port`) of the connections that are opened from now on.
    pub fn set_target(&self, target: &str) {
        target.clone_into(&mut self.link.target());
    }

    /// Ends every fault: held bytes are delivered, no cut is planned, and connections are accepted.
    pub fn heal(&self) {
        self.refuse(false);
        for direction in [Direction::ToServer, Direction::ToClient] {
            self.link.change(direction, |flow| *flow = Flow { passed: flow.passed, ..Flow::default() });
        }
    }

    /// Cuts all connections now; new ones are accepted.
    pub fn cut(&self) {
        self.link.cut();
    }

    /// Silences all connections for ever, as a network does that has forgotten them, or a server whose machine is gone: neither side
    /// hears of it, and no byte passes any more. New ones are accepted.
    pub fn silence(&self) {
        self.link.silences.send_modify(|silences| *silences += 1);
    }

    /// Closes new connections at once, or accepts them again. Existing connections stay open.
    pub fn refuse(&self, refusing: bool) {
        self.link.refusing.store(refusing, Ordering::Relaxed);
    }

    /// Cuts all connections after `bytes` more bytes in one direction, which are still delivered.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.link.change(direction, |flow| flow.cut_after = Some(bytes));
    }

    /// Whether a cut is planned in this direction that has not happened yet.
    #[must_use]
    pub fn is_cut_due(&self, direction: Direction) -> bool {
        self.link.flow(direction).cut_after.is_some()
    }

    /// Whether bytes of this direction were held back or delayed since the last [`FaultProxy::heal`].
    #[must_use]
    pub fn is_affected(&self, direction: Direction) -> bool {
        self.link.flow(direction).affected
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.link.cuts.receiver_count()
    }

    /// Holds the bytes of one direction; the connections stay open and the bytes are kept.
    pub fn hold(&self, direction: Direction) {
        self.link.change(direction, |flow| flow.held = true);
    }

    /// Delivers the held bytes.
    pub fn resume(&self, direction: Direction) {
        self.link.change(direction, |flow| flow.held = false);
    }

    /// Delays each chunk of one direction; zero ends the delay.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.link.change(direction, |flow| flow.delay = by);
    }

    /// Bytes that have passed in one direction.
    #[must_use]
    pub fn passed(&self, direction: Direction) -> u64 {
        self.link.flow(direction).passed
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.link.cut();
    }
}

impl Link {
    fn flow(&self, direction: Direction) -> MutexGuard<'_, Flow> {
        let flow = match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        };
        flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn target(&self) -> MutexGuard<'_, String> {
        self.target.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut Flow)) {
        change(&mut self.flow(direction));
        self.changed.send_replace(());
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The delay of a chunk that comes now.
    fn delay(&self, direction: Direction) -> Duration {
        let mut flow = self.flow(direction);
        flow.affected |= !flow.delay.is_zero();
        flow.delay
    }

    /// Whether a chunk that comes now is held back.
    fn is_held(&self, direction: Direction) -> bool {
        let mut flow = self.flow(direction);
        flow.affected |= flow.held;
        flow.held
    }

    /// Counts up to `offered` bytes as passed: how many may pass, and whether the connections are cut after them.
    fn admit(&self, direction: Direction, offered: usize) -> (usize, bool) {
        let mut flow = self.flow(direction);
        let left = flow.cut_after.map_or(offered, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let passing = offered.min(left);
        flow.passed += passing as u64;
        let is_cut = flow.cut_after.is_some() && passing == left;
        flow.cut_after = flow.cut_after.filter(|_| !is_cut).map(|left| left - passing as u64);
        (passing, is_cut)
    }
}

/// Forwards one connection until both sides close it, one breaks, or it is cut.
async fn forward(link: Arc<Link>, client: TcpStream) {
    let (mut cuts, mut silences) = (link.cuts.subscribe(), link.silences.subscribe());
    let target = link.target().clone();
    let Ok(server) = TcpStream::connect(&target).await else { return };
    // Without nodelay, Nagle's algorithm would delay small messages.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let is_silent = {
        let to_server = copy(&link, Direction::ToServer, &mut from_client, &mut to_server);
        let to_client = copy(&link, Direction::ToClient, &mut from_server, &mut to_client);
        // A half-closed connection still delivers the other direction; an error ends both.
        tokio::select! {
            _ = async { tokio::try_join!(to_server, to_client) } => false,
            _ = cuts.changed() => false,
            _ = silences.changed() => true,
        }
    };
    if is_silent {
        let given_up = async {
            // Takes what the client sends, which it may take for delivered, until it closes the connection.
            let _ = tokio::io::copy(&mut from_client, &mut tokio::io::sink()).await;
            drop(to_client);
            tokio::time::sleep(SERVER_NOTICES_AFTER).await;
        };
        tokio::select! {
            () = given_up => {}
            _ = cuts.changed() => {}
        }
    }
}

/// Copies one direction until its sender closes it.
async fn copy(
    link: &Link,
    direction: Direction,
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
) -> std::io::Result<()> {
    let mut changed = link.changed.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        let delay = link.delay(direction);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        while link.is_held(direction) {
            changed.changed().await.map_err(std::io::Error::other)?;
        }
        let (passing, is_cut) = link.admit(direction, read);
        to.write_all(&chunk[..passing]).await?;
        if is_cut {
            link.cut();
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(20);

    /// Starts a server that echoes every byte; returns its address.
    async fn echo() -> anyhow::Result<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut from, mut to) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await });
            }
        });
        Ok(address)
    }

    /// Reads until the connection is closed.
    async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset ends the connection, too.
        let _ = tokio::time::timeout(WITHIN, stream.read_to_end(&mut bytes)).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn a_fault_proxy_cut_after_n_bytes_affects_existing_connections_only() -> anyhow::Result<()> {
        let proxy = FaultProxy::start(&echo().await?).await?;
        proxy.cut_after(Direction::ToClient, 3);
        let mut stream = TcpStream::connect(&proxy.address).await?;
        stream.write_all(b"abcdef").await?;
        assert_eq!(read_to_end(&mut stream).await, b"abc");
        assert_eq!(proxy.passed(Direction::ToClient), 3);

        let mut next = TcpStream::connect(&proxy.address).await?;
        next.write_all(b"abcdef").await?;
        next.shutdown().await?;
        assert_eq!(read_to_end(&mut next).await, b"abcdef");
        Ok(())
    }

    #[tokio::test]
    async fn a_silent_connection_stays_open_and_says_nothing_while_a_new_one_works() -> anyhow::Result<()> {
        let proxy = FaultProxy::start(&echo().await?).await?;
        let mut silent = TcpStream::connect(&proxy.address).await?;
        let mut bytes = [0; 3];
        silent.write_all(b"abc").await?;
        tokio::time::timeout(WITHIN, silent.read_exact(&mut bytes)).await??;
        proxy.silence();
        proxy.heal();
        silent.write_all(b"def").await?;
        let mut next = TcpStream::connect(&proxy.address).await?;
        next.write_all(b"ghi").await?;
        tokio::time::timeout(WITHIN, next.read_exact(&mut bytes)).await??;
        assert_eq!(&bytes, b"ghi");
        let early = tokio::time::timeout(Duration::from_millis(100), silent.read_exact(&mut bytes)).await;
        assert!(early.is_err(), "{early:?}");
        proxy.cut();
        assert_eq!(read_to_end(&mut silent).await, b"");
        Ok(())
    }

    #[tokio::test]
    async fn bytes_held_by_the_fault_proxy_pass_on_resume_and_are_lost_on_a_cut() -> anyhow::Result<()> {
        let proxy = FaultProxy::start(&echo().await?).await?;
        proxy.hold(Direction::ToClient);
        let mut kept = TcpStream::connect(&proxy.address).await?;
        kept.write_all(b"kept").await?;
        let mut byte = [0; 4];
        let early = tokio::time::timeout(Duration::from_millis(100), kept.read_exact(&mut byte)).await;
        assert!(early.is_err(), "bytes were delivered while held");
        proxy.resume(Direction::ToClient);
        tokio::time::timeout(WITHIN, kept.read_exact(&mut byte)).await??;
        assert_eq!(&byte, b"kept");

        proxy.hold(Direction::ToClient);
        kept.write_all(b"lost").await?;
        proxy.cut();
        assert_eq!(read_to_end(&mut kept).await, b"");
        proxy.refuse(true);
        let mut refused = TcpStream::connect(&proxy.address).await?;
        assert_eq!(read_to_end(&mut refused).await, b"");
        Ok(())
    }
}
