//! Recalls that go on after the end of their payment, where the receiving bank may take days to answer
//! ([`SwitchProfile::recalls_after_end`](payment_protocol::SwitchProfile::recalls_after_end)). The bank is charged meanwhile; no answer
//! moves money, and what comes back is booked as a return. What an answer changes is in [`payment_protocol::recall::RecallStatus`].

use std::time::Duration;

use payment_protocol::Payment;
use payment_protocol::ids::{EventId, PaymentId, SwitchName};
use payment_protocol::recall::{RecallAnswer, RecallReport, RecallStatus};
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;
use uuid::Uuid;

use super::callbacks::{Received, ReceivedReport, StoreCallbackOutcome, receive_from_own_switch};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::workflow_input;
use crate::stored_id::read_id;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// Largest exponent of the doubled interval between two attempts.
const DOUBLINGS_MAX: u32 = 20;

/// The unfinished recalls of one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchRecalls {
    /// The switch.
    pub switch: String,
    /// Recalls without a decision, or whose promised money is not back.
    pub unfinished: i64,
    /// Those whose time has ended: for the switch to acknowledge, for the receiving bank to answer, for the money to come back.
    pub overdue: i64,
    /// How long the oldest of these has been overdue, in seconds.
    pub overdue_oldest_s: i64,
}

/// The recall of a payment that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecallView {
    /// How it stands.
    pub status: RecallStatus,
    /// The last answer in words.
    pub detail: Option<String>,
    /// How often it was sent.
    pub attempts: i32,
    /// When the payment ended and the recall was requested.
    pub requested_at: jiff::Timestamp,
    /// When its time ends.
    pub answer_due_at: jiff::Timestamp,
    /// When it last changed.
    pub updated_at: jiff::Timestamp,
}

/// A locked recall.
struct Recall {
    status: RecallStatus,
    attempts: i32,
    attempt_token: Option<Uuid>,
    is_due: bool,
    answer_time_is_over: bool,
}

impl Ledger {
    /// At most `limit` recalls of a switch that are to be sent now, the longest due first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn due_recalls(&self, switch: &SwitchName, limit: i64) -> Result<Vec<PaymentId>, LedgerError> {
        let ids = sqlx::query_scalar!(
            "SELECT payment_id FROM recalls WHERE switch = $1 AND next_attempt_at <= statement_timestamp()
             ORDER BY next_attempt_at LIMIT $2",
            switch.as_str(),
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        ids.iter().map(|id| read_id(id)).collect()
    }

