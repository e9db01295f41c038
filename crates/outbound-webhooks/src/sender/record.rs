//! Records an attempt, and its effect on the delivery and the endpoint, in one transaction.

use postgres_kit::Connection;

use super::Inner;
use super::claim::ClaimedDelivery;
use super::http_sender::{AttemptResponse, AttemptResult};
use crate::WebhooksError;
use crate::schedule::add_jitter;

/// Attempts stored per delivery, the last ones: replays can make more attempts than the schedule has.
const ATTEMPTS_STORED_MAX: i64 = 100;

/// Outcome of an attempt for its delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryAttemptOutcome {
    /// The endpoint answered 2xx.
    Delivered,
    /// Failed; another attempt follows.
    Retry,
    /// Nothing was sent, because of our configuration: postponed, and not counted as a try.
    NotSent,
    /// Failed; it was the last attempt.
    Failed,
    /// The endpoint answered 410.
    Gone,
    /// The lease had expired and another sender owns the delivery, or a replay changed it.
    LeaseLost,
}

impl DeliveryAttemptOutcome {
    /// The label of the metric.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry => "retry",
            Self::NotSent => "not_sent",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::LeaseLost => "lease_lost",
        }
    }

    fn delivery_state(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry | Self::NotSent | Self::LeaseLost => "pending",
            Self::Failed | Self::Gone => "failed",
        }
    }

    fn is_failed_try(self) -> bool {
        matches!(self, Self::Retry | Self::Failed | Self::Gone)
    }
}

