//! Corrections: money moved after a payment's end. Each has its own key, is posted once, and closes the open exception it is
//! linked to.

use payment_protocol::action::Correction;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::keys;
use sqlx::PgConnection;

use super::{DecideError, DecisionRefusedError, DecisionStatus, charge, rows};
use crate::accounts::{self, InternalAccount, JournalPosting};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::transaction::LedgerTransaction;
use crate::{LedgerError, claims, writes};

/// The postings of a payment outside its hold.
struct PaymentPostings {
    /// Whether escrow was credited: the customer or the bank is charged.
    debited: bool,
    returned: bool,
    written_off: bool,
    /// Whether the bank bears the amount.
    has_claim: bool,
}

/// The ended payment of an open exception, under its lock.
pub(super) async fn lock_ended_payment(
    tx: &mut PgConnection,
    exception_id: i64,
) -> Result<LockedPayment, DecideError> {
    let Some(locked) = lock_exception(tx, exception_id).await? else {
        return Err(DecisionRefusedError::WithoutPayment(exception_id).into());
    };
    if locked.facts.state.end().is_none() {
        return Err(DecisionRefusedError::PaymentOpen(locked.facts.state).into());
    }
    Ok(locked)
}

/// Locks the payment of an open exception, and the exception; `None` if the exception has no payment.
pub(super) async fn lock_exception(
    tx: &mut PgConnection,
    exception_id: i64,
) -> Result<Option<LockedPayment>, DecideError> {
    let unknown = || DecisionRefusedError::UnknownException(exception_id);
    let payment_id =
        sqlx::query_scalar!("SELECT payment_id FROM exceptions WHERE exception_id = $1", exception_id)
            .fetch_optional(&mut *tx)
            .await?
            .ok_or_else(unknown)?;
    let locked = match payment_id {
        None => None,
        Some(id) => {
            let payment_id = PaymentId::new(id.as_str()).map_err(|_| LedgerError::Unreadable {
                id: exception_id.to_string(),
                column: "payment_id",
                value: id,
            })?;
            Some(lock_payment(tx, &payment_id).await?)
        }
    };
    let open = sqlx::query_scalar!(
        r#"SELECT closed_at IS NULL AS "open!" FROM exceptions WHERE exception_id = $1 FOR UPDATE"#,
        exception_id
    )
    .fetch_one(&mut *tx)
    .await?;
    if open { Ok(locked) } else { Err(DecisionRefusedError::ExceptionClosed(exception_id).into()) }
}

/// Whether the correction is allowed now.
pub(super) async fn check_allowed(
    tx: &mut PgConnection,
    locked: &LockedPayment,
    correction: Correction,
) -> Result<(), DecideError> {
    let PaymentPostings { debited, returned, has_claim, .. } = postings(tx, locked).await?;
    let refused = match correction {
        Correction::LateDebit if locked.facts.final_status == Some(FinalStatus::Returned) => {
            DecisionRefusedError::MoneyReturned
        }
        Correction::LateDebit if has_claim => match claims::why_not_payable(tx, locked).await? {
            None => return Ok(()),
            Some(reason) => DecisionRefusedError::NotCollectable(reason),
        },
        Correction::LateDebit if debited => DecisionRefusedError::AlreadyDebited,
        Correction::ReturnCredit if !debited => DecisionRefusedError::NotDebited,
        Correction::ReturnCredit if returned => DecisionRefusedError::AlreadyReturned,
        Correction::WriteOff if !has_claim => DecisionRefusedError::NothingOnClaims,
        Correction::LateDebit | Correction::ReturnCredit | Correction::WriteOff => return Ok(()),
    };
    Err(refused.into())
}

/// Books an allowed correction and closes decision and exception. Returns a description of the posting.
pub(super) async fn book(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    correction: Correction,
    decision_id: &DecisionId,
    exception_id: i64,
) -> Result<String, LedgerError> {
    let LockedPayment { payment_id, tx_id, source_account, money, .. } = locked;
    let key = keys::correction(tx_id, decision_id);
    let claims_account = InternalAccount::Claims.account(money.currency());
    let losses = InternalAccount::Losses.account(money.currency());
    let escrow = InternalAccount::Escrow.account(money.currency());
    let post = |kind, debit, credit| JournalPosting {
        key: key.as_str(),
        payment_id: Some(payment_id),
        kind,
        debit,
        credit,
        money: *money,
    };
    let detail = match correction {
        Correction::LateDebit if claims::is_open(tx, locked).await? => {
            writes::record_done(tx, key.as_str(), payment_id).await?;
            claims::collect(tx, locked, key.as_str()).await?;
            format!("{money} collected from the customer")
        }
        Correction::LateDebit => charge::late_debit(tx, locked, &key).await?,
        Correction::ReturnCredit => {
            writes::record_done(tx, key.as_str(), payment_id).await?;
            let PaymentPostings { written_off, has_claim, .. } = postings(tx, locked).await?;
            // The credit goes to the bearer of the amount: the bank, or the customer.
            let credit = match (has_claim, written_off) {
                (true, _) => &claims_account,
                (false, true) => &losses,
                (false, false) => source_account.as_str(),
            };
            accounts::post(tx, post("return_credit", &escrow, credit)).await?;
            format!("{money} credited back to {credit}")
        }
        Correction::WriteOff => {
            writes::record_done(tx, key.as_str(), payment_id).await?;
            accounts::post(tx, post("write_off", &losses, &claims_account)).await?;
            format!("{money} written off")
        }
    };
    close_exception(tx, exception_id, decision_id).await?;
    rows::close(tx, decision_id, DecisionStatus::Done, None, &detail).await?;
    let event = format!("{correction}: {detail}");
    rows::append_timeline(tx, payment_id, locked.facts.state, decision_id, &event).await?;
    Ok(detail)
}

/// Closes an exception by a decision.
pub(super) async fn close_exception(
    tx: &mut PgConnection,
    exception_id: i64,
    decision_id: &DecisionId,
) -> Result<(), LedgerError> {
    sqlx::query!(
        "UPDATE exceptions SET closed_at = clock_timestamp(), closed_by = $2 WHERE exception_id = $1",
        exception_id,
        decision_id.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

async fn postings(tx: &mut PgConnection, locked: &LockedPayment) -> Result<PaymentPostings, LedgerError> {
    Ok(sqlx::query_as!(
        PaymentPostings,
        r#"SELECT EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind IN ('debit', 'late_debit')) AS "debited!",
                  EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind = 'return_credit') AS "returned!",
                  EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind = 'write_off') AS "written_off!",
                  EXISTS (SELECT FROM claims WHERE payment_id = $1 AND closed_at IS NULL) AS "has_claim!""#,
        locked.payment_id.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?)
}
