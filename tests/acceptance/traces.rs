//! One trace for each payment: from the request over the row, the workflow, its activities, the switch's calls and its callback
//! to the tenant's webhook (S3.8), also if a worker is killed on the way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::system::{API_KEY, payment_request};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{NatsServer, System, SystemOptions, TestCallback};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use trace_collector::Collector;
use trace_collector::span::ReceivedSpan;
use uuid::Uuid;

/// Time limit for a span.
const WITHIN: Duration = Duration::from_secs(60);
/// Header of the trace context.
const TRACEPARENT: &str = "traceparent";

/// A position in a trace as a client of the API would send it.
struct ClientTrace {
    trace_id: String,
    span_id: String,
}

impl ClientTrace {
    fn new() -> Self {
        let span_id = Uuid::new_v4().simple().to_string()[..16].to_owned();
        Self { trace_id: Uuid::new_v4().simple().to_string(), span_id }
    }

    fn header(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }
}

/// A bank that exports its traces.
struct TracedBank {
    system: System,
    collector: Collector,
}

impl TracedBank {
    async fn start(name: &str, options: SystemOptions) -> anyhow::Result<Self> {
        let collector = Collector::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let options = SystemOptions { otlp_endpoint: Some(collector.endpoint()), ..options };
        Ok(Self { system: System::start(name, options).await?, collector })
    }

    /// Posts a payment in the client's trace; returns the response.
    async fn pay_in(
        &self,
        trace: &ClientTrace,
        key: &str,
        amount: &str,
    ) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}/api/v1/payments", self.system.api.url());
        let request = testkit::http()
            .post(url)
            .bearer_auth(API_KEY)
            .header("Idempotency-Key", key)
            .header(TRACEPARENT, trace.header())
            .json(&payment_request(amount));
        Ok(request.send().await?.error_for_status()?)
    }

    /// Makes a payment in the client's trace, and waits until the switch has it; returns its id and its reference there.
    async fn submit_in(&self, trace: &ClientTrace) -> anyhow::Result<(String, String)> {
        let body: Value = self.pay_in(trace, "k", "5.00").await?.json().await?;
        let text = |field: &str| body[field].as_str().context(body.to_string());
        let (payment_id, transaction_id) = (text("payment_id")?, text("transaction_id")?);
        self.system.wait_for_state(payment_id, "submitted").await?;
        Ok((payment_id.to_owned(), format!("{transaction_id}:submit")))
    }

    /// The spans of a trace once `complete` holds.
    async fn spans(
        &self,
        trace_id: &str,
        expected: &str,
        complete: impl Fn(&[ReceivedSpan]) -> bool,
    ) -> anyhow::Result<Vec<ReceivedSpan>> {
        let spans = until(expected, WITHIN, || async {
            let spans = self.collector.trace(trace_id);
            Ok(complete(&spans).then_some(spans))
        })
        .await;
        spans.map_err(|error| error.context(describe(&self.collector.trace(trace_id))))
    }
}

