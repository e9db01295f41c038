//! Callbacks as rows, with the exact body that is signed and sent.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::recall::LaterAnswer;
use crate::behaviour::{CallbackBehaviour, Contradiction, Posting};

/// The status that a callback reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CallbackStatus {
    /// The transfer settled.
    Success,
    /// The transfer failed.
    Failure,
    /// The transfer settled, and the money came back.
    Returned,
}

/// The end of a transfer that a callback reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransferEnd<'a> {
    pub(crate) reference: &'a str,
    pub(crate) status: CallbackStatus,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
    pub(crate) reason: Option<&'a str>,
    /// The code of a reject.
    pub(crate) reason_code: Option<&'a str>,
    /// Where the money of a settled transfer is at the receiving bank, if the switch says so.
    pub(crate) posting: Option<Posting>,
}

/// A return by a message of its own.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Returned<'a> {
    pub(crate) reference: &'a str,
    pub(crate) return_id: &'a str,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
    pub(crate) reason: &'a str,
}

/// A report of where the money of a settled transfer is.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct PostingReport<'a> {
    pub(crate) reference: &'a str,
    pub(crate) posting: Posting,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
}

/// The receiving bank's answer to a recall.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct RecallAnswered<'a> {
    pub(crate) reference: &'a str,
    pub(crate) answer: LaterAnswer,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'a str>,
}

/// The body of an event of another type than the end of a transfer.
#[derive(Serialize)]
struct EventBody<T> {
    r#type: &'static str,
    #[serde(flatten)]
    event: T,
    occurred_at: Timestamp,
}

impl<'a> TransferEnd<'a> {
    pub(crate) fn settled(reference: &'a str, amount_minor: i64, currency: &'a str) -> Self {
        Self {
            reference,
            status: CallbackStatus::Success,
            amount_minor,
            currency,
            reason: None,
            reason_code: None,
            posting: None,
        }
    }
}

/// The body of a callback.
#[derive(Serialize)]
struct CallbackBody<'a> {
    r#type: &'static str,
    reference: &'a str,
    status: CallbackStatus,
    amount_minor: i64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    posting: Option<Posting>,
    occurred_at: Timestamp,
}

/// A callback to insert.
#[derive(Debug, Clone)]
pub(crate) struct NewCallback {
    id: Uuid,
    pub(crate) event_id: String,
    reference: String,
    body: String,
    /// The callback that must be delivered, lost or abandoned first.
    after: Option<Uuid>,
    pub(crate) delay_ms: i64,
    lost: bool,
}

impl NewCallback {
    /// A callback with its own event id and without delay.
    pub(crate) fn new(end: &TransferEnd<'_>, occurred_at: Timestamp) -> Result<Self, sqlx::Error> {
        let body = CallbackBody {
            r#type: "transfer.completed",
            reference: end.reference,
            status: end.status,
            amount_minor: end.amount_minor,
            currency: end.currency,
            reason: end.reason,
            reason_code: end.reason_code,
            posting: end.posting,
            occurred_at,
        };
        Self::with_body(end.reference, &body)
    }

