//! The effect of an event on outbound webhooks: a delivery for each endpoint of its tenant that receives its kind. The event
//! body is passed on unchanged, so new kinds need no change here.

use outbound_webhooks::{FanOutError, WebhookEvent, fan_out};
use outbox::Event;
use outbox::consume::{EffectError, EventEffect};
use serde::Deserialize as _;
use sqlx::PgConnection;

/// Writes the deliveries of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteDeliveries;

/// The part of an event body that names its tenant.
#[derive(serde::Deserialize)]
struct TenantOfEvent {
    tenant_id: String,
}

impl EventEffect for WriteDeliveries {
    async fn apply(&self, tx: &mut PgConnection, event: &Event) -> Result<(), EffectError> {
        let owner = TenantOfEvent::deserialize(&event.body)
            .map_err(|error| EffectError::Poison(format!("the event body names no tenant: {error}")))?;
        let webhook_event = WebhookEvent {
            tenant: &owner.tenant_id,
            event_id: &event.event_id,
            kind: &event.kind,
            version: event.version,
            key: &event.key,
            sequence: event.sequence,
            at: event.appended_at,
            data: &event.body,
        };
        match fan_out(tx, &webhook_event).await {
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
