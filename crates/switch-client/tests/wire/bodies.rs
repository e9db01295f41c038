//! Bodies that are not exactly a documented answer.

use serde_json::{Value, json};

use crate::calls::{ALL, Call, reference};
use crate::server::{Step, response};

/// A body with one field replaced; `None` removes it.
fn with(body: &Value, pointer: &str, field: &str, value: Option<Value>) -> Value {
    let mut body = body.clone();
    let object = body.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => object.insert(field.into(), value),
        None => object.remove(field),
    };
    body
}

/// Texts that are no JSON object.
fn texts(body: &str) -> Vec<(&'static str, Vec<u8>)> {
    let half = body.len() / 2;
    let mut not_utf8 = body.as_bytes().to_vec();
    not_utf8.splice(2..2, [0xff]);
    vec![
        ("nothing", vec![]),
        ("spaces", b"  \r\n".to_vec()),
        ("text", b"not json".to_vec()),
        ("a page", b"<html><body>503 Service Unavailable</body></html>".to_vec()),
        ("null", b"null".to_vec()),
        ("a number", b"7".to_vec()),
        ("a text", b"\"REJECTED\"".to_vec()),
        ("an empty list", b"[]".to_vec()),
        ("an empty object", b"{}".to_vec()),
        ("a list of answers", format!("[{body}]").into_bytes()),
        ("half an answer", body.as_bytes()[..half].to_vec()),
        ("all but the last byte", body.as_bytes()[..body.len() - 1].to_vec()),
        ("an answer and more", format!("{body} x").into_bytes()),
        ("two answers", format!("{body}{body}").into_bytes()),
        ("a byte order mark", format!("\u{feff}{body}").into_bytes()),
        ("bytes that are not UTF-8", not_utf8),
        ("lists in lists", "[".repeat(10_000).into_bytes()),
        ("an answer in UTF-16", body.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("compressed bytes", vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b, 0x4c, 0x4a, 6, 0]),
        ("an event stream", format!("data: {body}\n\n").into_bytes()),
    ]
}

/// Values of a status or answer word that are not documented.
fn words(word: &str) -> Vec<Option<Value>> {
    let values = [
        json!("DONE"),
        json!(""),
        json!(word.to_lowercase()),
        json!(format!("{word} ")),
        json!(null),
        json!(1),
    ];
    let mut values: Vec<_> = values.into_iter().map(Some).collect();
    values.push(Some(json!([word])));
    values.push(Some(json!({"code": word})));
    // As a derived enum would also accept it.
    values.push(Some(json!({word: null})));
    values.push(None);
    values
}

/// Amounts that are no positive whole number of minor units.
fn amounts() -> Vec<Value> {
    let overflow = serde_json::from_str("9223372036854775808").unwrap();
    let huge = serde_json::from_str("1e400").unwrap_or_else(|_| json!(1e300));
    vec![
        json!(-500),
        json!(0),
        json!(500.5),
        json!(500.0),
        json!("500"),
        json!(true),
        json!([500]),
        overflow,
        huge,
    ]
}

/// Every body that is not a readable answer to the call.
fn unreadable(call: Call) -> Vec<(String, Vec<u8>)> {
    let body = call.definite().1;
    let mut rows: Vec<(String, Vec<u8>)> =
        texts(&body.to_string()).into_iter().map(|(name, bytes)| (name.to_owned(), bytes)).collect();
    let mut add = |name: String, body: &Value| rows.push((name, body.to_string().into_bytes()));
    if let Some(pointer) = call.transfer_pointer() {
        let status = body.pointer(pointer).unwrap()["status"].as_str().unwrap().to_owned();
        for word in words(&status) {
            add(format!("the status {word:?}"), &with(&body, pointer, "status", word));
        }
        for amount in amounts() {
            add(format!("the amount {amount}"), &with(&body, pointer, "amount_minor", Some(amount)));
        }
        for field in ["reference", "transfer_id", "currency", "reason"] {
            add(format!("a number as {field}"), &with(&body, pointer, field, Some(json!(7))));
        }
    }
    if let Some(answer) = body["answer"].as_str() {
        for word in words(answer) {
            add(format!("the answer {word:?}"), &with(&body, "", "answer", word));
        }
    }
    for list in ["transfers", "entries"].into_iter().filter(|list| body.get(list).is_some()) {
        for value in [
            None,
            Some(json!(null)),
            Some(json!({})),
            Some(json!("")),
            Some(json!([null])),
            Some(json!([[]])),
        ] {
            add(format!("{list} {value:?}"), &with(&body, "", list, value));
        }
        for value in [None, Some(json!(1)), Some(json!(false)), Some(json!([]))] {
            add(format!("the next page {value:?}"), &with(&body, "", "next", value));
        }
    }
    let twice = body.to_string().replacen("{\"", "{\"reference\":null,\"reference\":null,\"", 1);
    if body.get("reference").is_some() {
        rows.push(("a field twice".into(), twice.into_bytes()));
    }
    rows
}

#[tokio::test]
async fn an_unreadable_switch_body_is_no_answer_to_any_call() {
    for call in ALL {
        let status = call.definite().0;
        for (name, body) in unreadable(call) {
            let outcome = call.outcome_of(Step::Send(response(status, &body))).await;
            assert_eq!(outcome.word, call.unknown_outcome(), "{call:?}, the body has {name}: {outcome:?}");
        }
    }
}

/// Fields that a later version of the switch may add change nothing.
#[tokio::test]
async fn an_additional_field_in_a_switch_body_is_ignored() {
    for call in ALL {
        let (status, body) = call.definite();
        let body = with(&body, "", "added_later", Some(json!({"status": "SETTLED"})));
        let outcome = call.outcome_of(Step::Send(response(status, body.to_string().as_bytes()))).await;
        assert_eq!(outcome.word, call.definite_outcome(), "{call:?}: {outcome:?}");
    }
}

/// A definite answer that does not name our transfer is about another one, or from another system.
#[tokio::test]
async fn a_switch_answer_that_does_not_name_our_transfer_is_unknown() {
    let other = "tx_000000000000000000000000:submit";
    let by_reference = [
        None,
        Some(json!(null)),
        Some(json!("")),
        Some(json!(other)),
        Some(json!(format!("{} ", reference()))),
    ];
    let by_id = [None, Some(json!(null)), Some(json!("")), Some(json!("8")), Some(json!("07"))];
    for (call, field, values) in [
        (Call::Submit, "reference", &by_reference),
        (Call::Query, "reference", &by_reference),
        (Call::Cancel, "reference", &by_reference),
        (Call::Recall, "reference", &by_reference),
        (Call::QueryById, "transfer_id", &by_id),
        (Call::CancelById, "transfer_id", &by_id),
        (Call::RecallById, "transfer_id", &by_id),
    ] {
        let (status, body) = call.definite();
        for value in values {
            let body = with(&body, "", field, value.clone());
            let outcome = call.outcome_of(Step::Send(response(status, body.to_string().as_bytes()))).await;
            assert_eq!(outcome.word, call.unknown_outcome(), "{call:?} {field} {value:?}: {outcome:?}");
        }
    }
    // A switch without references names none, and never ours or another.
    let call = Call::SubmitWithoutReferences;
    let (status, body) = call.definite();
    let body = with(&body, "", "reference", Some(json!(other)));
    let outcome = call.outcome_of(Step::Send(response(status, body.to_string().as_bytes()))).await;
    assert_eq!(outcome.word, "unknown", "{outcome:?}");
}
