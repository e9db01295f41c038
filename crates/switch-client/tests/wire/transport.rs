//! Responses that are broken, late or endless, and unusual ones that are whole.

use std::time::Duration;

use crate::calls::{ALL, Call};
use crate::server::{Server, Step, raw, response};

/// Longest body that the client reads, in bytes.
const BODY_BYTES_MAX: usize = 1_024_000;
/// Far longer than any attempt timeout of these tests.
const MINUTE: Duration = Duration::from_secs(60);

fn chunked(status: u16, body: &[u8], end: &str) -> Vec<u8> {
    let mut bytes = raw(status, &["Transfer-Encoding: chunked", "Connection: close"], b"");
    bytes.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
    bytes.extend_from_slice(body);
    bytes.extend_from_slice(end.as_bytes());
    bytes
}

/// Responses that are no answer, although the definite answer is in them where they have a body.
fn broken(status: u16, body: &[u8]) -> Vec<(&'static str, Step)> {
    let length = |length: &str| format!("Content-Length: {length}");
    let exact = length(&body.len().to_string());
    let sent = |headers: &[&str]| Step::Send(raw(status, headers, body));
    let cut = |text: String| Step::Send(text.into_bytes());
    let fill = vec![b' '; 16_384];
    vec![
        ("closes before the header", Step::Send(vec![])),
        ("closes within the status line", cut("HTTP/1.1 2".into())),
        ("closes within the header", cut(format!("HTTP/1.1 {status} OK\r\nContent-Le"))),
        ("closes after the header", Step::Send(raw(status, &[&exact], b""))),
        ("closes within the body", Step::Send(raw(status, &[&exact], &body[..body.len() - 1]))),
        ("announces one byte more than it sends", sent(&[&length(&(body.len() + 1).to_string())])),
        ("sends no last chunk", Step::Send(chunked(status, body, "\r\n"))),
        ("sends an unreadable chunk size", Step::Send(chunked(status, body, "\r\nzz\r\n\r\n"))),
        ("sends two different lengths", sent(&[&exact, &length(&(body.len() + 1).to_string())])),
        ("sends a negative length", sent(&[&length("-1")])),
        ("sends an unreadable length", sent(&[&length("many")])),
        ("sends no HTTP", cut("SSH-2.0-OpenSSH\r\n\r\n".into())),
        ("sends an unreadable status", cut("HTTP/1.1 2x0 OK\r\n\r\n".into())),
        ("sends 100 Continue and closes", cut("HTTP/1.1 100 Continue\r\n\r\n".into())),
        (
            "sends an endless header",
            Step::Flood(
                format!("HTTP/1.1 {status} OK\r\n").into_bytes(),
                format!("X-Fill: {}\r\n", "x".repeat(1_000)).into_bytes(),
            ),
        ),
        ("sends an endless body", Step::Flood(raw(status, &[], b""), fill.clone())),
        (
            "sends an endless chunked body",
            Step::Flood(
                raw(status, &["Transfer-Encoding: chunked"], b""),
                [b"4000\r\n", &fill[..], b"\r\n"].concat(),
            ),
        ),
        (
            "announces the longest length",
            Step::Flood(raw(status, &[&length(&u64::MAX.to_string())], b""), fill),
        ),
        // Only spaces follow the answer, so it would be readable if its length were not bounded.
        (
            "sends an answer of one byte too much",
            Step::Send(response(status, &padded(body, BODY_BYTES_MAX + 1))),
        ),
    ]
}

fn padded(body: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = body.to_vec();
    bytes.resize(length, b' ');
    bytes
}

