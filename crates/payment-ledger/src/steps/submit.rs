//! Attempts at the switch: written before they are sent, under the payment row's lock.

use jiff::{SignedDuration, Timestamp, Unit};
use jiff_sqlx::ToSqlx as _;
use payment_protocol::PaymentState;
use payment_protocol::ids::{PaymentId, RunId};
use payment_protocol::keys::{self, Reference};
use payment_protocol::money::Money;
use payment_protocol::rules::{self, AttemptRuling, NotSent};
use payment_protocol::submit::SendAnswer;
use sqlx::PgConnection;

use crate::row_lock::{Locked, lock};
use crate::writes::Exception;
use crate::{Ledger, LedgerError, writes};

/// What an attempt that was let out sends. The same on every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What the switch knows it by.
    pub reference: Reference,
    /// How much.
    pub money: Money,
    /// The account at the destination bank.
    pub destination_account: String,
    /// The customer's own id, if given.
    pub end_to_end_id: Option<String>,
    /// On the switch's clock; fixed once, before the first attempt.
    pub deadline: Timestamp,
}

impl Ledger {
    /// Lets an attempt of `run` out and records it, or says why not. `switch_now` is the switch's
    /// clock as last heard; it fixes the deadline before the first attempt and is not looked at
    /// after. `marker` is the newest transfer to the account at a switch without references, read before:
    /// what is sent comes after it.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat. A repeat after a lost COMMIT records one attempt more,
    /// which is what may have happened.
    pub async fn record_attempt(
        &self,
        payment_id: &PaymentId,
        run: &RunId,
        switch_now: Timestamp,
        marker: Option<&str>,
    ) -> Result<(AttemptRuling, Option<Transfer>), LedgerError> {
        let mut tx = self.pool.begin().await?;
        let mut locked = lock(&mut tx, payment_id).await?;
        if locked.profile.needs_account_lock() {
            take_account(&mut tx, payment_id).await?;
            // What was read before may have changed while this waited.
            locked = lock(&mut tx, payment_id).await?;
        }
        let ruling = rules::attempt(&locked.facts, run, &locked.profile);
        let AttemptRuling::Send(attempt) = ruling else { return Ok((ruling, None)) };
        let distance =
            SignedDuration::from_millis(i64::try_from(locked.profile.submit_deadline_ms).unwrap_or(i64::MAX));
        let deadline = match locked.submit_deadline {
            Some(fixed) => fixed,
            // As finely as the database keeps it: what goes out is the same on every attempt.
            None => {
                let now = switch_now.round(Unit::Millisecond).unwrap_or(switch_now);
                now.saturating_add(distance).unwrap_or(Timestamp::MAX)
            }
        };
        let row = sqlx::query!(
            "UPDATE payments
             SET attempts = $2, updated_at = clock_timestamp(), submit_deadline = $3,
                 first_attempt_at = coalesce(first_attempt_at, clock_timestamp())
             WHERE payment_id = $1
             RETURNING destination_account, end_to_end_id",
            payment_id.as_str(),
            i32::try_from(attempt).unwrap_or(i32::MAX),
            deadline.to_sqlx() as _,
        )
        .fetch_one(&mut *tx)
        .await?;
        let marker = marker.map(writes::storable);
        sqlx::query!(
            "INSERT INTO submissions (payment_id, attempt, marker) VALUES ($1, $2, $3)",
            payment_id.as_str(),
            i32::try_from(attempt).unwrap_or(i32::MAX),
            marker.as_deref(),
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        let transfer = Transfer {
            reference: keys::submit(&locked.tx_id),
            money: locked.money,
            destination_account: row.destination_account,
            end_to_end_id: row.end_to_end_id,
            deadline,
        };
        Ok((ruling, Some(transfer)))
    }

    /// Records what an attempt brought, and shows an accepted payment as submitted. `transfer_id` is
    /// what the switch calls the transfer, if it told.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_answer(
        &self,
        payment_id: &PaymentId,
        attempt: u32,
        answer: &SendAnswer,
        transfer_id: Option<&str>,
    ) -> Result<(), LedgerError> {
        let (outcome, detail) = match answer {
            SendAnswer::Accepted => ("accepted", None),
            SendAnswer::Refused { reason } => ("refused", Some(writes::storable(reason))),
            SendAnswer::Unknown { detail } => ("unknown", Some(writes::storable(detail))),
        };
        let transfer_id = transfer_id.map(writes::storable);
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        sqlx::query!(
            "UPDATE submissions
             SET outcome = $3, detail = $4, answered_at = clock_timestamp(), transfer_id = coalesce(transfer_id, $5)
             WHERE payment_id = $1 AND attempt = $2 AND outcome IS NULL",
            payment_id.as_str(),
            i32::try_from(attempt).unwrap_or(i32::MAX),
            outcome,
            detail.as_deref(),
            transfer_id.as_deref(),
        )
        .execute(&mut *tx)
        .await?;
        let told = match answer {
            SendAnswer::Accepted => "the switch accepted the transfer".to_owned(),
            SendAnswer::Refused { reason } => format!("the switch refused the transfer: {reason}"),
            SendAnswer::Unknown { detail } => {
                format!("attempt {attempt} at the switch has no answer: {detail}")
            }
        };
        show_submitted(&mut tx, &locked, matches!(answer, SendAnswer::Accepted), &told).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Shows a payment as submitted whose transfer the switch was found to have. Where no attempt is on
    /// record it is an exception: our record is older than the truth.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_found(&self, payment_id: &PaymentId) -> Result<Option<NotSent>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        if locked.facts.attempts == 0 {
            let detail = "the switch has a transfer that was not sent";
            writes::exception(
                &mut tx,
                Some(payment_id),
                Exception::SettledWithoutAttempt,
                payment_id.as_str(),
                detail,
            )
            .await?;
            tx.commit().await?;
            return Ok(Some(NotSent::ReportedWithoutAttempt));
        }
        show_submitted(&mut tx, &locked, true, "the switch was found to have the transfer").await?;
        tx.commit().await?;
        Ok(None)
    }
}

/// Two payments to one account are two rows: what keeps their attempts apart is this lock, until COMMIT.
async fn take_account(tx: &mut PgConnection, payment_id: &PaymentId) -> Result<(), LedgerError> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtext(switch), hashtext(destination_account)) AS taken
         FROM payments WHERE payment_id = $1",
        payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(())
}

/// A callback may have come first, or a cancel begun: the state never goes back.
async fn show_submitted(
    tx: &mut PgConnection,
    locked: &Locked,
    has_it: bool,
    detail: &str,
) -> Result<(), LedgerError> {
    let state = locked.facts.state;
    if has_it && matches!(state, PaymentState::Started | PaymentState::Reserved) {
        writes::state(tx, &locked.payment_id, PaymentState::Submitted, detail).await
    } else {
        writes::timeline(tx, &locked.payment_id, state, detail).await
    }
}
