//! The page of traces in a real Chromium, with spans that arrive over OTLP.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use playground::server::Page;
use playground::traces::Traces;
use trace_kit::{Exporter, SpanKind, attribute, span};

use super::{run_script, serve};

const WORKFLOW_UI: &str = "http://127.0.0.1:8233/namespaces/default/workflows";

/// Exports the trace of one payment: a submit that failed and its repetition; and one request of no payment.
async fn export_traces(endpoint: &str) -> String {
    // The only test of this process that exports: the exporter is the process's.
    let started = Exporter::start_to("payment-worker", endpoint.to_owned()).unwrap();
    let at =
        |milliseconds: u64| SystemTime::now() - Duration::from_secs(60) + Duration::from_millis(milliseconds);
    let request = span(SpanKind::Server, "POST /api/v1/payments")
        .continue_or_begin(None)
        .with(attribute::PAYMENT_ID, "pay_1")
        .started_at(at(0))
        .start();
    let position = request.trace_parent().unwrap();
    request.end_at(at(20));
    for (attempt, start, failure) in [(1, 100, Some("no answer of the switch")), (2, 1_200, None)] {
        let submit = span(SpanKind::Internal, "submit")
            .child_of(Some(&position))
            .with(attribute::ATTEMPT, attempt)
            .with(attribute::WORKFLOW_ID, "pay_1")
            .started_at(at(start))
            .start();
        if let Some(failure) = failure {
            submit.fail(failure);
        }
        submit.end_at(at(start + 1_000));
    }
    drop(span(SpanKind::Server, "GET /api/v1/payments").continue_or_begin(None).start());
    started.stop().await;
    position.trace_id()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visitor_follows_the_trace_of_a_payment_in_chromium() {
    let address = "127.0.0.1:0".parse().unwrap();
    let traces = Traces::receive(address, Some(WORKFLOW_UI.into())).await.unwrap();
    let trace_id = export_traces(&traces.endpoint()).await;
    let page = serve(Page { traces: Some(Arc::new(traces)), ..Page::without_real_processes() }).await;
    let lines = run_script("traces.py", &[&page], None).await;
    let line = |key: &str| lines.iter().find(|line| !line[key].is_null()).unwrap();
    assert_eq!(line("linked")["linked"], trace_id.as_str());
    assert_eq!(line("spans")["spans"], serde_json::json!(["POST /api/v1/payments", "submit", "submit"]));
    assert_eq!(line("failed")["failed"], 1);
    assert_eq!(line("failed")["reason"], "no answer of the switch");
    assert_eq!(line("workflow")["workflow"], format!("{WORKFLOW_UI}/pay_1"));
    assert_eq!(line("listed")["listed"], serde_json::json!([1, 2]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_a_collector_says_how_to_start_one() {
    let page = serve(Page::without_real_processes()).await;
    let lines = run_script("traces.py", &[&page, "without"], None).await;
    assert!(lines[0]["message"].as_str().unwrap().contains("./dev up --observe"), "{lines:?}");
}
