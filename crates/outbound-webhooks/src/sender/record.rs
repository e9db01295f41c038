//! What an attempt means for its delivery and its endpoint: one transaction.

use sqlx::PgConnection;

use super::Inner;
use super::claim::Claimed;
use super::courier::{Attempt, Came};
use crate::WebhooksError;
use crate::schedule::longer_by_chance;

/// Attempts of one delivery that are kept, the last ones: replays make more than the schedule has.
const ATTEMPTS_KEPT: i64 = 100;

/// What became of a delivery by an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Delivered.
    Delivered,
    /// To be tried again.
    Again,
    /// Nothing went out, by a fault of ours: put off, and no try of the delivery.
    NotSent,
    /// That was the last attempt.
    Failed,
    /// The endpoint says that it is gone for ever.
    Gone,
    /// Another sender has taken over meanwhile: it decides.
    TakenOver,
}

impl Outcome {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Again => "again",
            Self::NotSent => "not_sent",
            Self::Failed => "failed",
            Self::Gone => "gone",
            Self::TakenOver => "taken_over",
        }
    }

    fn state(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Again | Self::NotSent | Self::TakenOver => "pending",
            Self::Failed | Self::Gone => "failed",
        }
    }

    /// Whether the endpoint did not take it, if it was asked.
    fn is_failed_try(self) -> bool {
        matches!(self, Self::Again | Self::Failed | Self::Gone)
    }
}

/// Records the attempt and what follows from it.
pub(super) async fn record(
    sender: &Inner,
    claimed: &Claimed,
    attempt: &Attempt,
) -> Result<Outcome, WebhooksError> {
    let (status, wish, answer, error) = match &attempt.came {
        Came::Answer { status, wish, beginning } => {
            let error = (!is_success(*status)).then(|| format!("answered {status}"));
            (Some(*status), *wish, Some(beginning.as_str()), error)
        }
        Came::Nothing { why } | Came::NotSent { why } => (None, None, None, Some(why.clone())),
    };
    let is_sent = !matches!(attempt.came, Came::NotSent { .. });
    let failed = usize::try_from(claimed.failed_attempts).unwrap_or(0).saturating_add(1);
    let pause = if is_sent {
        sender.schedule.pause(failed, chance(), wish)
    } else {
        (!claimed.is_old).then(|| longer_by_chance(sender.put_off, chance()))
    };
    let outcome = match (status, pause) {
        (Some(status), _) if is_success(status) => Outcome::Delivered,
        (Some(410), _) => Outcome::Gone,
        (_, Some(_)) if !is_sent => Outcome::NotSent,
        (_, Some(_)) => Outcome::Again,
        (_, None) => Outcome::Failed,
    };
    let mut tx = sender.pool.begin().await?;
    let kept = sqlx::query_scalar!(
        "UPDATE webhook_deliveries
         SET state = $3, failed_attempts = failed_attempts + $4, lease = NULL, next_attempt_at = clock_timestamp() + $5 * interval '1 second',
             ended_at = CASE WHEN $3 <> 'pending' THEN clock_timestamp() END
         WHERE position = $1 AND lease = $2 RETURNING position",
        claimed.position,
        claimed.lease,
        outcome.state(),
        i32::from(is_sent && outcome.is_failed_try()),
        pause.unwrap_or_default().as_secs_f64(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    if !is_sent {
        forget_the_same(&mut tx, claimed, error.as_deref()).await?;
    }
    log(&mut tx, claimed, attempt, status, error.as_deref(), answer).await?;
    if kept.is_some() && is_sent {
        judge(&mut tx, sender, claimed, outcome).await?;
    }
    tx.commit().await?;
    if kept.is_none() {
        return Ok(Outcome::TakenOver);
    }
    if matches!(outcome, Outcome::Failed | Outcome::Gone) {
        tracing::warn!(
            endpoint.id = %claimed.endpoint, event.id = claimed.event_id, outcome = outcome.as_str(),
            error, "a webhook could not be delivered; it can be replayed"
        );
    }
    Ok(outcome)
}

/// Writes the attempt down. A delivery that is gone meanwhile has no attempts.
async fn log(
    tx: &mut PgConnection,
    claimed: &Claimed,
    attempt: &Attempt,
    status: Option<u16>,
    error: Option<&str>,
    answer: Option<&str>,
) -> Result<(), WebhooksError> {
    sqlx::query!(
        "INSERT INTO webhook_attempts (position, duration_ms, response_status, error, response_excerpt)
         SELECT position, $2, $3, $4, $5 FROM webhook_deliveries WHERE position = $1",
        claimed.position,
        i64::try_from(attempt.took.as_millis()).unwrap_or(i64::MAX),
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
        ATTEMPTS_KEPT,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What is put off for days for one reason is on record once, or it would drive out what the endpoint answered.
async fn forget_the_same(
    tx: &mut PgConnection,
    claimed: &Claimed,
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

/// What it says of the endpoint: that it answers, that it fails, that it is gone.
async fn judge(
    tx: &mut PgConnection,
    sender: &Inner,
    claimed: &Claimed,
    outcome: Outcome,
) -> Result<(), WebhooksError> {
    let id = claimed.endpoint.as_str();
    if outcome == Outcome::Delivered {
        sqlx::query!(
            "UPDATE webhook_endpoints SET failing_since = NULL WHERE endpoint_id = $1 AND failing_since IS NOT NULL",
            id,
        )
        .execute(tx)
        .await?;
        return Ok(());
    }
    // An attempt at another address says nothing of where the endpoint is now.
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
        outcome == Outcome::Gone,
        claimed.url,
        i64::from(sender.disable_after_s),
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(reason) = disabled {
        metrics::counter!("outbound_webhook_endpoints_disabled_total", "reason" => reason.clone())
            .increment(1);
        tracing::warn!(endpoint.id = id, reason, "a webhook endpoint is disabled");
    } else if outcome == Outcome::Failed {
        rest(tx, id).await?;
    }
    Ok(())
}

/// An endpoint that nothing is tried at any more is not failing on: the days until the next event say nothing of it.
async fn rest(tx: &mut PgConnection, id: &str) -> Result<(), WebhooksError> {
    // Two that end at once would each see the other one waiting; whoever comes second looks after the first has committed.
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

/// A random number. Without one, pauses are as they are set.
fn chance() -> u32 {
    getrandom::u32().unwrap_or(0)
}
