//! What an event becomes: a delivery for each endpoint of its tenant that wants it. The body goes out as it came in, so a new
//! kind needs nothing here.

use outbound_webhooks::{FanOutError, Message, fan_out};
use outbox::Event;
use outbox::intake::{Effect, EffectError};
use serde::Deserialize as _;
use sqlx::PgConnection;

/// Writes the deliveries of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteDeliveries;

/// What is read of an event's body.
#[derive(serde::Deserialize)]
struct Owned {
    tenant_id: String,
}

impl Effect for WriteDeliveries {
    async fn apply(&self, tx: &mut PgConnection, event: &Event) -> Result<(), EffectError> {
        let owned = Owned::deserialize(&event.body)
            .map_err(|error| EffectError::Poison(format!("whose the event is: {error}")))?;
        let message = Message {
            tenant: &owned.tenant_id,
            event_id: &event.event_id,
            kind: &event.kind,
            version: event.version,
            key: &event.key,
            sequence: event.sequence,
            at: event.appended_at,
            data: &event.body,
        };
        match fan_out(tx, &message).await {
            Ok(0) => Ok(()),
            Ok(endpoints) => {
                tracing::debug!(
                    event.id = event.event_id,
                    endpoints,
                    "event to be sent to webhook endpoints"
                );
                Ok(())
            }
            Err(FanOutError::Database(error)) => Err(EffectError::Unavailable(error.into())),
            Err(refused) => Err(EffectError::Poison(refused.to_string())),
        }
    }
}
