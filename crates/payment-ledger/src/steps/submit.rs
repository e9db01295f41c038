//! Submit attempts: written before they are sent, under the payment row's lock.

use jiff::{SignedDuration, Timestamp, Unit};
use jiff_sqlx::ToSqlx as _;
use payment_protocol::PaymentState;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::Facts;
use payment_protocol::ids::{PaymentId, RunId};
use payment_protocol::money::Money;
use payment_protocol::rail_id::TransferName;
use payment_protocol::rules::{self, AttemptRuling, NotSent};
use payment_protocol::submit::SendAnswer;
use postgres_kit::Connection;
use postgres_kit::text::replace_nul;
use uuid::Uuid;

use crate::accounts::LockedAccount;
use crate::group_commit::changes::{self, AcceptedAttempt, Changes, NewAttempt};
use crate::group_commit::{GroupStep, Target};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::cancel::FirstAttempt;
use crate::switch::final_status::write_final_reject;
use crate::switch::rail_id;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// The transfer to send; the same on every attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingTransfer {
    /// How it is called by us and at the switch.
    pub name: TransferName,
    /// The amount.
    pub money: Money,
    /// The account at the destination bank.
    pub destination_account: String,
    /// The customer's own id, if given.
    pub end_to_end_id: Option<String>,
    /// Submit deadline by the switch's clock; fixed once, before the first attempt.
    pub deadline: Timestamp,
}

impl Ledger {
    /// Records an attempt of `run` and returns the transfer to send, or the ruling against it. `switch_now` is
    /// the switch's clock as last read; it fixes the deadline of the first attempt. `tried_before`: an earlier try may have sent
    /// the transfer, according to Temporal. `marker` is the newest transfer to the account at a switch without references, read before
    /// the attempt.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat. A repeat after a lost COMMIT records one attempt more, which is
    /// safe: an attempt may have been sent.
    pub async fn record_attempt(
        &self,
        payment_id: &PaymentId,
        run: &RunId,
        switch_now: Timestamp,
        tried_before: bool,
        marker: Option<&str>,
    ) -> Result<(AttemptRuling, Option<OutgoingTransfer>), LedgerError> {
        let step = AttemptStep {
            payment_id: payment_id.clone(),
            run: run.clone(),
            switch_now,
            tried_before,
            token: Uuid::new_v4(),
            marker: marker.map(str::to_owned),
        };
        match self.group.run(step.clone()).await {
            Some(outcome) => Ok(outcome),
            None => self.record_attempt_alone(&step).await,
        }
    }

    async fn record_attempt_alone(
        &self,
        step: &AttemptStep,
    ) -> Result<(AttemptRuling, Option<OutgoingTransfer>), LedgerError> {
        let payment_id = &step.payment_id;
        let mut tx = self.pool.begin().await?;
        let mut locked = lock_payment(&mut tx, payment_id).await?;
        if locked.profile.needs_account_lock() {
            wait_for_account(&mut tx, payment_id).await?;
            // The facts may have changed while this waited for the account.
            locked = lock_payment(&mut tx, payment_id).await?;
        }
        if matches!(step.rule(&locked, &locked.facts)?, (AttemptRuling::Send(_), _)) {
            locked.rail_id = rail_id::mint(&mut tx, &locked).await?;
        }
        let (ruling, attempt) = step.rule(&locked, &locked.facts)?;
        let Some((changes, transfer)) = attempt else {
            if ruling == AttemptRuling::NotSent(NotSent::SecondAttemptForbidden) {
                return Ok(rule_on_own_attempt(&mut tx, step, &locked).await?.unwrap_or((ruling, None)));
            }
            return Ok((ruling, None));
        };
        changes::write(&mut tx, &[(&locked, &changes)]).await?;
        tx.commit().await?;
        Ok((ruling, Some(transfer)))
    }

