//! Who bears a debit that people decided: what is held, the customer, or the bank's own claims account, which never
//! keeps a payment that left from being booked.

use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::keys::{self, StepKey};
use sqlx::PgConnection;

use crate::LedgerError;
use crate::accounts::{self, Internal, Posting};
use crate::row_lock::Locked;
use crate::steps::release::give_back;
use crate::writes::{self, Exception};

/// Debits a payment that stands, under the decision's own key. Says in words what was booked.
pub(super) async fn by_decision(
    tx: &mut PgConnection,
    locked: &Locked,
    decision_id: &DecisionId,
) -> Result<String, LedgerError> {
    let Locked { payment_id, tx_id, money, .. } = locked;
    let key = keys::debit_by_decision(tx_id, decision_id);
    let held = locked.facts.hold == Some(HoldStatus::Open);
    let barred = barred(tx, locked).await?;
    if held && barred.is_none() {
        writes::done(tx, key.as_str(), payment_id).await?;
        let posting = Posting {
            key: key.as_str(),
            payment_id: Some(payment_id),
            kind: "debit",
            debit: &Internal::Holding.account(money.currency()),
            credit: &Internal::Escrow.account(money.currency()),
            money: *money,
        };
        accounts::post(tx, posting).await?;
        return Ok(format!("{money} debited"));
    }
    if held {
        let undo = keys::compensate_reserve_by_decision(tx_id, decision_id);
        writes::done(tx, undo.as_str(), payment_id).await?;
        give_back(tx, locked, &undo).await?;
    }
    late(tx, locked, &key).await
}

/// Debits what left and no hold covers: the customer where the account may be debited and has the funds, else the
/// claims account, which is an exception. Says in words what was booked.
pub(super) async fn late(
    tx: &mut PgConnection,
    locked: &Locked,
    key: &StepKey,
) -> Result<String, LedgerError> {
    let Locked { payment_id, source_account, money, .. } = locked;
    writes::done(tx, key.as_str(), payment_id).await?;
    let shortfall = match barred(tx, locked).await? {
        Some(reason) => Some(reason),
        None => short_of_funds(tx, locked).await?,
    };
    let escrow = Internal::Escrow.account(money.currency());
    let claims = Internal::Claims.account(money.currency());
    let debit = if shortfall.is_none() { source_account.as_str() } else { claims.as_str() };
    let posting = Posting {
        key: key.as_str(),
        payment_id: Some(payment_id),
        kind: "late_debit",
        debit,
        credit: &escrow,
        money: *money,
    };
    match &shortfall {
        None => {
            accounts::post(tx, posting).await?;
            Ok(format!("{money} debited late"))
        }
        Some(reason) => {
            accounts::post(tx, posting).await?;
            let detail = format!("{money} charged to the claims account: {reason}");
            writes::exception(tx, Some(payment_id), Exception::DebitedToClaims, key.as_str(), &detail)
                .await?;
            Ok(detail)
        }
    }
}

/// Why the customer's account may not be debited, if so. Locks it.
async fn barred(tx: &mut PgConnection, locked: &Locked) -> Result<Option<String>, LedgerError> {
    let account = sqlx::query!(
        "SELECT tenant_id, kind, status, currency FROM accounts WHERE account_id = $1 FOR UPDATE",
        locked.source_account.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?
    .filter(|account| account.tenant_id == locked.tenant_id && account.kind == "customer");
    // What was never reserved may never have been looked at.
    Ok(match account {
        None => Some("unknown_account".into()),
        Some(account) if account.currency != locked.money.currency().code() => Some("wrong_currency".into()),
        Some(account) if account.status != "active" => Some(format!("{}_account", account.status)),
        Some(_) => None,
    })
}

async fn short_of_funds(tx: &mut PgConnection, locked: &Locked) -> Result<Option<String>, LedgerError> {
    let available_minor = sqlx::query_scalar!(
        "SELECT available_minor FROM accounts WHERE account_id = $1",
        locked.source_account.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    let short = available_minor.unwrap_or(0) < locked.money.amount_minor();
    Ok(short.then(|| "insufficient_funds".into()))
}
