//! What the bank is told: events made from the end of a transfer, kept as rows
//! with the exact body that will be signed and sent.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::behaviour::{CallbackBehaviour, Contradiction};

/// What happened to a transfer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fact<'a> {
    pub(crate) reference: &'a str,
    pub(crate) settled: bool,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
    pub(crate) reason: Option<&'a str>,
}

impl<'a> Fact<'a> {
    /// Money arrived.
    pub(crate) fn settled(reference: &'a str, amount_minor: i64, currency: &'a str) -> Self {
        Self { reference, settled: true, amount_minor, currency, reason: None }
    }
}

/// The body of a callback.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    reference: &'a str,
    status: &'static str,
    amount_minor: i64,
    currency: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    occurred_at: Timestamp,
}

/// One callback to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    id: Uuid,
    pub(crate) event_id: String,
    reference: String,
    body: String,
    /// Not before this one is done with.
    after: Option<Uuid>,
    pub(crate) delay_ms: i64,
    lost: bool,
}

impl Event {
    /// An event with an id of its own, sent at once.
    pub(crate) fn of(fact: &Fact<'_>, occurred_at: Timestamp) -> Result<Self, sqlx::Error> {
        let body = Body {
            r#type: "transfer.completed",
            reference: fact.reference,
            status: if fact.settled { "SUCCESS" } else { "FAILURE" },
            amount_minor: fact.amount_minor,
            currency: fact.currency,
            reason: fact.reason,
            occurred_at,
        };
        let body = serde_json::to_string(&body).map_err(|error| sqlx::Error::Encode(Box::new(error)))?;
        let id = Uuid::now_v7();
        Ok(Self {
            id,
            event_id: format!("evt_{}", id.simple()),
            reference: fact.reference.to_owned(),
            body,
            after: None,
            delay_ms: 0,
            lost: false,
        })
    }
}

/// The events that tell an end, as the behaviour wants them told.
pub(crate) fn of_end(
    fact: &Fact<'_>,
    wanted: &CallbackBehaviour,
    at: Timestamp,
) -> Result<Vec<Event>, sqlx::Error> {
    let told = Fact { amount_minor: wanted.amount_minor.unwrap_or(fact.amount_minor), ..*fact };
    let mut truth = Event::of(&told, at)?;
    truth.lost = wanted.lose;
    truth.delay_ms = i64::try_from(wanted.delay_ms).unwrap_or(i64::MAX);
    let lie = |settled: bool| {
        let reason = (!settled).then_some("contradiction");
        Event::of(&Fact { settled, reason, ..told }, at).map(|lie| Event { delay_ms: truth.delay_ms, ..lie })
    };
    let (mut before, mut behind) = (None, None);
    match wanted.contradict {
        None => {}
        Some(Contradiction::FailureFirst) => before = Some(lie(false)?),
        Some(Contradiction::FailureAfter) => behind = Some(lie(false)?),
        Some(Contradiction::SuccessAfter) => behind = Some(lie(true)?),
    }
    truth.after = before.as_ref().map(|first| first.id);
    if let Some(last) = &mut behind {
        last.after = Some(truth.id);
    }
    let copies = wanted.copies.unwrap_or(1).max(1);
    let more = (1..copies).map(|_| Event { id: Uuid::now_v7(), ..truth.clone() }).collect::<Vec<_>>();
    Ok(before.into_iter().chain([truth]).chain(more).chain(behind).collect())
}

/// Keeps events; they are sent once the transaction is committed.
pub(crate) async fn insert(db: &mut PgConnection, events: &[Event]) -> Result<(), sqlx::Error> {
    fn column<T>(events: &[Event], of: impl Fn(&Event) -> T) -> Vec<T> {
        events.iter().map(of).collect()
    }
    sqlx::query!(
        "INSERT INTO callbacks (id, event_id, reference, body, state, after_id, next_attempt_at)
         SELECT e.id, e.event_id, e.reference, e.body,
                CASE WHEN e.lost THEN 'LOST' ELSE 'WAITING' END, e.after_id,
                clock_timestamp() + e.delay_ms * interval '1 millisecond'
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::uuid[],
                     $7::bigint[])
              AS e (id, event_id, reference, body, lost, after_id, delay_ms)",
        &column(events, |event| event.id),
        &column(events, |event| event.event_id.clone()),
        &column(events, |event| event.reference.clone()),
        &column(events, |event| event.body.clone()),
        &column(events, |event| event.lost),
        &column(events, |event| event.after) as _,
        &column(events, |event| event.delay_ms),
    )
    .execute(db)
    .await?;
    Ok(())
}

/// A callback taken for one attempt.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) id: Uuid,
    pub(crate) event_id: String,
    pub(crate) body: String,
    /// Attempts begun, this one included.
    pub(crate) attempts: i32,
}

/// Takes up to `limit` callbacks for `lease`; whoever dies with one leaves it
/// to be taken again after that.
pub(crate) async fn take(pool: &PgPool, limit: i64, lease: Duration) -> Result<Vec<Taken>, sqlx::Error> {
    sqlx::query_as!(
        Taken,
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

/// Gives back what a dead process had taken.
pub(crate) async fn release_all(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE callbacks SET next_attempt_at = clock_timestamp()
         WHERE state = 'WAITING' AND attempts > 0 AND next_attempt_at > clock_timestamp()"
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// What one attempt showed.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// Status of the answer, if there was one.
    pub(crate) status: Option<u16>,
    /// Why it was no success.
    pub(crate) error: Option<String>,
    /// Try again after this; `None` is the end of it.
    pub(crate) again_after: Option<Duration>,
}

/// Records an attempt.
pub(crate) async fn attempted(pool: &PgPool, id: Uuid, seen: &Attempt) -> Result<(), sqlx::Error> {
    let state = match (&seen.error, seen.again_after) {
        (None, _) => "DELIVERED",
        (Some(_), Some(_)) => "WAITING",
        (Some(_), None) => "ABANDONED",
    };
    let wait_ms = i64::try_from(seen.again_after.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
    sqlx::query!(
        "UPDATE callbacks SET state = $2, last_status = $3, last_error = $4,
                next_attempt_at = clock_timestamp() + $5::bigint * interval '1 millisecond'
         WHERE id = $1",
        id,
        state,
        seen.status.map(i32::from),
        seen.error,
        wait_ms,
    )
    .execute(pool)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(wanted: &CallbackBehaviour) -> Vec<(String, bool)> {
        let fact = Fact::settled("r", 5, "EUR");
        let events = of_end(&fact, wanted, Timestamp::UNIX_EPOCH).unwrap();
        let first = events[0].event_id.clone();
        events
            .iter()
            .map(|event| {
                let body: serde_json::Value = serde_json::from_str(&event.body).unwrap();
                (body["status"].as_str().unwrap().to_owned(), event.event_id == first)
            })
            .collect()
    }

    #[test]
    fn copies_share_an_id_and_contradictions_do_not() {
        let copies = CallbackBehaviour { copies: Some(3), ..Default::default() };
        assert_eq!(statuses(&copies), vec![("SUCCESS".to_owned(), true); 3]);
        let after = CallbackBehaviour { contradict: Some(Contradiction::FailureAfter), ..Default::default() };
        let expected = [("SUCCESS".to_owned(), true), ("FAILURE".to_owned(), false)];
        assert_eq!(statuses(&after), expected);
        let first = CallbackBehaviour { contradict: Some(Contradiction::FailureFirst), ..Default::default() };
        assert_eq!(statuses(&first)[0].0, "FAILURE");
    }
}