/// Responses that do not end before the attempt timeout.
fn unfinished(status: u16, body: &[u8]) -> Vec<(&'static str, Step)> {
    let length = format!("Content-Length: {}", body.len() + 1_000_000);
    let head = raw(status, &[&length], b"");
    vec![
        ("is silent", Step::Hold(vec![])),
        ("is silent within the header", Step::Hold(b"HTTP/1.1 200 OK\r\nDate: ".to_vec())),
        ("is silent after the header", Step::Hold(head.clone())),
        ("is silent within the body", Step::Hold([&head[..], &body[..1]].concat())),
        ("is silent after the body", Step::Hold([&head[..], body].concat())),
        ("drips the header", Step::Drip(b"HTTP/1.1 200 OK\r\nX-Fill: ".to_vec())),
        ("drips the body", Step::Drip([&head[..], body].concat())),
        ("sends 100 Continue without end", Step::Flood(vec![], b"HTTP/1.1 100 Continue\r\n\r\n".to_vec())),
    ]
}

/// Responses that are whole, though unusual.
fn whole(status: u16, body: &[u8]) -> Vec<(&'static str, Step)> {
    let exact = format!("Content-Length: {}", body.len());
    let after =
        |interim: &str| Step::Send([interim.as_bytes(), b"\r\n\r\n", &response(status, body)[..]].concat());
    let http_1_0 = [format!("HTTP/1.0 {status} OK\r\n\r\n").as_bytes(), body].concat();
    let sent = |headers: &[&str]| Step::Send(raw(status, headers, body));
    vec![
        ("is ordinary", Step::Send(response(status, body))),
        ("sends chunks", Step::Send(chunked(status, body, "\r\n0\r\n\r\n"))),
        ("ends the body by closing", sent(&["Connection: close"])),
        ("answers in HTTP/1.0", Step::Send(http_1_0)),
        ("sends 100 Continue first", after("HTTP/1.1 100 Continue")),
        ("sends 103 Early Hints first", after("HTTP/1.1 103 Early Hints\r\nLink: </x>")),
        ("sends the same length twice", sent(&[&exact, &exact, "Connection: close"])),
        // The body decides: it must name our transfer, and the content type adds nothing to that.
        ("names another content type", sent(&[&exact, "Content-Type: text/html", "Connection: close"])),
        (
            "names two content types",
            sent(&[&exact, "Content-Type: text/html", "Content-Type: a/b", "Connection: close"]),
        ),
        ("sends names in capitals", sent(&[&exact.to_uppercase(), "CONNECTION: CLOSE"])),
        ("sends the longest body", Step::Send(response(status, &padded(body, BODY_BYTES_MAX)))),
    ]
}

