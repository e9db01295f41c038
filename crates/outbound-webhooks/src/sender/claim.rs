//! What is due, and who sends it.

use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use crate::{EndpointId, WebhooksError};

/// A delivery that is this sender's for the time of a lease.
#[derive(Debug)]
pub(super) struct Claimed {
    pub(super) position: i64,
    /// Shown when the attempt is recorded: who took over meanwhile has another.
    pub(super) lease: Uuid,
    pub(super) endpoint: EndpointId,
    pub(super) url: String,
    pub(super) event_id: String,
    pub(super) body: String,
    /// Attempts that failed before this one.
    pub(super) tries: i32,
    pub(super) secret_version: i32,
    /// Whether the secret before it still signs.
    pub(super) old_secret_signs: bool,
    pub(super) secret_check: Vec<u8>,
}

/// Claims what is due: `room` deliveries at most, and of each endpoint as many as it has slots left. An endpoint that hangs
/// fills its own slots and no others; those that answer come before those that fail. What another claims at the same moment
/// is left to it.
///
/// It looks once at each active endpoint, by indexes: what is scheduled for later is not read.
pub(super) async fn claim(
    pool: &PgPool,
    room: i64,
    slots_per_endpoint: i64,
    lease: Duration,
) -> Result<Vec<Claimed>, WebhooksError> {
    let rows = sqlx::query!(
        r#"WITH due AS MATERIALIZED (
               SELECT d.position, e.endpoint_id, e.url, e.secret_version, e.secret_check,
                      coalesce(e.old_secret_until > now(), false) AS old_secret_signs
               FROM webhook_endpoints e
               CROSS JOIN LATERAL (
                   SELECT count(*) AS under_way FROM webhook_deliveries u
                   WHERE u.endpoint_id = e.endpoint_id AND u.lease IS NOT NULL AND u.next_at > now()) busy
               CROSS JOIN LATERAL (
                   SELECT c.position FROM webhook_deliveries c
                   WHERE c.endpoint_id = e.endpoint_id AND c.state = 'pending' AND c.next_at <= now()
                   ORDER BY c.next_at LIMIT greatest($2 - busy.under_way, 0)
                   FOR UPDATE SKIP LOCKED) d
               WHERE e.status = 'active'
               ORDER BY e.failing_since NULLS FIRST
               LIMIT $1)
           UPDATE webhook_deliveries d
           SET lease = gen_random_uuid(), next_at = clock_timestamp() + $3 * interval '1 second'
           FROM due WHERE d.position = due.position
           RETURNING d.position, d.lease AS "lease!", due.endpoint_id, due.url, d.event_id, d.body, d.tries,
                     due.secret_version, due.secret_check, due.old_secret_signs AS "old_secret_signs!""#,
        room,
        slots_per_endpoint,
        lease.as_secs_f64(),
    )
    .fetch_all(pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let endpoint =
                EndpointId::new(row.endpoint_id.as_str()).map_err(|_| WebhooksError::Unreadable {
                    id: row.endpoint_id.clone(),
                    what: "id",
                    value: row.endpoint_id.clone(),
                })?;
            Ok(Claimed {
                position: row.position,
                lease: row.lease,
                endpoint,
                url: row.url,
                event_id: row.event_id,
                body: row.body,
                tries: row.tries,
                secret_version: row.secret_version,
                old_secret_signs: row.old_secret_signs,
                secret_check: row.secret_check,
            })
        })
        .collect()
}
