//! When submits are held back: `Retry-After`, and the circuit breaker.

use std::time::Duration;

use serde_json::{Value, json};
use switch_client::SwitchClient;

use crate::calls::{ALL, Call, client_with, order, reference};
use crate::server::{Server, Step, response, response_with};

/// The bound of a pause in these tests.
const LONGEST: Duration = Duration::from_secs(300);

/// The pause after a response, rounded up to hundreds of seconds because it is read later; 0 without a pause.
async fn pause(status: u16, headers: &[&str]) -> u64 {
    let server = Server::start(vec![Step::Send(response_with(status, headers, b"{}"))]).await;
    let client = client_with(&server.url, &json!({"retry_interval_max_ms": LONGEST.as_millis() as u64}));
    Call::Query.make(&client).await;
    let client: &dyn SwitchClient = &client;
    let pause = client.retry_after();
    assert_eq!(client.permits_submit(), pause.is_none(), "{status} {headers:?}");
    pause.map_or(0, |pause| pause.as_millis().div_ceil(100_000) as u64 * 100)
}

#[tokio::test]
async fn each_retry_after_of_the_switch_is_a_bounded_pause_or_ignored() {
    let longest = LONGEST.as_secs();
    for (values, expected) in [
        (vec!["100"], 100),
        (vec!["  100  "], 100),
        (vec!["0"], 0),
        (vec!["300"], longest),
        (vec!["86400"], longest),
        (vec!["18446744073709551615"], longest),
        (vec!["18446744073709551616"], longest),
        (vec!["999999999999999999999999999999"], longest),
        // The longest pause applies.
        (vec!["100", "200"], 200),
        (vec!["200", "100"], 200),
        (vec!["soon", "100"], 100),
        // Dates are not read: they would need the switch's clock.
        (vec!["Sun, 06 Nov 2094 08:49:37 GMT"], 0),
        (vec!["Sun, 06 Nov 1994 08:49:37 GMT"], 0),
        (vec!["-1"], 0),
        (vec!["-18446744073709551616"], 0),
        (vec!["+100"], 0),
        (vec!["1.5"], 0),
        (vec!["1e2"], 0),
        (vec!["100s"], 0),
        (vec!["100, 200"], 0),
        (vec!["0x64"], 0),
        (vec!["soon"], 0),
        (vec![""], 0),
        (vec![], 0),
    ] {
        let lines: Vec<String> = values.iter().map(|value| format!("Retry-After: {value}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for status in [429, 503] {
            assert_eq!(pause(status, &lines).await, expected, "{status} {values:?}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_counts_only_with_429_and_503() {
    for (status, expected) in [
        (200, 0),
        (202, 0),
        (301, 0),
        (400, 0),
        (408, 0),
        (413, 0),
        (500, 0),
        (502, 0),
        (504, 0),
        (429, 100),
        (503, 100),
    ] {
        assert_eq!(pause(status, &["Retry-After: 100"]).await, expected, "{status}");
    }
}

/// A busy switch is busy for every call, and the pause is known even if the body never arrives.
#[tokio::test]
async fn a_retry_after_is_read_from_the_answer_to_any_call() {
    for call in ALL {
        for cut in [0, 1] {
            let bytes = response_with(429, &["Retry-After: 100"], b"{}");
            let bytes = bytes[..bytes.len() - cut].to_vec();
            let server = Server::start(vec![Step::Send(bytes)]).await;
            let client = call.client(&server, 30_000);
            // An answer that does not arrive whole says less than its status.
            let expected = if cut == 0 { call.not_received_outcome() } else { call.unknown_outcome() };
            assert_eq!(call.make(&client).await.word, expected, "{call:?}");
            assert!(client.retry_after().is_some() && !client.permits_submit(), "{call:?}");
        }
    }
}

/// What the switch does, and whether it is a failure of the switch.
fn outcomes() -> Vec<(&'static str, Vec<u8>, bool)> {
    let transfer =
        |status: &str| json!({"reference": reference(), "status": status, "reason": "r"}).to_string();
    let answer = |status: u16, body: &str| response(status, body.as_bytes());
    let mut other: Value = serde_json::from_str(&transfer("REJECTED")).unwrap();
    other["reference"] = "tx_other:submit".into();
    vec![
        ("accepts", answer(202, &transfer("PENDING")), false),
        ("has rejected before", answer(202, &transfer("REJECTED")), false),
        ("refuses", answer(422, &transfer("REJECTED")), false),
        // It answered, and the fault is ours: one payment that it cannot accept must not hold back the others.
        ("cannot parse the request", answer(400, "{}"), false),
        ("does not know our token", answer(401, "{}"), false),
        ("forbids", answer(403, "{}"), false),
        ("has no such path", answer(404, "{}"), false),
        ("reports a conflict", answer(409, "{}"), false),
        ("reports that it is gone", answer(410, "{}"), false),
        ("refuses the request with 422", answer(422, "{}"), false),
        // It did not answer, or something else did.
        ("closes", vec![], true),
        ("answers no HTTP", b"SSH-2.0-OpenSSH\r\n\r\n".to_vec(), true),
        ("cuts off its answer", answer(202, &transfer("PENDING"))[..200].to_vec(), true),
        ("accepts without a body", answer(202, ""), true),
        ("accepts in an unreadable body", answer(202, "<html>"), true),
        ("answers about another transfer", answer(202, &other.to_string()), true),
        ("answers 204", answer(204, ""), true),
        ("answers 299", answer(299, &transfer("PENDING")), true),
        ("redirects", answer(302, ""), true),
        ("answers 101", answer(101, ""), true),
        ("times out", answer(408, "{}"), true),
        ("answers 425", answer(425, "{}"), true),
        ("is busy", answer(429, "{}"), true),
        ("fails", answer(500, "{}"), true),
        ("is unreachable for its gateway", answer(502, "{}"), true),
        ("is unavailable", answer(503, "{}"), true),
        ("answers 599", answer(599, "{}"), true),
    ]
}

/// One failure opens the circuit of this client, so each row shows whether it is one.
#[tokio::test]
async fn only_a_submit_without_an_answer_is_a_failure_of_the_switch() {
    for (name, bytes, is_failure) in outcomes() {
        let server = Server::start(vec![Step::Send(bytes)]).await;
        let client = client_with(&server.url, &json!({"breaker_failures": 1, "breaker_open_ms": 3_600_000}));
        client.send(&order()).await;
        assert_eq!(client.permits_submit(), !is_failure, "the switch {name}");
    }
}

/// Failures count in a row, whatever they are; an answer in between starts the count again.
#[tokio::test]
async fn consecutive_failures_of_the_switch_open_its_circuit() {
    let refused = json!({"reference": reference(), "status": "REJECTED"}).to_string();
    let answered = || Step::Send(response(422, refused.as_bytes()));
    let failed = || Step::Send(response(503, b""));
    let closed = || Step::Send(vec![]);
    for (steps, permitted) in [
        (vec![failed(), closed(), failed()], vec![true, true, false]),
        (vec![failed(), failed(), answered(), failed(), closed()], vec![true, true, true, true, true]),
        (vec![failed(), closed(), failed(), answered(), failed()], vec![true, true, false, true, true]),
    ] {
        let server = Server::start(steps).await;
        let client = client_with(&server.url, &json!({"breaker_failures": 3, "breaker_open_ms": 3_600_000}));
        for (n, permits) in permitted.into_iter().enumerate() {
            client.send(&order()).await;
            assert_eq!(client.permits_submit(), permits, "after submit {n}");
        }
    }
}

/// A compensation must not wait because submits had no answer, and says nothing about submits.
#[tokio::test]
async fn calls_other_than_submit_neither_open_nor_close_the_circuit() {
    let profile = json!({"breaker_failures": 1, "breaker_open_ms": 3_600_000});
    for call in ALL.into_iter().filter(|call| !matches!(call, Call::Submit | Call::SubmitWithoutReferences)) {
        let (status, body) = call.definite();
        let failing = Server::start(vec![Step::Send(vec![])]).await;
        let client = client_with(&failing.url, &profile);
        call.make(&client).await;
        assert!(client.permits_submit(), "{call:?} opened the circuit");

        let answer = Step::Send(response(status, body.to_string().as_bytes()));
        let server = Server::start(vec![Step::Send(vec![]), answer]).await;
        let client = client_with(&server.url, &profile);
        client.send(&order()).await;
        assert!(!client.permits_submit());
        assert_eq!(call.make(&client).await.word, call.definite_outcome(), "{call:?} was held back");
        assert!(!client.permits_submit(), "{call:?} closed the circuit");
    }
}
