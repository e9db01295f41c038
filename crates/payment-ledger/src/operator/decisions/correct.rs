//! Corrections: money moved after a payment's end. Each has its own key, is posted once, and closes the open exception it is
//! linked to. One that debits or credits the customer is an event: the payment's final event said otherwise.

use payment_protocol::action::Correction;
use payment_protocol::drift::Drift;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::keys;
use payment_protocol::returns::Charged;
use payment_protocol::rules::Bearer;
use postgres_kit::Connection;

use super::{DecideError, DecisionRefusedError, DecisionStatus, rows};
use crate::accounts::{self, InternalAccount, JournalPosting};
use crate::charged::{PaymentPostings, account_of, party_of, postings};
use crate::events::{self, BookedReturn};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::steps::debit;
use crate::switch::returns;
use crate::transaction::LedgerTransaction;
use crate::{LedgerError, claims, writes};

/// The ended payment of an open exception, under its lock.
pub(super) async fn lock_ended_payment(
    tx: &mut Connection,
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
    tx: &mut Connection,
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
    tx: &mut Connection,
    locked: &LockedPayment,
    correction: Correction,
) -> Result<(), DecideError> {
    let PaymentPostings { debited, returned_minor, has_claim, .. } = postings(tx, locked).await?;
    let refused = match correction {
        Correction::LateDebit if is_returned(tx, locked).await? => DecisionRefusedError::MoneyReturned,
        Correction::LateDebit if has_claim => {
            let open = claims::open_claim(tx, locked).await?.unwrap_or(locked.money);
            match claims::why_not_payable(tx, locked, open).await? {
                None => return Ok(()),
                Some(reason) => DecisionRefusedError::NotCollectable(reason),
            }
        }
        Correction::LateDebit if debited => DecisionRefusedError::AlreadyDebited,
        Correction::ReturnCredit if !debited => DecisionRefusedError::NotDebited,
        Correction::ReturnCredit if returned_minor >= locked.money.amount_minor() => {
            DecisionRefusedError::AlreadyReturned
        }
        Correction::WriteOff if !has_claim => DecisionRefusedError::NothingOnClaims,
        Correction::LateDebit | Correction::ReturnCredit | Correction::WriteOff => return Ok(()),
    };
    Err(refused.into())
}

/// Whether the money is known to have come back. The switch's statement, or an operator, may know better than its report.
async fn is_returned(tx: &mut Connection, locked: &LockedPayment) -> Result<bool, LedgerError> {
    if locked.facts.final_status != Some(FinalStatus::Returned) {
        return Ok(false);
    }
    let contradicting = [
        Drift::SettledNotDebited.as_str(),
        Drift::ReleasedButSettled.as_str(),
        ExceptionKind::OpenedByOperator.as_str(),
    ];
    Ok(sqlx::query_scalar!(
        r#"SELECT NOT EXISTS (SELECT FROM exceptions WHERE payment_id = $1 AND closed_at IS NULL AND kind = ANY ($2))
                  AS "returned!""#,
        locked.payment_id.as_str(),
        &contradicting as &[&str],
    )
    .fetch_one(&mut *tx)
    .await?)
}

/// Books an allowed correction and closes decision and exception. Returns a description of the posting.
pub(super) async fn book(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    correction: Correction,
    decision_id: &DecisionId,
    exception_id: i64,
) -> Result<String, LedgerError> {
    let LockedPayment { payment_id, tx_id, .. } = locked;
    let key = keys::correction(tx_id, decision_id);
    let claims = InternalAccount::Claims.account(locked.money.currency());
    let losses = InternalAccount::Losses.account(locked.money.currency());
    let escrow = InternalAccount::Escrow.account(locked.money.currency());
    let open_claim = claims::open_claim(tx, locked).await?;
    let detail = match (correction, open_claim) {
        (Correction::LateDebit, Some(open)) => {
            writes::record_done(tx, key.as_str(), payment_id).await?;
            claims::collect(tx, locked, key.as_str(), open).await?;
            events::append_charged(tx, locked, open.amount_minor()).await?;
            format!("{open} collected from the customer")
        }
        (Correction::LateDebit, None) => {
            let (bearer, detail) = debit::late_debit(tx, locked, &key).await?;
            if bearer == Bearer::Customer {
                events::append_charged(tx, locked, locked.money.amount_minor()).await?;
            }
            returns::book_kept(tx, locked).await?;
            detail
        }
        (Correction::ReturnCredit, _) => {
            writes::record_done(tx, key.as_str(), payment_id).await?;
            let charged = postings(tx, locked).await?;
            let left = locked.part(locked.money.amount_minor().saturating_sub(charged.returned_minor))?;
            let bearer = charged.bearer().unwrap_or(Charged::Customer);
            let credit = account_of(bearer, locked);
            let posting = JournalPosting {
                key: key.as_str(),
                payment_id: Some(payment_id),
                kind: "return_credit",
                debit: &escrow,
                credit: &credit,
                money: left,
            };
            accounts::post(tx, posting).await?;
            let booked = BookedReturn {
                digest: decision_id.digest(),
                amount_minor: left.amount_minor(),
                total_minor: locked.money.amount_minor(),
                credited: party_of(bearer),
                is_correction: true,
            };
            events::append_returned(tx, locked, &booked).await?;
            format!("{left} credited back to {credit}")
        }
        (Correction::WriteOff, open) => {
            let open = open.unwrap_or(locked.money);
            writes::record_done(tx, key.as_str(), payment_id).await?;
            let posting = JournalPosting {
                key: key.as_str(),
                payment_id: Some(payment_id),
                kind: "write_off",
                debit: &losses,
                credit: &claims,
                money: open,
            };
            accounts::post(tx, posting).await?;
            format!("{open} written off")
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
    tx: &mut Connection,
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
