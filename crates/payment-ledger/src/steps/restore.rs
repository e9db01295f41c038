//! Restore: without a confirmation in time, an advance of the bank restores the customer's account, while the transfer may still settle.
//! It needs nobody but this database: neither Temporal nor the switch. Its conditions are in [`payment_protocol::rules::restore`].

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use payment_protocol::PaymentState;
use payment_protocol::cause::Cause;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use payment_protocol::rules::{self, RestoreRuling};
use postgres_kit::Connection;
use tokio::task::{JoinError, JoinSet};

use crate::accounts::InternalAccount;
use crate::admission::limits;
use crate::events::StateEvent;
use crate::row_lock::{LockedPayment, lock_payment, lock_unlocked};
use crate::steps::cancel::{begin_compensation, compensation_line};
use crate::steps::release::{cause_as_json, release};
use crate::stored_id::read_id;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError};

/// Payments read at once.
const PAGE: i64 = 256;
/// Accounts restored at the same time.
const CONCURRENT: usize = 8;
/// Payments of one account restored in one transaction.
const BATCH: usize = 32;
/// How long a restore waits for the lock of its account. A round passes a locked account over after this once.
const ACCOUNT_LOCK_TIMEOUT: &str = "250ms";

/// Outcome of a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoreOutcome {
    /// The advance was posted: the customer can use the amount, and the transfer may still settle.
    Advanced,
    /// The transfer is void or returned, and the payment is cancelling now: restore again, which releases the hold.
    CompensationBegun,
    /// The transfer was void or returned: the hold was released, and the payment has ended.
    Released,
    /// Nothing was to be restored.
    NotDue,
}

/// What a round did with payments of one account.
#[derive(Default)]
struct AccountStep {
    restored: usize,
    failed: usize,
    /// Another transaction has locked the account for too long: the next round tries it again.
    is_locked: bool,
}

/// What a round restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreRound {
    /// Accounts restored by an advance or a release.
    pub restored: usize,
    /// Payments whose restore failed; the next round tries again.
    pub failed: usize,
}

/// Restores that are overdue, or were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverdueRestores {
    /// Number of payments.
    pub count: i64,
    /// How long the oldest has been due, in seconds.
    pub oldest_s: i64,
    /// Accounts restored within the last hour, more than a second after they were due.
    pub late: i64,
}

/// A payment to restore; its position is in the order of the index `payments_to_restore`.
struct DueRestore {
    due_at: Timestamp,
    payment_id: PaymentId,
    account_id: String,
}

