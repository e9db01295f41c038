//! Claims due deliveries.

use std::time::Duration;

use postgres_kit::Pool;
use trace_kit::TraceParent;
use uuid::Uuid;

use crate::{EndpointId, WebhooksError};

/// A delivery that this sender has claimed for a lease.
#[derive(Debug)]
pub(super) struct ClaimedDelivery {
    pub(super) position: i64,
    /// Token of the lease, compared when the attempt is recorded: a later claim has another lease.
    pub(super) lease: Uuid,
    pub(super) endpoint: EndpointId,
    pub(super) url: String,
    pub(super) event_id: String,
    pub(super) body: String,
    pub(super) trace_parent: Option<TraceParent>,
    /// Attempts that failed before this one.
    pub(super) failed_attempts: i32,
    /// Whether it is older than the retention, so that it is not postponed again.
    pub(super) is_beyond_retention: bool,
    pub(super) secret_version: i32,
    /// Whether the previous secret signs too.
    pub(super) old_secret_signs: bool,
    pub(super) secret_check: Vec<u8>,
}

/// How many deliveries may be claimed.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightCapacity {
    /// Free slots of this process.
    pub(super) available: i64,
    /// In-flight limit of an endpoint.
    pub(super) per_endpoint: i64,
    /// In-flight limit of a tenant.
    pub(super) per_tenant: i64,
}

/// Claims due deliveries within the in-flight limits of endpoints and tenants. The tenant with the fewest deliveries in flight
/// comes first, among equal ones a random one: by age, tenants with a permanent backlog would starve the others. Among a
/// tenant's endpoints the one with the fewest in flight comes first, then endpoints that do not fail, then the oldest due
/// delivery. Deliveries that another sender is claiming are skipped.
///
/// The query reads each active endpoint once, by indexes, and does not read deliveries that are scheduled for later.
pub(super) async fn claim_due(
    pool: &Pool,
    capacity: InFlightCapacity,
    lease: Duration,
    retention: Duration,
) -> Result<Vec<ClaimedDelivery>, WebhooksError> {
    let rows = sqlx::query!(
        r#"WITH active AS MATERIALIZED (
               SELECT e.*, busy.in_flight,
                      sum(busy.in_flight) OVER (PARTITION BY e.tenant_id)::bigint AS tenant_in_flight
               FROM webhook_endpoints e
               CROSS JOIN LATERAL (
                   SELECT count(*) AS in_flight FROM webhook_deliveries u
                   WHERE u.endpoint_id = e.endpoint_id AND u.lease IS NOT NULL AND u.next_attempt_at > now()) busy
               WHERE e.status = 'active'),
           candidates AS MATERIALIZED (
               SELECT d.position, d.next_attempt_at, a.*,
                      row_number() OVER (PARTITION BY a.endpoint_id ORDER BY d.next_attempt_at) + a.in_flight AS nth_of_endpoint
               FROM active a
               CROSS JOIN LATERAL (
                   SELECT c.position, c.next_attempt_at FROM webhook_deliveries c
                   WHERE c.endpoint_id = a.endpoint_id AND c.state = 'pending' AND c.next_attempt_at <= now()
                   ORDER BY c.next_attempt_at LIMIT greatest(least($2 - a.in_flight, $3 - a.tenant_in_flight), 0)
                   FOR UPDATE SKIP LOCKED) d),
           ranked AS (
               SELECT f.*, f.tenant_in_flight + row_number() OVER (
                          PARTITION BY f.tenant_id
                          ORDER BY f.nth_of_endpoint, f.failing_since NULLS FIRST, f.next_attempt_at) AS nth_of_tenant
               FROM candidates f),
           due AS MATERIALIZED (
               SELECT * FROM ranked WHERE nth_of_tenant <= $3
               ORDER BY nth_of_tenant, random() LIMIT $1)
           UPDATE webhook_deliveries d
           SET lease = gen_random_uuid(), next_attempt_at = clock_timestamp() + $4 * interval '1 second'
           FROM due WHERE d.position = due.position
           RETURNING d.position, d.lease AS "lease!", due.endpoint_id, due.url, d.event_id, d.body, d.failed_attempts,
                     d.trace_parent,
                     d.created_at < now() - $5 * interval '1 second' AS "is_beyond_retention!",
                     due.secret_version, due.secret_check,
                     coalesce(due.old_secret_until > now(), false) AS "old_secret_signs!""#,
        capacity.available,
        capacity.per_endpoint,
        capacity.per_tenant,
        lease.as_secs_f64(),
        retention.as_secs_f64(),
    )
    .fetch_all(pool)
    .await?;
    let mut claimed = Vec::with_capacity(rows.len());
    for row in rows {
        // The others are sent; this one is claimed again after its lease.
        let Ok(endpoint) = EndpointId::new(row.endpoint_id.as_str()) else {
            tracing::error!(
                endpoint.id = row.endpoint_id,
                "the id of a webhook endpoint cannot be parsed, so a delivery to the endpoint is not sent now"
            );
            continue;
        };
        claimed.push(ClaimedDelivery {
            position: row.position,
            lease: row.lease,
            endpoint,
            url: row.url,
            event_id: row.event_id,
            body: row.body,
            trace_parent: row.trace_parent.as_deref().and_then(TraceParent::parse),
            failed_attempts: row.failed_attempts,
            is_beyond_retention: row.is_beyond_retention,
            secret_version: row.secret_version,
            old_secret_signs: row.old_secret_signs,
            secret_check: row.secret_check,
        });
    }
    Ok(claimed)
}