    /// Records the answer to an attempt, and moves an accepted payment to submitted. `transfer_id` is the switch's id of
    /// the transfer, if the answer has one. If the attempt's record is gone, the database lost its commit: it is written again
    /// with the `deadline` that was sent, and an exception notifies operators.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_answer(
        &self,
        payment_id: &PaymentId,
        attempt: u32,
        answer: &SendAnswer,
        transfer_id: Option<&str>,
        deadline: Timestamp,
    ) -> Result<(), LedgerError> {
        let step = AcceptedStep {
            payment_id: payment_id.clone(),
            attempt,
            transfer_id: transfer_id.map(str::to_owned),
        };
        if *answer == SendAnswer::Accepted && self.group.run(step).await.is_some() {
            return Ok(());
        }
        let (outcome, detail) = match answer {
            SendAnswer::Accepted => ("accepted", None),
            SendAnswer::Refused { reject } => ("refused", Some(reject.to_string())),
            SendAnswer::Unknown { detail } => ("unknown", Some(detail.clone())),
        };
        let detail = detail.as_deref().map(replace_nul);
        let transfer_id = transfer_id.map(replace_nul);
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let mut locked = lock_payment(&mut tx, payment_id).await?;
        let recorded = sqlx::query!(
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
        let mut is_repeat = false;
        if recorded.rows_affected() == 0 {
            let lost = LostAttempt {
                attempt,
                outcome,
                detail: detail.as_deref(),
                transfer_id: transfer_id.as_deref(),
            };
            is_repeat = !restore_attempt(&mut tx, &locked, &lost, deadline).await?
                && has_answer(&mut tx, payment_id, &lost).await?;
        }
        let event = match answer {
            SendAnswer::Accepted => ACCEPTED.to_owned(),
            SendAnswer::Refused { reject } => {
                // Its attempt is on record now, whatever the row said when it was locked.
                locked.facts.attempts = locked.facts.attempts.max(attempt);
                if let Some(ruling) = rules::final_reject(&locked.facts, &locked.profile, reject) {
                    write_final_reject(&mut tx, &locked, reject, ruling).await?;
                    tx.commit().await?;
                    return Ok(());
                }
                format!("the switch refused the transfer: {reject}")
            }
            SendAnswer::Unknown { detail } => {
                format!("submit attempt {attempt} got no definite answer: {detail}")
            }
        };
        let is_accepted = matches!(answer, SendAnswer::Accepted);
        if !is_repeat || is_accepted && may_show_submitted(locked.facts.state) {
            show_submitted(&mut tx, &locked, is_accepted, &event).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    /// The transfer of the recorded attempts, to be sent again as it was; `None` without a recorded attempt.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn recorded_transfer(
        &self,
        payment_id: &PaymentId,
    ) -> Result<Option<OutgoingTransfer>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let mut locked = lock_payment(&mut tx, payment_id).await?;
        let Some(deadline) = locked.submit_deadline.filter(|_| locked.facts.attempts > 0) else {
            return Ok(None);
        };
        // Recorded with the attempt, unless its record was lost and restored.
        locked.rail_id = rail_id::mint(&mut tx, &locked).await?;
        tx.commit().await?;
        Ok(Some(outgoing_transfer(&locked, locked.transfer_name(), deadline)))
    }

    /// Moves a payment to submitted because the switch has its transfer. Without a recorded attempt this is an
    /// exception: our record is older than the truth (a restored database).
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn record_transfer_found(
        &self,
        payment_id: &PaymentId,
    ) -> Result<Option<NotSent>, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        if !rules::has_left(&locked.facts) {
            let detail = "the switch has a transfer without a recorded attempt";
            tx.open_exception(
                Some(payment_id),
                ExceptionKind::SettledWithoutAttempt,
                payment_id.as_str(),
                detail,
            )
            .await?;
            tx.commit().await?;
            return Ok(Some(NotSent::ReportedWithoutAttempt));
        }
        let found = sqlx::query!(
            "UPDATE submissions SET outcome = 'accepted', answered_at = clock_timestamp()
             WHERE payment_id = $1 AND attempt = $2 AND coalesce(outcome, 'unknown') = 'unknown'",
            payment_id.as_str(),
            i32::try_from(locked.facts.attempts).unwrap_or(i32::MAX),
        )
        .execute(&mut *tx)
        .await?;
        let is_repeat =
            found.rows_affected() == 0 && is_accepted(&mut tx, payment_id, locked.facts.attempts).await?;
        if !is_repeat || may_show_submitted(locked.facts.state) {
            show_submitted(&mut tx, &locked, true, "the switch already has the transfer").await?;
        }
        tx.commit().await?;
        Ok(None)
    }
}

/// The line of an accepted attempt in the timeline.
const ACCEPTED: &str = "the switch accepted the transfer";

fn outgoing_transfer(locked: &LockedPayment, name: TransferName, deadline: Timestamp) -> OutgoingTransfer {
    OutgoingTransfer {
        name,
        money: locked.money,
        destination_account: locked.destination_account.clone(),
        end_to_end_id: locked.end_to_end_id.clone(),
        deadline,
    }
}

