//! Release: holding -> source, the undo of reserve, and the end of a payment that was undone. What
//! opens this door is in [`payment_protocol::rules::release`].

use payment_protocol::cause::Cause;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys::{self, CompensationKey};
use payment_protocol::rules::{self, ReleaseRefusal, ReleaseRuling};
use payment_protocol::state::FinalState;
use sqlx::PgConnection;

use crate::accounts::{self, Internal};
use crate::row_lock::{Locked, lock};
use crate::{Ledger, LedgerError, admission::limits, steps::reserve, writes};

/// Outcome of release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Nothing is held, the payment has ended, for this cause (the first one recorded).
    Done(Cause),
    /// There was nothing to release: the payment had already ended, without a hold.
    Ended(FinalState),
    /// Not allowed. A defect of the caller: the payment must stand before a person.
    Refused(ReleaseRefusal),
}

impl Ledger {
    /// Gives back what is held, once, under `{tx_id}:comp-reserve`, and ends the payment for the
    /// first recorded cause (`cause` if there is none). Where nothing is held it writes the fence
    /// that makes a late reserve refuse.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn release(&self, payment_id: &PaymentId, cause: &Cause) -> Result<Release, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock(&mut tx, payment_id).await?;
        let first = rules::first_cause(&locked.facts, cause);
        let key = keys::compensate_reserve(&locked.tx_id);
        match rules::release(&locked.facts) {
            ReleaseRuling::Already => return Ok(Release::Done(first)),
            ReleaseRuling::Ended(end) => return Ok(Release::Ended(end)),
            ReleaseRuling::Refused(refusal) => return Ok(Release::Refused(refusal)),
            ReleaseRuling::Fence if locked.facts.reserve.is_none() => {
                reserve::fence(&mut tx, payment_id).await?
            }
            ReleaseRuling::Fence => {}
            ReleaseRuling::Release => give_back(&mut tx, &locked, &key).await?,
        }
        writes::done(&mut tx, key.as_str(), payment_id).await?;
        write_cause(&mut tx, payment_id, &first).await?;
        let detail = format!("nothing was charged: {first}");
        writes::state(&mut tx, payment_id, first.end().into(), &detail).await?;
        tx.commit().await?;
        Ok(Release::Done(first))
    }
}

/// Gives back what is held, under `key`, whose operation is the caller's to record.
pub(crate) async fn give_back(
    tx: &mut PgConnection,
    locked: &Locked,
    key: &CompensationKey,
) -> Result<(), LedgerError> {
    let Locked { payment_id, source_account, money, .. } = locked;
    accounts::post(
        tx,
        accounts::Posting {
            key: key.as_str(),
            payment_id: Some(payment_id),
            kind: "release",
            debit: &Internal::Holding.account(money.currency()),
            credit: source_account.as_str(),
            money: *money,
        },
    )
    .await?;
    limits::give_back(tx, payment_id).await
}

/// Records the cause that turned the payment round; the first one stands.
pub(crate) async fn write_cause(
    tx: &mut PgConnection,
    payment_id: &PaymentId,
    cause: &Cause,
) -> Result<(), LedgerError> {
    let json = serde_json::to_value(cause).map_err(|error| LedgerError::Unreadable {
        id: payment_id.to_string(),
        column: "cause",
        value: error.to_string(),
    })?;
    let json = writes::storable_json(json);
    sqlx::query!(
        "UPDATE payments SET cause = coalesce(cause, $2) WHERE payment_id = $1",
        payment_id.as_str(),
        json,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}
