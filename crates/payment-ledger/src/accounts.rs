//! Accounts: customers' with a balance row, internal ones (holding, escrow, funding, claims, losses)
//! whose balance is what was sealed of their entries, and the entries since.

use iso_currency::Currency;
use payment_protocol::ids::{AccountId, PaymentId, TenantId};
use payment_protocol::money::Money;
use sqlx::PgConnection;

use crate::{Ledger, LedgerError};

/// An internal account, one per currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Internal {
    /// What is set aside for payments under way.
    Holding,
    /// What left, seen from our books.
    Escrow,
    /// Where opening balances come from.
    Funding,
    /// What left and no customer was debited for: negative by what is still claimed.
    Claims,
    /// What was given up: negative by all that was lost.
    Losses,
}

impl Internal {
    const ALL: [Self; 5] = [Self::Holding, Self::Escrow, Self::Funding, Self::Claims, Self::Losses];

    /// The account's id for one currency.
    #[must_use]
    pub fn account(self, currency: Currency) -> String {
        let name = match self {
            Self::Holding => "holding",
            Self::Escrow => "escrow",
            Self::Funding => "funding",
            Self::Claims => "claims",
            Self::Losses => "losses",
        };
        format!("internal:{name}:{}", currency.code())
    }
}

/// A customer's account as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub account_id: String,
    /// ISO 4217 code.
    pub currency: String,
    /// `active`, `frozen` or `closed`.
    pub status: String,
    /// What can be spent, in minor units.
    pub available_minor: i64,
    /// What its open holds set aside, in minor units.
    pub held_minor: i64,
}

impl Account {
    /// The ledger balance: what can be spent and what is held.
    #[must_use]
    pub fn ledger_minor(&self) -> i64 {
        self.available_minor.saturating_add(self.held_minor)
    }
}

/// Status that an account can be set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    /// May be debited.
    Active,
    /// A legal freeze: may not be debited.
    Frozen,
}

impl Ledger {
    /// Opens a customer's account, and the internal accounts of its currency. Opening it again
    /// changes nothing.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_account(
        &self,
        tenant: &TenantId,
        account: &AccountId,
        currency: Currency,
    ) -> Result<(), LedgerError> {
        let mut tx = self.pool.begin().await?;
        for internal in Internal::ALL {
            sqlx::query!(
                "INSERT INTO accounts (account_id, tenant_id, kind, currency) VALUES ($1, 'internal', 'internal', $2)
                 ON CONFLICT DO NOTHING",
                internal.account(currency),
                currency.code(),
            )
            .execute(&mut *tx)
            .await?;
        }
        sqlx::query!(
            "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
             VALUES ($1, $2, 'customer', $3, 0) ON CONFLICT DO NOTHING",
            account.as_str(),
            tenant.as_str(),
            currency.code(),
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(())
    }

    /// Pays `money` in from the funding account, once under `key`. Returns whether it was done now.
    ///
    /// # Errors
    /// [`LedgerError`]; an unknown account or another currency is [`LedgerError::Refused`] or
    /// [`LedgerError::Unreadable`].
    pub async fn fund(&self, account: &AccountId, money: Money, key: &str) -> Result<bool, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let new = sqlx::query!(
            "INSERT INTO operations (operation_key, outcome) VALUES ($1, 'done') ON CONFLICT DO NOTHING",
            key,
        )
        .execute(&mut *tx)
        .await?;
        if new.rows_affected() == 0 {
            return Ok(false);
        }
        let row = sqlx::query!(
            "SELECT currency FROM accounts WHERE account_id = $1 AND kind = 'customer' FOR UPDATE",
            account.as_str()
        )
        .fetch_optional(&mut *tx)
        .await?
        .ok_or(LedgerError::Refused(sqlx::Error::RowNotFound))?;
        if row.currency != money.currency().code() {
            return Err(LedgerError::Unreadable {
                id: account.to_string(),
                column: "currency",
                value: row.currency,
            });
        }
        let funding = Internal::Funding.account(money.currency());
        let posting =
            Posting { key, payment_id: None, kind: "fund", debit: &funding, credit: account.as_str(), money };
        post(&mut tx, posting).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Freezes or unfreezes a customer's account. Returns whether it exists and is not closed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn set_account_status(
        &self,
        account: &AccountId,
        status: AccountStatus,
    ) -> Result<bool, LedgerError> {
        let word = match status {
            AccountStatus::Active => "active",
            AccountStatus::Frozen => "frozen",
        };
        let changed = sqlx::query!(
            "UPDATE accounts SET status = $2 WHERE account_id = $1 AND kind = 'customer' AND status <> 'closed'",
            account.as_str(),
            word,
        )
        .execute(&self.pool)
        .await?;
        Ok(changed.rows_affected() > 0)
    }

    /// One account of a tenant, with what its open holds set aside.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn account(
        &self,
        tenant: &TenantId,
        account: &AccountId,
    ) -> Result<Option<Account>, LedgerError> {
        let row = sqlx::query_as!(
            Account,
            r#"SELECT a.account_id, a.currency, a.status, coalesce(a.available_minor, 0) AS "available_minor!",
                      coalesce((SELECT sum(h.amount_minor) FROM holds h
                                WHERE h.account_id = a.account_id AND h.status = 'open'), 0)::bigint AS "held_minor!"
               FROM accounts a
               WHERE a.account_id = $1 AND a.tenant_id = $2 AND a.kind = 'customer'"#,
            account.as_str(),
            tenant.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row)
    }
}