/// An attempt to record.
#[derive(Clone)]
pub(crate) struct AttemptStep {
    pub(crate) payment_id: PaymentId,
    pub(crate) run: RunId,
    pub(crate) switch_now: Timestamp,
    pub(crate) tried_before: bool,
    /// Of this call.
    pub(crate) token: Uuid,
    pub(crate) marker: Option<String>,
}

impl AttemptStep {
    /// The ruling on these facts of the payment; if the attempt may be sent, what to write and what to send.
    pub(crate) fn rule(
        &self,
        locked: &LockedPayment,
        facts: &Facts,
    ) -> Result<(AttemptRuling, Option<(Changes, OutgoingTransfer)>), LedgerError> {
        let first = FirstAttempt { age_ms: facts.first_attempt_age_ms, deadline: locked.submit_deadline };
        let facts = Facts {
            first_attempt_age_ms: first
                .older_age_ms(Some(self.switch_now), locked.profile.submit_deadline_ms),
            ..facts.clone()
        };
        let ruling = rules::attempt(&facts, &self.run, &locked.profile, self.tried_before);
        let AttemptRuling::Send(attempt) = ruling else { return Ok((ruling, None)) };
        // In a group the first id is taken: if another payment has it, the group fails, and the step runs alone.
        let mut name = locked.transfer_name();
        if name.rail_id.is_none() {
            name.rail_id = locked.mint(0)?;
        }
        let distance =
            SignedDuration::from_millis(i64::try_from(locked.profile.submit_deadline_ms).unwrap_or(i64::MAX));
        let deadline = match locked.submit_deadline {
            Some(fixed) => fixed,
            // Rounded to what the database stores exactly: the transfer is the same on every attempt.
            None => {
                let now = self.switch_now.round(Unit::Millisecond).unwrap_or(self.switch_now);
                now.saturating_add(distance).unwrap_or(Timestamp::MAX)
            }
        };
        let changes = Changes {
            attempt: Some(NewAttempt {
                number: i32::try_from(attempt).unwrap_or(i32::MAX),
                submit_deadline: deadline,
                rail_id: name.rail_id.clone(),
                token: self.token,
                marker: self.marker.clone(),
            }),
            ..Changes::default()
        };
        Ok((ruling, Some((changes, outgoing_transfer(locked, name, deadline)))))
    }
}

impl GroupStep for AttemptStep {
    type Outcome = (AttemptRuling, Option<OutgoingTransfer>);

    fn target(&self) -> Target {
        Target::Payment(self.payment_id.clone())
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        _account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, Self::Outcome)>, LedgerError> {
        // Such an attempt waits for the others to its account.
        if locked.profile.needs_account_lock() {
            return Ok(None);
        }
        let (ruling, attempt) = self.rule(locked, &locked.facts)?;
        Ok(Some(match attempt {
            Some((changes, transfer)) => (changes, (ruling, Some(transfer))),
            None => (Changes::default(), (ruling, None)),
        }))
    }
}

/// The ruling on the attempt that a group recorded for this call, if its COMMIT had no answer: nothing was sent, so it is ruled on once
/// more as if it were not on record.
async fn rule_on_own_attempt(
    tx: &mut Connection,
    step: &AttemptStep,
    locked: &LockedPayment,
) -> Result<Option<(AttemptRuling, Option<OutgoingTransfer>)>, LedgerError> {
    let attempt = sqlx::query_scalar!(
        "SELECT attempt FROM submissions WHERE payment_id = $1 AND token = $2 AND outcome IS NULL",
        step.payment_id.as_str(),
        step.token,
    )
    .fetch_optional(tx)
    .await?;
    let Some(before) = attempt.and_then(|attempt| u32::try_from(attempt).ok()?.checked_sub(1)) else {
        return Ok(None);
    };
    let (ruling, attempt) = step.rule(locked, &Facts { attempts: before, ..locked.facts.clone() })?;
    Ok(Some((ruling, attempt.map(|(_, transfer)| transfer))))
}

/// An accepted attempt in a group.
struct AcceptedStep {
    payment_id: PaymentId,
    attempt: u32,
    transfer_id: Option<String>,
}

impl GroupStep for AcceptedStep {
    type Outcome = ();

    fn target(&self) -> Target {
        Target::Payment(self.payment_id.clone())
    }

    fn decide(
        &self,
        locked: &LockedPayment,
        _account: Option<&LockedAccount>,
    ) -> Result<Option<(Changes, ())>, LedgerError> {
        // Otherwise the database may have lost the attempt: alone, the step writes it again.
        if locked.facts.attempts < self.attempt || locked.facts.attempts_uncertain {
            return Ok(None);
        }
        let changes = Changes {
            state: may_show_submitted(locked.facts.state).then_some(PaymentState::Submitted),
            accepted_attempt: Some(AcceptedAttempt {
                number: i32::try_from(self.attempt).unwrap_or(i32::MAX),
                transfer_id: self.transfer_id.clone(),
            }),
            line: Some(ACCEPTED.to_owned()),
            ..Changes::default()
        };
        Ok(Some((changes, ())))
    }
}

