//! Account statements: the balance at any instant, the entries of a period, and the trial balance of all accounts. Each reads
//! one snapshot.
//!
//! A customer's balance is computed backwards from its current balance, an internal account's forwards from the sealed hours.
//! An instant within the last seconds covers the entries committed when it was read: a transaction still in progress is not
//! included.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::TenantId;
use postgres_kit::Connection;
use sqlx::Executor as _;

use crate::{Ledger, LedgerError};

/// The resolution of the ledger's times.
const MICROSECOND: SignedDuration = SignedDuration::from_micros(1);

/// The balance of an account at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceAt {
    /// The account.
    pub account_id: String,
    /// ISO 4217 code.
    pub currency: String,
    /// The instant; entries posted at it are included.
    pub at: Timestamp,
    /// Available balance, in minor units; of an internal account, its balance, which may be negative.
    pub available_minor: i64,
    /// Sum of the holds that were open at the instant and borne by the customer, in minor units.
    pub held_minor: i64,
}

impl BalanceAt {
    /// The ledger balance: available plus held.
    #[must_use]
    pub fn ledger_minor(&self) -> i64 {
        self.available_minor.saturating_add(self.held_minor)
    }
}

/// A position in the entries of an account, which are in the order of their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementPosition {
    at: Timestamp,
    entry_id: i64,
}

/// Not a [`StatementPosition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the text is not a position in an account statement; pass the field next of the previous page unchanged"
)]
pub struct StatementPositionError;

impl StatementPosition {
    /// The position after every entry posted at `at`.
    fn after_all_at(at: Timestamp) -> Self {
        Self { at, entry_id: i64::MAX }
    }
}

impl fmt::Display for StatementPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.as_microsecond(), self.entry_id)
    }
}

impl FromStr for StatementPosition {
    type Err = StatementPositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (at, entry_id) = text.rsplit_once('-').ok_or(StatementPositionError)?;
        let at = at
            .parse()
            .ok()
            .and_then(|at| Timestamp::from_microsecond(at).ok())
            .ok_or(StatementPositionError)?;
        let entry_id =
            entry_id.parse().ok().filter(|entry_id| *entry_id > 0).ok_or(StatementPositionError)?;
        Ok(Self { at, entry_id })
    }
}

/// The part of an account's history to list.
#[derive(Clone, Copy, Debug)]
pub struct AccountStatementQuery {
    /// First instant of the period, inclusive.
    pub from: Timestamp,
    /// End of the period, exclusive; the current time if it is `None` or in the future.
    pub to: Option<Timestamp>,
    /// Only entries after this position: [`AccountStatement::next`] of the previous page.
    pub after: Option<StatementPosition>,
    /// Upper bound of entries on the page.
    pub limit: i64,
}

/// One entry, from the account's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountStatementEntry {
    /// Number of the entry.
    pub entry_id: i64,
    /// When it was posted.
    pub posted_at: Timestamp,
    /// The day from which it counts, in UTC: of the entry itself; of the reserve for a release or an advance, as if nothing had been
    /// reserved.
    pub value_date: Date,
    /// `fund`, `reserve`, `release`, ...
    pub kind: String,
    /// The payment, if any.
    pub payment_id: Option<String>,
    /// The other account.
    pub counter_account: String,
    /// Change of the account's balance, in minor units; negative for a debit.
    pub amount_minor: i64,
    /// Available balance after the entry, in minor units.
    pub balance_minor: i64,
}

/// A page of an account statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountStatement {
    /// Balance just before the period.
    pub opening: BalanceAt,
    /// Balance at the end of the period.
    pub closing: BalanceAt,
    /// The entries, oldest first.
    pub lines: Vec<AccountStatementEntry>,
    /// Where the next page begins; `None` on the last page.
    pub next: Option<StatementPosition>,
}

/// One line of a trial balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialBalanceLine {
    /// ISO 4217 code.
    pub currency: String,
    /// An internal account, or `customers` for all customer accounts together.
    pub account: String,
    /// Balance in minor units: credits less debits.
    pub balance_minor: i64,
}

struct AccountRow {
    account_id: String,
    currency: String,
    is_internal: bool,
}

