//! Release: holding -> source, or to the claims account if the bank bears the hold; the compensation of reserve, and the end of a compensated payment. Its conditions are in
//! [`payment_protocol::rules::release`].

use payment_protocol::cause::Cause;
use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys::{self, CompensationKey};
use payment_protocol::rules::{self, Bearer, ReleaseRefusal, ReleaseRuling};
use payment_protocol::state::FinalState;
use postgres_kit::Connection;

use crate::accounts::{self, InternalAccount};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::switch::returns;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError, admission::limits, steps::reserve, writes};

/// Outcome of the release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseStepOutcome {
    /// Nothing is held and the payment has ended, for this cause (the first one recorded).
    Done(Cause),
    /// Nothing was released: the payment had already ended, without a hold.
    Ended(FinalState),
    /// The release is not allowed, for this reason. A defect of the caller: the payment needs an operator.
    Refused(ReleaseRefusal),
}

impl Ledger {
    /// Releases the hold, once, under `{tx_id}:comp-reserve`, and ends the payment for the first
    /// recorded cause (`cause` without one). Without a hold it writes the fence, so that a late
    /// reserve is refused.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn release(
        &self,
        payment_id: &PaymentId,
        cause: &Cause,
    ) -> Result<ReleaseStepOutcome, LedgerError> {
        let mut tx = LedgerTransaction::begin(&self.pool).await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        let outcome = release(&mut tx, &locked, cause).await?;
        tx.commit().await?;
        Ok(outcome)
    }
}

/// Releases the hold of a locked payment and ends the payment; see [`Ledger::release`].
pub(crate) async fn release(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    cause: &Cause,
) -> Result<ReleaseStepOutcome, LedgerError> {
    let payment_id = &locked.payment_id;
    let first = rules::first_cause(&locked.facts, cause);
    let key = keys::compensate_reserve(&locked.tx_id);
    match rules::release(&locked.facts) {
        ReleaseRuling::Already => return Ok(ReleaseStepOutcome::Done(first)),
        ReleaseRuling::Ended(end) => return Ok(ReleaseStepOutcome::Ended(end)),
        ReleaseRuling::Refused(refusal) => return Ok(ReleaseStepOutcome::Refused(refusal)),
        ReleaseRuling::Fence if locked.facts.reserve.is_none() => reserve::fence(tx, payment_id).await?,
        ReleaseRuling::Fence => {}
        ReleaseRuling::Release => release_hold(tx, locked, &key).await?,
    }
    writes::record_done(tx, key.as_str(), payment_id).await?;
    write_cause(tx, payment_id, &first).await?;
    let detail = format!("nothing was charged: {first}");
    writes::move_to_state(tx, payment_id, first.end().into(), &detail).await?;
    returns::close_kept(tx, locked).await?;
    Ok(ReleaseStepOutcome::Done(first))
}

/// Releases the hold to its bearer, under `key`; the caller records the operation.
pub(crate) async fn release_hold(
    tx: &mut Connection,
    locked: &LockedPayment,
    key: &CompensationKey,
) -> Result<(), LedgerError> {
    let LockedPayment { payment_id, source_account, money, .. } = locked;
    locked.require_hold(Some(HoldStatus::Open))?;
    let claims = InternalAccount::Claims.account(money.currency());
    let credit = match rules::bearer(&locked.facts) {
        Bearer::Customer => source_account.as_str(),
        Bearer::Bank => &claims,
    };
    accounts::post(
        tx,
        accounts::JournalPosting {
            key: key.as_str(),
            payment_id: Some(payment_id),
            kind: "release",
            debit: &InternalAccount::Holding.account(money.currency()),
            credit,
            money: *money,
        },
    )
    .await?;
    limits::release_uses(tx, &[payment_id.as_str()]).await
}

/// Records the cause of the compensation; the first one is kept.
pub(crate) async fn write_cause(
    tx: &mut Connection,
    payment_id: &PaymentId,
    cause: &Cause,
) -> Result<(), LedgerError> {
    let json = cause_as_json(cause)?;
    sqlx::query!(
        "UPDATE payments SET cause = coalesce(cause, $2) WHERE payment_id = $1",
        payment_id.as_str(),
        json,
    )
    .execute(&mut *tx)
    .await?;
    Ok(())
}

/// A cause as it is stored.
pub(crate) fn cause_as_json(cause: &Cause) -> Result<serde_json::Value, LedgerError> {
    let json = serde_json::to_value(cause).map_err(|error| LedgerError::Unreadable {
        id: "a cause".into(),
        column: "cause",
        value: error.to_string(),
    })?;
    Ok(writes::replace_nul_json(json))
}
