//! The effect of events on outbound webhooks: a delivery for each endpoint of an event's tenant that receives its kind. The event
//! body is passed on unchanged, so new kinds need no change here.

use outbound_webhooks::{FanOutError, WebhookEvent, fan_out};
use outbox::Event;
use outbox::consume::{EffectError, EventEffect, ReceivedEvent};
use postgres_kit::Connection;
use serde::Deserialize as _;

/// Writes the deliveries of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteDeliveries;

/// The part of an event body that names its tenant.
#[derive(serde::Deserialize)]
struct TenantOfEvent<'a> {
    tenant_id: &'a str,
}

impl EventEffect for WriteDeliveries {
    async fn apply(&self, tx: &mut Connection, events: &[&ReceivedEvent]) -> Result<(), EffectError> {
        let webhook_events: Result<Vec<_>, EffectError> = events.iter().copied().map(webhook_event).collect();
        match fan_out(tx, &webhook_events?).await {
            Ok(_) => Ok(()),
            Err(FanOutError::Database(error)) => Err(EffectError::Unavailable(error.into())),
            Err(refused) => Err(EffectError::Poison(refused.to_string())),
        }
    }

    fn committed(&self, event: &Event) {
        tracing::debug!(
            event.id = event.event_id,
            "the notifier wrote the outbound webhook deliveries of an event"
        );
    }
}

/// The event as the tenant's endpoints receive it.
fn webhook_event(received: &ReceivedEvent) -> Result<WebhookEvent<'_>, EffectError> {
    let event = &received.event;
    let owner = TenantOfEvent::deserialize(&event.body)
        .map_err(|error| EffectError::Poison(format!("the event body names no tenant: {error}")))?;
    Ok(WebhookEvent {
        tenant: owner.tenant_id,
        event_id: &event.event_id,
        kind: &event.kind,
        version: event.version,
        key: &event.key,
        sequence: event.sequence,
        at: event.appended_at,
        data: &event.body,
        trace_parent: received.trace_parent.as_ref(),
    })
}