/// An answered attempt.
struct LostAttempt<'a> {
    attempt: u32,
    outcome: &'a str,
    detail: Option<&'a str>,
    transfer_id: Option<&'a str>,
}

/// Writes an attempt again whose record is gone. Returns whether it was gone; if not, an answer to it was recorded before.
async fn restore_attempt(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    lost: &LostAttempt<'_>,
    deadline: Timestamp,
) -> Result<bool, LedgerError> {
    let payment_id = &locked.payment_id;
    let attempt = i32::try_from(lost.attempt).unwrap_or(i32::MAX);
    let restored = sqlx::query!(
        "INSERT INTO submissions (payment_id, attempt, outcome, detail, transfer_id, answered_at)
         VALUES ($1, $2, $3, $4, $5, clock_timestamp()) ON CONFLICT DO NOTHING",
        payment_id.as_str(),
        attempt,
        lost.outcome,
        lost.detail,
        lost.transfer_id,
    )
    .execute(&mut **tx)
    .await?;
    if restored.rows_affected() == 0 {
        return Ok(false);
    }
    rail_id::mint(tx, locked).await?;
    // The reserve, and other attempts, may be gone, too: the payment is recovered, and not refused unasked. The acceptance is older
    // than the attempt: the attempt never looks younger than it is.
    sqlx::query!(
        "UPDATE payments
         SET attempts = greatest(attempts, $2), attempts_uncertain = true,
             first_attempt_at = coalesce(first_attempt_at, accepted_at), submit_deadline = coalesce(submit_deadline, $3), updated_at = clock_timestamp()
         WHERE payment_id = $1",
        payment_id.as_str(),
        attempt,
        deadline.to_sqlx() as _,
    )
    .execute(&mut **tx)
    .await?;
    let detail =
        format!("the record of submit attempt {attempt} was gone when its answer arrived ({})", lost.outcome);
    let origin = format!("{payment_id}:{attempt}");
    tx.open_exception(Some(payment_id), ExceptionKind::AttemptRecordLost, &origin, &detail).await?;
    Ok(true)
}

/// Whether the attempt is on record as accepted.
async fn is_accepted(tx: &mut Connection, payment_id: &PaymentId, attempt: u32) -> Result<bool, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM submissions
                          WHERE payment_id = $1 AND attempt = $2 AND outcome = 'accepted') AS "accepted!""#,
        payment_id.as_str(),
        i32::try_from(attempt).unwrap_or(i32::MAX),
    )
    .fetch_one(&mut *tx)
    .await?)
}

/// Whether this answer to the attempt is on record: the step runs again because its report was lost.
async fn has_answer(
    tx: &mut Connection,
    payment_id: &PaymentId,
    answer: &LostAttempt<'_>,
) -> Result<bool, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM submissions
                          WHERE payment_id = $1 AND attempt = $2 AND outcome = $3 AND detail IS NOT DISTINCT FROM $4) AS "has!""#,
        payment_id.as_str(),
        i32::try_from(answer.attempt).unwrap_or(i32::MAX),
        answer.outcome,
        answer.detail,
    )
    .fetch_one(&mut *tx)
    .await?)
}

/// Two payments to one account lock two rows: this lock keeps their attempts apart, until COMMIT.
async fn wait_for_account(tx: &mut Connection, payment_id: &PaymentId) -> Result<(), LedgerError> {
    sqlx::query!(
        "SELECT pg_advisory_xact_lock(hashtext(switch), hashtext(destination_account)) AS locked
         FROM payments WHERE payment_id = $1",
        payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(())
}

/// A callback may have arrived first, or a cancel begun: the state never goes back.
fn may_show_submitted(state: PaymentState) -> bool {
    matches!(state, PaymentState::Started | PaymentState::Reserved)
}

async fn show_submitted(
    tx: &mut Connection,
    locked: &LockedPayment,
    is_submitted: bool,
    detail: &str,
) -> Result<(), LedgerError> {
    let state = locked.facts.state;
    if is_submitted && may_show_submitted(state) {
        writes::move_to_state(tx, &locked.payment_id, PaymentState::Submitted, detail).await
    } else {
        writes::append_timeline(tx, &locked.payment_id, state, detail).await
    }
}
