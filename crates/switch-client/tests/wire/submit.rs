//! Answers to a submit: 202 with the transfer, or 422 with the refusal. Nothing else accepts or refuses.

use payment_protocol::reject::Reject;
use payment_protocol::submit::SendAnswer;
use serde_json::{Value, json};

use crate::calls::{Call, client_with, order, query_word, reference};
use crate::server::{Server, Step, response};

async fn outcome(call: Call, status: u16, body: &Value) -> String {
    call.outcome_of(Step::Send(response(status, body.to_string().as_bytes()))).await.word
}

fn transfer(status: &str, amount_minor: i64, currency: &str) -> Value {
    json!({"transfer_id": "7", "reference": reference(), "status": status, "amount_minor": amount_minor,
        "currency": currency, "duplicate": false})
}

fn refusal(status: &str) -> Value {
    json!({"reference": reference(), "status": status, "reason": "limit", "duplicate": false})
}

#[tokio::test]
async fn only_a_documented_switch_answer_accepts_or_refuses_a_submit() {
    let problem = |code: &str| json!({"code": code, "detail": "d"});
    let ours = |status| transfer(status, 500, "EUR");
    #[rustfmt::skip]
    let rows = [
        // what the switch does                                status  body                             outcome
        ("accepts",                                            202,    ours("PENDING"),                 "accepted"),
        ("has settled it before",                              202,    ours("SETTLED"),                 "accepted"),
        ("has returned it before",                             202,    ours("RETURNED"),                "accepted"),
        ("has rejected it before",                             202,    ours("REJECTED"),                "refused"),
        ("has cancelled it before",                            202,    ours("CANCELLED"),               "refused"),
        ("accepts without amount and currency",                202,    refusal("PENDING"),              "accepted"),
        ("refuses",                                            422,    refusal("REJECTED"),             "refused"),
        ("refuses and names the amount",                       422,    ours("REJECTED"),                "refused"),
        // Contradictions of status and body.
        ("refuses a transfer that it settled",                 422,    ours("SETTLED"),                 "unknown"),
        ("refuses a transfer that it processes",               422,    ours("PENDING"),                 "unknown"),
        ("refuses a transfer that it returned",                422,    ours("RETURNED"),                "unknown"),
        ("refuses a transfer that it cancelled",               422,    ours("CANCELLED"),               "unknown"),
        ("answers a refusal of the request with 422",          422,    problem("invalid_field"),        "unknown"),
        ("answers 422 with a reason only",                     422,    json!({"reason": "limit"}),      "unknown"),
        // Another transfer under our reference.
        ("accepts another amount",                             202,    transfer("PENDING", 501, "EUR"), "unknown"),
        ("accepts another currency",                           202,    transfer("PENDING", 500, "USD"), "unknown"),
        ("has rejected another amount",                        202,    transfer("REJECTED", 501, "EUR"), "unknown"),
        ("has rejected another currency",                      202,    transfer("REJECTED", 500, "USD"), "unknown"),
        ("refuses another amount",                             422,    transfer("REJECTED", 501, "EUR"), "unknown"),
        ("writes the currency in small letters",               202,    transfer("REJECTED", 500, "eur"), "unknown"),
        // Refusals of the request prove nothing about an earlier attempt.
        ("reports a conflict of references",                   409,    problem("reference_conflict"),   "unknown"),
        ("reports a refused transfer as a conflict",           409,    ours("REJECTED"),                "unknown"),
        ("does not know our token",                            401,    problem("unauthorized"),         "unknown"),
        ("cannot parse the request",                           400,    problem("malformed_request"),    "unknown"),
        ("has no such path",                                   404,    problem("not_found"),            "unknown"),
        ("refuses in a body with status 400",                  400,    refusal("REJECTED"),             "unknown"),
        ("refuses in a body with status 200",                  200,    refusal("REJECTED"),             "unknown"),
        ("refuses in a body with status 500",                  500,    refusal("REJECTED"),             "unknown"),
    ];
    for (name, status, body, expected) in rows {
        assert_eq!(outcome(Call::Submit, status, &body).await, expected, "the switch {name}");
    }
}