impl Ledger {
    /// Restores the customer's account, if it is due: once, under `{tx_id}:advance`.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn restore(&self, payment_id: &PaymentId) -> Result<RestoreOutcome, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        restore_locked(tx, &locked).await
    }

    /// Restores every account that has been due for at least `overdue`, the longest due first. Several processes may do so.
    ///
    /// The restores of one account follow one another, and share transactions, so that the most that they wait for is the account once;
    /// what another transaction has locked is left to the next round, so that it holds up no other account.
    ///
    /// # Errors
    /// [`LedgerError`]: the payments that are due could not be read. A payment whose restore fails is logged and counted.
    pub async fn restore_all_due(&self, overdue: Duration) -> Result<RestoreRound, LedgerError> {
        let mut round = RestoreRound::default();
        let mut locked_accounts = HashSet::new();
        let mut after = None;
        loop {
            let page = self.due_restores(overdue, after.as_ref()).await?;
            let is_last = i64::try_from(page.len()).unwrap_or(i64::MAX) < PAGE;
            let mut by_account: BTreeMap<&str, Vec<PaymentId>> = BTreeMap::new();
            for due in page.iter().filter(|due| !locked_accounts.contains(&due.account_id)) {
                by_account.entry(&due.account_id).or_default().push(due.payment_id.clone());
            }
            let mut running = JoinSet::new();
            for (account_id, payments) in by_account {
                if running.len() >= CONCURRENT
                    && let Some(joined) = running.join_next().await
                {
                    round.count(joined, &mut locked_accounts);
                }
                let (ledger, account_id) = (self.clone(), account_id.to_owned());
                running.spawn(async move {
                    let step = ledger.restore_account(&account_id, &payments).await;
                    (account_id, step)
                });
            }
            while let Some(joined) = running.join_next().await {
                round.count(joined, &mut locked_accounts);
            }
            after = page.into_iter().next_back();
            if is_last {
                return Ok(round);
            }
        }
    }

    /// Restores an account for these payments of it.
    async fn restore_account(&self, account_id: &str, payments: &[PaymentId]) -> AccountStep {
        let mut step = AccountStep::default();
        for batch in payments.chunks(BATCH) {
            let (advanced, alone) = match self.advance_unlocked(account_id, batch).await {
                Ok(advanced) => advanced,
                Err(error) if error.is_lock_timeout() => return AccountStep { is_locked: true, ..step },
                // One of them may be the cause: each alone.
                Err(_) => (0, batch.to_vec()),
            };
            step.restored += advanced;
            for payment_id in &alone {
                match self.restore_unlocked(payment_id).await {
                    Ok(is_restored) => step.restored += usize::from(is_restored),
                    Err(error) if error.is_lock_timeout() => return AccountStep { is_locked: true, ..step },
                    Err(error) => {
                        step.failed += 1;
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(
                            payment.id = payment_id.as_str(),
                            error,
                            "the account of a payment could not be restored; the next round tries again"
                        );
                    }
                }
            }
        }
        step
    }

    /// Posts the advances of those of the payments that no other transaction has locked, in one transaction. Returns their number, and the
    /// payments whose restore is something else, or must fail alone.
    async fn advance_unlocked(
        &self,
        account_id: &str,
        payments: &[PaymentId],
    ) -> Result<(usize, Vec<PaymentId>), LedgerError> {
        let mut tx = self.begin_in_round().await?;
        let ids: Vec<String> = payments.iter().map(PaymentId::to_string).collect();
        let locked = lock_unlocked(&mut tx, &ids, &[]).await?;
        let (plain, alone): (Vec<_>, Vec<_>) = locked
            .iter()
            .filter(|locked| locked.restore_is_due && rules::restore(&locked.facts) != RestoreRuling::NotDue)
            .partition(|locked| is_plain_advance(locked));
        let result = advance_of_account(&mut tx, account_id, &plain).await;
        // The others are restored by other connections, which must find them unlocked.
        match result {
            Ok(()) => tx.commit().await?,
            Err(error) => {
                tx.rollback().await?;
                return Err(error);
            }
        }
        Ok((plain.len(), alone.iter().map(|locked| locked.payment_id.clone()).collect()))
    }

    /// As [`Ledger::restore`], unless another transaction has locked the payment. Returns whether the account was restored.
    async fn restore_unlocked(&self, payment_id: &PaymentId) -> Result<bool, LedgerError> {
        let mut outcome = RestoreOutcome::CompensationBegun;
        // A compensation that is begun is followed by the release.
        for _ in 0..2 {
            let mut tx = self.begin_in_round().await?;
            let ids = [payment_id.to_string()];
            let Some(locked) = lock_unlocked(&mut tx, &ids, &[]).await?.pop() else { return Ok(false) };
            outcome = restore_locked(tx, &locked).await?;
            if outcome != RestoreOutcome::CompensationBegun {
                break;
            }
        }
        Ok(matches!(outcome, RestoreOutcome::Advanced | RestoreOutcome::Released))
    }

    /// A transaction that waits no longer than [`ACCOUNT_LOCK_TIMEOUT`] for a lock.
    async fn begin_in_round(&self) -> Result<LedgerTransaction, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        sqlx::query!("SELECT set_config('lock_timeout', $1, true)", ACCOUNT_LOCK_TIMEOUT)
            .fetch_one(&mut *tx)
            .await?;
        Ok(tx)
    }

    async fn due_restores(
        &self,
        overdue: Duration,
        after: Option<&DueRestore>,
    ) -> Result<Vec<DueRestore>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT p.payment_id, p.source_account, p.restore_due_at AS "due_at!"
               FROM payments p
               WHERE p.restore_due_at <= statement_timestamp() - $1 * interval '1 second'
                 AND p.restored_at IS NULL AND p.ended_at IS NULL AND p.state NOT IN ('accepted', 'started')
                 AND p.final_status IS DISTINCT FROM 'settled'
                 AND (SELECT h.status FROM holds h WHERE h.payment_id = p.payment_id) = 'open'
                 AND NOT EXISTS (SELECT FROM operations o
                                 WHERE o.operation_key = p.tx_id || ':debit' AND o.outcome = 'refused')
                 AND ($2::timestamptz IS NULL OR (p.restore_due_at, p.payment_id) > ($2, $3))
               ORDER BY p.restore_due_at, p.payment_id LIMIT $4"#,
            overdue.as_secs_f64(),
            after.map(|due| due.due_at.to_sqlx()) as Option<jiff_sqlx::Timestamp>,
            after.map_or("", |due| due.payment_id.as_str()),
            PAGE,
        )
        .fetch_all(&self.pool)
        .await?;
        rows.into_iter()
            .map(|row| {
                let payment_id = read_id(&row.payment_id)?;
                Ok(DueRestore { due_at: row.due_at.to_jiff(), payment_id, account_id: row.source_account })
            })
            .collect()
    }

    /// Payments whose account was due to be restored, and is not; and how many were restored late.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn overdue_restores(&self) -> Result<OverdueRestores, LedgerError> {
        Ok(sqlx::query_as!(
            OverdueRestores,
            r#"SELECT count(*) AS "count!",
                      coalesce(extract(epoch FROM statement_timestamp() - min(p.restore_due_at)), 0)::bigint AS "oldest_s!",
                      (SELECT count(*) FROM payments l
                       WHERE l.restored_at - l.restore_due_at > interval '1 second'
                         AND l.restored_at > statement_timestamp() - interval '1 hour') AS "late!"
               FROM payments p
               WHERE p.restore_due_at <= statement_timestamp()
                 AND p.restored_at IS NULL AND p.ended_at IS NULL AND p.state NOT IN ('accepted', 'started')
                 AND p.final_status IS DISTINCT FROM 'settled'
                 AND (SELECT h.status FROM holds h WHERE h.payment_id = p.payment_id) = 'open'
                 AND NOT EXISTS (SELECT FROM operations o
                                 WHERE o.operation_key = p.tx_id || ':debit' AND o.outcome = 'refused')"#
        )
        .fetch_one(&self.pool)
        .await?)
    }
}

