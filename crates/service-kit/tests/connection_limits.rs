//! Slow clients and oversized requests over real sockets: each such connection is closed, and other clients are served.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use futures::stream;
use service_kit::bounds::{RequestBounds, bounded};
use service_kit::connection::ConnectionBounds;
use service_kit::serve::{bind, serve_on};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Idle limit of the test server; longer than a well-behaved client needs on a busy machine.
const IDLE: Duration = Duration::from_secs(2);
/// Time limit of a body at the test server.
const BODY: Duration = Duration::from_secs(2);
/// Longer than any step takes; only a failing test waits so long.
const LONG: Duration = Duration::from_secs(20);
/// Pause between two bytes of a slow writer.
const BYTE_PAUSE: Duration = Duration::from_millis(10);
/// Size of one chunk of the endless response.
const CHUNK_BYTES: usize = 64 * 1024;

struct Server {
    address: SocketAddr,
    /// Lets `/wait` respond.
    proceed: Arc<Notify>,
    /// Signalled when a response of `/endless` is dropped.
    aborted: Arc<Notify>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// Signals when it is dropped.
struct DropSignal(Arc<Notify>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A response without end.
fn endless(signal: DropSignal) -> Body {
    Body::from_stream(stream::repeat_with(move || {
        let _alive = &signal;
        Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; CHUNK_BYTES]))
    }))
}

impl Server {
    async fn start() -> Self {
        Self::with_idle_limit(IDLE).await
    }

    async fn with_idle_limit(idle: Duration) -> Self {
        Self::with_bounds(ConnectionBounds { idle, ..ConnectionBounds::default() }).await
    }

    async fn with_bounds(connection: ConnectionBounds) -> Self {
        let (proceed, aborted, stop) =
            (Arc::new(Notify::new()), Arc::new(Notify::new()), CancellationToken::new());
        let (wait, dropped) = (proceed.clone(), aborted.clone());
        let router = Router::new()
            .route("/", get(|| async { "here" }))
            .route("/wait", get(move || async move { wait.notified().await }))
            .route("/endless", get(move || async move { endless(DropSignal(dropped.clone())) }))
            .route("/body", post(|body: String| async move { body }));
        let bounds = RequestBounds { body_bytes: 1024, body_timeout: BODY, request_timeout: LONG };
        let router = bounded(router, bounds);
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0)), "X").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve_on(listener, move |_| router.clone(), connection, stop.clone()));
        Self { address, proceed, aborted, stop, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Opens a connection and sends `bytes`.
    async fn send(&self, bytes: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream
    }

    /// Asserts that a well-behaved client on its own connection is served.
    async fn assert_serves_others(&self) {
        let response =
            rest(&mut self.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await).await;
        assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("here"), "{response}");
    }
}

/// Everything received until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    // A reset is a close too.
    let _ = timeout(LONG, stream.read_to_end(&mut received)).await.expect("the server closes the connection");
    String::from_utf8_lossy(&received).into_owned()
}

/// Everything received until the end of the response head.
async fn head(stream: &mut TcpStream) -> String {
    let mut received = Vec::new();
    while !received.windows(4).any(|four| four == b"\r\n\r\n") {
        let read = timeout(LONG, stream.read_buf(&mut received)).await.expect("the server responds").unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&received));
    }
    String::from_utf8_lossy(&received).into_owned()
}

