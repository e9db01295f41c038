//! A TCP proxy between one of our processes and what it talks to, which breaks the link on request: cut now or after so
//! many bytes, held back one way or both, slow, or closed to new connections.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Bytes carried at once.
const CHUNK_BYTES: usize = 16 * 1024;

/// One way through the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From our process to what it talks to.
    There,
    /// From there to our process.
    Back,
}

/// What happens to the bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    /// They stand still.
    held: bool,
    /// Each piece comes so much later.
    delay: Duration,
    /// So many more pass, of all connections together; then every connection is cut.
    cut_after: Option<u64>,
    /// How many have passed.
    passed: u64,
}

/// What happens to the link.
#[derive(Debug)]
struct Link {
    there: Mutex<Way>,
    back: Mutex<Way>,
    /// Changes whenever a way does, so that who waits looks again.
    changed: watch::Sender<()>,
    /// Changes with every cut; connections of an earlier number are over.
    cuts: watch::Sender<u64>,
    refusing: AtomicBool,
}

/// A running proxy. Every connection through it is cut when it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    /// Where it follows_switch, `127.0.0.1:port`.
    pub address: String,
    link: Arc<Link>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// A proxy to `target`, `host:port`, that breaks nothing yet.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(target: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let link = Arc::new(Link {
            there: Mutex::default(),
            back: Mutex::default(),
            changed: watch::Sender::new(()),
            cuts: watch::Sender::new(0),
            refusing: AtomicBool::new(false),
        });
        let (carried, target) = (Arc::clone(&link), target.to_owned());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Dropped at once, who connects sees the connection close.
                if !carried.refusing.load(Ordering::Relaxed) {
                    tokio::spawn(connection(Arc::clone(&carried), client, target.clone()));
                }
            }
        });
        Ok(Self { address, link, accepting })
    }

    /// Cuts every connection now; new ones pass.
    pub fn cut(&self) {
        self.link.cut();
    }

    /// Closes new connections at once, or lets them pass again. Those that are there stay.
    pub fn refuse(&self, refusing: bool) {
        self.link.refusing.store(refusing, Ordering::Relaxed);
    }

    /// Cuts every connection when so many more bytes have passed that way. The last of them arrive.
    pub fn cut_after(&self, direction: Direction, bytes: u64) {
        self.link.change(direction, |way| way.cut_after = Some(bytes));
    }

    /// Lets nothing more pass that way; the connections stay open and what is sent is kept.
    pub fn hold(&self, direction: Direction) {
        self.link.change(direction, |way| way.held = true);
    }

    /// Lets what was held pass.
    pub fn let_go(&self, direction: Direction) {
        self.link.change(direction, |way| way.held = false);
    }

    /// Lets every piece come so much later; zero ends it.
    pub fn delay(&self, direction: Direction, by: Duration) {
        self.link.change(direction, |way| way.delay = by);
    }

    /// How many bytes have passed that way, to sweep a cut over.
    #[must_use]
    pub fn passed(&self, direction: Direction) -> u64 {
        self.link.way(direction).passed
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.link.cut();
    }
}

impl Link {
    fn way(&self, direction: Direction) -> MutexGuard<'_, Way> {
        let way = match direction {
            Direction::There => &self.there,
            Direction::Back => &self.back,
        };
        way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, direction: Direction, change: impl FnOnce(&mut Way)) {
        change(&mut self.way(direction));
        self.changed.send_replace(());
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many of these bytes may pass, and whether the link is cut behind them.
    fn let_pass(&self, direction: Direction, wanted: usize) -> (usize, bool) {
        let mut way = self.way(direction);
        let left = way.cut_after.map_or(wanted, |left| usize::try_from(left).unwrap_or(usize::MAX));
        let passing = wanted.min(left);
        way.passed += passing as u64;
        let is_cut = way.cut_after.is_some() && passing == left;
        way.cut_after = way.cut_after.filter(|_| !is_cut).map(|left| left - passing as u64);
        (passing, is_cut)
    }
}

/// Carries one connection until either side closes it, or it is cut.
async fn connection(link: Arc<Link>, client: TcpStream, target: String) {
    let mut cuts = link.cuts.subscribe();
    let Ok(server) = TcpStream::connect(&target).await else { return };
    // Small messages would wait for each other otherwise, and the proxy would be a fault by itself.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let there = carry(&link, Direction::There, from_client, to_server);
    let back = carry(&link, Direction::Back, from_server, to_client);
    // A side that has nothing more to say may still listen; a connection that broke is over for both.
    tokio::select! {
        _ = async { tokio::try_join!(there, back) } => {}
        _ = cuts.changed() => {}
    }
}

/// Carries one way until its sender has nothing more to say.
async fn carry(
    link: &Link,
    direction: Direction,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> std::io::Result<()> {
    let mut changed = link.changed.subscribe();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = from.read(&mut chunk).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        let delay = link.way(direction).delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        while link.way(direction).held {
            // The link outlives what it carries.
            changed.changed().await.map_err(std::io::Error::other)?;
        }
        let (passing, is_cut) = link.let_pass(direction, read);
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

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Sends back what it gets.
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

    /// What comes back until the connection is closed.
    async fn rest(stream: &mut TcpStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        // An end by reset is an end too.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn cuts_after_so_many_bytes_and_lets_the_next_connection_pass() -> anyhow::Result<()> {
        let proxy = FaultProxy::start(&echo().await?).await?;
        proxy.cut_after(Direction::Back, 3);
        let mut stream = TcpStream::connect(&proxy.address).await?;
        stream.write_all(b"abcdef").await?;
        assert_eq!(rest(&mut stream).await, b"abc");
        assert_eq!(proxy.passed(Direction::Back), 3);

        let mut next = TcpStream::connect(&proxy.address).await?;
        next.write_all(b"abcdef").await?;
        next.shutdown().await?;
        assert_eq!(rest(&mut next).await, b"abcdef");
        Ok(())
    }

    #[tokio::test]
    async fn what_is_held_one_way_passes_later_and_a_cut_loses_it() -> anyhow::Result<()> {
        let proxy = FaultProxy::start(&echo().await?).await?;
        proxy.hold(Direction::Back);
        let mut kept = TcpStream::connect(&proxy.address).await?;
        kept.write_all(b"kept").await?;
        let mut byte = [0; 4];
        let early = tokio::time::timeout(Duration::from_millis(100), kept.read_exact(&mut byte)).await;
        assert!(early.is_err(), "held");
        proxy.let_go(Direction::Back);
        tokio::time::timeout(PATIENCE, kept.read_exact(&mut byte)).await??;
        assert_eq!(&byte, b"kept");

        proxy.hold(Direction::Back);
        kept.write_all(b"lost").await?;
        proxy.cut();
        assert_eq!(rest(&mut kept).await, b"");
        proxy.refuse(true);
        let mut refused = TcpStream::connect(&proxy.address).await?;
        assert_eq!(rest(&mut refused).await, b"");
        Ok(())
    }
}
