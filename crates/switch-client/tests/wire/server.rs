//! A server that answers each request with the next step of a script, byte by byte as written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The `Date` of an ordinary response.
pub(crate) const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
/// Time between two bytes of [`Step::Drip`]: far shorter than any timeout of one read.
const DRIP_INTERVAL: Duration = Duration::from_millis(5);

/// What the server does with one request, after it has read it.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Sends these bytes and closes the connection.
    Send(Vec<u8>),
    /// Sends these bytes and reads the next request from the same connection.
    Keep(Vec<u8>),
    /// Sends these bytes and is silent until the client closes the connection.
    Hold(Vec<u8>),
    /// Sends these bytes, then one byte at a time until the client closes the connection.
    Drip(Vec<u8>),
    /// Sends the first bytes once and the others without end until the client closes the connection.
    Flood(Vec<u8>, Vec<u8>),
}

/// A scripted server; the last step repeats.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let (steps, recorded) = (Arc::new(steps), requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, steps.clone(), recorded.clone()));
            }
        });
        Self { url, requests }
    }

    /// The requests so far, each with head and body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Method and path of each request so far.
    pub(crate) fn request_lines(&self) -> Vec<String> {
        let line =
            |request: &String| request.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        self.requests().iter().map(line).collect()
    }
}

async fn serve(mut stream: TcpStream, steps: Arc<Vec<Step>>, requests: Arc<Mutex<Vec<String>>>) {
    while let Some(request) = read_request(&mut stream).await {
        let n = {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        match steps[n.min(steps.len() - 1)].clone() {
            Step::Keep(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            step => return finish(stream, step).await,
        }
    }
}

/// The last step on a connection. An error of the connection means that the client has closed it.
async fn finish(mut stream: TcpStream, step: Step) {
    match step {
        Step::Send(bytes) | Step::Keep(bytes) => {
            let _ = stream.write_all(&bytes).await;
        }
        Step::Hold(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.read(&mut [0]).await;
        }
        Step::Drip(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let mut interval = tokio::time::interval(DRIP_INTERVAL);
            while stream.write_all(b" ").await.is_ok() {
                interval.tick().await;
            }
        }
        Step::Flood(head, more) => {
            let _ = stream.write_all(&head).await;
            while stream.write_all(&more).await.is_ok() {}
        }
    }
}

/// Reads one request with its body; `None` if the client closed the connection.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut buffer = [0; 4_096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
        }
    }
}

/// A response with these headers, one a line, and this body.
pub(crate) fn raw(status: u16, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status} Scripted\r\n").into_bytes();
    for header in headers {
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// An ordinary response, with `Date`, `Content-Length` and further headers.
pub(crate) fn response_with(status: u16, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let (date, length) = (format!("Date: {DATE}"), format!("Content-Length: {}", body.len()));
    let ordinary = [date.as_str(), "Content-Type: application/json", &length, "Connection: close"];
    raw(status, &[&ordinary[..], headers].concat(), body)
}

/// An ordinary response.
pub(crate) fn response(status: u16, body: &[u8]) -> Vec<u8> {
    response_with(status, &[], body)
}
