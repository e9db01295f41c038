//! The trace of a call: the switch gets its position, and the span names the idempotency key by its hash (S3.8). In a program of its own,
//! because a process has one exporter.

#![allow(clippy::unwrap_used, reason = "an unexpected value fails the test")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use payment_protocol::SwitchProfile;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::keys;
use payment_protocol::money::{Money, parse_currency};
use serde_json::json;
use switch_client::{HttpJsonClient, SecretsOf, Switches, TransferOrder};
use tokio::net::TcpListener;
use trace_collector::Collector;
use trace_kit::{Exporter, SpanKind, TRACEPARENT, attribute, span};

/// A switch that answers nothing definite, and the positions that it got.
async fn serve() -> (String, Arc<Mutex<Vec<String>>>) {
    let positions = Arc::<Mutex<Vec<String>>>::default();
    let recorded = positions.clone();
    let record = move |headers: HeaderMap| async move {
        let position = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        recorded.lock().unwrap().push(position.to_owned());
        StatusCode::SERVICE_UNAVAILABLE
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route("/v1/transfers", post(record));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, positions)
}

fn client(url: &str) -> HttpJsonClient {
    let profile = json!({"strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
        "tombstones": true, "honours_deadline": true, "max_skew_ms": 0, "can_cancel": true, "can_recall": true,
        "has_callback": true});
    let switches: Switches =
        serde_json::from_value(json!({"mock": {"base_url": url, "api_token": "t", "profile": profile}}))
            .unwrap();
    let checked = switches.check(SecretsOf::Requests).unwrap();
    let (_, options, profile): (_, _, &SwitchProfile) = checked.iter().next().unwrap();
    HttpJsonClient::new(options, profile).unwrap()
}

/// Two attempts of one submit carry one key: a search for its hash finds both.
#[tokio::test(flavor = "multi_thread")]
async fn s3_8_the_switch_gets_the_position_of_a_call_in_its_trace() {
    let collector = Collector::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let exporter = Exporter::start_to("switch-client", collector.endpoint()).unwrap();
    let (url, positions) = serve().await;
    let client = client(&url);
    let name = keys::submit(&TxId::derive(&PaymentId::new("pay_1").unwrap()));
    let order = TransferOrder {
        name: name.clone().into(),
        money: Money::from_minor(500, parse_currency("EUR").unwrap()).unwrap(),
        creditor_account: "FR-BOB".into(),
        end_to_end_id: None,
        deadline: None,
    };
    let payment = span(SpanKind::Internal, "payment").continue_or_begin(None).start();
    for _ in 0..2 {
        payment.run(client.send(&order)).await;
    }
    let trace_id = payment.trace_parent().unwrap().trace_id();
    payment.end_at(SystemTime::now());
    exporter.stop().await;

    let spans = collector.trace(&trace_id);
    let attempts = spans.iter().filter(|span| span.name == "submit transfer");
    let mut sent: Vec<_> =
        attempts.clone().map(|attempt| format!("00-{trace_id}-{}-01", attempt.span_id)).collect();
    let mut received = positions.lock().unwrap().clone();
    sent.sort();
    received.sort();
    assert_eq!((sent.len(), &sent), (2, &received), "{spans:?}");
    let key_hash = attribute::key_hash(&[name.as_str()]);
    assert!(attempts.into_iter().all(|attempt| attempt.attributes[attribute::KEY_HASH] == key_hash));
}
