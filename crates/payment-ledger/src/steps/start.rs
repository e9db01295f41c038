//! Starting payments, and restarting those whose workflow was lost.

use payment_protocol::cause::OperatorReason;
use payment_protocol::facts::Facts;
use payment_protocol::ids::PaymentId;
use payment_protocol::{Payment, keys};
use postgres_kit::Pool;

use crate::profiles;
use crate::row_lock::lock_payment;
use crate::steps::workflow_input::{self, PaymentRow};
use crate::stored_id::read_id;
use crate::{Ledger, LedgerError, writes};

/// Starts that Temporal rejects before the payment needs an operator.
pub const START_REJECTIONS_MAX: i32 = 5;

/// Time for which a payment that this version cannot parse is not claimed again, in milliseconds.
const UNREADABLE_POSTPONED_MS: i64 = 60_000;

/// How long a payment counts against the in-flight limit after its SUCCESS, in milliseconds. Its debit is the workers' next step; one that
/// takes longer waits for something else, such as the answer to a query or a recall, and must not hold up the starts.
const CONFIRMED_IN_FLIGHT_MS: i64 = 10_000;

/// A payment whose workflow is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartablePayment {
    /// Input of its workflow.
    pub payment: Payment,
    /// The Workflow ID.
    pub workflow_id: String,
    /// Position of the payment's request in its distributed trace, a W3C `traceparent`; `None` if it was accepted without one.
    pub trace_parent: Option<String>,
    /// Whether a customer's cancel arrived first: do not start. False where attempts may be missing: the workflow cancels at the
    /// switch.
    pub cancel_requested: bool,
    /// Whether `valid_until` has passed: do not start. False where attempts may be missing.
    pub too_late: bool,
}

/// An open payment that was not updated for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlePayment {
    /// The payment.
    pub payment_id: PaymentId,
    /// The workflow that should be running.
    pub workflow_id: String,
}

/// A claimed payment.
struct ClaimedRow {
    payment_id: String,
    source_account: String,
    amount_minor: i64,
    currency: String,
    profile_hash: Vec<u8>,
    resume_count: i32,
    workflow_id: String,
    trace_parent: Option<String>,
    accepted_at: jiff_sqlx::Timestamp,
    too_late: bool,
    cancel_requested: bool,
}