/// What an internal account holds now, in minor units: exact at every instant, at the cost of the entries that are not
/// sealed yet. Zero where the currency is not used.
///
/// # Errors
/// [`LedgerError`].
pub async fn internal_balance(
    connection: &mut PgConnection,
    account: Internal,
    currency: Currency,
) -> Result<i64, LedgerError> {
    // One statement, one snapshot: an entry is either sealed or waits.
    let balance_minor = sqlx::query_scalar!(
        r#"SELECT (coalesce((SELECT balance_minor FROM sealed_balances WHERE account_id = $1), 0)
                   + coalesce((SELECT sum(CASE WHEN j.credit_account = $1 THEN j.amount_minor ELSE -j.amount_minor END)
                               FROM journal_unsealed u JOIN journal j USING (entry_id)
                               WHERE $1 IN (j.credit_account, j.debit_account)), 0))::bigint AS "balance_minor!""#,
        account.account(currency),
    )
    .fetch_one(connection)
    .await?;
    Ok(balance_minor)
}

/// ISO 4217 codes of tenants' customer accounts, one for each that is asked for, read on the caller's connection: a
/// transaction that asked the pool for a second one could wait for itself. None where there is no such account.
///
/// # Errors
/// [`LedgerError`].
pub async fn currencies_of(
    connection: &mut PgConnection,
    accounts: &[(&TenantId, &AccountId)],
) -> Result<Vec<Option<String>>, LedgerError> {
    let tenants: Vec<&str> = accounts.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let ids: Vec<&str> = accounts.iter().map(|(_, account)| account.as_str()).collect();
    let found = sqlx::query_scalar!(
        r#"SELECT a.currency AS "currency?"
           FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS asked (tenant_id, account_id, place)
           LEFT JOIN accounts a ON a.account_id = asked.account_id AND a.tenant_id = asked.tenant_id AND a.kind = 'customer'
           ORDER BY place"#,
        &tenants as &[&str],
        &ids as &[&str],
    )
    .fetch_all(connection)
    .await?;
    Ok(found)
}

/// One journal row.
pub(crate) struct Posting<'a> {
    pub(crate) key: &'a str,
    pub(crate) payment_id: Option<&'a PaymentId>,
    pub(crate) kind: &'a str,
    pub(crate) debit: &'a str,
    pub(crate) credit: &'a str,
    pub(crate) money: Money,
}

/// Posts to the journal. The database moves the customers' balances and opens or closes the hold with it, and refuses what
/// would make a balance negative.
pub(crate) async fn post(tx: &mut PgConnection, posting: Posting<'_>) -> Result<(), LedgerError> {
    sqlx::query!(
        "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        posting.key,
        posting.payment_id.map(PaymentId::as_str),
        posting.kind,
        posting.debit,
        posting.credit,
        posting.money.amount_minor(),
        posting.money.currency().code(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}
