//! Answers to a cancel. It is the only request whose answer releases money.

use payment_protocol::cancel::CancelAnswer;
use payment_protocol::keys;
use serde_json::{Value, json};
use switch_client::TransferRef;

use crate::calls::{Call, cancel_word, client_with, lookup_key, reference, tx};
use crate::server::{Server, Step, response};

async fn answer(call: Call, status: u16, body: &Value) -> CancelAnswer {
    let server = Server::start(vec![Step::Send(response(status, body.to_string().as_bytes()))]).await;
    let client = client_with(&server.url, &json!({}));
    let (by_reference, by_id) = (keys::submit(&tx()), lookup_key(None, Some("7")));
    let transfer = match call {
        Call::CancelById => TransferRef::LookupKey(&by_id),
        _ => TransferRef::Name(&by_reference.clone().into()),
    };
    client.cancel(transfer, &keys::compensate_submit(&tx())).await.answer
}

/// An answer to a cancel by reference, with the transfer in this status.
fn answered(code: &str, known: Option<bool>, transfer: Option<&str>) -> Value {
    let mut body = json!({"reference": reference(), "answer": code});
    if let Some(known) = known {
        body["known"] = known.into();
    }
    if let Some(status) = transfer {
        body["transfer"] = json!({"transfer_id": "7", "reference": reference(), "status": status,
            "amount_minor": 500, "currency": "EUR"});
    }
    body
}

#[tokio::test]
async fn each_documented_switch_answer_to_a_cancel_has_its_meaning() {
    let yes = Some(true);
    #[rustfmt::skip]
    let rows = [
        ("CANCELLED",        yes,         Some("CANCELLED"), "cancelled"),
        ("CANCELLED",        yes,         None,              "cancelled"),
        ("CANCELLED",        Some(false), None,              "tombstoned"),
        // The protocol decides by its own record what such a switch may have cancelled.
        ("CANCELLED",        None,        None,              "cancelled, unsaid"),
        ("ALREADY_REJECTED", yes,         Some("REJECTED"),  "rejected"),
        ("ALREADY_REJECTED", yes,         None,              "rejected"),
        ("ALREADY_SETTLED",  yes,         Some("SETTLED"),   "settled"),
        ("ALREADY_RETURNED", yes,         Some("RETURNED"),  "returned"),
        ("ALREADY_RETURNED", yes,         None,              "undecided"),
        ("ALREADY_SETTLED",  yes,         None,              "undecided"),
        ("NOT_FOUND",        Some(false), None,              "not found"),
        ("REFUSED",          yes,         Some("PENDING"),   "undecided"),
        ("IN_PROCESS",       yes,         Some("PENDING"),   "undecided"),
        ("CANNOT_CANCEL",    yes,         Some("PENDING"),   "cannot"),
        // An answer that its own transfer contradicts.
        ("CANCELLED",        yes,         Some("SETTLED"),   "no answer"),
        ("CANCELLED",        yes,         Some("PENDING"),   "no answer"),
        ("CANCELLED",        yes,         Some("RETURNED"),  "no answer"),
        ("CANCELLED",        yes,         Some("REJECTED"),  "no answer"),
        ("CANCELLED",        Some(false), Some("SETTLED"),   "no answer"),
        ("ALREADY_REJECTED", yes,         Some("SETTLED"),   "no answer"),
        ("ALREADY_REJECTED", yes,         Some("RETURNED"),  "no answer"),
        ("ALREADY_SETTLED",  yes,         Some("RETURNED"),  "no answer"),
        ("ALREADY_RETURNED", yes,         Some("SETTLED"),   "no answer"),
        ("ALREADY_REJECTED", yes,         Some("PENDING"),   "no answer"),
        ("ALREADY_SETTLED",  yes,         Some("REJECTED"),  "no answer"),
        ("ALREADY_SETTLED",  yes,         Some("CANCELLED"), "no answer"),
        ("ALREADY_SETTLED",  yes,         Some("PENDING"),   "no answer"),
        ("NOT_FOUND",        Some(false), Some("SETTLED"),   "no answer"),
        ("NOT_FOUND",        Some(false), Some("PENDING"),   "no answer"),
        ("NOT_FOUND",        yes,         None,              "no answer"),
    ];
    for (code, known, transfer, expected) in rows {
        let found = answer(Call::Cancel, 200, &answered(code, known, transfer)).await;
        assert_eq!(cancel_word(&found), expected, "{code} {known:?} {transfer:?}: {found:?}");
    }
}

