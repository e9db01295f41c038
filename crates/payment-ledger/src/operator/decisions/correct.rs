//! Corrections: how money moves after a payment's end. Each under a key of its own, once, linked to an open exception
//! of that payment, which it closes.

use payment_protocol::ids::{DecisionId, PaymentId};
use payment_protocol::keys;
use sqlx::PgConnection;

use super::{Correction, DecideError, DecisionRefused, DecisionStatus, charge, rows};
use crate::accounts::{self, Internal, Posting};
use crate::row_lock::{Locked, lock};
use crate::{LedgerError, writes};

/// What is booked of a payment that no hold tells.
struct Booked {
    /// Which account was debited for good: escrow's other side. None when none was.
    bearer: Option<String>,
    returned: bool,
    written_off: bool,
}

/// The ended payment that an open exception is of, under its lock.
pub(super) async fn linked(tx: &mut PgConnection, exception_id: i64) -> Result<Locked, DecideError> {
    let Some(locked) = open_exception(tx, exception_id).await? else {
        return Err(DecisionRefused::NoPayment(exception_id).into());
    };
    if locked.facts.state.end().is_none() {
        return Err(DecisionRefused::StillOpen(locked.facts.state).into());
    }
    Ok(locked)
}

/// Locks the payment of an open exception, and the exception itself; none where it is of no payment of ours.
pub(super) async fn open_exception(
    tx: &mut PgConnection,
    exception_id: i64,
) -> Result<Option<Locked>, DecideError> {
    let unknown = || DecisionRefused::UnknownException(exception_id);
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
            Some(lock(tx, &payment_id).await?)
        }
    };
    let open = sqlx::query_scalar!(
        r#"SELECT closed_at IS NULL AS "open!" FROM exceptions WHERE exception_id = $1 FOR UPDATE"#,
        exception_id
    )
    .fetch_one(&mut *tx)
    .await?;
    if open { Ok(locked) } else { Err(DecisionRefused::ExceptionClosed(exception_id).into()) }
}

/// Whether the correction may be made now.
pub(super) async fn allowed(
    tx: &mut PgConnection,
    locked: &Locked,
    correction: Correction,
) -> Result<(), DecideError> {
    let Booked { bearer, returned, written_off } = booked(tx, locked).await?;
    let on_claims = bearer.as_deref() == Some(&*Internal::Claims.account(locked.money.currency()));
    let refused = match correction {
        Correction::LateDebit if bearer.is_some() => DecisionRefused::AlreadyDebited,
        Correction::ReturnCredit if bearer.is_none() => DecisionRefused::NotDebited,
        Correction::ReturnCredit if returned => DecisionRefused::AlreadyReturned,
        Correction::WriteOff if !on_claims || returned || written_off => DecisionRefused::NothingOnClaims,
        Correction::LateDebit | Correction::ReturnCredit | Correction::WriteOff => return Ok(()),
    };
    Err(refused.into())
}

/// Books an allowed correction and closes decision and exception. Says in words what was booked.
pub(super) async fn book(
    tx: &mut PgConnection,
    locked: &Locked,
    correction: Correction,
    decision_id: &DecisionId,
    exception_id: i64,
) -> Result<String, LedgerError> {
    let Locked { payment_id, tx_id, source_account, money, .. } = locked;
    let key = keys::correction(tx_id, decision_id);
    let claims = Internal::Claims.account(money.currency());
    let losses = Internal::Losses.account(money.currency());
    let escrow = Internal::Escrow.account(money.currency());
    let post = |kind, debit, credit| Posting {
        key: key.as_str(),
        payment_id: Some(payment_id),
        kind,
        debit,
        credit,
        money: *money,
    };
    let detail = match correction {
        Correction::LateDebit => charge::late(tx, locked, &key).await?,
        Correction::ReturnCredit => {
            writes::done(tx, key.as_str(), payment_id).await?;
            let Booked { bearer, written_off, .. } = booked(tx, locked).await?;
            // It goes back to whoever bore it: the customer, or the bank.
            let credit = match bearer {
                Some(bearer) if bearer == claims => {
                    if written_off {
                        &losses
                    } else {
                        &claims
                    }
                }
                _ => source_account.as_str(),
            };
            accounts::post(tx, post("return_credit", &escrow, credit)).await?;
            format!("{money} given back to {credit}")
        }
        Correction::WriteOff => {
            writes::done(tx, key.as_str(), payment_id).await?;
            accounts::post(tx, post("write_off", &losses, &claims)).await?;
            format!("{money} written off")
        }
    };
    close_exception(tx, exception_id, decision_id).await?;
    rows::close(tx, decision_id, DecisionStatus::Done, None, &detail).await?;
    let told = format!("{correction}: {detail}");
    rows::tell(tx, payment_id, locked.facts.state, decision_id, &told).await?;
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

async fn booked(tx: &mut PgConnection, locked: &Locked) -> Result<Booked, LedgerError> {
    let id = locked.payment_id.as_str();
    let row = sqlx::query!(
        r#"SELECT (SELECT CASE kind WHEN 'debit' THEN $2 ELSE debit_account END FROM journal
                   WHERE payment_id = $1 AND kind IN ('debit', 'late_debit')) AS bearer,
                  EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind = 'return_credit') AS "returned!",
                  EXISTS (SELECT FROM journal WHERE payment_id = $1 AND kind = 'write_off') AS "written_off!""#,
        id,
        locked.source_account.as_str(),
    )
    .fetch_one(&mut *tx)
    .await?;
    Ok(Booked { bearer: row.bearer, returned: row.returned, written_off: row.written_off })
}
