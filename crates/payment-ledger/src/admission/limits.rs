//! Limits of an account, or of a tenant's accounts together: per payment, and per day by amount and number. Reserve counts a
//! payment, release gives its share released. Without a limit no row is locked.

use payment_protocol::ids::{AccountId, TenantId};
use postgres_kit::Connection;

use crate::row_lock::LockedPayment;
use crate::{Ledger, LedgerError};

/// The scope of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// One account.
    Account(AccountId),
    /// All accounts of a tenant together.
    Tenant(TenantId),
}

impl LimitScope {
    pub(crate) fn columns(&self) -> (&'static str, &str) {
        match self {
            Self::Account(account) => ("account", account.as_str()),
            Self::Tenant(tenant) => ("tenant", tenant.as_str()),
        }
    }
}

/// The upper bounds of a limit; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitBounds {
    /// Upper bound of one payment, in minor units.
    pub per_payment_minor: Option<i64>,
    /// Upper bound of all payments held on one UTC day and not released, in minor units.
    pub per_day_minor: Option<i64>,
    /// Upper bound of the number of those payments.
    pub per_day_count: Option<i64>,
}

/// A limit in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitView {
    /// `account` or `tenant`.
    pub scope: String,
    /// The account's or tenant's id.
    pub scope_id: String,
    /// ISO 4217 code.
    pub currency: String,
    /// The upper bounds.
    pub bounds: LimitBounds,
    /// Amount used today, in minor units.
    pub used_minor: i64,
    /// Payments counted today.
    pub used_count: i64,
    /// The operator who set it.
    pub set_by: String,
    /// The operator's reason.
    pub reason: String,
}

impl Ledger {
    /// At most `limit` limits in force, by scope.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn limits(&self, limit: i64) -> Result<Vec<LimitView>, LedgerError> {
        let rows = sqlx::query!(
            r#"SELECT l.scope, l.scope_id, l.currency, l.per_payment_minor, l.per_day_minor, l.per_day_count, l.set_by, l.reason,
                      coalesce(d.used_minor, 0) AS "used_minor!", coalesce(d.used_count, 0) AS "used_count!"
               FROM (SELECT DISTINCT ON (scope, scope_id, currency) * FROM limits
                     ORDER BY scope, scope_id, currency, limit_id DESC) l
               LEFT JOIN limit_days d ON (d.scope, d.scope_id, d.currency) = (l.scope, l.scope_id, l.currency)
                                     AND d.day = (clock_timestamp() AT TIME ZONE 'UTC')::date
               WHERE num_nonnulls(l.per_payment_minor, l.per_day_minor, l.per_day_count) > 0
               ORDER BY l.scope, l.scope_id, l.currency LIMIT $1"#,
            limit,
        )
        .fetch_all(&self.pool)
        .await?;
        Ok(rows
            .into_iter()
            .map(|row| LimitView {
                scope: row.scope,
                scope_id: row.scope_id,
                currency: row.currency,
                bounds: LimitBounds {
                    per_payment_minor: row.per_payment_minor,
                    per_day_minor: row.per_day_minor,
                    per_day_count: row.per_day_count,
                },
                used_minor: row.used_minor,
                used_count: row.used_count,
                set_by: row.set_by,
                reason: row.reason,
            })
            .collect())
    }
}

/// Counts a payment towards the limits of its account and tenant. Returns false, and counts nothing, if it exceeds one. The
/// caller has locked the account's row.
pub(crate) async fn use_limits(tx: &mut Connection, locked: &LockedPayment) -> Result<bool, LedgerError> {
    let (account, tenant) = (locked.source_account.as_str(), locked.tenant_id.as_str());
    let (amount_minor, currency) = (locked.money.amount_minor(), locked.money.currency().code());
    let limits = sqlx::query!(
        r#"SELECT DISTINCT ON (scope) scope, per_payment_minor, per_day_minor, per_day_count,
                  ((clock_timestamp() AT TIME ZONE 'UTC')::date)::text AS "today!"
           FROM limits
           WHERE (scope = 'account' AND scope_id = $1 OR scope = 'tenant' AND scope_id = $2) AND currency = $3
           ORDER BY scope, limit_id DESC"#,
        account,
        tenant,
        currency,
    )
    .fetch_all(&mut *tx)
    .await?;
    if limits.iter().any(|limit| limit.per_payment_minor.is_some_and(|bound| amount_minor > bound)) {
        return Ok(false);
    }
    let daily: Vec<_> = limits
        .into_iter()
        .filter(|limit| limit.per_day_minor.is_some() || limit.per_day_count.is_some())
        .collect();
    let Some(today) = daily.first().map(|limit| limit.today.clone()) else { return Ok(true) };
    let scopes: Vec<String> = daily.iter().map(|limit| limit.scope.clone()).collect();
    let used = lock_day_use(tx, locked, &scopes, &today).await?;
    let exceeds = |used: i64, added: i64, bound: Option<i64>| {
        bound.is_some_and(|bound| used.checked_add(added).is_none_or(|sum| sum > bound))
    };
    let is_exceeded = daily.iter().any(|limit| {
        let used = used.iter().find(|used| used.scope == limit.scope);
        let (minor, count) = used.map_or((0, 0), |used| (used.used_minor, used.used_count));
        exceeds(minor, amount_minor, limit.per_day_minor) || exceeds(count, 1, limit.per_day_count)
    });
    if is_exceeded {
        return Ok(false);
    }
    count_use(tx, locked, &scopes, &today).await?;
    Ok(true)
}