    /// Records an attempt before it is sent, and returns the payment to recall; `None` if the recall is not to be sent now: another
    /// process sent it, it is answered, or the bank's claim is closed. A rail that takes one recall is sent one. `token` is of one
    /// attempt that was not sent yet: with the token of its first call, a repeat finds the attempt that a COMMIT without an answer recorded.
    ///
    /// # Errors
    /// [`LedgerError`]: nothing may be sent; repeat with the same token.
    pub async fn begin_recall_after_end(
        &self,
        payment_id: &PaymentId,
        token: Uuid,
    ) -> Result<Option<Payment>, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let Some(recall) = read(&mut tx, &locked).await? else { return Ok(None) };
        if recall.status == RecallStatus::Sent && recall.attempt_token == Some(token) {
            return Ok(Some(workflow_input::of_locked(&locked, 0)));
        }
        if !recall.is_due {
            return Ok(None);
        }
        let profile = &locked.profile;
        let attempt_bound = profile.look_bound_ms();
        let doublings = u32::try_from(recall.attempts).unwrap_or(DOUBLINGS_MAX).min(DOUBLINGS_MAX);
        let interval_ms =
            profile.backoff_ms.saturating_mul(1 << doublings).min(profile.retry_interval_max_ms);
        let next = (!profile.recall_once && !recall.answer_time_is_over)
            .then(|| Duration::from_millis(attempt_bound.saturating_add(interval_ms)).as_secs_f64());
        sqlx::query!(
            "UPDATE recalls SET status = 'sent', attempts = attempts + 1, attempt_token = $3, updated_at = clock_timestamp(),
                                next_attempt_at = clock_timestamp() + $2 * interval '1 second'
             WHERE payment_id = $1",
            payment_id.as_str(),
            next,
            token,
        )
        .execute(&mut *tx)
        .await?;
        if recall.attempts == 0 {
            let line = "the switch is asked to return the money, which is charged to the bank";
            writes::append_internal_timeline(&mut tx, payment_id, locked.facts.state, line).await?;
        }
        tx.commit().await?;
        Ok(Some(workflow_input::of_locked(&locked, 0)))
    }

    /// Moves a due recall that cannot be begun behind the others, by a minute: at the head it would keep them from being sent.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn postpone_recall(&self, payment_id: &PaymentId) -> Result<(), LedgerError> {
        sqlx::query!(
            "UPDATE recalls SET next_attempt_at = clock_timestamp() + interval '1 minute'
             WHERE payment_id = $1 AND next_attempt_at <= clock_timestamp()",
            payment_id.as_str(),
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Records the switch's answer to an attempt.
    ///
    /// # Errors
    /// [`LedgerError`]: not recorded; the next attempt is answered again, or the answer comes by callback.
    pub async fn record_recall_answer(
        &self,
        payment_id: &PaymentId,
        answer: &RecallAnswer,
    ) -> Result<(), LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        record(&mut tx, &locked, answer).await?;
        tx.commit().await
    }

    /// Stores an answer that a switch sent in an authentic callback.
    ///
    /// # Errors
    /// [`LedgerError`]: not stored, or unknown; the switch repeats the callback.
    pub async fn store_recall_answer(
        &self,
        switch: &SwitchName,
        event_id: &EventId,
        report: &RecallReport,
        body: &[u8],
    ) -> Result<StoreCallbackOutcome, LedgerError> {
        let (word, reason) = describe(&report.answer);
        let received = ReceivedReport {
            switch,
            event_id,
            reference: &report.reference,
            status: "RECALL",
            amount_minor: report.amount_minor,
            currency: &report.currency,
            reason,
            reason_code: Some(word),
            body,
        };
        let tx_id = self.named_transaction(switch, &report.reference).await?;
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let reported = format!("answered a recall: {word}");
        let outcome = match receive_from_own_switch(&mut tx, &received, tx_id.as_ref(), &reported).await? {
            Received::Before(outcome) => outcome,
            Received::Unknown => StoreCallbackOutcome::New(None),
            Received::New(locked) => {
                record(&mut tx, &locked, &report.answer).await?;
                StoreCallbackOutcome::New(None)
            }
        };
        tx.commit().await?;
        Ok(outcome)
    }

    /// The unfinished recalls by switch; every switch whose recalls finished within the last day is listed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn recalls_by_switch(&self) -> Result<Vec<SwitchRecalls>, LedgerError> {
        Ok(sqlx::query_as!(
            SwitchRecalls,
            r#"SELECT switch AS "switch!", count(answer_due_at) AS "unfinished!",
                      count(*) FILTER (WHERE answer_due_at <= statement_timestamp()) AS "overdue!",
                      coalesce(extract(epoch FROM statement_timestamp()
                          - min(answer_due_at) FILTER (WHERE answer_due_at <= statement_timestamp())), 0)::bigint AS "overdue_oldest_s!"
               FROM (SELECT switch, answer_due_at FROM recalls WHERE status IN ('due', 'sent', 'pending', 'promised')
                     UNION ALL
                     SELECT switch, NULL FROM recalls
                     WHERE status IN ('refused', 'unsupported', 'closed')
                       AND updated_at > statement_timestamp() - interval '1 day') AS r
               GROUP BY switch ORDER BY switch"#
        )
        .fetch_all(&self.pool)
        .await?)
    }
}

