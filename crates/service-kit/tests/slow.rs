//! Clients that are slow or too much, over real sockets: each is cut, and nobody else is disturbed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::stream;
use service_kit::bounds::{Bounds, bounded};
use service_kit::connection::ConnectionBounds;
use service_kit::serve::{bind, serve_on};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long a client may be slow here; more than a client as it should be takes on a busy machine.
const QUIET: Duration = Duration::from_secs(2);
/// How long a body may take here.
const BODY: Duration = Duration::from_secs(2);
/// Far more than any of it takes; only a test that fails waits so long.
const LONG: Duration = Duration::from_secs(20);
/// Pause between two bytes of somebody who dribbles.
const DRIBBLE: Duration = Duration::from_millis(10);
/// A part of the answer that never ends.
const CHUNK_BYTES: usize = 64 * 1024;

struct Server {
    address: SocketAddr,
    /// Lets `/wait` answer.
    go: Arc<Notify>,
    /// Told when an answer of `/endless` is given up.
    cut: Arc<Notify>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// Tells when it is dropped.
struct Dropped(Arc<Notify>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// An answer without end.
fn endless(dropped: Dropped) -> Body {
    Body::from_stream(stream::repeat_with(move || {
        let _alive = &dropped;
        Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; CHUNK_BYTES]))
    }))
}

impl Server {
    async fn start() -> Self {
        Self::with_quiet(QUIET).await
    }

    async fn with_quiet(quiet: Duration) -> Self {
        let (go, cut, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()), CancellationToken::new());
        let (wait, told) = (go.clone(), cut.clone());
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/wait", get(move || async move { wait.notified().await }))
            .route("/endless", get(move || async move { endless(Dropped(told.clone())) }))
            .route("/body", post(|body: String| async move { body }));
        let bounds = Bounds { body_bytes: 1024, body_timeout: BODY, request_timeout: LONG };
        let router = bounded(router, bounds);
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "X").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connection = ConnectionBounds { quiet, ..ConnectionBounds::default() };
        let serving = tokio::spawn(serve_on(listener, move |_| router.clone(), connection, stop.clone()));
        Self { address, go, cut, stop, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection on which `bytes` were sent.
    async fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    /// A client as it should be, on a connection of its own.
    async fn assert_serves_others(&self) {
        let said = rest(&mut self.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await).await;
        assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("here"), "{said}");
    }
}

/// Everything that comes until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    // A reset is a close too.
    let _ = timeout(LONG, stream.read_to_end(&mut said)).await.expect("the server closes the connection");
    String::from_utf8_lossy(&said).into_owned()
}

/// One answer without a body's end: what came until its head was over.
async fn head(stream: &mut TcpStream) -> String {
    let mut said = Vec::new();
    while !said.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = timeout(LONG, stream.read_buf(&mut said)).await.expect("an answer").unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&said));
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Writes `byte` again and again, and reads meanwhile; what came until the server closed.
async fn dribble(stream: TcpStream, byte: u8) -> String {
    let (mut reader, mut writer) = stream.into_split();
    let writing = tokio::spawn(async move {
        while writer.write_all(&[byte]).await.is_ok() {
            tokio::time::sleep(DRIBBLE).await;
        }
    });
    let mut said = Vec::new();
    let _ = timeout(LONG, reader.read_to_end(&mut said)).await.expect("the server closes the connection");
    writing.abort();
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn too_many_headers_and_too_large_ones_are_431() {
    let server = Server::start().await;
    let few: String = (0..60).map(|n| format!("x-{n}: y\r\n")).collect();
    let said = head(&mut server.send(&format!("GET / HTTP/1.1\r\nhost: x\r\n{few}\r\n")).await).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let many: String = (0..65).map(|n| format!("x-{n}: y\r\n")).collect();
    let large = format!("x: {}\r\n", "y".repeat(17 * 1024));
    for headers in [many, large] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        let said = rest(&mut server.send(&request).await).await;
        assert!(said.starts_with("HTTP/1.1 431"), "{said}");
    }
    server.assert_serves_others().await;
}

