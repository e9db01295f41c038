//! Restore: without a confirmation in time, an advance of the bank restores the customer's account, while the transfer may still settle.
//! It needs nobody but this database: neither Temporal nor the switch. Its conditions are in [`payment_protocol::rules::restore`].

use std::collections::HashSet;
use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use payment_protocol::cause::Cause;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use payment_protocol::rules::{self, RestoreRuling};
use sqlx::PgConnection;
use tokio::task::{JoinError, JoinSet};

use crate::accounts::{self, InternalAccount, JournalPosting};
use crate::admission::limits;
use crate::row_lock::{LockedPayment, lock_payment, lock_unlocked};
use crate::steps::cancel::begin_compensation;
use crate::steps::release::release;
use crate::stored_id::read_id;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, events, writes};

/// Payments read at once.
const PAGE: i64 = 256;
/// Payments restored at the same time.
const CONCURRENT: usize = 8;
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

/// What a round did with one payment.
enum RoundStep {
    /// It was not locked.
    Unlocked(RestoreOutcome),
    /// Another transaction has locked the payment: the next round tries again.
    PaymentLocked,
    /// Another transaction has locked the account for too long: the next round tries the account again.
    AccountLocked,
}

/// What a round did with a payment that was due.
type Restored = (DueRestore, Result<RoundStep, LedgerError>);

/// What a round restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreRound {
    /// Accounts restored by an advance or a release.
    pub restored: usize,
    /// Payments whose restore failed; the next round tries again.
    pub failed: usize,
}

/// Restores that are overdue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverdueRestores {
    /// Number of payments.
    pub count: i64,
    /// How long the oldest has been due, in seconds.
    pub oldest_s: i64,
}

/// A payment to restore; its position is in the order of the index `payments_to_restore`.
#[derive(Clone)]
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

    /// As [`Ledger::restore`], for a round: what another transaction has locked is left to the next round, so that it holds up no other
    /// account.
    async fn restore_in_round(&self, payment_id: &PaymentId) -> Result<RoundStep, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        sqlx::query!("SELECT set_config('lock_timeout', $1, true)", ACCOUNT_LOCK_TIMEOUT)
            .fetch_one(&mut *tx)
            .await?;
        let Some(locked) = lock_unlocked(&mut tx, &[payment_id.to_string()], &[]).await?.pop() else {
            return Ok(RoundStep::PaymentLocked);
        };
        match restore_locked(tx, &locked).await {
            Ok(outcome) => Ok(RoundStep::Unlocked(outcome)),
            Err(error) if error.is_lock_timeout() => Ok(RoundStep::AccountLocked),
            Err(error) => Err(error),
        }
    }

    /// Restores every account that has been due for at least `overdue`, the longest due first. Several processes may do so.
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
            let mut running = JoinSet::new();
            for due in &page {
                if running.len() >= CONCURRENT
                    && let Some(joined) = running.join_next().await
                {
                    round.count(joined, &mut locked_accounts);
                }
                if locked_accounts.contains(&due.account_id) {
                    continue;
                }
                let (ledger, due) = (self.clone(), due.clone());
                running.spawn(async move {
                    let mut step = ledger.restore_in_round(&due.payment_id).await;
                    if let Ok(RoundStep::Unlocked(RestoreOutcome::CompensationBegun)) = step {
                        step = ledger.restore_in_round(&due.payment_id).await;
                    }
                    (due, step)
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

    /// Payments whose account was due to be restored, and is not.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn overdue_restores(&self) -> Result<OverdueRestores, LedgerError> {
        Ok(sqlx::query_as!(
            OverdueRestores,
            r#"SELECT count(*) AS "count!",
                      coalesce(extract(epoch FROM statement_timestamp() - min(p.restore_due_at)), 0)::bigint AS "oldest_s!"
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
    /// Counts a restore of this round that ended.
    fn count(&mut self, joined: Result<Restored, JoinError>, locked_accounts: &mut HashSet<String>) {
        match joined {
            Ok((_, Ok(RoundStep::Unlocked(RestoreOutcome::Advanced | RestoreOutcome::Released)))) => {
                self.restored += 1;
            }
            Ok((_, Ok(RoundStep::Unlocked(_) | RoundStep::PaymentLocked))) => {}
            Ok((due, Ok(RoundStep::AccountLocked))) => {
                locked_accounts.insert(due.account_id);
            }
            Ok((due, Err(error))) => {
                self.failed += 1;
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    payment.id = due.payment_id.as_str(),
                    error,
                    "the account of a payment could not be restored; the next round tries again"
                );
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
            advance(&mut tx, locked).await?;
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

/// Posts claims -> source and begins the compensation, so that no further attempt is sent. The amount counts towards no limit any more.
async fn advance(tx: &mut PgConnection, locked: &LockedPayment) -> Result<(), LedgerError> {
    let LockedPayment { payment_id, tx_id, source_account, money, .. } = locked;
    locked.require_consistent_hold()?;
    let key = keys::advance(tx_id);
    writes::record_done(tx, key.as_str(), payment_id).await?;
    let posting = JournalPosting {
        key: key.as_str(),
        payment_id: Some(payment_id),
        kind: "advance",
        debit: &InternalAccount::Claims.account(money.currency()),
        credit: source_account.as_str(),
        money: *money,
    };
    accounts::post(tx, posting).await?;
    limits::release_use(tx, payment_id).await?;
    sqlx::query!(
        "UPDATE payments SET restored_at = clock_timestamp() WHERE payment_id = $1",
        payment_id.as_str()
    )
    .execute(&mut *tx)
    .await?;
    begin_compensation(tx, locked, &Cause::SlaExpired).await?;
    let detail =
        format!("not confirmed in time: {money} is available again, and the transfer may still be executed");
    writes::append_timeline(tx, payment_id, locked.state_while_compensated(), &detail).await?;
    events::append_restored(tx, locked).await
}
