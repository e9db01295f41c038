//! Every HTTP status with every kind of body.

use serde_json::json;

use crate::calls::{ALL, Call};
use crate::server::{Step, response};

/// Statuses that say nothing about the transfer: an answer may follow.
const NO_ANSWER: [u16; 22] = [
    200, 201, 202, 203, 204, 205, 206, 207, 226, 299, 408, 425, 429, 500, 501, 502, 503, 504, 505, 507, 511,
    599,
];
/// Statuses that refuse the request itself, or answer something else than a switch does.
const OUR_FAULT: [u16; 35] = [
    300, 301, 302, 303, 304, 305, 307, 308, 399, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412,
    413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 426, 428, 431, 499,
];

/// The bodies, each with a name.
fn bodies(call: Call) -> Vec<(&'static str, String)> {
    let problem =
        |code: &str| json!({"type": "about:blank", "title": "x", "code": code, "detail": "d"}).to_string();
    vec![
        ("definite", call.definite().1.to_string()),
        ("empty", String::new()),
        ("text", "gone".into()),
        ("object", "{}".into()),
        ("unknown_reference", problem("unknown_reference")),
        ("unknown_transfer", problem("unknown_transfer")),
        ("not_found", problem("not_found")),
    ]
}

/// The outcome that this status and body must have.
fn expected(call: Call, status: u16, body: &str) -> &'static str {
    let is_definite_status = match call {
        Call::Submit | Call::SubmitWithoutReferences => matches!(status, 202 | 422),
        _ => status == 200,
    };
    if is_definite_status && body == "definite" {
        return call.definite_outcome();
    }
    // The transfer is unknown, and not the path.
    match (call, status, body) {
        (Call::Query, 404, "unknown_reference") => return "not found",
        (Call::QueryById | Call::CancelById, 404, "unknown_transfer") => return "not found",
        _ => {}
    }
    match call.unknown_outcome() {
        "no answer" if OUR_FAULT.contains(&status) => "our fault",
        _ if status == 429 => call.not_received_outcome(),
        unknown => unknown,
    }
}

#[tokio::test]
async fn each_switch_status_and_body_has_its_outcome_in_every_call() {
    let mut rows = 0;
    for call in ALL {
        for status in NO_ANSWER.into_iter().chain(OUR_FAULT) {
            for (name, body) in bodies(call) {
                let outcome = call.outcome_of(Step::Send(response(status, body.as_bytes()))).await;
                assert_eq!(
                    outcome.word,
                    expected(call, status, name),
                    "{call:?} {status} {name}: {outcome:?}"
                );
                rows += 1;
            }
        }
    }
    assert_eq!(rows, 12 * 57 * 7);
}

/// Statuses outside the registered classes, and a change of protocol that nobody asked for.
#[tokio::test]
async fn a_switch_status_outside_the_classes_is_never_definite() {
    for call in ALL {
        for status in [101, 600, 999] {
            let body = call.definite().1.to_string();
            let outcome = call.outcome_of(Step::Send(response(status, body.as_bytes()))).await;
            let fault =
                if call.unknown_outcome() == "no answer" { "our fault" } else { call.unknown_outcome() };
            assert!(
                [call.unknown_outcome(), fault].contains(&outcome.word.as_str()),
                "{call:?} {status}: {outcome:?}"
            );
        }
    }
}
