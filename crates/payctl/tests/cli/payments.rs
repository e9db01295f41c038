//! `payctl pay` and `payctl show --api`, against a stub of the API.

use serde_json::{Value, json};

use crate::api_stub::{ApiStub, PAYMENT_ID, ReadReply, RunningApiStub};
use crate::run::{CommandResult, payctl};

const SETTLES: [(&str, &str); 4] = [
    ("accepted", "to be sent by mock"),
    ("reserved", "12.50 EUR held"),
    ("submitted", "the switch took it"),
    ("settled", "transfer sent"),
];

async fn pay(api: &RunningApiStub, options: &[&str]) -> CommandResult {
    let payment = ["pay", "--from", "A", "--to", "B", "--amount", "12.50", "--currency", "EUR"];
    payctl(&[&payment[..], &["--url", &api.url, "--key", "test-key"], options].concat()).await
}

fn settling(reads: &[ReadReply]) -> ApiStub {
    ApiStub { timeline: SETTLES.to_vec(), reads: reads.to_vec(), ..ApiStub::default() }
}

#[tokio::test]
async fn payctl_watch_follows_a_payment_until_it_settles() {
    // The API is unavailable twice, has no new line once, and then two new lines at once.
    let reads = [
        ReadReply::Lines(1),
        ReadReply::Unavailable,
        ReadReply::Unavailable,
        ReadReply::Lines(2),
        ReadReply::Lines(2),
        ReadReply::Lines(4),
    ];
    let api = settling(&reads).serve().await;
    let result = pay(&api, &["--watch", "--idempotency-key", "order-1"]).await;
    let remark = format!(
        "payctl: payment {PAYMENT_ID} cannot be read: the payments API refused the request with 503 Service Unavailable: down; retrying\n"
    );
    assert_eq!(result.stderr, remark);
    let expected = "\
payment pay_0123456789abcdef0123456789abcdef: 12.50 EUR from A to B
    0.250 s   accepted         to be sent by mock
    1.250 s   reserved         12.50 EUR held
    2.250 s   submitted        the switch took it
    3.250 s   settled          transfer sent

payment pay_0123456789abcdef0123456789abcdef: final state settled after 3.250 s

account             available       held
A         before   100.00 EUR   0.00 EUR
A         after     87.50 EUR   0.00 EUR
";
    assert_eq!(result.success(), expected);
    let received = api.received();
    assert_eq!(received.idempotency_key.as_deref(), Some("order-1"));
    let request =
        json!({"amount": "12.50", "currency": "EUR", "source_account": "A", "destination_account": "B"});
    assert_eq!(received.payment_request, Some(request));
}

#[tokio::test]
async fn payctl_exits_with_1_if_a_watched_payment_ends_without_settling() {
    let timeline = vec![("accepted", "accepted"), ("failed", "nothing was charged")];
    let api = ApiStub { timeline, reads: vec![ReadReply::Lines(2)], ..ApiStub::default() }.serve().await;
    let result = pay(&api, &["--watch"]).await;
    assert_eq!(result.code, Some(1), "{result:?}");
    let summary =
        format!("\npayment {PAYMENT_ID}: final state failed after 1.250 s; reason: creditor_unknown\n");
    assert!(result.stdout.contains(&summary), "{result:?}");
}

#[tokio::test]
async fn payctl_exits_with_3_for_an_open_payment_without_calling_it_failed() {
    // Long enough for one read where the API is available.
    let table =
        [(ReadReply::Lines(3), "5", "state submitted"), (ReadReply::Unavailable, "1", "state unknown")];
    for (reply, timeout_s, state) in table {
        let api = settling(&[reply]).serve().await;
        let result = pay(&api, &["--watch", "--timeout-s", timeout_s]).await;
        assert_eq!(result.code, Some(3), "{result:?}");
        let next = format!("payctl show {PAYMENT_ID} --api --url {}", api.url);
        let summary = format!(
            "\npayment {PAYMENT_ID}: {state} after {timeout_s} s; not ended, not failed; next: {next}\n"
        );
        assert!(result.stdout.contains(&summary), "{result:?}");
    }
}

#[tokio::test]
async fn payctl_pay_without_watch_prints_the_acceptance_only() {
    let api = settling(&[ReadReply::Lines(1)]).serve().await;
    let output = pay(&api, &[]).await.success();
    let next =
        format!("payment {PAYMENT_ID} accepted; next: payctl show {PAYMENT_ID} --api --url {}\n", api.url);
    assert!(output.ends_with(&next), "{output}");
    let document: Value = serde_json::from_str(&pay(&api, &["--json"]).await.success()).unwrap();
    assert_eq!(document["payment_id"], PAYMENT_ID);
}

#[tokio::test]
async fn payctl_reports_that_a_refused_request_created_no_payment() {
    let problem = json!({"code": "no_route", "title": "t", "detail": "no switch serves B"});
    let api = ApiStub { acceptance: (422, problem), ..ApiStub::default() }.serve().await;
    let error = pay(&api, &["--watch"]).await.refused();
    let expected = "the request created no payment: the payments API refused the request with 422 Unprocessable Entity: no switch serves B (no_route)";
    assert_eq!(error, format!("payctl: {expected}\n"));
}

#[tokio::test]
async fn payctl_prints_the_idempotency_key_of_an_unanswered_payment_request() {
    let api = ApiStub { acceptance: (503, json!({"code": "store_unavailable"})), ..ApiStub::default() };
    let api = api.serve().await;
    let error = pay(&api, &[]).await.refused();
    let key = api.received().idempotency_key.clone().unwrap();
    assert!(error.contains(&format!("repeat the command with --idempotency-key {key}")), "{error}");
}

#[tokio::test]
async fn payctl_names_an_unreachable_api_and_its_setting() {
    let error = payctl(&["show", PAYMENT_ID, "--api", "--url", "http://127.0.0.1:1"]).await.refused();
    let expected = "no connection to the payments API at http://127.0.0.1:1, so nothing was sent; check --url (PAYMENTS_API_URL)";
    assert!(error.contains(expected), "{error}");
}

#[tokio::test]
async fn payctl_watch_with_json_prints_one_document() {
    let api = settling(&[ReadReply::Lines(2), ReadReply::Lines(4)]).serve().await;
    let output = pay(&api, &["--watch", "--json"]).await.success();
    let document: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(document["payment_id"], PAYMENT_ID);
    assert_eq!(document["payment"]["status"], "settled");
    assert_eq!(document["source_before"]["available"], "100.00");
    assert_eq!(document["source_after"]["available"], "87.50");
}

#[tokio::test]
async fn payctl_show_prints_a_payment_with_its_timeline() {
    let api = settling(&[ReadReply::Lines(2)]).serve().await;
    let show = ["show", PAYMENT_ID, "--api", "--url", &api.url, "--key", "test-key"];
    let expected = format!(
        "\
payment       {PAYMENT_ID}
transaction   tx_1
state         reserved
amount        12.50 EUR
from          A
to            B
switch        mock
accepted at   2026-01-01T00:00:00Z

    0.250 s   accepted         to be sent by mock
    1.250 s   reserved         12.50 EUR held
"
    );
    assert_eq!(payctl(&show).await.success(), expected);
    let document = payctl(&[&show[..], &["--json"]].concat()).await.success();
    assert_eq!(serde_json::from_str::<Value>(&document).unwrap()["status"], "reserved");
}