/// A transfer inside the answer that is not ours: another reference, or another id at a switch without references.
#[tokio::test]
async fn a_cancel_answer_with_another_transfer_decides_nothing() {
    let with = |code: &str, status: &str, field: &str, value: &str| {
        let mut body = answered(code, Some(true), Some(status));
        body["transfer_id"] = "7".into();
        body["transfer"][field] = value.into();
        body
    };
    for (code, status) in
        [("CANCELLED", "CANCELLED"), ("ALREADY_REJECTED", "REJECTED"), ("ALREADY_SETTLED", "SETTLED")]
    {
        for (call, field, value) in
            [(Call::Cancel, "reference", "tx_other:submit"), (Call::CancelById, "transfer_id", "8")]
        {
            let found = answer(call, 200, &with(code, status, field, value)).await;
            // A settlement under another reference is reported as such: the protocol records it as an exception.
            let is_report = call == Call::Cancel && status == "SETTLED";
            let expected = if is_report { "settled" } else { "no answer" };
            assert_eq!(cancel_word(&found), expected, "{call:?} {code} {field}: {found:?}");
            if let CancelAnswer::AlreadySettled(report) = found {
                assert_eq!(report.reference, "tx_other:submit");
            }
        }
    }
}

/// The settlement is passed on in the switch's words; without its amount or currency nothing is decided.
#[tokio::test]
async fn a_cancel_answered_already_settled_carries_the_report() {
    let with = |field: &str, value: Value| {
        let mut body = answered("ALREADY_SETTLED", Some(true), Some("SETTLED"));
        body["transfer"][field] = value;
        body
    };
    for (body, expected) in [
        (with("amount_minor", 500.into()), Some((500, "EUR"))),
        (with("amount_minor", 501.into()), Some((501, "EUR"))),
        (with("currency", "USD".into()), Some((500, "USD"))),
        (with("amount_minor", Value::Null), None),
        (with("currency", Value::Null), None),
    ] {
        match (answer(Call::Cancel, 200, &body).await, expected) {
            (CancelAnswer::AlreadySettled(report), Some((amount_minor, currency))) => {
                assert_eq!(report.reference, reference());
                assert_eq!((report.amount_minor, report.currency.as_str()), (amount_minor, currency));
            }
            (CancelAnswer::Undecided { .. }, None) => {}
            (found, expected) => panic!("{body}: {found:?}, expected {expected:?}"),
        }
    }
}

/// A cancel by reference names an unknown transfer in its body, so a 404 is about the path.
#[tokio::test]
async fn a_404_to_a_cancel_means_not_found_only_by_the_switchs_own_id() {
    let problem = |code: &str| json!({"code": code, "detail": "d"});
    for (call, body, expected) in [
        (Call::Cancel, problem("unknown_reference"), "our fault"),
        (Call::Cancel, problem("unknown_transfer"), "our fault"),
        (Call::CancelById, problem("unknown_transfer"), "not found"),
        (Call::CancelById, problem("unknown_reference"), "our fault"),
        (Call::CancelById, problem("not_found"), "our fault"),
    ] {
        let found = answer(call, 404, &body).await;
        assert_eq!(cancel_word(&found), expected, "{call:?} {body}: {found:?}");
    }
}

/// At a switch without references the cancel follows a lookup. A lookup without a definite answer cancels nothing.
#[tokio::test]
async fn s1_8_a_cancel_after_an_undecided_lookup_sends_nothing() {
    let listing = |transfers: Value| json!({"transfers": transfers, "next": null}).to_string().into_bytes();
    let entry = |id: &str| {
        json!({"transfer_id": id, "status": "PENDING", "amount_minor": 500, "currency": "EUR",
            "creditor_account": "FR-BOB"})
    };
    for (name, step, expected, requests) in [
        ("lists two candidates", response(200, &listing(json!([entry("7"), entry("8")]))), "cannot", 1),
        ("lists none", response(200, &listing(json!([]))), "not found", 1),
        ("is busy", response(429, b""), "no answer", 1),
        ("closes", vec![], "no answer", 1),
        ("does not know our token", response(401, b""), "our fault", 1),
        ("lists one candidate", response(200, &listing(json!([entry("7")]))), "cancelled", 2),
    ] {
        let cancelled =
            json!({"reference": null, "transfer_id": "7", "answer": "CANCELLED", "known": true}).to_string();
        let server =
            Server::start(vec![Step::Send(step), Step::Send(response(200, cancelled.as_bytes()))]).await;
        let client = client_with(&server.url, &json!({}));
        let key = lookup_key(Some("0"), None);
        let reply = client.cancel(TransferRef::LookupKey(&key), &keys::compensate_submit(&tx())).await;
        assert_eq!(cancel_word(&reply.answer), expected, "the switch {name}: {reply:?}");
        assert_eq!(server.requests().len(), requests, "the switch {name}");
    }
}
