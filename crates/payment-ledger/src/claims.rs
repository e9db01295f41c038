//! The bank's claims: what it has paid for a payment and nobody has paid back. An advance opens one, and money that left and was debited
//! from no customer. The database opens and closes them with the journal.

use iso_currency::Currency;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys;
use payment_protocol::money::Money;
use payment_protocol::rules;
use postgres_kit::Connection;

use crate::accounts::{self, InternalAccount, JournalPosting};
use crate::row_lock::LockedPayment;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, writes};

/// The open claims of one switch in one currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchClaims {
    /// The switch.
    pub switch: String,
    /// ISO 4217 code.
    pub currency: String,
    /// Number of claims.
    pub count: i64,
    /// Their sum, in minor units.
    pub amount_minor: i64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
}

impl Ledger {
    /// The open claims by switch and currency; every switch and currency of the claims of the last day is listed.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn claims_by_switch(&self) -> Result<Vec<SwitchClaims>, LedgerError> {
        Ok(sqlx::query_as!(
            SwitchClaims,
            r#"SELECT switch AS "switch!", currency AS "currency!", count(*) FILTER (WHERE closed_at IS NULL) AS "count!",
                      coalesce(sum(open_minor), 0)::bigint AS "amount_minor!",
                      coalesce(extract(epoch FROM statement_timestamp() - min(opened_at) FILTER (WHERE closed_at IS NULL)), 0)::bigint
                          AS "oldest_s!"
               FROM claims WHERE closed_at IS NULL OR closed_at > statement_timestamp() - interval '1 day'
               GROUP BY switch, currency ORDER BY switch, currency"#
        )
        .fetch_all(&self.pool)
        .await?)
    }
}

/// The sum of a switch's open claims in one currency, in minor units; on the caller's connection.
///
/// # Errors
/// [`LedgerError`].
pub async fn open_minor(
    connection: &mut Connection,
    switch: &SwitchName,
    currency: Currency,
) -> Result<i64, LedgerError> {
    Ok(sqlx::query_scalar!(
        r#"SELECT coalesce(sum(open_minor), 0)::bigint AS "minor!" FROM claims
           WHERE switch = $1 AND currency = $2 AND closed_at IS NULL"#,
        switch.as_str(),
        currency.code(),
    )
    .fetch_one(connection)
    .await?)
}

/// After the debit of a hold that the bank bears: collects the amount from the customer where the profile allows it and the account can
/// pay; otherwise the claim stands, with an exception. Returns in words what became of it.
pub(crate) async fn collect_or_keep(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
) -> Result<String, LedgerError> {
    let LockedPayment { payment_id, tx_id, money, .. } = locked;
    match why_not_collected(tx, locked).await? {
        None => {
            let key = keys::collect(tx_id);
            writes::record_done(tx, key.as_str(), payment_id).await?;
            collect(tx, locked, key.as_str(), *money).await?;
            Ok(collected_line(*money))
        }
        Some(reason) => keep(tx, locked, &reason).await,
    }
}

/// Leaves the claim to operators, with an exception. Returns in words what became of it.
pub(crate) async fn keep(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    reason: &str,
) -> Result<String, LedgerError> {
    let LockedPayment { payment_id, tx_id, money, .. } = locked;
    let key = keys::collect(tx_id);
    let detail = format!("{money} stays on the claims account: {reason}");
    tx.open_exception(Some(payment_id), ExceptionKind::DebitedToClaims, key.as_str(), &detail).await?;
    Ok(detail)
}

/// Why the amount is not collected from the customer after a late settlement, if so. Locks the account.
pub(crate) async fn why_not_collected(
    tx: &mut Connection,
    locked: &LockedPayment,
) -> Result<Option<String>, LedgerError> {
    if rules::collects(&locked.facts, &locked.profile) {
        why_not_payable(tx, locked, locked.money).await
    } else {
        Ok(Some("late settlements of this switch are not collected".into()))
    }
}

/// What became of a claim that was collected, in words.
pub(crate) fn collected_line(money: Money) -> String {
    format!("{money} collected from the customer, whose account had been restored")
}

/// Posts the collection of an open claim from the customer under `key`; the caller records the operation.
pub(crate) async fn collect(
    tx: &mut Connection,
    locked: &LockedPayment,
    key: &str,
    money: Money,
) -> Result<(), LedgerError> {
    let LockedPayment { payment_id, source_account, .. } = locked;
    let posting = JournalPosting {
        key,
        payment_id: Some(payment_id),
        kind: "collect",
        debit: source_account.as_str(),
        credit: &InternalAccount::Claims.account(money.currency()),
        money,
    };
    accounts::post(tx, posting).await
}

/// What is open of the payment's claim; `None` without an open claim.
pub(crate) async fn open_claim(
    tx: &mut Connection,
    locked: &LockedPayment,
) -> Result<Option<Money>, LedgerError> {
    let open_minor = sqlx::query_scalar!(
        "SELECT open_minor FROM claims WHERE payment_id = $1 AND closed_at IS NULL",
        locked.payment_id.as_str(),
    )
    .fetch_optional(tx)
    .await?;
    open_minor.map(|minor| locked.part(minor)).transpose()
}

/// Why the customer's account cannot pay `money`, if so. Locks the account.
pub(crate) async fn why_not_payable(
    tx: &mut Connection,
    locked: &LockedPayment,
    money: Money,
) -> Result<Option<String>, LedgerError> {
    if let Some(reason) = debit_bar(tx, locked).await? {
        return Ok(Some(reason));
    }
    let available_minor = sqlx::query_scalar!(
        "SELECT available_minor FROM accounts WHERE account_id = $1",
        locked.source_account.as_str(),
    )
    .fetch_one(tx)
    .await?;
    let is_short = available_minor.unwrap_or(0) < money.amount_minor();
    Ok(is_short.then(|| "insufficient_funds".into()))
}

/// Why the customer's account may not be debited, if so. Locks the account.
pub(crate) async fn debit_bar(
    tx: &mut Connection,
    locked: &LockedPayment,
) -> Result<Option<String>, LedgerError> {
    let account = sqlx::query!(
        "SELECT tenant_id, kind, status, currency FROM accounts WHERE account_id = $1 FOR UPDATE",
        locked.source_account.as_str(),
    )
    .fetch_optional(tx)
    .await?
    .filter(|account| account.tenant_id == locked.tenant_id && account.kind == "customer");
    // A payment without a reserve may have an account that was never checked.
    Ok(match account {
        None => Some("unknown_account".into()),
        Some(account) if account.currency != locked.money.currency().code() => Some("wrong_currency".into()),
        Some(account) if account.status != "active" => Some(format!("{}_account", account.status)),
        Some(_) => None,
    })
}