fn describe(spans: &[ReceivedSpan]) -> String {
    let lines = spans.iter().map(|span| {
        format!("{} {} {} {:?} {:?}", span.service, span.kind, span.name, span.failure, span.attributes)
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn named<'a>(spans: &'a [ReceivedSpan], name: &str) -> Vec<&'a ReceivedSpan> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn one<'a>(spans: &'a [ReceivedSpan], name: &str) -> anyhow::Result<&'a ReceivedSpan> {
    match named(spans, name).as_slice() {
        [span] => Ok(span),
        other => anyhow::bail!("{} spans are named {name}:\n{}", other.len(), describe(spans)),
    }
}

/// A tenant's system, which records the trace context of each delivery.
struct Receiver {
    url: String,
    received: Arc<Mutex<Vec<String>>>,
    _stop: DropGuard,
}

impl Receiver {
    async fn start() -> anyhow::Result<Self> {
        let received = Arc::new(Mutex::new(Vec::new()));
        let record = |State(received): State<Arc<Mutex<Vec<String>>>>, headers: HeaderMap| async move {
            let position = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
            received.lock().unwrap_or_else(PoisonError::into_inner).push(position.to_owned());
        };
        let router = Router::new().route("/hook", post(record)).with_state(received.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?);
        let stop = CancellationToken::new();
        let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
        tokio::spawn(async { serving.await });
        Ok(Self { url, received, _stop: stop.drop_guard() })
    }
}

async fn create_endpoint(system: &System, url: &str) -> anyhow::Result<()> {
    let created = testkit::http()
        .post(format!("{}/api/v1/webhook-endpoints", system.api.url()))
        .bearer_auth(API_KEY)
        .header("Idempotency-Key", Uuid::new_v4().to_string())
        .json(&json!({"url": url, "kinds": ["transfer_sent"]}))
        .send()
        .await?;
    ensure!(created.status() == 201, "the endpoint was not created: {}", created.text().await?);
    Ok(())
}

#[tokio::test]
async fn s3_8_one_trace_leads_from_the_request_to_the_tenants_webhook() -> anyhow::Result<()> {
    let broker = NatsServer::start("traced-broker").await?;
    let options = SystemOptions { broker_url: broker.url(), ..SystemOptions::default() };
    let bank = TracedBank::start("traced", options).await?;
    let notifier: Process =
        bank.system.start_process("notifier", "PAYMENTS_NOTIFIER__METRICS_LISTEN").await?;
    let receiver = Receiver::start().await?;
    create_endpoint(&bank.system, &receiver.url).await?;

    let client = ClientTrace::new();
    let response = bank.pay_in(&client, "order-4711", "5.00").await?;
    let answer = response.headers().get("traceresponse").context("no traceresponse")?.to_str()?.to_owned();
    let body: Value = response.json().await?;
    let payment_id = body["payment_id"].as_str().context("no payment id")?;
    bank.system.wait_for_state(payment_id, "settled").await?;
    // The spans of each process arrive by themselves: all of those that are compared below.
    let complete = |spans: &[ReceivedSpan]| spans.len() >= 18;
    let spans = bank.spans(&client.trace_id, "the trace reaches the webhook", complete).await;
    let spans = spans.map_err(|error| error.context(notifier.log_tail()))?;

    let request = one(&spans, "POST /api/v1/payments")?;
    assert_eq!(request.parent_id.as_deref(), Some(client.span_id.as_str()), "the client's trace goes on");
    assert_eq!(answer, format!("00-{}-{}-01", client.trace_id, request.span_id));
    // Who did what in which order, and whose part it was.
    #[rustfmt::skip]
    let expected = [
        ("payments-api",      "server",   "POST /api/v1/payments",     "the client"),
        ("payments-api",      "internal", "accept payment",            "POST /api/v1/payments"),
        ("payment-worker",    "client",   "start workflow",            "POST /api/v1/payments"),
        ("payment-worker",    "internal", "InterBankPaymentWorkflow",  "POST /api/v1/payments"),
        ("payment-worker",    "internal", "reserve_and_submit",        "POST /api/v1/payments"),
        ("payment-worker",    "client",   "read clock",                "reserve_and_submit"),
        ("payment-worker",    "client",   "submit transfer",           "reserve_and_submit"),
        ("payments-api",      "server",   "POST /callbacks/{switch}",  "POST /api/v1/payments"),
        ("payments-api",      "client",   "signal workflow",           "POST /callbacks/{switch}"),
        ("payment-worker",    "internal", "debit",                     "POST /api/v1/payments"),
        ("payment-worker",    "client",   "query transfer",            "debit"),
        ("background-worker", "producer", "publish event: transfer_pending", "POST /api/v1/payments"),
        ("notifier",          "consumer", "consume event: notifier",   "publish event: transfer_pending"),
        ("notifier",          "consumer", "consume event: webhooks",   "publish event: transfer_pending"),
        ("background-worker", "producer", "publish event: transfer_sent", "POST /api/v1/payments"),
        ("notifier",          "consumer", "consume event: notifier",   "publish event: transfer_sent"),
        ("notifier",          "consumer", "consume event: webhooks",   "publish event: transfer_sent"),
        ("notifier",          "client",   "deliver webhook",           "consume event: webhooks"),
    ];
    let names: BTreeMap<&str, &str> =
        spans.iter().map(|span| (span.span_id.as_str(), span.name.as_str())).collect();
    let mut found: Vec<_> = spans
        .iter()
        .map(|span| {
            let parent = span.parent_id.as_deref().unwrap_or_default();
            let parent = names.get(parent).copied().unwrap_or("the client");
            (span.service.as_str(), span.kind, span.name.as_str(), parent)
        })
        .collect();
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(names.len(), spans.len(), "no span is exported twice");
    assert!(spans.iter().all(|span| span.failure.is_none()), "{}", describe(&spans));

    // A workflow lasts from its first step to its last one.
    let workflow = one(&spans, "InterBankPaymentWorkflow")?;
    assert!(workflow.started_us <= one(&spans, "reserve_and_submit")?.started_us);
    assert!(workflow.ended_us >= one(&spans, "signal workflow")?.started_us);
    // The tenant's system continues the trace.
    let delivery = one(&spans, "deliver webhook")?;
    let received = receiver.received.lock().unwrap().clone();
    assert_eq!(received, [format!("00-{}-{}-01", client.trace_id, delivery.span_id)]);
    // Nothing was done before: neither the submit nor an event's consumption is a repetition.
    let work = ["reserve_and_submit", "consume event: notifier", "consume event: webhooks"];
    for name in work {
        for span in named(&spans, name) {
            assert_eq!(span.attributes["idempotency.replayed"], "false", "{name}");
        }
    }
    assert!(one(&spans, "submit transfer")?.attributes.contains_key("idempotency.key_hash"));
    // The idempotency key is not readable in any span.
    assert_eq!(request.attributes["payment.id"], payment_id);
    assert_eq!(request.attributes["idempotency.replayed"], "false");
    assert!(spans.iter().all(|span| !format!("{span:?}").contains("order-4711")), "{}", describe(&spans));
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn s3_8_the_retries_of_a_request_are_found_by_their_hashed_key() -> anyhow::Result<()> {
    let bank = TracedBank::start("traced-retry", SystemOptions::default()).await?;
    let traces = [ClientTrace::new(), ClientTrace::new()];
    for trace in &traces {
        bank.pay_in(trace, "order-4711", "5.00").await?;
    }
    let other = ClientTrace::new();
    bank.pay_in(&other, "order-4712", "5.00").await?;
    let mut requests = Vec::new();
    for trace in traces.iter().chain([&other]) {
        let name = "POST /api/v1/payments";
        let spans = bank.spans(&trace.trace_id, name, |spans| !named(spans, name).is_empty()).await?;
        requests.push(one(&spans, name)?.clone());
    }
    let [first, retry, other] = requests.as_slice() else { unreachable!("three requests") };
    let key = |span: &ReceivedSpan| span.attributes["idempotency.key_hash"].clone();
    assert_eq!(key(first), key(retry));
    assert_ne!(key(first), key(other));
    assert_eq!(first.attributes["idempotency.replayed"], "false");
    assert_eq!(retry.attributes["idempotency.replayed"], "true");
    let link = retry.links.first().context("the retry leads to no other trace")?;
    assert_eq!((&link.trace_id, &link.span_id), (&first.trace_id, &first.span_id));
    assert!(first.links.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_read_continues_its_callers_trace_and_begins_none() -> anyhow::Result<()> {
    let bank = TracedBank::start("traced-read", SystemOptions::default()).await?;
    let payment = bank.system.pay("5.00").await?;
    let url = format!("{}/api/v1/payments/{}", bank.system.api.url(), payment.payment_id);
    let get = |trace: Option<String>| {
        let request = testkit::http().get(&url).bearer_auth(API_KEY);
        trace.into_iter().fold(request, |request, position| request.header(TRACEPARENT, position)).send()
    };
    let untraced = get(None).await?.error_for_status()?;
    assert!(!untraced.headers().contains_key("traceresponse"));
    let client = ClientTrace::new();
    get(Some(client.header())).await?.error_for_status()?;
    let name = "GET /api/v1/payments/{payment_id}";
    bank.spans(&client.trace_id, name, |spans| !named(spans, name).is_empty()).await?;
    // The spans of a process arrive in their order.
    let begun = bank.collector.traces().into_iter().filter(|trace| trace.name == name);
    assert_eq!(begun.map(|trace| trace.trace_id).collect::<Vec<_>>(), [client.trace_id]);
    // A cancel request has a trace of its own, which leads to the payment's.
    bank.system.cancel(&payment.payment_id).await?;
    let cancel = "POST /api/v1/payments/{payment_id}/cancel";
    let found = until(cancel, WITHIN, || async {
        Ok(bank.collector.traces().into_iter().find(|trace| trace.name == cancel))
    })
    .await?;
    let cancel = one(&bank.collector.trace(&found.trace_id), cancel)?.links.first().cloned();
    let payments_trace =
        bank.collector.traces().into_iter().find(|trace| trace.name == "POST /api/v1/payments");
    assert_eq!(cancel.map(|link| link.trace_id), payments_trace.map(|trace| trace.trace_id));
    Ok(())
}

#[tokio::test]
async fn nothing_is_exported_twice_when_another_worker_replays_a_payment() -> anyhow::Result<()> {
    // Without a cache every task replays the history.
    let options = SystemOptions { cached_workflows: 0, ..SystemOptions::default() };
    let mut bank = TracedBank::start("traced-replay", options).await?;
    bank.system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let client = ClientTrace::new();
    let (payment_id, reference) = bank.submit_in(&client).await?;
    // What the first worker did has arrived before it is killed.
    let submitted = |spans: &[ReceivedSpan]| !named(spans, "reserve_and_submit").is_empty();
    bank.spans(&client.trace_id, "the submit", submitted).await?;
    // And Temporal has its outcome, which the second worker would otherwise find out again.
    bank.system.wait_for_event(&payment_id, EventType::TimerStarted).await?;
    bank.system.worker.kill().await?;
    bank.system.worker.restart().await?;
    bank.system.switch.finish_transfer(&reference, "settle").await?;
    bank.system.wait_for_state(&payment_id, "settled").await?;
    let complete = |spans: &[ReceivedSpan]| !named(spans, "InterBankPaymentWorkflow").is_empty();
    bank.spans(&client.trace_id, "the end of the workflow", complete).await?;
    // A query of the closed workflow replays it to its end. The worker's spans of a later payment arrive after that.
    let shown = bank.system.command("payctl").args(["show", &payment_id]).output().await?;
    ensure!(shown.status.success(), "payctl show failed: {}", String::from_utf8_lossy(&shown.stderr));
    bank.system.switch.set_default_behaviour(json!({})).await?;
    let later = ClientTrace::new();
    bank.pay_in(&later, "later", "5.00").await?;
    bank.spans(&later.trace_id, "the end of a later workflow", complete).await?;
    let spans = bank.collector.trace(&client.trace_id);
    let mut ids: Vec<_> = spans.iter().map(|span| &span.span_id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), spans.len(), "{}", describe(&spans));
    for name in
        ["start workflow", "InterBankPaymentWorkflow", "reserve_and_submit", "submit transfer", "debit"]
    {
        one(&spans, name)?;
    }
    // The first worker's spans and the second one's hang from the same request.
    let request = one(&spans, "POST /api/v1/payments")?;
    assert_ne!(one(&spans, "reserve_and_submit")?.process_id, one(&spans, "debit")?.process_id);
    for name in ["reserve_and_submit", "debit"] {
        assert_eq!(one(&spans, name)?.parent_id.as_ref(), Some(&request.span_id), "{name}");
    }
    bank.system.audit().await?;
    Ok(())
}

#[tokio::test]
async fn an_activity_that_another_worker_may_run_hangs_from_the_request() -> anyhow::Result<()> {
    // Every submit is an activity of the switch's task queue.
    let options = SystemOptions { commits_may_be_lost: true, ..SystemOptions::default() };
    let bank = TracedBank::start("traced-submit", options).await?;
    let client = ClientTrace::new();
    bank.submit_in(&client).await?;
    let spans = bank.spans(&client.trace_id, "submit", |spans| !named(spans, "submit").is_empty()).await?;
    let (request, submit) = (one(&spans, "POST /api/v1/payments")?, one(&spans, "submit")?);
    assert_eq!(submit.parent_id.as_ref(), Some(&request.span_id));
    assert_eq!(one(&spans, "submit transfer")?.parent_id.as_ref(), Some(&submit.span_id));
    Ok(())
}

#[tokio::test]
async fn a_callback_belongs_to_its_payments_trace_whatever_the_switch_sends() -> anyhow::Result<()> {
    let bank = TracedBank::start("traced-callback", SystemOptions::default()).await?;
    bank.system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let client = ClientTrace::new();
    let (_, reference) = bank.submit_in(&client).await?;
    let switch = ClientTrace::new();
    let callback =
        TestCallback { trace_parent: Some(switch.header()), ..TestCallback::success(&reference, 500) };
    for _ in 0..2 {
        assert_eq!(bank.system.post_callback(&callback).await?, 200);
    }
    let name = "POST /callbacks/{switch}";
    let spans = bank.spans(&client.trace_id, name, |spans| named(spans, name).len() == 2).await?;
    let mut outcomes: Vec<_> = named(&spans, name).iter().map(|s| s.attributes["outcome"].as_str()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["duplicate", "stored"]);
    for callback in named(&spans, name) {
        let link = callback.links.first().context("the switch's position is lost")?;
        assert_eq!((&link.trace_id, &link.span_id), (&switch.trace_id, &switch.span_id));
    }
    assert!(bank.collector.trace(&switch.trace_id).is_empty(), "a switch adds nothing to our traces");
    Ok(())
}

#[tokio::test]
async fn a_collector_that_is_down_costs_spans_and_no_payment() -> anyhow::Result<()> {
    // Nothing listens there.
    let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let options =
        SystemOptions { otlp_endpoint: Some(format!("http://{closed}")), ..SystemOptions::default() };
    let mut system = System::start("collector-down", options).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let warning = "the collector of traces does not accept spans";
    system.worker.wait_for_log(warning).await?;
    let second = system.pay("5.00").await?;
    system.wait_for_state(&second.payment_id, "settled").await?;
    // A process that cannot export its last spans still stops.
    system.worker.stop().await?;
    assert_eq!(system.worker.log_tail().matches(warning).count(), 1, "{}", system.worker.log_tail());
    system.audit().await?;
    Ok(())
}
