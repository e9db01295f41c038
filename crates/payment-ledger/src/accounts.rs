//! Accounts. A customer account has a stored balance; the balance of an internal account (holding, escrow, funding,
//! claims, losses) is its sealed balance plus its unsealed entries.

use std::collections::HashMap;

use iso_currency::Currency;
use payment_protocol::ids::{AccountId, PaymentId, TenantId};
use payment_protocol::money::Money;
use postgres_kit::Connection;

use crate::group_commit::changes::Posting;
use crate::row_lock::LockedPayment;
use crate::{Ledger, LedgerError};

/// An internal account; one per currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InternalAccount {
    /// The holding account: amounts of open holds.
    Holding,
    /// The escrow account: money that left the bank.
    Escrow,
    /// The funding account: the source of opening balances.
    Funding,
    /// The claims account: advances to customers, and money that left and was debited from no customer; negative by the amount still
    /// claimed.
    Claims,
    /// The losses account: claims given up; negative by the total loss.
    Losses,
}

impl InternalAccount {
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

/// A customer account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The account's id.
    pub account_id: String,
    /// ISO 4217 code.
    pub currency: String,
    /// `active`, `frozen` or `closed`.
    pub status: String,
    /// Available balance, in minor units.
    pub available_minor: i64,
    /// Sum of the open holds that the customer bears, in minor units.
    pub held_minor: i64,
}

impl Account {
    /// The ledger balance: available plus held.
    #[must_use]
    pub fn ledger_minor(&self) -> i64 {
        self.available_minor.saturating_add(self.held_minor)
    }
}

/// Status that an operator can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountStatus {
    /// The account may be debited.
    Active,
    /// A legal freeze: may not be debited.
    Frozen,
}

impl Ledger {
    /// Opens a customer account, and the internal accounts of its currency. Opening it again changes
    /// nothing.
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
        for internal in InternalAccount::ALL {
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

    /// Credits `money` from the funding account, once under `key`. Returns whether it was posted now.
    ///
    /// # Errors
    /// [`LedgerError`]; an unknown account is [`LedgerError::Refused`], another currency
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
        let funding = InternalAccount::Funding.account(money.currency());
        let posting = JournalPosting {
            key,
            payment_id: None,
            kind: "fund",
            debit: &funding,
            credit: account.as_str(),
            money,
        };
        post(&mut tx, posting).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Freezes or unfreezes a customer account. Returns false if it does not exist or is closed.
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

    /// One account of a tenant with its held amount. `None` if the tenant has no such account.
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
                                WHERE h.account_id = a.account_id AND h.status = 'open'
                                  AND h.borne_by_bank_since IS NULL), 0)::bigint AS "held_minor!"
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

/// The current balance of an internal account, in minor units: exact, at the cost of reading the unsealed entries. Zero if
/// the currency is not used.
///
/// # Errors
/// [`LedgerError`].
pub async fn internal_balance(
    connection: &mut Connection,
    account: InternalAccount,
    currency: Currency,
) -> Result<i64, LedgerError> {
    // One statement, one snapshot: an entry is either sealed or unsealed.
    let balance_minor = sqlx::query_scalar!(
        r#"SELECT (coalesce((SELECT balance_minor FROM sealed_balances WHERE account_id = $1), 0)
                   + coalesce((SELECT sum(CASE WHEN j.credit_account = $1 THEN j.amount_minor ELSE -j.amount_minor END)
                               FROM journal_unsealed u CROSS JOIN LATERAL (SELECT * FROM journal WHERE entry_id = u.entry_id LIMIT 1) j
                               WHERE $1 IN (j.credit_account, j.debit_account)), 0))::bigint AS "balance_minor!""#,
        account.account(currency),
    )
    .fetch_one(connection)
    .await?;
    Ok(balance_minor)
}