impl Ledger {
    /// The balance at `at`; the current one if `at` is `None` or in the future. With `tenant`, only of that tenant's customer
    /// account; `None` if there is no such account.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn balance_at(
        &self,
        account_id: &str,
        tenant: Option<&TenantId>,
        at: Option<Timestamp>,
    ) -> Result<Option<BalanceAt>, LedgerError> {
        let mut snapshot = self.pool.begin().await?;
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let Some(account) = find_account(&mut snapshot, account_id, tenant).await? else { return Ok(None) };
        let at = not_after_now(&mut snapshot, at).await?;
        Ok(Some(balance(&mut snapshot, &account, at).await?))
    }

    /// A page of an account statement; with `tenant`, only of that tenant's customer account. `None` if there is no such account.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn statement(
        &self,
        account_id: &str,
        tenant: Option<&TenantId>,
        period: &AccountStatementQuery,
    ) -> Result<Option<AccountStatement>, LedgerError> {
        let mut snapshot = self.pool.begin().await?;
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let Some(account) = find_account(&mut snapshot, account_id, tenant).await? else { return Ok(None) };
        let to = not_after_now(&mut snapshot, period.to).await?;
        let before = StatementPosition::after_all_at(just_before(period.from.min(to)));
        let opening = balance(&mut snapshot, &account, before.at).await?;
        let closing = balance(&mut snapshot, &account, just_before(to)).await?;
        // A position before the period does not extend it.
        let after = period.after.map_or(before, |after| after.max(before));
        let mut lines = lines(&mut snapshot, &account, after, to, period.limit).await?;
        let mut running = match period.after {
            Some(_) => available(&mut snapshot, &account, after).await?,
            None => opening.available_minor,
        };
        for line in &mut lines {
            running = running.saturating_add(line.amount_minor);
            line.balance_minor = running;
        }
        let is_full = i64::try_from(lines.len()).is_ok_and(|count| count >= period.limit);
        let next = lines.last().filter(|_| is_full);
        let next = next.map(|line| StatementPosition { at: line.posted_at, entry_id: line.entry_id });
        Ok(Some(AccountStatement { opening, closing, lines, next }))
    }

    /// The balances of all accounts at `at`, or now if `at` is `None` or in the future, by currency. The lines of each currency add
    /// up to zero: customer balances come from the accounts, the others from the entries, so a difference is an error.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn trial_balance(&self, at: Option<Timestamp>) -> Result<Vec<TrialBalanceLine>, LedgerError> {
        let mut snapshot = self.pool.begin().await?;
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let at = not_after_now(&mut snapshot, at).await?;
        let mut trial = sqlx::query_as!(
            TrialBalanceLine,
            r#"SELECT a.currency, 'customers' AS "account!",
                      (sum(a.available_minor) - coalesce(min(since.minor), 0))::bigint AS "balance_minor!"
               FROM accounts a
               LEFT JOIN (SELECT j.currency, sum(m.minor) AS minor
                          FROM journal j
                          CROSS JOIN LATERAL (VALUES (j.credit_account, j.amount_minor), (j.debit_account, -j.amount_minor))
                              AS m (account_id, minor)
                          WHERE j.posted_at > $1 AND m.account_id NOT LIKE 'internal:%'
                          GROUP BY j.currency) since USING (currency)
               WHERE a.kind = 'customer' GROUP BY a.currency"#,
            at.to_sqlx() as _,
        )
        .fetch_all(&mut *snapshot)
        .await?;
        let internal = sqlx::query_as!(
            AccountRow,
            r#"SELECT account_id, currency, true AS "is_internal!" FROM accounts WHERE kind = 'internal'"#
        )
        .fetch_all(&mut *snapshot)
        .await?;
        for account in internal {
            let balance_minor =
                available(&mut snapshot, &account, StatementPosition::after_all_at(at)).await?;
            trial.push(TrialBalanceLine {
                currency: account.currency,
                account: account.account_id,
                balance_minor,
            });
        }
        trial.sort_by(|a, b| (&a.currency, &a.account).cmp(&(&b.currency, &b.account)));
        Ok(trial)
    }
}

/// `at`, but at most the current time of the database, whose clock the entries have their times from.
async fn not_after_now(snapshot: &mut Connection, at: Option<Timestamp>) -> Result<Timestamp, LedgerError> {
    let now =
        sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(snapshot).await?.to_jiff();
    Ok(at.map_or(now, |at| at.min(now)))
}

fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(MICROSECOND).unwrap_or(Timestamp::MIN)
}

async fn find_account(
    snapshot: &mut Connection,
    account_id: &str,
    tenant: Option<&TenantId>,
) -> Result<Option<AccountRow>, LedgerError> {
    let account = sqlx::query_as!(
        AccountRow,
        r#"SELECT account_id, currency, kind = 'internal' AS "is_internal!" FROM accounts
           WHERE account_id = $1 AND ($2::text IS NULL OR tenant_id = $2 AND kind = 'customer')"#,
        account_id,
        tenant.map(TenantId::as_str),
    )
    .fetch_optional(snapshot)
    .await?;
    Ok(account)
}

async fn balance(
    snapshot: &mut Connection,
    account: &AccountRow,
    at: Timestamp,
) -> Result<BalanceAt, LedgerError> {
    let available_minor = available(&mut *snapshot, account, StatementPosition::after_all_at(at)).await?;
    let held_minor = sqlx::query_scalar!(
        r#"SELECT coalesce(sum(amount_minor), 0)::bigint AS "held!" FROM holds
           WHERE account_id = $1 AND opened_at <= $2 AND (closed_at IS NULL OR closed_at > $2)
             AND (borne_by_bank_since IS NULL OR borne_by_bank_since > $2)"#,
        account.account_id,
        at.to_sqlx() as _,
    )
    .fetch_one(snapshot)
    .await?;
    let (account_id, currency) = (account.account_id.clone(), account.currency.clone());
    Ok(BalanceAt { account_id, currency, at, available_minor, held_minor })
}