    /// The callback of a return.
    pub(crate) fn of_return(event: &Returned<'_>, occurred_at: Timestamp) -> Result<Self, sqlx::Error> {
        Self::with_body(event.reference, &EventBody { r#type: "transfer.returned", event, occurred_at })
    }

    /// The callback of a report of the posting.
    pub(crate) fn of_posting(event: &PostingReport<'_>, occurred_at: Timestamp) -> Result<Self, sqlx::Error> {
        Self::with_body(event.reference, &EventBody { r#type: "transfer.posting", event, occurred_at })
    }

    /// The callback of an answer to a recall.
    pub(crate) fn of_recall(event: &RecallAnswered<'_>, occurred_at: Timestamp) -> Result<Self, sqlx::Error> {
        Self::with_body(
            event.reference,
            &EventBody { r#type: "transfer.recall_answered", event, occurred_at },
        )
    }

    fn with_body(reference: &str, body: &impl Serialize) -> Result<Self, sqlx::Error> {
        let body = serde_json::to_string(body).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
        let id = Uuid::now_v7();
        Ok(Self {
            id,
            event_id: format!("evt_{}", id.simple()),
            reference: reference.to_owned(),
            body,
            after: None,
            delay_ms: 0,
            lost: false,
        })
    }
}

/// The callbacks of an end, as the behaviour requires.
pub(crate) fn for_end(
    end: &TransferEnd<'_>,
    behaviour: &CallbackBehaviour,
    at: Timestamp,
) -> Result<Vec<NewCallback>, sqlx::Error> {
    let reported = TransferEnd { amount_minor: behaviour.amount_minor.unwrap_or(end.amount_minor), ..*end };
    let mut truth = NewCallback::new(&reported, at)?;
    truth.lost = behaviour.lose;
    truth.delay_ms = i64::try_from(behaviour.delay_ms).unwrap_or(i64::MAX);
    let contradiction = |status: CallbackStatus| {
        let reason = (status == CallbackStatus::Failure).then_some("contradiction");
        // A contradiction is a fault, which no rail would give a final code.
        NewCallback::new(&TransferEnd { status, reason, reason_code: None, posting: None, ..reported }, at)
            .map(|callback| NewCallback { delay_ms: truth.delay_ms, ..callback })
    };
    let (mut first, mut last) = (None, None);
    match behaviour.contradict {
        None => {}
        Some(Contradiction::FailureFirst) => first = Some(contradiction(CallbackStatus::Failure)?),
        Some(Contradiction::FailureAfter) => last = Some(contradiction(CallbackStatus::Failure)?),
        Some(Contradiction::SuccessAfter) => last = Some(contradiction(CallbackStatus::Success)?),
    }
    truth.after = first.as_ref().map(|first| first.id);
    if let Some(last) = &mut last {
        last.after = Some(truth.id);
    }
    let copies = behaviour.copies.unwrap_or(1).max(1);
    let copies = (1..copies).map(|_| NewCallback { id: Uuid::now_v7(), ..truth.clone() }).collect::<Vec<_>>();
    Ok(first.into_iter().chain([truth]).chain(copies).chain(last).collect())
}

/// Inserts callbacks; the sender claims them once the transaction is committed.
pub(crate) async fn insert(db: &mut PgConnection, callbacks: &[NewCallback]) -> Result<(), sqlx::Error> {
    fn column<T>(callbacks: &[NewCallback], value: impl Fn(&NewCallback) -> T) -> Vec<T> {
        callbacks.iter().map(value).collect()
    }
    sqlx::query!(
        "INSERT INTO callbacks (id, event_id, reference, body, state, after_id, next_attempt_at)
         SELECT e.id, e.event_id, e.reference, e.body,
                CASE WHEN e.lost THEN 'LOST' ELSE 'WAITING' END, e.after_id,
                clock_timestamp() + e.delay_ms * interval '1 millisecond'
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::uuid[],
                     $7::bigint[])
              AS e (id, event_id, reference, body, lost, after_id, delay_ms)",
        &column(callbacks, |callback| callback.id),
        &column(callbacks, |callback| callback.event_id.clone()),
        &column(callbacks, |callback| callback.reference.clone()),
        &column(callbacks, |callback| callback.body.clone()),
        &column(callbacks, |callback| callback.lost),
        &column(callbacks, |callback| callback.after) as _,
        &column(callbacks, |callback| callback.delay_ms),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A callback claimed for one attempt.
#[derive(Debug)]
pub(crate) struct ClaimedCallback {
    pub(crate) id: Uuid,
    pub(crate) event_id: String,
    pub(crate) body: String,
    /// Attempts so far, including this one.
    pub(crate) attempts: i32,
}

/// Claims up to `limit` due callbacks for `lease`. A callback whose claimer dies is claimed again after its lease.
pub(crate) async fn claim(
    pool: &PgPool,
    limit: i64,
    lease: Duration,
) -> Result<Vec<ClaimedCallback>, sqlx::Error> {
    sqlx::query_as!(
        ClaimedCallback,
        "UPDATE callbacks c SET attempts = c.attempts + 1,
                next_attempt_at = clock_timestamp() + $2::bigint * interval '1 millisecond'
         WHERE c.id IN (
             SELECT w.id FROM callbacks w
             WHERE w.state = 'WAITING' AND w.next_attempt_at <= clock_timestamp()
               AND (w.after_id IS NULL OR EXISTS
                    (SELECT 1 FROM callbacks f WHERE f.id = w.after_id AND f.state <> 'WAITING'))
             ORDER BY w.next_attempt_at, w.id LIMIT $1
             FOR UPDATE SKIP LOCKED)
         RETURNING c.id, c.event_id, c.body, c.attempts",
        limit,
        i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
    )
    .fetch_all(pool)
    .await
}

/// Time until a callback can be claimed; zero if one became due since the last claim, `None` if none waits.
pub(crate) async fn next_due(pool: &PgPool) -> Result<Option<Duration>, sqlx::Error> {
    let next_due_ms = sqlx::query_scalar!(
        "SELECT ceil(extract(epoch FROM min(w.next_attempt_at) - clock_timestamp()) * 1000)::bigint
         FROM callbacks w
         WHERE w.state = 'WAITING'
           AND (w.after_id IS NULL OR EXISTS
                (SELECT 1 FROM callbacks f WHERE f.id = w.after_id AND f.state <> 'WAITING'))"
    )
    .fetch_one(pool)
    .await?;
    Ok(next_due_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0))))
}

/// Ends the leases of an earlier process.
pub(crate) async fn release_leases(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE callbacks SET next_attempt_at = clock_timestamp()
         WHERE state = 'WAITING' AND attempts > 0 AND next_attempt_at > clock_timestamp()"
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Outcome of one attempt.
#[derive(Debug)]
pub(crate) struct CallbackAttemptOutcome {
    /// HTTP status; `None` without a response.
    pub(crate) status: Option<u16>,
    /// Why the attempt failed; `None` if it succeeded.
    pub(crate) error: Option<String>,
    /// Delay before the next attempt; `None` after the last one.
    pub(crate) retry_after: Option<Duration>,
}

/// Records the outcome of an attempt.
pub(crate) async fn record_attempt(
    pool: &PgPool,
    id: Uuid,
    outcome: &CallbackAttemptOutcome,
) -> Result<(), sqlx::Error> {
    let state = match (&outcome.error, outcome.retry_after) {
        (None, _) => "DELIVERED",
        (Some(_), Some(_)) => "WAITING",
        (Some(_), None) => "ABANDONED",
    };
    let wait_ms = i64::try_from(outcome.retry_after.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
    sqlx::query!(
        "UPDATE callbacks SET state = $2, last_status = $3, last_error = $4,
                next_attempt_at = clock_timestamp() + $5::bigint * interval '1 millisecond'
         WHERE id = $1",
        id,
        state,
        outcome.status.map(i32::from),
        outcome.error,
        wait_ms,
    )
    .execute(pool)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(behaviour: &CallbackBehaviour) -> Vec<(String, bool)> {
        let end = TransferEnd::settled("r", 5, "EUR");
        let callbacks = for_end(&end, behaviour, Timestamp::UNIX_EPOCH).unwrap();
        let first = callbacks[0].event_id.clone();
        callbacks
            .iter()
            .map(|callback| {
                let body: serde_json::Value = serde_json::from_str(&callback.body).unwrap();
                (body["status"].as_str().unwrap().to_owned(), callback.event_id == first)
            })
            .collect()
    }

    #[test]
    fn callback_copies_share_an_event_id_and_contradicting_callbacks_do_not() {
        let copies = CallbackBehaviour { copies: Some(3), ..Default::default() };
        assert_eq!(statuses(&copies), vec![("SUCCESS".to_owned(), true); 3]);
        let after = CallbackBehaviour { contradict: Some(Contradiction::FailureAfter), ..Default::default() };
        let expected = [("SUCCESS".to_owned(), true), ("FAILURE".to_owned(), false)];
        assert_eq!(statuses(&after), expected);
        let first = CallbackBehaviour { contradict: Some(Contradiction::FailureFirst), ..Default::default() };
        assert_eq!(statuses(&first)[0].0, "FAILURE");
    }
}
