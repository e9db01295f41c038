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
    pub(super) failed_attempts: i32,
    /// Whether it was taken in so long ago that it is put off no longer.
    pub(super) is_old: bool,
    pub(super) secret_version: i32,
    /// Whether the secret before it still signs.
    pub(super) old_secret_signs: bool,
    pub(super) secret_check: Vec<u8>,
}

/// How many attempts may be under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// For all that is claimed now.
    pub(super) now: i64,
    /// At one endpoint, with those that are under way.
    pub(super) per_endpoint: i64,
    /// At all endpoints of one tenant, with those that are under way.
    pub(super) per_tenant: i64,
}

/// Claims what is due: of each endpoint and of each tenant as many as they have slots left. The tenant that has the fewest under
/// way comes first, of equal ones any: by age, those that never run out would keep all others waiting. Of a tenant's endpoints,
/// too, the one that has the fewest under way comes first, then those that answer, then what has been due for longest. What
/// another claims at the same moment is left to it.
///
/// It looks once at each active endpoint, by indexes: what is scheduled for later is not read.
pub(super) async fn claim(
    pool: &PgPool,
    room: Room,
    lease: Duration,
    kept: Duration,
) -> Result<Vec<Claimed>, WebhooksError> {
    let rows = sqlx::query!(
        r#"WITH told AS MATERIALIZED (
               SELECT e.*, busy.under_way, sum(busy.under_way) OVER (PARTITION BY e.tenant_id)::bigint AS of_tenant
               FROM webhook_endpoints e
               CROSS JOIN LATERAL (
                   SELECT count(*) AS under_way FROM webhook_deliveries u
                   WHERE u.endpoint_id = e.endpoint_id AND u.lease IS NOT NULL AND u.next_attempt_at > now()) busy
               WHERE e.status = 'active'),
           found AS MATERIALIZED (
               SELECT d.position, d.next_attempt_at, t.*,
                      row_number() OVER (PARTITION BY t.endpoint_id ORDER BY d.next_attempt_at) + t.under_way AS nth_of_endpoint
               FROM told t
               CROSS JOIN LATERAL (
                   SELECT c.position, c.next_attempt_at FROM webhook_deliveries c
                   WHERE c.endpoint_id = t.endpoint_id AND c.state = 'pending' AND c.next_attempt_at <= now()
                   ORDER BY c.next_attempt_at LIMIT greatest(least($2 - t.under_way, $3 - t.of_tenant), 0)
                   FOR UPDATE SKIP LOCKED) d),
           ranked AS (
               SELECT f.*, f.of_tenant + row_number() OVER (
                          PARTITION BY f.tenant_id
                          ORDER BY f.nth_of_endpoint, f.failing_since NULLS FIRST, f.next_attempt_at) AS nth_of_tenant
               FROM found f),
           due AS MATERIALIZED (
               SELECT * FROM ranked WHERE nth_of_tenant <= $3
               ORDER BY nth_of_tenant, random() LIMIT $1)
           UPDATE webhook_deliveries d
           SET lease = gen_random_uuid(), next_attempt_at = clock_timestamp() + $4 * interval '1 second'
           FROM due WHERE d.position = due.position
           RETURNING d.position, d.lease AS "lease!", due.endpoint_id, due.url, d.event_id, d.body, d.failed_attempts,
                     d.created_at < now() - $5 * interval '1 second' AS "is_old!",
                     due.secret_version, due.secret_check,
                     coalesce(due.old_secret_until > now(), false) AS "old_secret_signs!""#,
        room.now,
        room.per_endpoint,
        room.per_tenant,
        lease.as_secs_f64(),
        kept.as_secs_f64(),
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
                failed_attempts: row.failed_attempts,
                is_old: row.is_old,
                secret_version: row.secret_version,
                old_secret_signs: row.old_secret_signs,
                secret_check: row.secret_check,
            })
        })
        .collect()
}
