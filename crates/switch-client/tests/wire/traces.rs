//! The trace of a call: the switch gets its position, and the span names the idempotency key by its hash (S3.8).

use std::net::SocketAddr;

use trace_collector::Collector;
use trace_kit::{Exporter, SpanKind, attribute, span};

use crate::calls::{Call, reference};
use crate::server::{Server, Step, response};

/// Two attempts of one submit carry one key: a search for its hash finds both.
#[tokio::test(flavor = "multi_thread")]
async fn s3_8_the_switch_gets_the_position_of_a_call_in_its_trace() {
    let collector = Collector::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let exporter = Exporter::start_to("switch-client", collector.endpoint()).unwrap();
    let (status, body) = Call::Submit.definite();
    let answer = response(status, &serde_json::to_vec(&body).unwrap());
    let server = Server::start(vec![Step::Send(answer)]).await;
    let client = Call::Submit.client(&server, 5_000);
    let payment = span(SpanKind::Internal, "payment").continue_or_begin(None).start();
    for _ in 0..2 {
        payment.run(Call::Submit.make(&client)).await;
    }
    let trace_id = payment.trace_parent().unwrap().trace_id();
    payment.end_at(std::time::SystemTime::now());
    exporter.stop().await;

    let spans = collector.trace(&trace_id);
    let attempts: Vec<_> = spans.iter().filter(|span| span.name == "submit transfer").collect();
    assert_eq!(attempts.len(), 2, "{spans:?}");
    let key_hash = attribute::key_hash(&[&reference()]);
    for (attempt, request) in attempts.iter().zip(server.requests()) {
        let position = format!("traceparent: 00-{trace_id}-{}-01", attempt.span_id);
        assert!(request.contains(&position), "{position} is not in {request}");
        assert_eq!(attempt.attributes[attribute::KEY_HASH], key_hash);
    }
}