/// ISO 4217 codes of customer accounts, in the order of `accounts`; `None` if the tenant has no such account. Reads on the
/// caller's connection: taking a second one from the pool inside a transaction could deadlock on the pool.
///
/// # Errors
/// [`LedgerError`].
pub async fn account_currencies(
    connection: &mut Connection,
    accounts: &[(&TenantId, &AccountId)],
) -> Result<Vec<Option<String>>, LedgerError> {
    let tenants: Vec<&str> = accounts.iter().map(|(tenant, _)| tenant.as_str()).collect();
    let ids: Vec<&str> = accounts.iter().map(|(_, account)| account.as_str()).collect();
    let currencies = sqlx::query_scalar!(
        r#"SELECT a.currency AS "currency?"
           FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS requested (tenant_id, account_id, ordinal)
           LEFT JOIN accounts a ON a.account_id = requested.account_id AND a.tenant_id = requested.tenant_id AND a.kind = 'customer'
           ORDER BY ordinal"#,
        &tenants as &[&str],
        &ids as &[&str],
    )
    .fetch_all(connection)
    .await?;
    Ok(currencies)
}

/// A customer account under its lock.
pub(crate) struct LockedAccount {
    pub(crate) tenant_id: String,
    pub(crate) currency: String,
    pub(crate) is_active: bool,
    pub(crate) available_minor: i64,
    /// Whether a limit may bound the account's payments.
    pub(crate) may_be_limited: bool,
}

impl LockedAccount {
    /// Whether the account is the payment's and has its amount.
    pub(crate) fn can_pay(&self, locked: &LockedPayment) -> bool {
        self.tenant_id == locked.tenant_id
            && self.currency == locked.money.currency().code()
            && self.available_minor >= locked.money.amount_minor()
    }

    /// Follows an entry of the same transaction, so that the next step of the account sees what is left.
    pub(crate) fn follow(&mut self, posting: &Posting, amount_minor: i64) {
        if matches!(posting.kind, "reserve" | "collect") {
            self.available_minor = self.available_minor.saturating_sub(amount_minor);
        }
    }
}

/// Locks those of the customer accounts that no other transaction has locked. It waits for no lock.
pub(crate) async fn lock_unlocked(
    tx: &mut Connection,
    accounts: &[&str],
) -> Result<HashMap<String, LockedAccount>, LedgerError> {
    if accounts.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query!(
        r#"SELECT a.account_id, a.tenant_id, a.currency, a.status, coalesce(a.available_minor, 0) AS "available_minor!",
                  EXISTS (SELECT FROM limits l WHERE l.scope = 'account' AND l.scope_id = a.account_id)
                  OR EXISTS (SELECT FROM limits l WHERE l.scope = 'tenant' AND l.scope_id = a.tenant_id) AS "may_be_limited!"
           FROM accounts a WHERE a.account_id = ANY ($1) AND a.kind = 'customer' FOR NO KEY UPDATE OF a SKIP LOCKED"#,
        accounts as &[&str],
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let account = LockedAccount {
                tenant_id: row.tenant_id,
                currency: row.currency,
                is_active: row.status == "active",
                available_minor: row.available_minor,
                may_be_limited: row.may_be_limited,
            };
            (row.account_id, account)
        })
        .collect())
}

/// One journal entry to post.
pub(crate) struct JournalPosting<'a> {
    pub(crate) key: &'a str,
    pub(crate) payment_id: Option<&'a PaymentId>,
    pub(crate) kind: &'a str,
    pub(crate) debit: &'a str,
    pub(crate) credit: &'a str,
    pub(crate) money: Money,
}

/// Posts to the journal. The database moves the customer balances and opens or closes the hold with it, and refuses an
/// entry that would make a balance negative.
pub(crate) async fn post(tx: &mut Connection, posting: JournalPosting<'_>) -> Result<(), LedgerError> {
    debug_assert_ne!(posting.debit, posting.credit, "{}: an entry needs two accounts", posting.key);
    debug_assert_eq!(
        posting.kind == "fund",
        posting.payment_id.is_none(),
        "{}: only fund has no payment",
        posting.key
    );
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