impl RestoreRound {
    /// Counts the restores of one account.
    fn count(
        &mut self,
        joined: Result<(String, AccountStep), JoinError>,
        locked_accounts: &mut HashSet<String>,
    ) {
        match joined {
            Ok((account_id, step)) => {
                self.restored += step.restored;
                self.failed += step.failed;
                if step.is_locked {
                    locked_accounts.insert(account_id);
                }
            }
            Err(error) => {
                self.failed += 1;
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a restore ended early; the next round tries again"
                );
            }
        }
    }
}

/// Restores the account of a locked payment, if it is due, and commits.
async fn restore_locked(
    mut tx: LedgerTransaction,
    locked: &LockedPayment,
) -> Result<RestoreOutcome, LedgerError> {
    let ruling = if locked.restore_is_due { rules::restore(&locked.facts) } else { RestoreRuling::NotDue };
    let outcome = match ruling {
        RestoreRuling::NotDue => return Ok(RestoreOutcome::NotDue),
        RestoreRuling::Advance => {
            advance_of_account(&mut tx, locked.source_account.as_str(), &[locked]).await?;
            RestoreOutcome::Advanced
        }
        RestoreRuling::Compensate(cause) => {
            begin_compensation(&mut tx, locked, &cause).await?;
            RestoreOutcome::CompensationBegun
        }
        RestoreRuling::Release(cause) => {
            release(&mut tx, locked, &cause).await?;
            RestoreOutcome::Released
        }
    };
    tx.commit().await?;
    Ok(outcome)
}

/// Whether the payment is to be advanced, and nothing speaks against doing so together with others.
fn is_plain_advance(locked: &LockedPayment) -> bool {
    rules::restore(&locked.facts) == RestoreRuling::Advance && locked.require_consistent_hold().is_ok()
}

/// Locks the account, before its limits, then posts the advances of these payments of it.
async fn advance_of_account(
    tx: &mut Connection,
    account_id: &str,
    due: &[&LockedPayment],
) -> Result<(), LedgerError> {
    if due.is_empty() {
        return Ok(());
    }
    sqlx::query!("SELECT account_id FROM accounts WHERE account_id = $1 FOR NO KEY UPDATE", account_id)
        .fetch_optional(&mut *tx)
        .await?;
    advance(tx, due).await
}