/// Records the attempt and its effect.
pub(super) async fn record(
    sender: &Inner,
    claimed: &ClaimedDelivery,
    attempt: &AttemptResult,
) -> Result<DeliveryAttemptOutcome, WebhooksError> {
    let (status, retry_after, answer, error) = match &attempt.response {
        AttemptResponse::Received { status, retry_after, excerpt } => {
            let error = (!is_success(*status)).then(|| format!("answered {status}"));
            (Some(*status), *retry_after, Some(excerpt.as_str()), error)
        }
        AttemptResponse::Missing { error } | AttemptResponse::NotSent { error } => {
            (None, None, None, Some(error.clone()))
        }
    };
    let is_sent = !matches!(attempt.response, AttemptResponse::NotSent { .. });
    let failed = usize::try_from(claimed.failed_attempts).unwrap_or(0).saturating_add(1);
    let delay = if is_sent {
        sender.schedule.delay(failed, random(), retry_after)
    } else {
        (!claimed.is_beyond_retention).then(|| add_jitter(sender.postpone, random()))
    };
    let outcome = match (status, delay) {
        (Some(status), _) if is_success(status) => DeliveryAttemptOutcome::Delivered,
        (Some(410), _) => DeliveryAttemptOutcome::Gone,
        (_, Some(_)) if !is_sent => DeliveryAttemptOutcome::NotSent,
        (_, Some(_)) => DeliveryAttemptOutcome::Retry,
        (_, None) => DeliveryAttemptOutcome::Failed,
    };
    let mut tx = sender.pool.begin().await?;
    let updated = sqlx::query_scalar!(
        "UPDATE webhook_deliveries
         SET state = $3, failed_attempts = failed_attempts + $4, lease = NULL, next_attempt_at = clock_timestamp() + $5 * interval '1 second',
             ended_at = CASE WHEN $3 <> 'pending' THEN clock_timestamp() END
         WHERE position = $1 AND lease = $2 RETURNING position",
        claimed.position,
        claimed.lease,
        outcome.delivery_state(),
        i32::from(is_sent && outcome.is_failed_try()),
        delay.unwrap_or_default().as_secs_f64(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    if !is_sent {
        delete_same_error(&mut tx, claimed, error.as_deref()).await?;
    }
    insert_attempt(&mut tx, claimed, attempt, status, error.as_deref(), answer).await?;
    let disabled = if updated.is_some() && is_sent {
        update_endpoint(&mut tx, sender, claimed, outcome).await?
    } else {
        None
    };
    tx.commit().await?;
    if let Some(reason) = disabled {
        metrics::counter!("outbound_webhook_endpoints_disabled_total", "reason" => reason.clone())
            .increment(1);
        tracing::warn!(endpoint.id = %claimed.endpoint, reason, "the sender disabled a tenant's webhook endpoint because of its responses; pending deliveries wait until the tenant enables it, and new events are not delivered to it");
    }
    if updated.is_none() {
        return Ok(DeliveryAttemptOutcome::LeaseLost);
    }
    if matches!(outcome, DeliveryAttemptOutcome::Failed | DeliveryAttemptOutcome::Gone) {
        tracing::warn!(
            endpoint.id = %claimed.endpoint, event.id = claimed.event_id, outcome = outcome.as_str(),
            error, "the delivery of an outbound webhook failed after its last attempt; the tenant or an operator can replay it"
        );
    }
    Ok(outcome)
}

/// Inserts the attempt, unless its delivery was deleted meanwhile.
async fn insert_attempt(
    tx: &mut Connection,
    claimed: &ClaimedDelivery,
    attempt: &AttemptResult,
    status: Option<u16>,
    error: Option<&str>,
    answer: Option<&str>,
) -> Result<(), WebhooksError> {
    sqlx::query!(
        "INSERT INTO webhook_attempts (position, duration_ms, response_status, error, response_excerpt)
         SELECT position, $2, $3, $4, $5 FROM webhook_deliveries WHERE position = $1",
        claimed.position,
        i64::try_from(attempt.duration.as_millis()).unwrap_or(i64::MAX),
        status.map(i32::from),
        error,
        answer,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "DELETE FROM webhook_attempts WHERE attempt_id IN (
             SELECT attempt_id FROM webhook_attempts WHERE position = $1 ORDER BY attempt_id DESC OFFSET $2)",
        claimed.position,
        ATTEMPTS_STORED_MAX,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Deletes earlier attempts with the same error: a delivery that is postponed for days would otherwise displace the
/// attempts that the endpoint answered.
async fn delete_same_error(
    tx: &mut Connection,
    claimed: &ClaimedDelivery,
    error: Option<&str>,
) -> Result<(), WebhooksError> {
    sqlx::query!(
        "DELETE FROM webhook_attempts WHERE position = $1 AND response_status IS NULL AND error = $2",
        claimed.position,
        error,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Updates the endpoint's failure period. Returns the reason if the endpoint was disabled.
async fn update_endpoint(
    tx: &mut Connection,
    sender: &Inner,
    claimed: &ClaimedDelivery,
    outcome: DeliveryAttemptOutcome,
) -> Result<Option<String>, WebhooksError> {
    let id = claimed.endpoint.as_str();
    if outcome == DeliveryAttemptOutcome::Delivered {
        sqlx::query!(
            "UPDATE webhook_endpoints SET failing_since = NULL WHERE endpoint_id = $1 AND failing_since IS NOT NULL",
            id,
        )
        .execute(tx)
        .await?;
        return Ok(None);
    }
    // An attempt at an earlier URL says nothing about the current one.
    sqlx::query!(
        "UPDATE webhook_endpoints SET failing_since = clock_timestamp()
         WHERE endpoint_id = $1 AND url = $2 AND failing_since IS NULL",
        id,
        claimed.url,
    )
    .execute(&mut *tx)
    .await?;
    let disabled = sqlx::query_scalar!(
        r#"UPDATE webhook_endpoints
           SET status = 'disabled', disabled_reason = CASE WHEN $2 THEN 'endpoint_gone' ELSE 'failing' END
           WHERE endpoint_id = $1 AND url = $3 AND status = 'active'
             AND ($2 OR failing_since < clock_timestamp() - $4::bigint * interval '1 second')
           RETURNING disabled_reason AS "disabled_reason!""#,
        id,
        outcome == DeliveryAttemptOutcome::Gone,
        claimed.url,
        i64::from(sender.disable_after_s),
    )
    .fetch_optional(&mut *tx)
    .await?;
    if disabled.is_none() && outcome == DeliveryAttemptOutcome::Failed {
        end_failure_period_if_idle(tx, id).await?;
    }
    Ok(disabled)
}

/// Ends the failure period of an endpoint without pending deliveries: the time until the next event does not count.
async fn end_failure_period_if_idle(tx: &mut Connection, id: &str) -> Result<(), WebhooksError> {
    // Two concurrent last attempts would each see the other delivery pending; the lock makes the second one wait for the
    // first one's commit.
    sqlx::query!("SELECT FROM webhook_endpoints WHERE endpoint_id = $1 FOR UPDATE", id)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "UPDATE webhook_endpoints SET failing_since = NULL
         WHERE endpoint_id = $1 AND NOT EXISTS (
             SELECT FROM webhook_deliveries d WHERE d.endpoint_id = $1 AND d.state = 'pending')",
        id,
    )
    .execute(tx)
    .await?;
    Ok(())
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// A random number; 0 if the system has none, which means no jitter.
fn random() -> u32 {
    getrandom::u32().unwrap_or(0)
}