/// Writes `byte` repeatedly with pauses while reading; returns everything received until the server closed.
async fn write_slowly(stream: TcpStream, byte: u8) -> String {
    let (mut reader, mut writer) = stream.into_split();
    let writing = tokio::spawn(async move {
        while writer.write_all(&[byte]).await.is_ok() {
            tokio::time::sleep(BYTE_PAUSE).await;
        }
    });
    let mut received = Vec::new();
    let _ = timeout(LONG, reader.read_to_end(&mut received)).await.expect("the server closes the connection");
    writing.abort();
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn too_many_or_too_large_request_headers_are_answered_431() {
    let server = Server::start().await;
    let few: String = (0..60).map(|n| format!("x-{n}: y\r\n")).collect();
    let response = head(&mut server.send(&format!("GET / HTTP/1.1\r\nhost: x\r\n{few}\r\n")).await).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    let many: String = (0..65).map(|n| format!("x-{n}: y\r\n")).collect();
    let large = format!("x: {}\r\n", "y".repeat(17 * 1024));
    for headers in [many, large] {
        let request = format!("GET / HTTP/1.1\r\nhost: x\r\n{headers}\r\n");
        let response = rest(&mut server.send(&request).await).await;
        assert!(response.starts_with("HTTP/1.1 431"), "{response}");
    }
    server.assert_serves_others().await;
}

#[tokio::test]
async fn an_http_client_that_sends_nothing_is_disconnected() {
    let server = Server::start().await;
    let started = Instant::now();
    let (mut silent, mut after_one) = (server.connect().await, server.connect().await);
    after_one.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert!(head(&mut after_one).await.starts_with("HTTP/1.1 200"));
    let (silent, after_one) = tokio::join!(rest(&mut silent), rest(&mut after_one));
    assert!(started.elapsed() >= IDLE);
    assert_eq!((silent.as_str(), after_one.as_str()), ("", ""), "expected a close without a response");
    server.assert_serves_others().await;
}

#[tokio::test]
async fn an_http_client_sending_its_head_byte_by_byte_is_disconnected() {
    let server = Server::start().await;
    let started = Instant::now();
    let slow = server.send("GET / HTTP/1.1\r\nhost: ").await;
    let others = async {
        for _ in 0..20 {
            server.assert_serves_others().await;
        }
    };
    let (response, ()) = tokio::join!(write_slowly(slow, b'x'), others);
    assert!(started.elapsed() >= IDLE);
    assert!(!response.contains("200"), "{response}");
}

#[tokio::test]
async fn a_request_body_sent_byte_by_byte_is_answered_408() {
    let server = Server::start().await;
    let started = Instant::now();
    let slow = server.send("POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n").await;
    let (response, ()) = tokio::join!(write_slowly(slow, b'x'), server.assert_serves_others());
    assert!(started.elapsed() >= BODY);
    assert!(response.starts_with("HTTP/1.1 408") && response.contains("body_timeout"), "{response}");
    let quick = "POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nconnection: close\r\n\r\nquick";
    assert!(rest(&mut server.send(quick).await).await.ends_with("quick"));
}

#[tokio::test]
async fn an_http_client_that_does_not_read_is_disconnected() {
    let server = Server::start().await;
    let started = Instant::now();
    let not_reading = server.send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    timeout(LONG, server.aborted.notified()).await.expect("the response is dropped");
    assert!(started.elapsed() >= IDLE);
    drop(not_reading);
    // A client that reads is served for longer than the idle limit.
    let mut reader = server.send("GET /endless HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (started, mut chunk) = (Instant::now(), vec![0; CHUNK_BYTES]);
    while started.elapsed() < IDLE * 3 {
        assert!(reader.read(&mut chunk).await.unwrap() > 0);
    }
    server.assert_serves_others().await;
}

#[tokio::test]
async fn an_http_connection_with_a_request_in_flight_is_not_closed_as_idle() {
    let server = Server::start().await;
    let mut waiting = server.send("GET /wait HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    // A later connection is closed before this request is answered.
    rest(&mut server.connect().await).await;
    server.proceed.notify_one();
    assert!(rest(&mut waiting).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn http_2_connections_have_the_same_limits_as_http_1() {
    let server = Server::start().await;
    let started = Instant::now();
    // The preface and empty settings.
    let mut stream = server.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    let mut received = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut received)).await.expect("the server closes the connection");
    assert!(started.elapsed() >= IDLE);
    // The server's first frame is its settings: identifier and value, 6 is the largest list of headers.
    let length = usize::from(received[1]) << 8 | usize::from(received[2]);
    assert_eq!(received[3], 4, "{received:?}");
    let head_bytes = 16 * 1024_u32;
    let largest = [&[0, 6], head_bytes.to_be_bytes().as_slice()].concat();
    assert!(received[9..9 + length].chunks(6).any(|setting| setting == largest), "{received:?}");
}

#[tokio::test]
async fn a_server_stop_waits_for_requests_in_flight_not_idle_connections() {
    // The stop must end the connections, not the idle limit.
    let server = Server::with_idle_limit(LONG * 2).await;
    let mut waiting = server.send("GET /wait HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let mut idle = server.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(head(&mut idle).await.starts_with("HTTP/1.1 200"));
    server.stop.cancel();
    assert_eq!(rest(&mut idle).await, "");
    assert!(!server.serving.is_finished());
    server.proceed.notify_one();
    assert!(rest(&mut waiting).await.starts_with("HTTP/1.1 200"));
    timeout(LONG, server.serving).await.expect("the server stops").unwrap();
}

/// A connection that was answered, so that it is counted.
async fn open(server: &Server, from: [u8; 4]) -> TcpStream {
    let mut stream = connect_from(server, from).await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let response = head(&mut stream).await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    stream
}

/// A connection from an address of this machine.
async fn connect_from(server: &Server, from: [u8; 4]) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(server.address).await.unwrap()
}

#[tokio::test]
async fn a_connection_above_the_share_of_its_address_is_closed_and_other_addresses_are_served() {
    let bounds =
        ConnectionBounds { idle: LONG, connections_per_address_max: 2, ..ConnectionBounds::default() };
    let server = Server::with_bounds(bounds).await;
    let (first, second) = (open(&server, [127, 0, 0, 1]).await, open(&server, [127, 0, 0, 1]).await);
    assert_eq!(rest(&mut connect_from(&server, [127, 0, 0, 1]).await).await, "");
    let other = open(&server, [127, 0, 0, 2]).await;
    // A place is free once a connection has ended.
    drop(first);
    let served = timeout(LONG, async {
        loop {
            let mut stream = connect_from(&server, [127, 0, 0, 1]).await;
            let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
            if stream.write_all(request).await.is_ok() && rest(&mut stream).await.ends_with("here") {
                break;
            }
        }
    });
    served.await.expect("a connection after the first one ended");
    drop((second, other));
}

#[tokio::test]
async fn a_connection_above_the_limit_of_all_is_closed() {
    let bounds = ConnectionBounds { idle: LONG, connections_max: 2, ..ConnectionBounds::default() };
    let server = Server::with_bounds(bounds).await;
    let open = [open(&server, [127, 0, 0, 1]).await, open(&server, [127, 0, 0, 2]).await];
    assert_eq!(rest(&mut connect_from(&server, [127, 0, 0, 3]).await).await, "");
    drop(open);
}
