//! Sends the example of one kind of event to a receiver, signed as the service signs, with fields overridden.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use outbound_webhooks::WebhookEvent;
use payment_ledger::events::{EventKind, TransferEvent, VERSION};
use payment_protocol::ids::{PaymentId, TxId};
use reqwest::Url;
use reqwest::header::CONTENT_TYPE;
use serde_json::{Map, Value, json};
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, Secret, TIMESTAMP_HEADER, encode_secret, sign};

use crate::api::http_client;
use crate::outcome::CommandOutcome;
use crate::output::{Output, escape_control};

/// Time for the receiver's answer; the service waits 15 s by default.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest excerpt of the receiver's answer, in characters.
const EXCERPT_CHARS_MAX: usize = 200;

/// Receiver, secret and fields of an event.
#[derive(Debug, clap::Args)]
pub(super) struct EventArgs {
    /// With a kind of event: URL of the receiver
    #[arg(long, value_name = "URL")]
    forward_to: Option<Url>,
    /// With a kind of event: secret that signs it, whsec_ and base64 [default: a new one, which is printed]
    #[arg(long, value_name = "SECRET", env = "PAYCTL_WEBHOOK_SECRET", hide_env_values = true)]
    secret: Option<Secret>,
    /// With a kind of event: another value for a field of its data, like amount_minor=5 or reason=debit_refused; may be repeated
    #[arg(long = "override", value_name = "FIELD=VALUE", value_parser = field)]
    overrides: Vec<(String, Value)>,
}

/// A value is JSON if it can be read as JSON, otherwise text.
fn field(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it like amount_minor=5")?;
    Ok((name.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}

pub(super) async fn send(
    kind: EventKind,
    args: &EventArgs,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let url = args.forward_to.as_ref().context("an event needs --forward-to, the URL of its receiver")?;
    let data = data(kind, &args.overrides)?;
    let key = data["payment_id"].as_str().context("payment_id is not text")?;
    let event_id = format!("{key}:{kind}");
    let at = Timestamp::now();
    let event = WebhookEvent {
        tenant: "",
        event_id: &event_id,
        kind: kind.as_str(),
        version: VERSION,
        key,
        sequence: 1,
        at,
        data: &data,
        trace_parent: None,
    };
    let body = event.body()?;
    let secret = match &args.secret {
        Some(secret) => secret.clone(),
        None => new_secret(out)?,
    };
    let now_s = at.as_second();
    out.write_line(format_args!("{event_id} to {url}\n{}", escape_control(&body)))?;
    let request = http_client(url)?
        .post(url.clone())
        .timeout(ATTEMPT_TIMEOUT)
        .header(ID_HEADER, &event_id)
        .header(TIMESTAMP_HEADER, now_s)
        .header(SIGNATURE_HEADER, sign(&secret, &event_id, now_s, body.as_bytes()))
        .header(CONTENT_TYPE, "application/json")
        .body(body);
    let answer = request.send().await.context("the receiver gave no answer; check --forward-to")?;
    let status = answer.status();
    let text: String = answer.text().await.unwrap_or_default().chars().take(EXCERPT_CHARS_MAX).collect();
    out.write_line(format_args!("the receiver answered {status} {}", escape_control(&text)))?;
    Ok(if status.is_success() { CommandOutcome::Success } else { CommandOutcome::CheckFailed })
}

/// The data of the kind's example, about a payment of its own: a receiver that has seen the example accepts it.
fn data(kind: EventKind, overrides: &[(String, Value)]) -> anyhow::Result<Value> {
    let example: Value = serde_json::from_str(kind.example())?;
    let mut data: Map<String, Value> = serde_json::from_value(example["body"].clone())?;
    let payment_id = PaymentId::new(format!("pay_{}", uuid::Uuid::new_v4().simple()))?;
    data.insert("payment_id".into(), json!(payment_id));
    data.insert("transaction_id".into(), json!(TxId::derive(&payment_id)));
    for (name, value) in overrides {
        // Every field that an event can have, also one that the example of this kind omits.
        let known = data.contains_key(name) || matches!(name.as_str(), "reason" | "end_to_end_id");
        let fields = || data.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        anyhow::ensure!(known, "an event has no field {name}; its fields are {}", fields());
        data.insert(name.clone(), value.clone());
    }
    let data = Value::Object(data);
    serde_json::from_value::<TransferEvent>(data.clone())
        .context("with these values it is no event of this service; see crates/payment-ledger/events")?;
    Ok(data)
}

fn new_secret(out: &mut Output<'_>) -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("the operating system gives no random bytes")?;
    out.write_line(format_args!("signed with {}", encode_secret(bytes)))?;
    Ok(Secret::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_event_of_payctl_trigger_is_one_of_the_service_with_fields_overridden() {
        for kind in EventKind::ALL {
            let data =
                data(*kind, &[field("amount_minor=5").unwrap(), field("reason=none").unwrap()]).unwrap();
            assert_eq!((&data["amount_minor"], &data["reason"]), (&json!(5), &json!("none")), "{kind}");
            assert_ne!(data["payment_id"], serde_json::from_str::<Value>(kind.example()).unwrap()["key"]);
        }
    }

    #[test]
    fn payctl_trigger_refuses_a_webhook_event_that_the_service_would_not_send() {
        let refused =
            |text: &str| format!("{:#}", data(EventKind::TransferSent, &[field(text).unwrap()]).unwrap_err());
        assert!(refused("amount=5").contains("no event of this service"), "{}", refused("amount=5"));
        assert!(refused("colour=red").contains("an event has no field colour; its fields are amount,"));
        assert!(field("amount").is_err());
    }
}
