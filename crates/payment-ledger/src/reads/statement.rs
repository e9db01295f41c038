//! What an account held and what moved it: its balance at any instant, its statement over a period, and the trial balance of
//! all accounts. Always of one snapshot.
//!
//! A customer's balance is reached backwards, from its balance row; an internal account's forwards, over the hours that were
//! sealed. An instant of the last seconds is what was committed when it was looked at: an entry of a transaction still under way is
//! not in it.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::TenantId;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{Ledger, LedgerError};

/// The smallest step of the ledger's times.
const MICROSECOND: SignedDuration = SignedDuration::from_micros(1);

/// What an account held at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceAt {
    /// The account.
    pub account_id: String,
    /// ISO 4217 code.
    pub currency: String,
    /// The instant; what was posted then is counted.
    pub at: Timestamp,
    /// What could be spent, in minor units; of an internal account, all it held, negative where it owed.
    pub available_minor: i64,
    /// What its open holds had set aside, in minor units.
    pub held_minor: i64,
}

impl BalanceAt {
    /// The ledger balance: what could be spent and what was held.
    #[must_use]
    pub fn ledger_minor(&self) -> i64 {
        self.available_minor.saturating_add(self.held_minor)
    }
}

/// A place in an account's entries: they are in the order of their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    at: Timestamp,
    entry_id: i64,
}

/// A text that is no [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a place in a statement: give back what was given as next")]
pub struct PlaceError;

impl Place {
    /// After all that was posted at `at`.
    fn after_all_at(at: Timestamp) -> Self {
        Self { at, entry_id: i64::MAX }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.as_microsecond(), self.entry_id)
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (at, entry_id) = text.rsplit_once('-').ok_or(PlaceError)?;
        let at = at.parse().ok().and_then(|at| Timestamp::from_microsecond(at).ok()).ok_or(PlaceError)?;
        let entry_id = entry_id.parse().ok().filter(|entry_id| *entry_id > 0).ok_or(PlaceError)?;
        Ok(Self { at, entry_id })
    }
}

/// Which part of an account's history.
#[derive(Clone, Copy, Debug)]
pub struct Period {
    /// From this instant on.
    pub from: Timestamp,
    /// Until before this instant; now where none is named, and where it is still to come.
    pub to: Option<Timestamp>,
    /// Only after this place: [`Statement::next`] of the page before.
    pub after: Option<Place>,
    /// At most so many entries.
    pub limit: i64,
}

/// One entry, as the account sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number of the entry.
    pub entry_id: i64,
    /// When it was posted.
    pub posted_at: Timestamp,
    /// What it was: `fund`, `reserve`, `release`, ...
    pub kind: String,
    /// Of which payment.
    pub payment_id: Option<String>,
    /// The other account.
    pub counter_account: String,
    /// What it added to the account, in minor units; negative for what it took.
    pub amount_minor: i64,
    /// What could be spent after it, in minor units.
    pub balance_minor: i64,
}

/// A page of an account's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Just before the period.
    pub opening: BalanceAt,
    /// At the period's end.
    pub closing: BalanceAt,
    /// Its entries, oldest first.
    pub lines: Vec<Line>,
    /// Where the next page begins; none on the last one.
    pub next: Option<Place>,
}

/// One line of a trial balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrialLine {
    /// ISO 4217 code.
    pub currency: String,
    /// An internal account, or `customers` for what all customers can spend.
    pub account: String,
    /// In minor units: credits less debits.
    pub balance_minor: i64,
}

struct Found {
    account_id: String,
    currency: String,
    is_internal: bool,
}

impl Ledger {
    /// What an account held at `at`, or now where that is none or still to come; with `tenant`, only if it is that tenant's
    /// customer account.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn balance_at(
        &self,
        account_id: &str,
        tenant: Option<&TenantId>,
        at: Option<Timestamp>,
    ) -> Result<Option<BalanceAt>, LedgerError> {
        let mut connection = self.pool.acquire().await?;
        let mut look = connection.begin().await?;
        look.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let Some(found) = find(&mut look, account_id, tenant).await? else { return Ok(None) };
        let at = come(&mut look, at).await?;
        Ok(Some(balance(&mut look, &found, at).await?))
    }

    /// A page of an account's statement; with `tenant`, only if it is that tenant's customer account.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn statement(
        &self,
        account_id: &str,
        tenant: Option<&TenantId>,
        period: &Period,
    ) -> Result<Option<Statement>, LedgerError> {
        let mut connection = self.pool.acquire().await?;
        let mut look = connection.begin().await?;
        look.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let Some(found) = find(&mut look, account_id, tenant).await? else { return Ok(None) };
        let to = come(&mut look, period.to).await?;
        let before = Place::after_all_at(just_before(period.from.min(to)));
        let opening = balance(&mut look, &found, before.at).await?;
        let closing = balance(&mut look, &found, just_before(to)).await?;
        // A place outside the period is no way out of it.
        let after = period.after.map_or(before, |after| after.max(before));
        let mut lines = lines(&mut look, &found, after, to, period.limit).await?;
        let mut running = match period.after {
            Some(_) => available(&mut look, &found, after).await?,
            None => opening.available_minor,
        };
        for line in &mut lines {
            running = running.saturating_add(line.amount_minor);
            line.balance_minor = running;
        }
        let full = i64::try_from(lines.len()).is_ok_and(|count| count >= period.limit);
        let next = lines.last().filter(|_| full);
        let next = next.map(|line| Place { at: line.posted_at, entry_id: line.entry_id });
        Ok(Some(Statement { opening, closing, lines, next }))
    }

    /// What all accounts held at `at`, or now where that is none or still to come, by currency. Each currency's lines add up to zero, or money came from nowhere: the
    /// customers' are reached by their balance rows, the others by their entries.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn trial_balance(&self, at: Option<Timestamp>) -> Result<Vec<TrialLine>, LedgerError> {
        let mut connection = self.pool.acquire().await?;
        let mut look = connection.begin().await?;
        look.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let at = come(&mut look, at).await?;
        let mut trial = sqlx::query_as!(
            TrialLine,
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
        .fetch_all(&mut *look)
        .await?;
        let internal = sqlx::query_as!(
            Found,
            r#"SELECT account_id, currency, true AS "is_internal!" FROM accounts WHERE kind = 'internal'"#
        )
        .fetch_all(&mut *look)
        .await?;
        for found in internal {
            let balance_minor = available(&mut look, &found, Place::after_all_at(at)).await?;
            trial.push(TrialLine { currency: found.currency, account: found.account_id, balance_minor });
        }
        trial.sort_by(|a, b| (&a.currency, &a.account).cmp(&(&b.currency, &b.account)));
        Ok(trial)
    }
}

