//! Answers to a query, by our reference and by the switch's own id.

use payment_protocol::keys;
use payment_protocol::submit::QueryAnswer;
use serde_json::{Value, json};
use switch_client::TransferRef;

use crate::calls::{Call, client_with, lookup_key, query_word, reference, tx};
use crate::server::{Server, Step, response};

/// The answer to a query, with the reported reference, amount and currency if it is settled.
async fn answer(call: Call, status: u16, body: &Value) -> (&'static str, Option<(String, i64, String)>) {
    let server = Server::start(vec![Step::Send(response(status, body.to_string().as_bytes()))]).await;
    let client = client_with(&server.url, &json!({}));
    let (by_reference, by_id) = (keys::submit(&tx()), lookup_key(None, Some("7")));
    let transfer = match call {
        Call::QueryById => TransferRef::LookupKey(&by_id),
        _ => TransferRef::Name(&by_reference.clone().into()),
    };
    let answer = client.query(transfer).await.answer;
    let word = query_word(&answer);
    match answer {
        QueryAnswer::Settled(report) | QueryAnswer::Returned(report) => {
            (word, Some((report.reference, report.amount_minor, report.currency)))
        }
        _ => (word, None),
    }
}

fn transfer(reference: Option<&str>, status: &str) -> Value {
    json!({"transfer_id": "7", "reference": reference, "status": status, "amount_minor": 500, "currency": "EUR"})
}

#[tokio::test]
async fn each_documented_switch_answer_to_a_query_has_its_meaning() {
    let ours = reference();
    for (status, expected) in [
        ("PENDING", "pending"),
        ("SETTLED", "settled"),
        ("RETURNED", "returned"),
        ("REJECTED", "void"),
        ("CANCELLED", "void"),
    ] {
        for (call, reference) in [
            (Call::Query, Some(ours.as_str())),
            (Call::QueryById, None),
            (Call::QueryById, Some(ours.as_str())),
        ] {
            let (word, _) = answer(call, 200, &transfer(reference, status)).await;
            assert_eq!(word, expected, "{call:?} {status} {reference:?}");
        }
    }
    // A tombstone is the trace of a cancel: the switch has never received the transfer.
    let tombstone = json!({"transfer_id": "9", "reference": ours, "status": "CANCELLED", "tombstone": true});
    assert_eq!(answer(Call::Query, 200, &tombstone).await.0, "not found");
}

/// A SUCCESS is passed on in the switch's words, since the protocol compares it with the payment and records a difference.
#[tokio::test]
async fn a_settled_transfer_is_reported_in_the_words_of_the_switch() {
    let settled = |field: &str, value: Value| {
        let mut body = transfer(Some(&reference()), "SETTLED");
        body[field] = value;
        body
    };
    let report = |amount_minor, currency: &str| Some((reference(), amount_minor, currency.to_owned()));
    for (call, body, expected) in [
        (Call::Query, settled("x", 1.into()), ("settled", report(500, "EUR"))),
        (Call::Query, settled("amount_minor", 501.into()), ("settled", report(501, "EUR"))),
        (Call::Query, settled("currency", "USD".into()), ("settled", report(500, "USD"))),
        (Call::Query, settled("currency", "".into()), ("settled", report(500, ""))),
        (Call::Query, settled("amount_minor", i64::MAX.into()), ("settled", report(i64::MAX, "EUR"))),
        (Call::Query, settled("amount_minor", (-500).into()), ("no answer", None)),
        (Call::Query, settled("amount_minor", Value::Null), ("no answer", None)),
        (Call::Query, settled("currency", Value::Null), ("no answer", None)),
        // Asked by its own id, the switch need not name our reference.
        (Call::QueryById, settled("reference", Value::Null), ("settled", report(500, "EUR"))),
        (Call::QueryById, settled("transfer_id", "8".into()), ("no answer", None)),
    ] {
        assert_eq!(answer(call, 200, &body).await, expected, "{call:?} {body}");
    }
}

/// A settlement under another reference is reported as such: the protocol records it as an exception.
#[tokio::test]
async fn no_switch_answer_about_another_reference_is_pending_or_void() {
    for (status, expected) in [
        ("PENDING", "no answer"),
        ("REJECTED", "no answer"),
        ("CANCELLED", "no answer"),
        ("SETTLED", "settled"),
        ("RETURNED", "returned"),
    ] {
        let (word, report) = answer(Call::Query, 200, &transfer(Some("tx_other:submit"), status)).await;
        assert_eq!(word, expected, "{status}");
        assert!(report.is_none_or(|(reference, ..)| reference == "tx_other:submit"), "{status}");
    }
    // By its own id the switch answers about one transfer, which would be reported under our reference.
    for status in ["PENDING", "REJECTED", "CANCELLED", "SETTLED", "RETURNED"] {
        let (word, _) = answer(Call::QueryById, 200, &transfer(Some("tx_other:submit"), status)).await;
        assert_eq!(word, "no answer", "{status}");
    }
}

#[tokio::test]
async fn only_404_with_the_documented_code_means_not_found() {
    let problem = |code: Value| json!({"code": code, "detail": "d"});
    for (call, status, body, expected) in [
        (Call::Query, 404, problem("unknown_reference".into()), "not found"),
        (Call::QueryById, 404, problem("unknown_transfer".into()), "not found"),
        // The code of the other path: the request was routed elsewhere.
        (Call::Query, 404, problem("unknown_transfer".into()), "our fault"),
        (Call::QueryById, 404, problem("unknown_reference".into()), "our fault"),
        (Call::Query, 404, problem("UNKNOWN_REFERENCE".into()), "our fault"),
        (Call::Query, 404, problem("not_found".into()), "our fault"),
        (Call::Query, 404, problem(404.into()), "our fault"),
        (Call::Query, 404, json!([{"code": "unknown_reference"}]), "our fault"),
        (Call::Query, 404, json!({"error": {"code": "unknown_reference"}}), "our fault"),
        (Call::Query, 404, json!("unknown_reference"), "our fault"),
        // As a derived struct would also accept its fields.
        (Call::Query, 404, json!(["unknown_reference"]), "our fault"),
        (Call::Query, 410, problem("unknown_reference".into()), "our fault"),
        (Call::Query, 400, problem("unknown_reference".into()), "our fault"),
        (Call::Query, 200, problem("unknown_reference".into()), "no answer"),
        (Call::Query, 503, problem("unknown_reference".into()), "no answer"),
    ] {
        assert_eq!(answer(call, status, &body).await.0, expected, "{call:?} {status} {body}");
    }
}
