//! What an event does: one message to the customer.

use outbox::Event;
use outbox::intake::{Effect, EffectError};
use payment_ledger::events::notifications::notify;
use payment_ledger::events::{EventKind, TransferEvent, VERSION};
use payment_protocol::ids::PaymentId;
use sqlx::PgConnection;

use crate::words;

/// Tells the customer of the payment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TellCustomer;

impl Effect for TellCustomer {
    async fn apply(&self, tx: &mut PgConnection, event: &Event) -> Result<(), EffectError> {
        let (kind, payment_id, transfer) = read(event).map_err(EffectError::Poison)?;
        let message = words::message(kind, &transfer);
        notify(tx, &payment_id, &event.event_id, kind, &message).await.map_err(|error| {
            if error.is_final() {
                EffectError::Poison(format!("it cannot be stored for {payment_id}: {error}"))
            } else {
                EffectError::Unavailable(error.into())
            }
        })?;
        tracing::info!(payment.id = %payment_id, event.kind = %kind, "customer told");
        Ok(())
    }
}

/// Reads an event, or says why it is none that can be told.
fn read(event: &Event) -> Result<(EventKind, PaymentId, TransferEvent), String> {
    let kind =
        EventKind::parse(&event.kind).ok_or_else(|| format!("the kind {:?} is not known", event.kind))?;
    if event.version != VERSION {
        return Err(format!("version {} of {kind} is not known", event.version));
    }
    let transfer: TransferEvent =
        serde_json::from_value(event.body.clone()).map_err(|error| format!("the body of {kind}: {error}"))?;
    if transfer.payment_id != event.key {
        return Err(format!("the event of {} tells of {}", event.key, transfer.payment_id));
    }
    let payment_id = PaymentId::new(event.key.as_str()).map_err(|error| error.to_string())?;
    Ok((kind, payment_id, transfer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(kind: &str) -> Event {
        let text = std::fs::read_to_string(format!(
            "{}/../../crates/payment-ledger/events/{kind}.v{VERSION}.example.json",
            env!("CARGO_MANIFEST_DIR")
        ));
        serde_json::from_str(&text.unwrap()).unwrap()
    }

    #[test]
    fn every_published_example_can_be_told() {
        for kind in EventKind::ALL {
            let (read_kind, _, transfer) = read(&example(kind.as_str())).unwrap();
            assert_eq!(read_kind, *kind);
            assert!(words::message(*kind, &transfer).contains("12.50 EUR"), "{kind}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_guessed_at() {
        let good = example("transfer_sent");
        let cases = [
            (Event { kind: "transfer_imagined".into(), ..good.clone() }, "kind"),
            (Event { version: VERSION + 1, ..good.clone() }, "version"),
            (Event { body: serde_json::json!({}), ..good.clone() }, "body"),
            (Event { key: "pay_another".into(), ..good }, "tells of"),
        ];
        for (event, why) in cases {
            let said = read(&event).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