#[tokio::test]
async fn s1_8_a_switch_without_references_names_none_in_its_answer() {
    let anonymous = |status: &str| json!({"transfer_id": "7", "reference": null, "status": status});
    let call = Call::SubmitWithoutReferences;
    for (status, body, expected) in [
        (202, anonymous("PENDING"), "accepted"),
        (202, anonymous("REJECTED"), "refused"),
        (422, json!({"reference": null, "status": "REJECTED", "reason": "limit"}), "refused"),
        (422, json!({"status": "REJECTED", "reason": "limit"}), "refused"),
        (422, anonymous("SETTLED"), "unknown"),
        (400, anonymous("REJECTED"), "unknown"),
    ] {
        assert_eq!(outcome(call, status, &body).await, expected, "{status} {body}");
    }
}

/// The switch's own id is recorded and used in later requests, so only an answer about our transfer may name it.
#[tokio::test]
async fn only_a_definite_switch_answer_to_a_submit_names_the_transfer_id() {
    let mut other = transfer("PENDING", 500, "EUR");
    other["reference"] = "tx_other:submit".into();
    for (status, body, expected) in [
        (202, transfer("PENDING", 500, "EUR"), Some("7")),
        (422, transfer("REJECTED", 500, "EUR"), Some("7")),
        (202, other, None),
        (202, transfer("PENDING", 501, "EUR"), None),
        (500, transfer("PENDING", 500, "EUR"), None),
        (409, transfer("PENDING", 500, "EUR"), None),
    ] {
        let server = Server::start(vec![Step::Send(response(status, body.to_string().as_bytes()))]).await;
        let reply = client_with(&server.url, &json!({})).send(&order()).await;
        assert_eq!(reply.transfer_id.as_deref(), expected, "{status} {body}");
    }
}

#[tokio::test]
async fn a_reject_carries_the_switchs_reason_code() {
    let mut refused = refusal("REJECTED");
    refused["reason_code"] = "AC04".into();
    let server = Server::start(vec![Step::Send(response(422, refused.to_string().as_bytes()))]).await;
    let reply = client_with(&server.url, &json!({})).send(&order()).await;
    let reject = Reject { code: Some("AC04".into()), reason: "limit".into() };
    assert_eq!(reply.answer, SendAnswer::Refused { reject });
}

/// A repeat is the recorded submit, byte for byte; its answer says how the transfer stands.
#[tokio::test]
async fn a_repeated_submit_is_read_as_the_answer_to_a_query() {
    let problem = |code: &str| json!({"code": code, "detail": "d"});
    let ours = |status| transfer(status, 500, "EUR");
    #[rustfmt::skip]
    let rows = [
        // what the switch does                       status  body                              answer
        ("still processes it",                        202,    ours("PENDING"),                  "pending"),
        ("had settled it",                            202,    ours("SETTLED"),                  "settled"),
        ("had returned it",                           202,    ours("RETURNED"),                 "returned"),
        ("had rejected it",                           202,    ours("REJECTED"),                 "void"),
        ("refuses it",                                422,    refusal("REJECTED"),              "void"),
        ("refuses what it settled",                   422,    ours("SETTLED"),                  "our fault"),
        ("had settled another amount",                202,    transfer("SETTLED", 501, "EUR"),  "no answer"),
        ("names another transfer",                    202,    json!({"reference": "tx_other:submit", "status": "SETTLED"}), "no answer"),
        ("is overloaded",                             503,    problem("overloaded"),            "no answer"),
        ("does not know our token",                   401,    problem("unauthorized"),          "our fault"),
        ("has the reference with other data",         409,    problem("reference_conflict"),    "our fault"),
    ];
    for (name, status, body, expected) in rows {
        let answer = Step::Send(response(status, body.to_string().as_bytes()));
        let server = Server::start(vec![Step::Send(response(503, b"")), answer]).await;
        let client = client_with(&server.url, &json!({}));
        let _ = client.send(&order()).await;
        let reply = client.repeat(&order()).await;
        assert_eq!(query_word(&reply.answer), expected, "the switch {name}");
        let requests = server.requests();
        let body_of = |request: &String| request.split_once("\r\n\r\n").unwrap().1.to_owned();
        assert_eq!(body_of(&requests[0]), body_of(&requests[1]), "the repeat is the same message");
    }
}