/// Posts claims -> source of each payment and begins its compensation, so that no further attempt is sent; in one statement for the
/// ledger's tables, one for the limits and one for the outbox. The amounts count towards no limit any more.
async fn advance(tx: &mut Connection, all: &[&LockedPayment]) -> Result<(), LedgerError> {
    let mut lines = Vec::new();
    let mut events = Vec::new();
    for locked in all {
        locked.require_consistent_hold()?;
        let LockedPayment { payment_id, facts, money, .. } = locked;
        let state = locked.state_while_compensated();
        let cause = rules::first_cause(facts, &Cause::SlaExpired);
        if facts.state != PaymentState::Cancelling {
            lines.push((payment_id, state, compensation_line(&cause)));
        }
        let detail = format!(
            "not confirmed in time: {money} is available again, and the transfer may still be executed"
        );
        lines.push((payment_id, state, detail));
        events.push(StateEvent::restored(locked)?);
    }
    let cause = cause_as_json(&Cause::SlaExpired)?;
    let ids: Vec<&str> = all.iter().map(|locked| locked.payment_id.as_str()).collect();
    let states: Vec<&str> = all.iter().map(|locked| locked.state_while_compensated().as_str()).collect();
    let keys: Vec<String> = all.iter().map(|locked| keys::advance(&locked.tx_id).to_string()).collect();
    let claims: Vec<String> =
        all.iter().map(|locked| InternalAccount::Claims.account(locked.money.currency())).collect();
    let accounts: Vec<&str> = all.iter().map(|locked| locked.source_account.as_str()).collect();
    let amounts: Vec<i64> = all.iter().map(|locked| locked.money.amount_minor()).collect();
    let currencies: Vec<&str> = all.iter().map(|locked| locked.money.currency().code()).collect();
    let line_ids: Vec<&str> = lines.iter().map(|(id, ..)| id.as_str()).collect();
    let line_states: Vec<&str> = lines.iter().map(|(_, state, _)| state.as_str()).collect();
    let line_details: Vec<&str> = lines.iter().map(|(.., detail)| detail.as_str()).collect();
    let written = sqlx::query_scalar!(
        r#"WITH payment AS (
               UPDATE payments p
               SET restored_at = clock_timestamp(), cause = coalesce(p.cause, $3), state = c.state,
                   cancelling_since = CASE WHEN p.state = 'cancelling' THEN p.cancelling_since
                                           ELSE coalesce(p.cancelling_since, clock_timestamp()) END,
                   updated_at = CASE WHEN p.state = c.state THEN p.updated_at ELSE clock_timestamp() END
               FROM unnest($1::text[], $2::text[]) AS c (payment_id, state) WHERE p.payment_id = c.payment_id
               RETURNING 1),
           operation AS (
               INSERT INTO operations (operation_key, payment_id, outcome)
               SELECT operation_key, payment_id, 'done' FROM unnest($4::text[], $1::text[]) AS c (operation_key, payment_id)),
           entry AS (
               INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
               SELECT operation_key, payment_id, 'advance', claims, account, amount_minor, currency
               FROM unnest($4::text[], $1::text[], $5::text[], $6::text[], $7::bigint[], $8::text[])
                        AS c (operation_key, payment_id, claims, account, amount_minor, currency)),
           line AS (
               INSERT INTO timeline (payment_id, state, detail) SELECT * FROM unnest($9::text[], $10::text[], $11::text[]))
           SELECT (SELECT count(*) FROM payment) AS "payments!""#,
        &ids as &[&str],
        &states as &[&str],
        cause,
        &keys,
        &claims,
        &accounts as &[&str],
        &amounts,
        &currencies as &[&str],
        &line_ids as &[&str],
        &line_states as &[&str],
        &line_details as &[&str],
    )
    .fetch_one(&mut *tx)
    .await?;
    if written != all.len() as i64 {
        return Err(LedgerError::Unavailable(sqlx::Error::RowNotFound));
    }
    limits::release_uses(tx, &ids).await?;
    let events: Vec<_> = events.iter().map(StateEvent::as_new).collect();
    outbox::append_all(tx, &events).await?;
    Ok(())
}