#[tokio::test]
async fn who_says_nothing_is_cut() {
    let server = Server::start().await;
    let started = Instant::now();
    let (mut mute, mut after_one) = (server.connect().await, server.connect().await);
    after_one.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(head(&mut after_one).await.starts_with("HTTP/1.1 200"));
    let (mute, after_one) = tokio::join!(rest(&mut mute), rest(&mut after_one));
    assert!(started.elapsed() >= QUIET);
    assert_eq!((mute.as_str(), after_one.as_str()), ("", ""), "cut without a word");
    server.assert_serves_others().await;
}

#[tokio::test]
async fn a_dribbled_head_is_cut_however_long_it_would_be() {
    let server = Server::start().await;
    let started = Instant::now();
    let slow = server.send("GET / HTTP/1.1\r\nhost: ").await;
    let others = async {
        for _ in 0..20 {
            server.assert_serves_others().await;
        }
    };
    let (said, ()) = tokio::join!(dribble(slow, b'x'), others);
    assert!(started.elapsed() >= QUIET);
    assert!(!said.contains("200"), "{said}");
}

#[tokio::test]
async fn a_dribbled_body_is_408() {
    let server = Server::start().await;
    let started = Instant::now();
    let slow = server.send("POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n").await;
    let (said, ()) = tokio::join!(dribble(slow, b'x'), server.assert_serves_others());
    assert!(started.elapsed() >= BODY);
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("body_timeout"), "{said}");
    let quick = "POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nconnection: close\r\n\r\nquick";
    assert!(rest(&mut server.send(quick).await).await.ends_with("quick"));
}

#[tokio::test]
async fn who_does_not_read_the_answer_is_cut() {
    let server = Server::start().await;
    let started = Instant::now();
    let deaf = server.send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    timeout(LONG, server.cut.notified()).await.expect("the answer is given up");
    assert!(started.elapsed() >= QUIET);
    drop(deaf);
    // Who reads is given as much as it takes, for longer than anybody may be quiet.
    let mut reader = server.send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (started, mut chunk) = (Instant::now(), vec![0; CHUNK_BYTES]);
    while started.elapsed() < QUIET * 3 {
        assert!(reader.read(&mut chunk).await.unwrap() > 0);
    }
    server.assert_serves_others().await;
}

#[tokio::test]
async fn a_request_being_handled_is_not_quiet() {
    let server = Server::start().await;
    let mut waiting = server.send("GET /wait HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    // Somebody who came later is cut before it is answered.
    rest(&mut server.connect().await).await;
    server.go.notify_one();
    assert!(rest(&mut waiting).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn http_2_has_the_same_bounds() {
    let server = Server::start().await;
    let started = Instant::now();
    // The preface and empty settings.
    let mut stream = server.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut said = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut said)).await.expect("the server closes the connection");
    assert!(started.elapsed() >= QUIET);
    // The server's first frame is its settings: identifier and value, 6 is the largest list of headers.
    let length = usize::from(said[1]) << 8 | usize::from(said[2]);
    assert_eq!(said[3], 4, "{said:?}");
    let head_bytes = 16 * 1024_u32;
    let largest = [&[0, 6], head_bytes.to_be_bytes().as_slice()].concat();
    assert!(said[9..9 + length].chunks(6).any(|setting| setting == largest), "{said:?}");
}

#[tokio::test]
async fn a_stop_waits_for_what_is_handled_and_for_nobody_else() {
    // The stop ends the connections, not their quiet.
    let server = Server::with_quiet(LONG * 2).await;
    let mut waiting = server.send("GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut kept = server.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(head(&mut kept).await.starts_with("HTTP/1.1 200"));
    server.stop.cancel();
    assert_eq!(rest(&mut kept).await, "");
    assert!(!server.serving.is_finished());
    server.go.notify_one();
    assert!(rest(&mut waiting).await.starts_with("HTTP/1.1 200"));
    timeout(LONG, server.serving).await.expect("the server stops").unwrap();
}
