//! Cancel: begins the cancel in the ledger, which fences submit: no attempt is sent afterwards.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use payment_protocol::PaymentState;
use payment_protocol::cancel::CancelContext;
use payment_protocol::cause::Cause;
use payment_protocol::facts::Facts;
use payment_protocol::ids::PaymentId;
use payment_protocol::port::SubmitProgress;
use payment_protocol::rules::{self, AskRuling};
use postgres_kit::Connection;

use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::release::write_cause;
use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// Marks the payment as cancelling for `cause` (the first recorded cause is kept) and returns what the cancel has to know.
    /// A payment whose record may lack attempts, because of how far `submit` got, is marked, so that "never sent" is not believed; one
    /// whose record lacks the switch's acceptance, so that "not found" is not.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn begin_cancel(
        &self,
        payment_id: &PaymentId,
        cause: &Cause,
        submit: SubmitProgress,
    ) -> Result<CancelContext, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let mut locked = lock_payment(&mut tx, payment_id).await?;
        let mut accepted = is_accepted(&mut tx, &locked).await?;
        let lacks_acceptance = rules::lacks_acceptance(&locked.facts, accepted, submit);
        let lacks_attempts =
            !locked.facts.attempts_uncertain && rules::may_lack_attempts(&locked.facts, submit);
        if lacks_attempts || lacks_acceptance {
            sqlx::query!(
                "UPDATE payments SET attempts_uncertain = attempts_uncertain OR $2, acceptance_unrecorded = acceptance_unrecorded OR $3
                 WHERE payment_id = $1",
                payment_id.as_str(),
                lacks_attempts,
                lacks_acceptance,
            )
            .execute(&mut *tx)
            .await?;
            if lacks_acceptance {
                let detail = "the switch has the transfer, as the payment's workflow knows: no attempt on record shows it";
                writes::append_internal_timeline(&mut tx, payment_id, locked.facts.state, detail).await?;
            }
            locked.facts.attempts_uncertain |= lacks_attempts;
            accepted |= lacks_acceptance;
        }
        let facts = &locked.facts;
        let context = CancelContext {
            end: facts.state.end(),
            final_status: facts.final_status,
            never_sent: rules::never_sent(facts),
            accepted,
            has_doubtful_success: rules::has_doubtful_success(facts),
            may_have_other_id: locked.may_have_other_id(),
            deadline_ms: locked.submit_deadline.map(|at| at.as_millisecond()),
            cancelling_ms: locked.cancelling_ms,
        };
        if !rules::begins_cancel(facts) {
            return Ok(context);
        }
        begin_compensation(&mut tx, &locked, cause).await?;
        tx.commit().await?;
        Ok(context)
    }

    /// Counts a query of the transfer, if the switch's limits of queries allow one. `switch_now`: the switch's clock, if it is known.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat. A repeat after a lost COMMIT counts one query more than is sent.
    pub async fn begin_query(
        &self,
        payment_id: &PaymentId,
        switch_now: Option<Timestamp>,
    ) -> Result<AskRuling, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let ruling = rule_on_query(&locked, switch_now);
        if ruling == AskRuling::Ask && locked.profile.counts_queries() {
            let id = payment_id.as_str();
            sqlx::query!("UPDATE payments SET asks = asks + 1, last_asked_at = clock_timestamp() WHERE payment_id = $1", id)
                .execute(&mut *tx)
                .await?;
            tx.commit().await?;
        }
        Ok(ruling)
    }

    /// Records the latest deadline that an attempt without a record can have, unless a deadline is recorded; returns the recorded
    /// one.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn bound_deadline(
        &self,
        payment_id: &PaymentId,
        latest: Timestamp,
    ) -> Result<Timestamp, LedgerError> {
        let deadline = sqlx::query_scalar!(
            r#"UPDATE payments SET submit_deadline = coalesce(submit_deadline, $2) WHERE payment_id = $1
               RETURNING submit_deadline AS "deadline!: jiff_sqlx::Timestamp""#,
            payment_id.as_str(),
            latest.to_sqlx() as _,
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        Ok(deadline.to_jiff())
    }

    /// Age of the first attempt by the database's clock, and its deadline by the switch's. Where attempts may be missing, and where none is
    /// on record when the payment has ended, the age counts from the acceptance, which is older than every attempt.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn first_attempt(&self, payment_id: &PaymentId) -> Result<FirstAttempt, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT (extract(epoch FROM clock_timestamp()
                          - coalesce(first_attempt_at, CASE WHEN attempts_uncertain OR ended_at IS NOT NULL THEN accepted_at END)) * 1000)::bigint
                          AS age_ms,
                      submit_deadline
               FROM payments WHERE payment_id = $1"#,
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        Ok(FirstAttempt {
            age_ms: row.age_ms.map(|age| u64::try_from(age).unwrap_or(0)),
            deadline: row.submit_deadline.map(|deadline| deadline.to_jiff()),
        })
    }
}