/// Requests the recall of a payment that ends charged to the bank, in the transaction that ends it.
pub(crate) async fn request(tx: &mut Connection, locked: &LockedPayment) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO recalls (payment_id, switch, answer_due_at)
         VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second')",
        locked.payment_id.as_str(),
        locked.profile.switch.as_str(),
        Duration::from_millis(locked.profile.alert_after_ms).as_secs_f64(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The payment's recall, for [`crate::reads::explain`].
pub(crate) async fn view(
    tx: &mut Connection,
    payment_id: &PaymentId,
) -> Result<Option<RecallView>, LedgerError> {
    let row = sqlx::query!(
        "SELECT status, detail, attempts, requested_at, answer_due_at, updated_at FROM recalls WHERE payment_id = $1",
        payment_id.as_str(),
    )
    .fetch_optional(tx)
    .await?;
    row.map(|row| {
        Ok(RecallView {
            status: parse_status(payment_id, &row.status)?,
            detail: row.detail,
            attempts: row.attempts,
            requested_at: row.requested_at.to_jiff(),
            answer_due_at: row.answer_due_at.to_jiff(),
            updated_at: row.updated_at.to_jiff(),
        })
    })
    .transpose()
}

/// The recall of a locked payment.
async fn read(tx: &mut Connection, locked: &LockedPayment) -> Result<Option<Recall>, LedgerError> {
    let row = sqlx::query!(
        r#"SELECT status, attempts, attempt_token, coalesce(next_attempt_at <= clock_timestamp(), false) AS "is_due!",
                  requested_at + $2 * interval '1 second' <= clock_timestamp() AS "answer_time_is_over!"
           FROM recalls WHERE payment_id = $1 FOR UPDATE"#,
        locked.payment_id.as_str(),
        locked.profile.recall_answer_within_s as f64,
    )
    .fetch_optional(tx)
    .await?;
    row.map(|row| {
        Ok(Recall {
            status: parse_status(&locked.payment_id, &row.status)?,
            attempts: row.attempts,
            attempt_token: row.attempt_token,
            is_due: row.is_due,
            answer_time_is_over: row.answer_time_is_over,
        })
    })
    .transpose()
}

fn parse_status(payment_id: &PaymentId, text: &str) -> Result<RecallStatus, LedgerError> {
    RecallStatus::parse(text).ok_or_else(|| LedgerError::Unreadable {
        id: payment_id.to_string(),
        column: "recalls.status",
        value: text.to_owned(),
    })
}

/// Records an answer under the lock of the payment's row. One to a recall that nobody waits for, because the payment is open or its recall
/// was never requested, is a line of the timeline.
async fn record(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    answer: &RecallAnswer,
) -> Result<(), LedgerError> {
    let payment_id = &locked.payment_id;
    let (word, reason) = describe(answer);
    let line = reason.map_or_else(|| word.to_owned(), |reason| format!("{word}: {reason}"));
    let line = format!("the switch's answer to the recall: {line}");
    let state = locked.facts.state;
    let Some(recall) = read(tx, locked).await? else {
        return writes::append_internal_timeline(tx, payment_id, state, &line).await;
    };
    let status = recall.status.after(answer);
    // An answer that comes late, or none, does not hide a decision.
    let is_effective = match answer {
        RecallAnswer::Pending => status == RecallStatus::Pending,
        RecallAnswer::NotReceived { .. } | RecallAnswer::Unknown { .. } => status.may_be_sent(),
        RecallAnswer::Recalled
        | RecallAnswer::Promised
        | RecallAnswer::Refused { .. }
        | RecallAnswer::RecallUnsupported => true,
    };
    sqlx::query!(
        "UPDATE recalls
         SET status = $2, detail = CASE WHEN $6 THEN $3 ELSE detail END, updated_at = clock_timestamp(),
             next_attempt_at = CASE WHEN $4 AND $7 THEN coalesce(next_attempt_at, clock_timestamp() + $8 * interval '1 second')
                                    WHEN $4 THEN next_attempt_at END,
             answer_due_at = CASE WHEN $4 THEN answer_due_at ELSE requested_at + $5 * interval '1 second' END
         WHERE payment_id = $1",
        payment_id.as_str(),
        status.as_str(),
        &*replace_nul(&line),
        status.may_be_sent(),
        locked.profile.recall_answer_within_s as f64,
        is_effective,
        matches!(answer, RecallAnswer::NotReceived { .. }) && !recall.answer_time_is_over,
        Duration::from_millis(locked.profile.retry_interval_max_ms).as_secs_f64(),
    )
    .execute(&mut **tx)
    .await?;
    // An attempt without an answer is repeated, for days: its lines would bury the others.
    if status != recall.status {
        writes::append_internal_timeline(tx, payment_id, state, &line).await?;
    }
    Ok(())
}

/// An answer as a word, and its reason.
fn describe(answer: &RecallAnswer) -> (&'static str, Option<&str>) {
    match answer {
        RecallAnswer::Recalled => ("recalled", None),
        RecallAnswer::Promised => ("promised", None),
        RecallAnswer::Pending => ("pending", None),
        RecallAnswer::Refused { reason } => ("refused", Some(reason)),
        RecallAnswer::RecallUnsupported => ("unsupported", None),
        RecallAnswer::NotReceived { detail } => ("not received", Some(detail)),
        RecallAnswer::Unknown { detail } => ("unknown", Some(detail)),
    }
}