/// `at` if it has come by the database's clock, which the entries have their times from; else now.
async fn come(look: &mut PgConnection, at: Option<Timestamp>) -> Result<Timestamp, LedgerError> {
    let now = sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(look).await?.to_jiff();
    Ok(at.map_or(now, |at| at.min(now)))
}

fn just_before(at: Timestamp) -> Timestamp {
    at.checked_sub(MICROSECOND).unwrap_or(Timestamp::MIN)
}

async fn find(
    look: &mut PgConnection,
    account_id: &str,
    tenant: Option<&TenantId>,
) -> Result<Option<Found>, LedgerError> {
    let found = sqlx::query_as!(
        Found,
        r#"SELECT account_id, currency, kind = 'internal' AS "is_internal!" FROM accounts
           WHERE account_id = $1 AND ($2::text IS NULL OR tenant_id = $2 AND kind = 'customer')"#,
        account_id,
        tenant.map(TenantId::as_str),
    )
    .fetch_optional(look)
    .await?;
    Ok(found)
}

async fn balance(look: &mut PgConnection, found: &Found, at: Timestamp) -> Result<BalanceAt, LedgerError> {
    let available_minor = available(&mut *look, found, Place::after_all_at(at)).await?;
    let held_minor = sqlx::query_scalar!(
        r#"SELECT coalesce(sum(amount_minor), 0)::bigint AS "held!" FROM holds
           WHERE account_id = $1 AND opened_at <= $2 AND (closed_at IS NULL OR closed_at > $2)"#,
        found.account_id,
        at.to_sqlx() as _,
    )
    .fetch_one(look)
    .await?;
    let (account_id, currency) = (found.account_id.clone(), found.currency.clone());
    Ok(BalanceAt { account_id, currency, at, available_minor, held_minor })
}

/// What the account could spend after all entries up to `place`.
async fn available(look: &mut PgConnection, found: &Found, place: Place) -> Result<i64, LedgerError> {
    let (at, entry_id) = (place.at.to_sqlx(), place.entry_id);
    let available_minor = if found.is_internal {
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
                                   FROM journal_unsealed u JOIN journal j USING (entry_id)
                                   WHERE $1 IN (j.credit_account, j.debit_account)
                                     AND j.posted_at < date_trunc('hour', $2::timestamptz, 'UTC')), 0))::bigint AS "minor!""#,
            found.account_id,
            at as _,
            entry_id,
        )
        .fetch_one(look)
        .await?
    } else {
        sqlx::query_scalar!(
            r#"SELECT (a.available_minor
                       - coalesce((SELECT sum(amount_minor) FROM journal
                                   WHERE credit_account = $1 AND (posted_at, entry_id) > ($2, $3)), 0)
                       + coalesce((SELECT sum(amount_minor) FROM journal
                                   WHERE debit_account = $1 AND (posted_at, entry_id) > ($2, $3)), 0))::bigint AS "minor!"
               FROM accounts a WHERE a.account_id = $1"#,
            found.account_id,
            at as _,
            entry_id,
        )
        .fetch_one(look)
        .await?
    };
    Ok(available_minor)
}

/// Entries after `after` and before the period's end; the running balance is the caller's.
async fn lines(
    look: &mut PgConnection,
    found: &Found,
    after: Place,
    to: Timestamp,
    limit: i64,
) -> Result<Vec<Line>, LedgerError> {
    let rows = sqlx::query!(
        r#"SELECT entry_id AS "entry_id!", posted_at AS "posted_at!", kind AS "kind!", payment_id,
                  counter_account AS "counter_account!", amount_minor AS "amount_minor!"
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
        found.account_id,
        after.at.to_sqlx() as _,
        after.entry_id,
        to.to_sqlx() as _,
        limit,
    )
    .fetch_all(look)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Line {
            entry_id: row.entry_id,
            posted_at: row.posted_at.to_jiff(),
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
    fn a_place_is_read_as_it_is_shown() {
        let place = Place { at: Timestamp::from_microsecond(-5).unwrap(), entry_id: 7 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "-", "5", "5-", "-7", "5-0", "5--7", "a-7", "5-7x", "99999999999999999999-1"] {
            assert_eq!(wrong.parse::<Place>(), Err(PlaceError), "{wrong}");
        }
    }
}
