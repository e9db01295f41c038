//! The commands that use the API.

use serde_json::{Value, json};

use crate::run::{Ran, payctl};
use crate::stub::{PAYMENT_ID, Scene, Served, Stub};

const SETTLES: [(&str, &str); 4] = [
    ("accepted", "to be sent by mock"),
    ("reserved", "12.50 EUR held"),
    ("submitted", "the switch took it"),
    ("settled", "transfer sent"),
];

async fn pay(api: &Served, more: &[&str]) -> Ran {
    let payment = ["pay", "--from", "A", "--to", "B", "--amount", "12.50", "--currency", "EUR"];
    payctl(&[&payment[..], &["--url", &api.url, "--key", "test-key"], more].concat()).await
}

fn settling(scenes: &[Scene]) -> Stub {
    Stub { timeline: SETTLES.to_vec(), scenes: scenes.to_vec(), ..Stub::default() }
}

#[tokio::test]
async fn a_payment_is_watched_until_it_settles() {
    // The API is away for a moment, shows nothing new once, and two lines at once.
    let scenes =
        [Scene::Lines(1), Scene::Down, Scene::Down, Scene::Lines(2), Scene::Lines(2), Scene::Lines(4)];
    let api = settling(&scenes).serve().await;
    let ran = pay(&api, &["--watch", "--idempotency-key", "order-1"]).await;
    assert_eq!(ran.stderr, "payctl: 503 Service Unavailable: down; asking again\n");
    let expected = "\
payment pay_0123456789abcdef0123456789abcdef: 12.50 EUR from A to B
    0.250 s   accepted         to be sent by mock
    1.250 s   reserved         12.50 EUR held
    2.250 s   submitted        the switch took it
    3.250 s   settled          transfer sent

settled after 3.250 s

account             available       held
A         before   100.00 EUR   0.00 EUR
A         after     87.50 EUR   0.00 EUR
";
    assert_eq!(ran.done(), expected);
    let asked = api.asked();
    assert_eq!(asked.idempotency_key.as_deref(), Some("order-1"));
    let order =
        json!({"amount": "12.50", "currency": "EUR", "source_account": "A", "destination_account": "B"});
    assert_eq!(asked.order, Some(order));
}

#[tokio::test]
async fn another_end_is_exit_code_1() {
    let timeline = vec![("accepted", "accepted"), ("failed", "nothing was charged")];
    let api = Stub { timeline, scenes: vec![Scene::Lines(2)], ..Stub::default() }.serve().await;
    let ran = pay(&api, &["--watch"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stdout.contains("\nfailed after 1.250 s: creditor_unknown\n"), "{ran:?}");
}

#[tokio::test]
async fn an_open_payment_is_exit_code_3_and_not_called_failed() {
    // Long enough for a look, where there is something to be seen.
    let table = [(Scene::Lines(3), "5", "still submitted"), (Scene::Down, "1", "not seen yet")];
    for (scene, timeout_s, state) in table {
        let api = settling(&[scene]).serve().await;
        let ran = pay(&api, &["--watch", "--timeout-s", timeout_s]).await;
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let look = format!("payctl show {PAYMENT_ID} --api --url {}", api.url);
        let said = format!("\n{state} after {timeout_s} s: unknown, not failed; to look again: {look}\n");
        assert!(ran.stdout.contains(&said), "{ran:?}");
    }
}

#[tokio::test]
async fn without_watch_the_acceptance_is_all() {
    let api = settling(&[Scene::Lines(1)]).serve().await;
    let said = pay(&api, &[]).await.done();
    assert!(
        said.ends_with(&format!(
            "accepted; to look at it: payctl show {PAYMENT_ID} --api --url {}\n",
            api.url
        ))
    );
    let document: Value = serde_json::from_str(&pay(&api, &["--json"]).await.done()).unwrap();
    assert_eq!(document["payment_id"], PAYMENT_ID);
}

#[tokio::test]
async fn a_refusal_makes_no_payment() {
    let problem = json!({"code": "no_route", "title": "t", "detail": "no switch serves B"});
    let api = Stub { acceptance: (422, problem), ..Stub::default() }.serve().await;
    let said = pay(&api, &["--watch"]).await.refused();
    let expected = "this request made no payment: 422 Unprocessable Entity: no switch serves B (no_route)";
    assert_eq!(said, format!("payctl: {expected}\n"));
}

#[tokio::test]
async fn an_unknown_acceptance_says_how_to_repeat_it() {
    let api = Stub { acceptance: (503, json!({"code": "store_unavailable"})), ..Stub::default() };
    let api = api.serve().await;
    let said = pay(&api, &[]).await.refused();
    let key = api.asked().idempotency_key.clone().unwrap();
    assert!(said.contains(&format!("repeat the command with --idempotency-key {key}")), "{said}");
}

#[tokio::test]
async fn an_api_that_is_not_there_is_named() {
    let said = payctl(&["show", PAYMENT_ID, "--api", "--url", "http://127.0.0.1:1"]).await.refused();
    assert!(said.contains("nothing answers at http://127.0.0.1:1 (--url, PAYMENTS_API_URL)"), "{said}");
}

#[tokio::test]
async fn the_end_is_one_document_too() {
    let api = settling(&[Scene::Lines(2), Scene::Lines(4)]).serve().await;
    let document: Value = serde_json::from_str(&pay(&api, &["--watch", "--json"]).await.done()).unwrap();
    assert_eq!(document["payment_id"], PAYMENT_ID);
    assert_eq!(document["payment"]["status"], "settled");
    assert_eq!(document["source_before"]["available"], "100.00");
    assert_eq!(document["source_after"]["available"], "87.50");
}

#[tokio::test]
async fn a_payment_is_shown_with_its_timeline() {
    let api = settling(&[Scene::Lines(2)]).serve().await;
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
workflow      {PAYMENT_ID}
accepted at   2026-01-01T00:00:00Z

    0.250 s   accepted         to be sent by mock
    1.250 s   reserved         12.50 EUR held
"
    );
    assert_eq!(payctl(&show).await.done(), expected);
    let document = payctl(&[&show[..], &["--json"]].concat()).await.done();
    assert_eq!(serde_json::from_str::<Value>(&document).unwrap()["status"], "reserved");
}
