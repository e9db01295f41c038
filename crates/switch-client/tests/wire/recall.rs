//! Answers to a recall. Only the switch's recorded answer decides.

use payment_protocol::keys;
use serde_json::{Value, json};
use switch_client::TransferRef;

use crate::calls::{Call, client_with, lookup_key, recall_word, reference, tx};
use crate::server::{Server, Step, response};

#[tokio::test]
async fn each_documented_switch_answer_to_a_recall_has_its_meaning() {
    let by_reference = |code: &str| json!({"reference": reference(), "answer": code, "reason": "r"});
    let by_id = |code: &str| json!({"reference": null, "transfer_id": "7", "answer": code});
    for (code, expected) in [
        ("RECALLED", "recalled"),
        ("REFUSED", "refused"),
        ("CANNOT_RECALL", "cannot"),
        ("IN_PROCESS", "pending"),
        ("PROMISED", "promised"),
        ("NOT_SETTLED", "unknown"),
        ("NOT_FOUND", "unknown"),
        ("CANCELLED", "unknown"),
    ] {
        for (call, body) in [(Call::Recall, by_reference(code)), (Call::RecallById, by_id(code))] {
            for status in [200, 202, 400, 404, 409, 422, 500] {
                let bytes = response(status, body.to_string().as_bytes());
                let outcome = call.outcome_of(Step::Send(bytes)).await;
                let expected = if status == 200 { expected } else { "unknown" };
                assert_eq!(outcome.word, expected, "{call:?} {code} {status}: {outcome:?}");
            }
        }
    }
}

/// At a switch without references the recall follows a lookup. A lookup without a definite answer recalls nothing.
#[tokio::test]
async fn s1_8_a_recall_after_an_undecided_lookup_sends_nothing() {
    let listing = |transfers: Value| json!({"transfers": transfers, "next": null}).to_string().into_bytes();
    let entry = |id: &str| {
        json!({"transfer_id": id, "status": "SETTLED", "amount_minor": 500, "currency": "EUR",
            "creditor_account": "FR-BOB"})
    };
    for (name, step, expected, requests) in [
        ("lists two candidates", response(200, &listing(json!([entry("7"), entry("8")]))), "unknown", 1),
        ("lists none", response(200, &listing(json!([]))), "unknown", 1),
        ("is busy", response(503, b""), "unknown", 1),
        ("closes", vec![], "unknown", 1),
        ("lists one candidate", response(200, &listing(json!([entry("7")]))), "recalled", 2),
    ] {
        let recalled = json!({"reference": null, "transfer_id": "7", "answer": "RECALLED"}).to_string();
        let server =
            Server::start(vec![Step::Send(step), Step::Send(response(200, recalled.as_bytes()))]).await;
        let client = client_with(&server.url, &json!({}));
        let key = lookup_key(Some("0"), None);
        let reply = client.recall(TransferRef::LookupKey(&key), &keys::recall(&tx())).await;
        assert_eq!(recall_word(&reply.answer), expected, "the switch {name}: {reply:?}");
        assert_eq!(server.requests().len(), requests, "the switch {name}");
    }
}