#[tokio::test]
async fn a_broken_switch_response_is_no_answer_to_any_call() {
    for call in ALL {
        let (status, body) = call.definite();
        for (name, step) in broken(status, body.to_string().as_bytes()) {
            let outcome = call.outcome_of(step).await;
            assert_eq!(outcome.word, call.unknown_outcome(), "{call:?}, the switch {name}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn an_unusual_but_whole_switch_response_is_an_answer_to_each_call() {
    for call in ALL {
        let (status, body) = call.definite();
        for (name, step) in whole(status, body.to_string().as_bytes()) {
            let outcome = call.outcome_of(step).await;
            assert_eq!(outcome.word, call.definite_outcome(), "{call:?}, the switch {name}: {outcome:?}");
        }
    }
}

/// The timeout bounds the whole attempt and not one read: the switch that drips sends a byte far more often.
#[tokio::test]
async fn an_unfinished_switch_response_ends_at_the_attempt_timeout() {
    let mut rows = Vec::new();
    for call in ALL {
        let (status, body) = call.definite();
        for (name, step) in unfinished(status, body.to_string().as_bytes()) {
            rows.push(tokio::spawn(async move {
                let server = Server::start(vec![step]).await;
                let client = call.client(&server, 400);
                // Without a bound of the whole attempt the row would never end.
                let outcome = tokio::time::timeout(MINUTE, call.make(&client)).await.unwrap();
                assert_eq!(outcome.word, call.unknown_outcome(), "{call:?}, the switch {name}: {outcome:?}");
                assert!(
                    outcome.detail.contains("within the attempt timeout"),
                    "{call:?}, the switch {name}: {outcome:?}"
                );
            }));
        }
    }
    for row in rows {
        row.await.unwrap();
    }
}

/// A connection that was kept open and then closed: the client must not repeat a request by itself.
#[tokio::test]
async fn a_reused_connection_that_breaks_sends_no_request_twice() {
    for call in ALL {
        let (status, body) = call.definite();
        let body = body.to_string();
        let kept = raw(status, &[&format!("Content-Length: {}", body.len())], body.as_bytes());
        let server = Server::start(vec![Step::Keep(kept), Step::Send(vec![])]).await;
        let client = call.client(&server, 30_000);
        assert_eq!(call.make(&client).await.word, call.definite_outcome(), "{call:?}");
        assert_eq!(call.make(&client).await.word, call.unknown_outcome(), "{call:?}");
        assert_eq!(server.requests().len(), 2, "{call:?}");
    }
}

#[tokio::test]
async fn a_redirect_of_the_switch_is_not_followed() {
    for call in ALL {
        for status in [301, 302, 303, 307, 308] {
            let body = call.definite().1.to_string();
            let location = "Location: /elsewhere";
            let redirect = crate::server::response_with(status, &[location], body.as_bytes());
            let server =
                Server::start(vec![Step::Send(redirect), Step::Send(response(200, body.as_bytes()))]).await;
            let outcome = call.make(&call.client(&server, 30_000)).await;
            assert_ne!(outcome.word, call.definite_outcome(), "{call:?} {status}: {outcome:?}");
            assert_eq!(server.requests().len(), 1, "{call:?} {status}: {:?}", server.request_lines());
        }
    }
}

/// A switch that cannot be reached.
#[tokio::test]
async fn an_unreachable_switch_is_no_answer_to_any_call() {
    for call in ALL {
        // Bound, so that no other test listens there, and not listening.
        let closed = tokio::net::TcpSocket::new_v4().unwrap();
        closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", closed.local_addr().unwrap());
        let outcome = call.make(&crate::calls::client_with(&url, &serde_json::json!({}))).await;
        assert_eq!(outcome.word, call.not_received_outcome(), "{call:?}: {outcome:?}");
    }
}

/// Each call is made once, with the key that its operation needs.
#[tokio::test]
async fn each_switch_call_is_one_request_with_its_key_and_token() {
    let reference = crate::calls::reference();
    let tx = crate::calls::tx();
    let (submit, by_id) = (format!("/v1/transfers/{reference}"), "/v1/transfers/by-id/7");
    let listing = "/v1/transfers?creditor_account=FR-BOB";
    for (call, line, key) in [
        (Call::Submit, "POST /v1/transfers".into(), Some(reference.clone())),
        (Call::SubmitWithoutReferences, "POST /v1/transfers".into(), Some(reference.clone())),
        (Call::Query, format!("GET {submit}"), None),
        (Call::QueryById, format!("GET {by_id}"), None),
        (Call::Cancel, format!("POST {submit}/cancel"), Some(format!("{tx}:comp-submit"))),
        (Call::CancelById, format!("POST {by_id}/cancel"), Some(format!("{tx}:comp-submit"))),
        (Call::Recall, format!("POST {submit}/recall"), Some(format!("{tx}:recall"))),
        (Call::RecallById, format!("POST {by_id}/recall"), Some(format!("{tx}:recall"))),
        (Call::ReadBack, format!("GET {listing}&after=0"), None),
        (Call::Marker, format!("GET {listing}&last=1"), None),
        (Call::StatementLookup, "GET /v1/statement?limit=1000".into(), None),
        (Call::StatementPage, "GET /v1/statement?limit=1000".into(), None),
    ] {
        let (status, body) = call.definite();
        let server = Server::start(vec![Step::Send(response(status, body.to_string().as_bytes()))]).await;
        call.make(&call.client(&server, 30_000)).await;
        assert_eq!(server.request_lines(), [line], "{call:?}");
        let request = server.requests()[0].to_lowercase();
        assert!(request.contains("authorization: bearer t\r\n"), "{call:?}: {request}");
        let sent = request.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
        assert_eq!(sent.map(str::to_owned), key, "{call:?}");
    }
}
