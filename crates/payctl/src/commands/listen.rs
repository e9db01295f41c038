//! `payctl listen`: the tenant's events on a developer's terminal, delivered and signed as to any webhook endpoint, and
//! optionally forwarded to a receiver under development.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use payment_ledger::events::EventKind;
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde::Deserialize;
use serde_json::Value;
use service_kit::shutdown;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, Secret, TIMESTAMP_HEADER, verify};

use crate::api::{ApiArgs, WebhookEndpointRequest, http_client};
use crate::outcome::CommandOutcome;
use crate::output::{Output, escape_control};

/// Oldest and newest signature that is accepted, in seconds, as the service recommends it to receivers.
const TOLERANCE_S: i64 = 300;
/// Time for the answer of the receiver; shorter than the service waits for ours.
const FORWARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Deliveries that wait to be written.
const LINES_MAX: usize = 1_000;

/// Show the tenant's webhook events as they are delivered, and forward them to a receiver under development
///
/// Creates a webhook endpoint at an address of this machine, prints its secret, and deletes the endpoint at the end (Ctrl-C). A
/// forwarded event has the same body and the same signature; the receiver's answer goes back to the service, which repeats a
/// refused event. The service must be permitted to call this machine, as in the demo.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    api: ApiArgs,
    /// URL of a receiver that gets every event
    #[arg(long, value_name = "URL")]
    forward_to: Option<Url>,
    /// Only events of this kind, like transfer_sent; may be repeated [default: all kinds]
    #[arg(long = "kind", value_name = "KIND", value_parser = kind)]
    kinds: Vec<EventKind>,
    /// Address that receives the events; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Print each event as one line of JSON, as it was delivered
    #[arg(long)]
    json: bool,
}

fn kind(text: &str) -> Result<EventKind, String> {
    EventKind::parse(text).ok_or_else(|| format!("the kinds are {}", super::event_kinds()))
}

/// What the receiving route needs.
struct Receiver {
    secret: Secret,
    forward: Option<(reqwest::Client, Url)>,
    received: mpsc::Sender<Received>,
}

/// A delivery and what became of it.
struct Received {
    body: Bytes,
    remark: String,
}

/// The part of a delivery that is shown in one line.
#[derive(Deserialize)]
struct Delivery {
    r#type: String,
    timestamp: Timestamp,
    data: Value,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let api = args.api.client()?;
    let forward = match &args.forward_to {
        Some(url) => Some((http_client(url).context("--forward-to cannot be called")?, url.clone())),
        None => None,
    };
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("{} cannot be listened on; choose another --listen", args.listen))?;
    let url = format!("http://{}/", listener.local_addr()?);
    let request = WebhookEndpointRequest { url: &url, kinds: &args.kinds };
    let created = api.create_webhook_endpoint(&request, &super::new_key()?).await;
    let endpoint = created.context("there is no endpoint to listen on")?.document;

    let (received, mut deliveries) = mpsc::channel(LINES_MAX);
    let receiver = Receiver { secret: endpoint.secret.parse()?, forward, received };
    let router = Router::new().fallback(receive).with_state(Arc::new(receiver));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());
    let to = args.forward_to.as_ref().map(|to| format!(", forwarded to {to}")).unwrap_or_default();
    let heading = format!(
        "endpoint {} at {url}{to}\nsigned with {}\nCtrl-C ends it",
        endpoint.endpoint_id, endpoint.secret
    );
    let interrupted = shutdown::on_signals();
    let written = tokio::select! {
        written = write_all(&heading, &mut deliveries, args.json, out) => written,
        () = interrupted.cancelled() => Ok(()),
    };
    // The service stops sending before this process stops answering.
    let deleted = api.delete_webhook_endpoint(&endpoint.endpoint_id, &super::new_key()?).await;
    let _ = stop.send(());
    drop(deliveries);
    server.await.context("the receiver of the events panicked")??;
    deleted.with_context(|| {
        format!("endpoint {0} remains; run: payctl webhooks disable {0}", endpoint.endpoint_id)
    })?;
    written?;
    Ok(CommandOutcome::Success)
}

/// Verifies one delivery, forwards it, and answers as the receiver did.
async fn receive(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let now_s = Timestamp::now().as_second();
    let (status, remark) =
        match verify(std::slice::from_ref(&receiver.secret), &headers, &body, now_s, TOLERANCE_S) {
            Err(error) => (StatusCode::UNAUTHORIZED, format!("refused: {error}")),
            Ok(_) => match &receiver.forward {
                None => (StatusCode::NO_CONTENT, String::new()),
                Some((http, url)) => forward(http, url, &headers, body.clone()).await,
            },
        };
    // A full or closed channel must not delay the answer: the event is the receiver's, the line only ours.
    let _ = receiver.received.try_send(Received { body, remark });
    (status, "")
}

async fn forward(
    http: &reqwest::Client,
    url: &Url,
    headers: &HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let mut request = http.post(url.clone()).timeout(FORWARD_TIMEOUT).body(body);
    for name in [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER, CONTENT_TYPE.as_str()] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value);
        }
    }
    match request.send().await {
        Ok(answer) => (answer.status(), format!("the receiver answered {}", answer.status())),
        Err(error) => {
            let remark = format!("the receiver gave no answer: {}", error.without_url());
            (StatusCode::BAD_GATEWAY, remark)
        }
    }
}

/// Writes the heading and every delivery, until one cannot be written.
async fn write_all(
    heading: &str,
    deliveries: &mut mpsc::Receiver<Received>,
    json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<()> {
    if !json {
        out.write_line(heading)?;
    }
    while let Some(delivery) = deliveries.recv().await {
        write(&delivery, json, out)?;
    }
    Ok(())
}

fn write(received: &Received, json: bool, out: &mut Output<'_>) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(&received.body);
    let Ok(delivery) = serde_json::from_slice::<Delivery>(&received.body) else {
        return Ok(out.write_line(format_args!("{} {}", received.remark, escape_control(&text)))?);
    };
    if json {
        return Ok(out.write_line(text)?);
    }
    let field = |name: &str| escape_control(delivery.data[name].as_str().unwrap_or_default());
    let (payment, status) = (field("payment_id"), field("status"));
    let (amount, currency, reason) = (field("amount"), field("currency"), field("reason"));
    let details = [reason.as_str(), received.remark.as_str()];
    let details: String =
        details.iter().filter(|text| !text.is_empty()).map(|text| format!("; {text}")).collect();
    let (at, kind) = (delivery.timestamp.strftime("%H:%M:%S%.3fZ"), escape_control(&delivery.r#type));
    Ok(out.write_line(format_args!("{at}   {kind:23}   {payment} {status}, {amount} {currency}{details}"))?)
}