/// The database's clock says when a query is due. Of its age and the age by the switch's clock, the older one ends the queries: a
/// database clock set back must not have a submit repeated that the switch has forgotten.
fn rule_on_query(locked: &LockedPayment, switch_now: Option<Timestamp>) -> AskRuling {
    let LockedPayment { facts, profile, .. } = locked;
    let first = FirstAttempt { age_ms: facts.first_attempt_age_ms, deadline: locked.submit_deadline };
    let older = first.older_age_ms(switch_now, profile.submit_deadline_ms);
    match rules::ask(&Facts { first_attempt_age_ms: older, ..facts.clone() }, profile) {
        AskRuling::Spent => AskRuling::Spent,
        AskRuling::Ask | AskRuling::TooEarly { .. } => rules::ask(facts, profile),
    }
}

/// Records the cause of the compensation, unless one is recorded, and that the payment is cancelling.
pub(crate) async fn begin_compensation(
    tx: &mut Connection,
    locked: &LockedPayment,
    cause: &Cause,
) -> Result<(), LedgerError> {
    let LockedPayment { payment_id, facts, .. } = locked;
    if facts.cause.is_none() {
        write_cause(tx, payment_id, cause).await?;
    }
    if facts.state == PaymentState::Cancelling {
        return Ok(());
    }
    sqlx::query!(
        "UPDATE payments SET cancelling_since = coalesce(cancelling_since, clock_timestamp()) WHERE payment_id = $1",
        payment_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    let detail = compensation_line(cause);
    // A late cancel attempt must not take the payment out of the operators' queue.
    if facts.state == PaymentState::NeedsOperator {
        writes::append_timeline(tx, payment_id, facts.state, &detail).await
    } else {
        writes::move_to_state(tx, payment_id, PaymentState::Cancelling, &detail).await
    }
}

/// The line of the timeline when a compensation begins.
pub(crate) fn compensation_line(cause: &Cause) -> String {
    format!("cancelling: {cause}")
}

/// The first submit attempt of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstAttempt {
    /// Its age by the database's clock, in milliseconds; `None` if nothing was sent.
    pub age_ms: Option<u64>,
    /// Its deadline by the switch's clock; `None` if none is recorded.
    pub deadline: Option<Timestamp>,
}

impl FirstAttempt {
    /// The age by the clock that shows more: the database's, or the switch's as `switch_now`. A clock that was set back must not
    /// make an attempt look younger than the switch's retention. `distance_ms`: from the attempt to its deadline.
    #[must_use]
    pub fn older_age_ms(&self, switch_now: Option<Timestamp>, distance_ms: u64) -> Option<u64> {
        let by_switch = self.deadline.zip(switch_now).and_then(|(deadline, now)| {
            let since_deadline_ms = now.as_millisecond().saturating_sub(deadline.as_millisecond());
            let distance_ms = i64::try_from(distance_ms).unwrap_or(i64::MAX);
            u64::try_from(since_deadline_ms.saturating_add(distance_ms)).ok()
        });
        self.age_ms.map(|age_ms| age_ms.max(by_switch.unwrap_or(0)))
    }
}

/// Whether the switch accepted the transfer, according to the submission log, to Temporal, or because money of it came back.
pub(crate) async fn is_accepted(tx: &mut Connection, locked: &LockedPayment) -> Result<bool, LedgerError> {
    let is_answered = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT FROM submissions WHERE payment_id = $1 AND outcome = 'accepted') AS "accepted!""#,
        locked.payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let has_shown = locked.facts.has_unbooked_return || rules::has_unconfirmed_report(&locked.facts);
    Ok(is_answered || locked.acceptance_unrecorded || has_shown)
}