/// Today's use of one limit.
struct DayUseRow {
    scope: String,
    used_minor: i64,
    used_count: i64,
}

/// Locks the rows of `today` in these scopes, and inserts the missing ones.
async fn lock_day_use(
    tx: &mut Connection,
    locked: &LockedPayment,
    scopes: &[String],
    today: &str,
) -> Result<Vec<DayUseRow>, LedgerError> {
    let (account, tenant) = (locked.source_account.as_str(), locked.tenant_id.as_str());
    let currency = locked.money.currency().code();
    // Always the account's row before the tenant's: no deadlock.
    sqlx::query!(
        "INSERT INTO limit_days (scope, scope_id, currency, day)
         SELECT scope, CASE scope WHEN 'account' THEN $2 ELSE $3 END, $4, $5::text::date
         FROM unnest($1::text[]) AS scopes (scope) ORDER BY scope
         ON CONFLICT DO NOTHING",
        scopes,
        account,
        tenant,
        currency,
        today,
    )
    .execute(&mut *tx)
    .await?;
    let used = sqlx::query_as!(
        DayUseRow,
        "SELECT scope, used_minor, used_count FROM limit_days
         WHERE scope = ANY ($1) AND scope_id = CASE scope WHEN 'account' THEN $2 ELSE $3 END AND currency = $4
           AND day = $5::text::date
         ORDER BY scope FOR UPDATE",
        scopes,
        account,
        tenant,
        currency,
        today,
    )
    .fetch_all(tx)
    .await?;
    Ok(used)
}

/// Counts the payment towards its limits of `today`, in the locked rows.
async fn count_use(
    tx: &mut Connection,
    locked: &LockedPayment,
    scopes: &[String],
    today: &str,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "WITH used AS (
             INSERT INTO limit_uses (payment_id, scope, scope_id, currency, day, amount_minor)
             SELECT $6, scope, CASE scope WHEN 'account' THEN $2 ELSE $3 END, $4, $5::text::date, $7
             FROM unnest($1::text[]) AS scopes (scope))
         UPDATE limit_days SET used_minor = used_minor + $7, used_count = used_count + 1
         WHERE scope = ANY ($1) AND scope_id = CASE scope WHEN 'account' THEN $2 ELSE $3 END AND currency = $4
           AND day = $5::text::date",
        scopes,
        locked.source_account.as_str(),
        locked.tenant_id.as_str(),
        locked.money.currency().code(),
        today,
        locked.payment_id.as_str(),
        locked.money.amount_minor(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Subtracts released payments of one account from the daily use of its limits. The caller has locked the account's row.
pub(crate) async fn release_uses(tx: &mut Connection, payment_ids: &[&str]) -> Result<(), LedgerError> {
    sqlx::query!(
        "WITH released AS (
             UPDATE limit_uses SET released_at = clock_timestamp() WHERE payment_id = ANY ($1) AND released_at IS NULL
             RETURNING scope, scope_id, currency, day, amount_minor),
         released_day AS (
             SELECT scope, scope_id, currency, day, sum(amount_minor)::bigint AS amount_minor, count(*) AS uses
             FROM released GROUP BY scope, scope_id, currency, day)
         UPDATE limit_days d SET used_minor = d.used_minor - r.amount_minor, used_count = d.used_count - r.uses
         FROM released_day r
         WHERE (d.scope, d.scope_id, d.currency, d.day) = (r.scope, r.scope_id, r.currency, r.day)",
        payment_ids as &[&str],
    )
    .execute(tx)
    .await?;
    Ok(())
}