/// Available balance after all entries up to `position`.
async fn available(
    snapshot: &mut Connection,
    account: &AccountRow,
    position: StatementPosition,
) -> Result<i64, LedgerError> {
    let (at, entry_id) = (position.at.to_sqlx(), position.entry_id);
    let available_minor = if account.is_internal {
        sqlx::query_scalar!(
            r#"SELECT (coalesce((SELECT sum(moved_minor) FROM sealed_hours
                                 WHERE account_id = $1 AND hour < date_trunc('hour', $2::timestamptz, 'UTC')), 0)
                       + coalesce((SELECT sum(amount_minor) FROM journal
                                   WHERE credit_account = $1 AND posted_at >= date_trunc('hour', $2::timestamptz, 'UTC')
                                     AND (posted_at, entry_id) <= ($2, $3)), 0)
                       - coalesce((SELECT sum(amount_minor) FROM journal
                                   WHERE debit_account = $1 AND posted_at >= date_trunc('hour', $2::timestamptz, 'UTC')
                                     AND (posted_at, entry_id) <= ($2, $3)), 0)
                       + coalesce((SELECT sum(CASE WHEN j.credit_account = $1 THEN j.amount_minor ELSE -j.amount_minor END)
                                   FROM journal_unsealed u CROSS JOIN LATERAL (SELECT * FROM journal WHERE entry_id = u.entry_id LIMIT 1) j
                                   WHERE $1 IN (j.credit_account, j.debit_account)
                                     AND j.posted_at < date_trunc('hour', $2::timestamptz, 'UTC')), 0))::bigint AS "minor!""#,
            account.account_id,
            at as _,
            entry_id,
        )
        .fetch_one(snapshot)
        .await?
    } else {
        sqlx::query_scalar!(
            r#"SELECT (a.available_minor
                       - coalesce((SELECT sum(amount_minor) FROM journal
                                   WHERE credit_account = $1 AND (posted_at, entry_id) > ($2, $3)), 0)
                       + coalesce((SELECT sum(amount_minor) FROM journal
                                   WHERE debit_account = $1 AND (posted_at, entry_id) > ($2, $3)), 0))::bigint AS "minor!"
               FROM accounts a WHERE a.account_id = $1"#,
            account.account_id,
            at as _,
            entry_id,
        )
        .fetch_one(snapshot)
        .await?
    };
    Ok(available_minor)
}

/// Entries after `after` and before the end of the period; the caller fills in the running balance.
async fn lines(
    snapshot: &mut Connection,
    account: &AccountRow,
    after: StatementPosition,
    to: Timestamp,
    limit: i64,
) -> Result<Vec<AccountStatementEntry>, LedgerError> {
    let rows = sqlx::query!(
        r#"SELECT entry_id AS "entry_id!", posted_at AS "posted_at!", kind AS "kind!", payment_id,
                  counter_account AS "counter_account!", amount_minor AS "amount_minor!",
                  coalesce(CASE WHEN kind IN ('release', 'advance')
                                THEN (SELECT h.opened_at FROM holds h WHERE h.payment_id = entries.payment_id) END,
                           posted_at) AS "counts_from!"
           FROM ((SELECT entry_id, posted_at, kind, payment_id, debit_account AS counter_account, amount_minor
                  FROM journal
                  WHERE credit_account = $1 AND (posted_at, entry_id) > ($2, $3) AND posted_at < $4
                  ORDER BY posted_at, entry_id LIMIT $5)
                 UNION ALL
                 (SELECT entry_id, posted_at, kind, payment_id, credit_account, -amount_minor
                  FROM journal
                  WHERE debit_account = $1 AND (posted_at, entry_id) > ($2, $3) AND posted_at < $4
                  ORDER BY posted_at, entry_id LIMIT $5)) AS entries
           ORDER BY posted_at, entry_id LIMIT $5"#,
        account.account_id,
        after.at.to_sqlx() as _,
        after.entry_id,
        to.to_sqlx() as _,
        limit,
    )
    .fetch_all(snapshot)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| AccountStatementEntry {
            entry_id: row.entry_id,
            posted_at: row.posted_at.to_jiff(),
            value_date: row.counts_from.to_jiff().to_zoned(TimeZone::UTC).date(),
            kind: row.kind,
            payment_id: row.payment_id,
            counter_account: row.counter_account,
            amount_minor: row.amount_minor,
            balance_minor: 0,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_statement_position_is_parsed_from_its_own_text() {
        let position = StatementPosition { at: Timestamp::from_microsecond(-5).unwrap(), entry_id: 7 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "-", "5", "5-", "-7", "5-0", "5--7", "a-7", "5-7x", "99999999999999999999-1"] {
            assert_eq!(wrong.parse::<StatementPosition>(), Err(StatementPositionError), "{wrong}");
        }
    }
}
