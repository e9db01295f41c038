//! The client's interpretation of a switch's responses, over real HTTP: one table per operation. An answer that is not
//! definite is unknown, never a refusal and never void.

#![allow(clippy::unwrap_used, reason = "an unexpected value fails the test")]

use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::any;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use payment_protocol::{SwitchProfile, keys};
use serde_json::json;
use switch_client::{SwitchClient, Switches, TransferOrder, TransferRef};

/// A client of a switch that answers every request alike.
async fn client(status: u16, body: &str) -> SwitchClient {
    let (status, body) = (StatusCode::from_u16(status).unwrap(), body.to_owned());
    let answer = move || async move { (status, [(header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT")], body) };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
    client_of(&url)
}

fn client_of(url: &str) -> SwitchClient {
    let switches: Switches = serde_json::from_value(json!({"mock": {
        "base_url": url, "api_token": "t", "callback_secrets": ["whsec_x"], "profile": {
            "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 0, "can_cancel": true,
            "can_recall": true, "has_callback": true, "attempt_timeout_ms": 2_000,
    }}}))
    .unwrap();
    let checked = switches.check().unwrap();
    let (_, options, profile): (_, _, &SwitchProfile) = checked.iter().next().unwrap();
    SwitchClient::new(options, profile).unwrap()
}

fn order() -> TransferOrder {
    TransferOrder {
        reference: keys::submit(&tx()),
        money: Money::from_minor(500, parse_currency("EUR").unwrap()).unwrap(),
        creditor_account: "FR-BOB".into(),
        end_to_end_id: None,
        deadline: Some(jiff::Timestamp::UNIX_EPOCH),
    }
}

fn tx() -> TxId {
    TxId::derive(&PaymentId::new("pay_1").unwrap())
}

fn transfer(status: &str) -> String {
    json!({"reference": "r", "status": status, "amount_minor": 500, "currency": "EUR"}).to_string()
}

#[tokio::test]
async fn s0_15_a_full_switch_statement_page_is_read_an_oversized_one_is_not() {
    let entries = |details: usize| -> String {
        let entry = |n: usize| {
            json!({"cursor": n.to_string(), "reference": format!("tx_{n:032x}:submit"), "status": "SETTLED",
                "transfer_id": format!("transfer-{n:032x}"), "amount_minor": 500, "currency": "EUR",
                "finished_at": "2026-01-01T00:00:00.123456Z", "details": "x".repeat(details)})
        };
        json!({"entries": (0..1_000).map(entry).collect::<Vec<_>>(), "next": null}).to_string()
    };
    let page = client(200, &entries(300)).await.statement_page(None).await.unwrap();
    assert_eq!((page.lines.len(), page.is_last), (1_000, true));
    let error = client(200, &entries(2_000)).await.statement_page(None).await.unwrap_err();
    assert!(error.contains("longer than"), "{error}");
}

#[tokio::test]
async fn each_switch_response_to_a_submit_is_accepted_refused_or_unknown() {
    for (status, body, expected) in [
        (202, transfer("PENDING"), "accepted"),
        (202, transfer("SETTLED"), "accepted"),
        (202, transfer("REJECTED"), "refused"),
        (422, transfer("REJECTED"), "refused"),
        (400, "{}".into(), "refused"),
        (401, "{}".into(), "refused"),
        (404, "{}".into(), "refused"),
        (202, "not json".into(), "unknown"),
        (204, String::new(), "unknown"),
        (408, "{}".into(), "unknown"),
        (429, "{}".into(), "unknown"),
        (500, "{}".into(), "unknown"),
        (503, "{}".into(), "unknown"),
    ] {
        let answer = match client(status, &body).await.send(&order()).await.answer {
            SendAnswer::Accepted => "accepted",
            SendAnswer::Refused { .. } => "refused",
            SendAnswer::Unknown { .. } => "unknown",
        };
        assert_eq!(answer, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn each_switch_response_to_a_query_is_mapped_to_one_answer() {
    for (status, body, expected) in [
        (200, transfer("PENDING"), "pending"),
        (200, transfer("SETTLED"), "settled"),
        (200, transfer("RETURNED"), "returned"),
        (200, transfer("REJECTED"), "void"),
        (200, transfer("CANCELLED"), "void"),
        (200, json!({"reference": "r", "status": "SETTLED"}).to_string(), "no answer"),
        (200, transfer("LOST"), "no answer"),
        (404, json!({"code": "unknown_reference"}).to_string(), "not found"),
        (404, json!({"code": "not_found"}).to_string(), "our fault"),
        (404, "gone".into(), "our fault"),
        (401, "{}".into(), "our fault"),
        (429, "{}".into(), "no answer"),
        (500, "{}".into(), "no answer"),
    ] {
        let answer = match client(status, &body)
            .await
            .query(TransferRef::Reference(&keys::submit(&tx())))
            .await
            .answer
        {
            QueryAnswer::Pending => "pending",
            QueryAnswer::Settled(_) => "settled",
            QueryAnswer::Returned(_) => "returned",
            QueryAnswer::Void { .. } => "void",
            QueryAnswer::NotFound => "not found",
            QueryAnswer::OurFault { .. } => "our fault",
            QueryAnswer::NoAnswer { .. } => "no answer",
        };
        assert_eq!(answer, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn each_switch_response_to_a_cancel_is_mapped_to_one_answer() {
    let answered = |code: &str| json!({"answer": code, "known": true}).to_string();
    for (status, body, expected) in [
        (200, answered("CANCELLED"), "cancelled"),
        (200, json!({"answer": "CANCELLED", "known": false}).to_string(), "tombstoned"),
        (200, json!({"answer": "CANCELLED"}).to_string(), "tombstoned"),
        (200, answered("ALREADY_REJECTED"), "rejected"),
        (200, json!({"answer": "ALREADY_SETTLED", "transfer": {"reference": "r", "status": "SETTLED", "amount_minor": 5, "currency": "EUR"}}).to_string(), "settled"),
        (200, json!({"answer": "ALREADY_RETURNED", "transfer": {"reference": "r", "status": "RETURNED", "amount_minor": 5, "currency": "EUR"}}).to_string(), "returned"),
        (200, answered("ALREADY_SETTLED"), "undecided"),
        (200, answered("ALREADY_RETURNED"), "undecided"),
        (200, answered("NOT_FOUND"), "not found"),
        (200, answered("REFUSED"), "undecided"),
        (200, answered("IN_PROCESS"), "undecided"),
        (200, answered("CANNOT_CANCEL"), "cannot"),
        (200, answered("MAYBE"), "no answer"),
        (200, "not json".into(), "no answer"),
        (400, "{}".into(), "our fault"),
        (401, "{}".into(), "our fault"),
        (403, "{}".into(), "our fault"),
        (404, "{}".into(), "our fault"),
        (429, "{}".into(), "no answer"),
        (503, "{}".into(), "no answer"),
    ] {
        let answer = match client(status, &body).await.cancel(TransferRef::Reference(&keys::submit(&tx())), &keys::compensate_submit(&tx())).await.answer {
            CancelAnswer::Cancelled { tombstoned: false } => "cancelled",
            CancelAnswer::Cancelled { tombstoned: true } => "tombstoned",
            CancelAnswer::AlreadyRejected => "rejected",
            CancelAnswer::AlreadySettled(_) => "settled",
            CancelAnswer::AlreadyReturned(_) => "returned",
            CancelAnswer::NotFound => "not found",
            CancelAnswer::Undecided { .. } => "undecided",
            CancelAnswer::CannotCancel => "cannot",
            CancelAnswer::OurFault { .. } => "our fault",
            CancelAnswer::NoAnswer { .. } => "no answer",
        };
        assert_eq!(answer, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn each_switch_response_to_a_recall_is_mapped_to_one_answer() {
    let answered = |code: &str| json!({"answer": code}).to_string();
    for (status, body, expected) in [
        (200, answered("RECALLED"), "recalled"),
        (200, answered("REFUSED"), "refused"),
        (200, answered("CANNOT_RECALL"), "cannot"),
        (200, answered("IN_PROCESS"), "unknown"),
        (200, answered("NOT_SETTLED"), "unknown"),
        (200, answered("NOT_FOUND"), "unknown"),
        (400, answered("REFUSED"), "unknown"),
        (404, "{}".into(), "unknown"),
        (500, "{}".into(), "unknown"),
    ] {
        let answer = match client(status, &body)
            .await
            .recall(TransferRef::Reference(&keys::submit(&tx())), &keys::recall(&tx()))
            .await
            .answer
        {
            RecallAnswer::Recalled => "recalled",
            RecallAnswer::Refused { .. } => "refused",
            RecallAnswer::RecallUnsupported => "cannot",
            RecallAnswer::Unknown { .. } => "unknown",
        };
        assert_eq!(answer, expected, "{status} {body}");
    }
}

#[tokio::test]
async fn a_failed_switch_connection_is_unknown_and_a_date_sets_the_clock() {
    let unreachable = client_of("http://127.0.0.1:9");
    assert!(matches!(unreachable.send(&order()).await.answer, SendAnswer::Unknown { .. }));
    assert!(matches!(
        unreachable.query(TransferRef::Reference(&keys::submit(&tx()))).await.answer,
        QueryAnswer::NoAnswer { .. }
    ));
    assert!(unreachable.switch_now().await.is_err());

    let switch = client(404, "{}").await;
    let switch_now = switch.query(TransferRef::Reference(&keys::submit(&tx()))).await.switch_now.unwrap();
    assert_eq!(switch_now.to_string(), "1994-11-06T08:49:37Z");
    assert!(switch.switch_now().await.unwrap() >= switch_now);
}
