//! Limits of an account, or of a tenant's accounts together: for one payment, and for a day's amount and number. Looked at
//! when the amount is held; what is given back is given back here too. Where there is no limit, no row is locked.

use iso_currency::Currency;
use payment_protocol::ids::{AccountId, PaymentId, TenantId};
use sqlx::PgConnection;

use crate::operator::decisions::{DecideError, said};
use crate::row_lock::Locked;
use crate::{Ledger, LedgerError};

/// Whose limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitScope {
    /// Of one account.
    Account(AccountId),
    /// Of all accounts of a tenant together.
    Tenant(TenantId),
}

impl LimitScope {
    fn words(&self) -> (&'static str, &str) {
        match self {
            Self::Account(account) => ("account", account.as_str()),
            Self::Tenant(tenant) => ("tenant", tenant.as_str()),
        }
    }
}

/// What may leave; none is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// One payment, in minor units.
    pub per_payment_minor: Option<i64>,
    /// All payments held on one UTC day and not given back, in minor units.
    pub per_day_minor: Option<i64>,
    /// Their number.
    pub per_day_count: Option<i64>,
}

/// A limit as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitView {
    /// `account` or `tenant`.
    pub scope: String,
    /// Which one.
    pub scope_id: String,
    /// ISO 4217 code.
    pub currency: String,
    /// What may leave.
    pub bounds: Bounds,
    /// What today has used, in minor units.
    pub used_minor: i64,
    /// How many payments today has used.
    pub used_count: i64,
    /// Who set it.
    pub set_by: String,
    /// Why.
    pub reason: String,
}

impl Ledger {
    /// Sets a limit in the place of the one before; without bounds there is none. A day's use counts from then on.
    ///
    /// # Errors
    /// [`DecideError`]: a name or reason that a decision would not take either is refused; a negative bound is
    /// [`LedgerError::Refused`].
    pub async fn set_limit(
        &self,
        scope: &LimitScope,
        currency: Currency,
        bounds: Bounds,
        by: &str,
        reason: &str,
    ) -> Result<(), DecideError> {
        let (by, reason) = said(by, reason)?;
        let (scope, scope_id) = scope.words();
        sqlx::query!(
            "INSERT INTO limits (scope, scope_id, currency, per_payment_minor, per_day_minor, per_day_count, set_by, reason)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            scope,
            scope_id,
            currency.code(),
            bounds.per_payment_minor,
            bounds.per_day_minor,
            bounds.per_day_count,
            by,
            reason,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// At most `limit` limits that count now, by scope.
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
                bounds: Bounds {
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

/// Counts a payment towards the limits of its account and tenant. Returns false, and counts nothing, where one of them does
/// not allow it. The account's row is locked by the caller.
pub(crate) async fn spend(tx: &mut PgConnection, locked: &Locked) -> Result<bool, LedgerError> {
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
    if limits.iter().any(|limit| limit.per_payment_minor.is_some_and(|most| amount_minor > most)) {
        return Ok(false);
    }
    let daily: Vec<_> = limits
        .into_iter()
        .filter(|limit| limit.per_day_minor.is_some() || limit.per_day_count.is_some())
        .collect();
    let Some(today) = daily.first().map(|limit| limit.today.clone()) else { return Ok(true) };
    let scopes: Vec<String> = daily.iter().map(|limit| limit.scope.clone()).collect();
    // The account's before the tenant's, always: nobody waits in a circle.
    sqlx::query!(
        "INSERT INTO limit_days (scope, scope_id, currency, day)
         SELECT scope, CASE scope WHEN 'account' THEN $2 ELSE $3 END, $4, $5::text::date
         FROM unnest($1::text[]) AS scopes (scope) ORDER BY scope
         ON CONFLICT DO NOTHING",
        &scopes,
        account,
        tenant,
        currency,
        today,
    )
    .execute(&mut *tx)
    .await?;
    let used = sqlx::query!(
        "SELECT scope, used_minor, used_count FROM limit_days
         WHERE scope = ANY ($1) AND scope_id = CASE scope WHEN 'account' THEN $2 ELSE $3 END AND currency = $4
           AND day = $5::text::date
         ORDER BY scope FOR UPDATE",
        &scopes,
        account,
        tenant,
        currency,
        today,
    )
    .fetch_all(&mut *tx)
    .await?;
    let is_over = |used: i64, more: i64, most: Option<i64>| {
        most.is_some_and(|most| used.checked_add(more).is_none_or(|sum| sum > most))
    };
    let over = daily.iter().any(|limit| {
        let used = used.iter().find(|used| used.scope == limit.scope);
        let (minor, count) = used.map_or((0, 0), |used| (used.used_minor, used.used_count));
        is_over(minor, amount_minor, limit.per_day_minor) || is_over(count, 1, limit.per_day_count)
    });
    if over {
        return Ok(false);
    }
    sqlx::query!(
        "WITH used AS (
             INSERT INTO limit_uses (payment_id, scope, scope_id, currency, day, amount_minor)
             SELECT $6, scope, CASE scope WHEN 'account' THEN $2 ELSE $3 END, $4, $5::text::date, $7
             FROM unnest($1::text[]) AS scopes (scope))
         UPDATE limit_days SET used_minor = used_minor + $7, used_count = used_count + 1
         WHERE scope = ANY ($1) AND scope_id = CASE scope WHEN 'account' THEN $2 ELSE $3 END AND currency = $4
           AND day = $5::text::date",
        &scopes,
        account,
        tenant,
        currency,
        today,
        locked.payment_id.as_str(),
        amount_minor,
    )
    .execute(tx)
    .await?;
    Ok(true)
}

/// Gives back what the payment had used of its day's limits. The account's row is locked by the caller.
pub(crate) async fn give_back(tx: &mut PgConnection, payment_id: &PaymentId) -> Result<(), LedgerError> {
    sqlx::query!(
        "WITH back AS (
             UPDATE limit_uses SET released_at = clock_timestamp() WHERE payment_id = $1 AND released_at IS NULL
             RETURNING scope, scope_id, currency, day, amount_minor)
         UPDATE limit_days d SET used_minor = d.used_minor - back.amount_minor, used_count = d.used_count - 1
         FROM back
         WHERE (d.scope, d.scope_id, d.currency, d.day) = (back.scope, back.scope_id, back.currency, back.day)",
        payment_id.as_str(),
    )
    .execute(tx)
    .await?;
    Ok(())
}