impl Ledger {
    /// Leases at most `limit` accepted payments for `lease_ms`: the oldest of each switch, in turn if several switches have
    /// some. `max_in_flight` payments of a switch are leased, started and not submitted yet, or were reported as settled a moment ago,
    /// at most: what the workers have begun is done first.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claim_accepted(
        &self,
        limit: i64,
        lease_ms: i64,
        max_in_flight: i64,
    ) -> Result<Vec<StartablePayment>, LedgerError> {
        let mut rows = self.lease_accepted(limit, lease_ms, max_in_flight).await?;
        // RETURNING does not keep the order.
        rows.sort_by_key(|row| row.accepted_at.to_jiff());
        let profiles = profiles::read(&self.pool, rows.iter().map(|row| row.profile_hash.as_slice())).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        let mut unreadable = Vec::new();
        for row in rows {
            let ClaimedRow { workflow_id, trace_parent, cancel_requested, too_late, .. } = row;
            let id = row.payment_id.clone();
            let row = PaymentRow {
                payment_id: row.payment_id,
                source_account: row.source_account,
                amount_minor: row.amount_minor,
                currency: row.currency,
                profile_hash: row.profile_hash,
                resume_count: row.resume_count,
            };
            match workflow_input::payment(row, &profiles) {
                Ok(payment) => {
                    let startable =
                        StartablePayment { payment, workflow_id, trace_parent, cancel_requested, too_late };
                    claimed.push(startable);
                }
                Err(error) => {
                    tracing::error!(%error, "the ledger could not parse the row of an accepted payment, so the payment's workflow is not started");
                    unreadable.push(id);
                }
            }
        }
        self.postpone(&unreadable).await?;
        Ok(claimed)
    }

    /// The statement of [`Ledger::claim_accepted`]. Each switch with accepted payments is found by one index probe. Of its
    /// queue only as many payments are read as may be in flight besides those that are: leased payments stay in their places,
    /// and so use up the limit, too. So what is read depends on the limit, and not on how many payments wait.
    ///
    /// The joins are LATERAL or ANY (ARRAY ..), so that the planner cannot replace them by a scan of all payments. The second
    /// `LIMIT $3` changes no result: it lets the planner know the bound, which it cannot derive from the first one. Nor does
    /// `LIMIT 1`: it keeps the state out of the lookup by key, for which the planner would otherwise read the whole queue while
    /// its statistics are older than a backlog and say that nothing is accepted.
    async fn lease_accepted(
        &self,
        limit: i64,
        lease_ms: i64,
        max_in_flight: i64,
    ) -> Result<Vec<ClaimedRow>, LedgerError> {
        Ok(sqlx::query_as!(
            ClaimedRow,
            r#"WITH RECURSIVE switches AS (
                   (SELECT switch FROM payments WHERE state = 'accepted' ORDER BY switch LIMIT 1)
                   UNION ALL
                   SELECT (SELECT p.switch FROM payments p WHERE p.state = 'accepted' AND p.switch > s.switch
                           ORDER BY p.switch LIMIT 1)
                   FROM switches s WHERE s.switch IS NOT NULL),
               candidates AS (
                   SELECT q.payment_id, q.queued_at, row_number() OVER (PARTITION BY s.switch ORDER BY q.queued_at) AS turn
                   FROM switches s
                   CROSS JOIN LATERAL (
                       SELECT count(*) AS payments
                       FROM ((SELECT 1 FROM payments f WHERE f.switch = s.switch AND f.state IN ('started', 'reserved')
                              LIMIT $3)
                             UNION ALL
                             (SELECT 1 FROM payments f WHERE f.switch = s.switch AND f.state = 'confirmed'
                                  AND f.updated_at > statement_timestamp() - $4 * interval '1 millisecond'
                              LIMIT $3)
                             UNION ALL
                             (SELECT 1 FROM payments f WHERE f.switch = s.switch AND f.state = 'submitted'
                                  AND f.money_reported_at > statement_timestamp() - $4 * interval '1 millisecond'
                              LIMIT $3)) AS counted) in_flight
                   CROSS JOIN LATERAL (
                       SELECT *
                       FROM (SELECT payment_id, start_lease_until, start_postponed_until,
                                    coalesce(start_postponed_until, accepted_at) AS queued_at
                             FROM payments w WHERE w.switch = s.switch AND w.state = 'accepted'
                             ORDER BY coalesce(start_postponed_until, accepted_at)
                             LIMIT greatest($3 - in_flight.payments, 0)) AS head
                       LIMIT $3) q
                   WHERE (q.start_lease_until IS NULL OR q.start_lease_until < clock_timestamp())
                     AND (q.start_postponed_until IS NULL OR q.start_postponed_until < clock_timestamp())),
               due AS (
                   SELECT l.payment_id
                   FROM (SELECT payment_id FROM candidates ORDER BY turn, queued_at) c
                   CROSS JOIN LATERAL (
                       SELECT payment_id, state, start_lease_until FROM payments
                       WHERE payment_id = c.payment_id LIMIT 1 FOR UPDATE SKIP LOCKED) l
                   WHERE l.state = 'accepted' AND (l.start_lease_until IS NULL OR l.start_lease_until < clock_timestamp())
                   LIMIT $1)
               UPDATE payments p
               SET start_lease_until = clock_timestamp() + $2 * interval '1 millisecond'
               -- A lost lease is a repeated start: its commit does not wait for the disk or a standby.
               WHERE p.payment_id = ANY (ARRAY (SELECT payment_id FROM due))
                 AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
               RETURNING p.payment_id, p.source_account, p.amount_minor, p.currency, p.profile_hash, p.resume_count,
                         p.workflow_id, p.trace_parent, p.accepted_at,
                         NOT p.attempts_uncertain AND clock_timestamp() > p.valid_until AS "too_late!",
                         NOT p.attempts_uncertain AND EXISTS (
                             SELECT FROM inbox i WHERE i.payment_id = p.payment_id AND i.kind = 'cancel')
                             AS "cancel_requested!""#,
            limit,
            lease_ms as f64,
            max_in_flight,
            CONFIRMED_IN_FLIGHT_MS as f64,
        )
        .fetch_all(&self.pool)
        .await?)
    }

    /// Moves payments that this version cannot parse behind the others of their switches: at the head of the queue they would
    /// use up the in-flight limit.
    async fn postpone(&self, payment_ids: &[String]) -> Result<(), LedgerError> {
        if !payment_ids.is_empty() {
            sqlx::query!(
                "UPDATE payments SET start_postponed_until = clock_timestamp() + $2 * interval '1 millisecond'
                 WHERE payment_id = ANY($1)",
                payment_ids,
                UNREADABLE_POSTPONED_MS as f64,
            )
            .execute(&self.pool)
            .await?;
        }
        Ok(())
    }

    /// Records that the payment's workflow was started, with other payments of the same moment. Most have gone on by then, and their
    /// rows need no mark.
    ///
    /// # Errors
    /// [`LedgerError`]: the start is repeated, and Temporal rejects the duplicate.
    pub async fn mark_started(&self, payment_id: &PaymentId) -> Result<(), LedgerError> {
        self.started.mark(&self.pool, payment_id.to_string(), write_started).await
    }

    /// Counts a start that Temporal rejected; after [`START_REJECTIONS_MAX`] the payment needs an
    /// operator.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn record_start_rejection(&self, payment_id: &PaymentId) -> Result<(), LedgerError> {
        let rejections = sqlx::query_scalar!(
            "UPDATE payments SET start_rejections = start_rejections + 1 WHERE payment_id = $1 RETURNING start_rejections",
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        if rejections.is_some_and(|count| count >= START_REJECTIONS_MAX) {
            self.needs_operator(payment_id, OperatorReason::WorkflowStartRefused).await?;
        }
        Ok(())
    }

    /// Claims at most `limit` open payments that were neither updated nor claimed here for `liveness_check_after_ms`, for the
    /// liveness check of their workflow; those that wait longest come first. A payment is claimed again after as long, however
    /// many others there are, and whether the caller checks it or not.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claim_idle(
        &self,
        limit: i64,
        liveness_check_after_ms: i64,
    ) -> Result<Vec<IdlePayment>, LedgerError> {
        // The comparison is with statement_timestamp(), because no index can be used to compare with a volatile function.
        let rows = sqlx::query!(
            r#"WITH due AS (
                   SELECT payment_id FROM payments
                   WHERE ended_at IS NULL AND state <> 'accepted'
                     AND greatest(updated_at, liveness_checked_at) < statement_timestamp() - $2 * interval '1 millisecond'
                   ORDER BY greatest(updated_at, liveness_checked_at) LIMIT $1 FOR UPDATE SKIP LOCKED)
               UPDATE payments p SET liveness_checked_at = clock_timestamp()
               -- A lost claim is a repeated check: its commit does not wait for the disk or a standby.
               FROM due WHERE p.payment_id = due.payment_id AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
               RETURNING p.payment_id, p.workflow_id"#,
            limit,
            liveness_check_after_ms as f64,
        )
        .fetch_all(&self.pool)
        .await?;
        let mut idle = Vec::with_capacity(rows.len());
        for row in rows {
            match read_id(&row.payment_id) {
                Ok(payment_id) => idle.push(IdlePayment { payment_id, workflow_id: row.workflow_id }),
                Err(error) => {
                    tracing::error!(%error, "the ledger could not parse the row of an open payment, so the payment's workflow is not checked")
                }
            }
        }
        Ok(idle)
    }

    /// Marks an open payment whose workflow has ended by itself: the workflow had ended its payment, and the commits that said so are
    /// lost. What its row does not show is then not taken for what never happened, and no recovery starts it from the beginning.
    /// `settled`: the workflow ended without an error, and had charged for the transfer: that the switch does not know it is a contradiction.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn mark_ended_workflow(
        &self,
        payment_id: &PaymentId,
        ended: &str,
        settled: bool,
    ) -> Result<(), LedgerError> {
        sqlx::query!(
            "UPDATE payments SET attempts_uncertain = true, acceptance_unrecorded = acceptance_unrecorded OR $3
             WHERE payment_id = $1 AND workflow_id = $2 AND ended_at IS NULL AND NOT (attempts_uncertain AND acceptance_unrecorded >= $3)
                 -- A workflow of another input ends at its first step, and changes nothing.
                 AND NOT EXISTS (SELECT FROM exceptions e WHERE e.payment_id = $1 AND e.kind = 'workflow_input_differs')",
            payment_id.as_str(),
            ended,
            settled,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Prepares the recovery of a payment whose workflow `lost` is closed or gone: the caller starts the returned
    /// recovery workflow. `None` if the payment has ended or another process was faster.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn resume(
        &self,
        payment_id: &PaymentId,
        lost: &str,
    ) -> Result<Option<StartablePayment>, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        if locked.facts.state.end().is_some() || locked.workflow_id != lost {
            return Ok(None);
        }
        let row = sqlx::query!(
            "SELECT resume_count, trace_parent FROM payments WHERE payment_id = $1",
            payment_id.as_str(),
        );
        let row = row.fetch_one(&mut *tx).await?;
        let n = row.resume_count.saturating_add(1);
        let workflow_id = keys::workflow_id(payment_id, u32::try_from(n).unwrap_or(u32::MAX));
        sqlx::query!(
            "UPDATE payments SET resume_count = $2, workflow_id = $3, updated_at = clock_timestamp()
             WHERE payment_id = $1",
            payment_id.as_str(),
            n,
            workflow_id,
        )
        .execute(&mut *tx)
        .await?;
        let detail = format!("resumed by the recovery workflow {workflow_id}");
        writes::append_timeline(&mut tx, payment_id, locked.facts.state, &detail).await?;
        tx.commit().await?;
        // While no run has reserved, a full start is allowed again: reserve stores its run by
        // compare-and-set. Where attempts may be missing, a reserve may be missing, too. An earlier run may have sent the transfer of
        // a row that was lost and accepted again: under the same id the switch would recognise it, under one with another time not.
        let Facts { run_id, reserve, cause, attempts_uncertain, .. } = &locked.facts;
        let is_full_start = run_id.is_none()
            && reserve.is_none()
            && cause.is_none()
            && !attempts_uncertain
            && !locked.profile.id_scheme.has_time();
        Ok(Some(StartablePayment {
            payment: workflow_input::of_locked(
                &locked,
                if is_full_start { 0 } else { u32::try_from(n).unwrap_or(u32::MAX) },
            ),
            workflow_id,
            trace_parent: row.trace_parent,
            cancel_requested: locked.facts.cancel_requested,
            too_late: locked.too_late,
        }))
    }

    /// Sends the wake-up notification to the starters of all processes. Outside any money transaction:
    /// inside one, NOTIFY serialises all commits.
    ///
    /// # Errors
    /// [`LedgerError`]; harmless, since the starters also poll.
    pub async fn wake_starters(&self) -> Result<(), LedgerError> {
        // A notification writes a commit record: without the setting it would wait for the disk, and the payment with it.
        sqlx::query!(
            "SELECT set_config('synchronous_commit', 'off', true) AS disk, pg_notify($1, '') AS notified",
            START_CHANNEL
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(())
    }
}

async fn write_started(pool: &Pool, payment_ids: &[String]) -> Result<(), LedgerError> {
    // A lost mark is a repeated start: its commit does not wait for the disk or a standby. A row that a step has locked goes on, and needs no mark: the other rows do not wait for it. `state || ''` fits no index of accepted payments: while the statistics are older than a backlog, the planner takes such an
    // index for empty and reads all of it.
    sqlx::query!(
        "UPDATE payments
         SET state = 'started', started_at = coalesce(started_at, clock_timestamp()), updated_at = clock_timestamp()
         WHERE payment_id IN (SELECT payment_id FROM payments WHERE payment_id = ANY ($1) AND state || '' = 'accepted'
                              FOR NO KEY UPDATE SKIP LOCKED)
           AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'",
        payment_ids,
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Channel of [`Ledger::wake_starters`].
pub const START_CHANNEL: &str = "payments_accepted";
