//! The effect of events on notifications: one notification to the customer for each event.

use outbox::Event;
use outbox::consume::{EffectError, EventEffect, ReceivedEvent};
use payment_ledger::events::notifications::{NewNotification, notify};
use payment_ledger::events::{EventKind, TransferEvent, VERSION};
use payment_protocol::ids::PaymentId;
use postgres_kit::Connection;

use crate::message;

/// Writes the customers' notifications of payment events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotifyCustomer;

impl EventEffect for NotifyCustomer {
    async fn apply(&self, tx: &mut Connection, events: &[&ReceivedEvent]) -> Result<(), EffectError> {
        let notifications: Result<Vec<_>, String> =
            events.iter().map(|received| notification(&received.event)).collect();
        notify(tx, &notifications.map_err(EffectError::Poison)?).await.map_err(|error| {
            if error.is_final() {
                EffectError::Poison(format!("the notification cannot be stored: {error}"))
            } else {
                EffectError::Unavailable(error.into())
            }
        })
    }

    fn committed(&self, event: &Event) {
        tracing::info!(
            payment.id = event.key,
            event.id = event.event_id,
            event.kind = event.kind,
            "the notifier notified the customer of an event of a payment"
        );
    }
}

/// The notification of an event.
fn notification(event: &Event) -> Result<NewNotification<'_>, String> {
    let (kind, payment_id, transfer) = parse(event)?;
    let message = message::message(kind, &transfer);
    Ok(NewNotification { payment_id, event_id: &event.event_id, kind, message })
}

/// Parses an event of a payment.
fn parse(event: &Event) -> Result<(EventKind, PaymentId, TransferEvent), String> {
    let kind = EventKind::parse(&event.kind)
        .ok_or_else(|| format!("the notifier does not know the event kind {:?}", event.kind))?;
    if event.version != VERSION {
        return Err(format!("the notifier does not know version {} of the event kind {kind}", event.version));
    }
    let transfer: TransferEvent = serde_json::from_value(event.body.clone())
        .map_err(|error| format!("the body of the event kind {kind} is malformed: {error}"))?;
    if transfer.payment_id != event.key {
        return Err(format!(
            "the key {} of the event differs from its payment {}",
            event.key, transfer.payment_id
        ));
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
    fn every_event_kind_has_a_customer_notification() {
        for kind in EventKind::ALL {
            let (parsed_kind, _, transfer) = parse(&example(kind.as_str())).unwrap();
            assert_eq!(parsed_kind, *kind);
            assert!(message::message(*kind, &transfer).contains("12.50 EUR"), "{kind}");
        }
    }

    #[test]
    fn the_notifier_rejects_an_unknown_or_inconsistent_event() {
        let valid = example("transfer_sent");
        let cases = [
            (Event { kind: "transfer_imagined".into(), ..valid.clone() }, "kind"),
            (Event { version: VERSION + 1, ..valid.clone() }, "version"),
            (Event { body: serde_json::json!({}), ..valid.clone() }, "body"),
            (Event { key: "pay_another".into(), ..valid }, "differs from its payment"),
        ];
        for (event, expected) in cases {
            let error = parse(&event).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
