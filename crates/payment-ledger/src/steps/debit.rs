//! Debit: holding -> escrow, once, after the switch's SUCCESS. Refused for good if the account was
//! frozen after the hold was opened: Path C (S0.10).

use payment_protocol::PaymentState;
use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::PaymentId;
use payment_protocol::keys;
use payment_protocol::port::DebitOutcome;
use payment_protocol::rules::{self, DebitRuling};

use crate::accounts::{self, InternalAccount};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// Debits the hold, once, under `{tx_id}:debit` (S0.7).
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn debit(&self, payment_id: &PaymentId) -> Result<DebitOutcome, LedgerError> {
        let mut tx = self.pool.begin().await?;
        let locked = lock_payment(&mut tx, payment_id).await?;
        match rules::debit(&locked.facts) {
            DebitRuling::Already => return Ok(DebitOutcome::Done),
            DebitRuling::Refused(reason) => return Ok(DebitOutcome::Refused { reason }),
            DebitRuling::Returned => return Ok(DebitOutcome::Returned),
            DebitRuling::NoHold => return Ok(DebitOutcome::NoHold),
            DebitRuling::Differs => return Ok(DebitOutcome::Differs),
            DebitRuling::NotConfirmed => return Ok(DebitOutcome::NotConfirmed),
            DebitRuling::Debit => {}
        }
        let LockedPayment { tx_id, source_account, money, .. } = &locked;
        locked.require_hold(Some(HoldStatus::Open))?;
        let key = keys::debit(tx_id);
        let account = sqlx::query!(
            "SELECT status FROM accounts WHERE account_id = $1 FOR SHARE",
            source_account.as_str()
        )
        .fetch_one(&mut *tx)
        .await?;
        if account.status != "active" {
            let reason = format!("{}_account", account.status);
            writes::record_refused(&mut tx, key.as_str(), payment_id, &reason).await?;
            let detail =
                format!("the switch settled the transfer, and the account cannot be debited: {reason}");
            writes::append_timeline(&mut tx, payment_id, PaymentState::Confirmed, &detail).await?;
            tx.commit().await?;
            return Ok(DebitOutcome::Refused { reason });
        }
        writes::record_done(&mut tx, key.as_str(), payment_id).await?;
        accounts::post(
            &mut tx,
            accounts::JournalPosting {
                key: key.as_str(),
                payment_id: Some(payment_id),
                kind: "debit",
                debit: &InternalAccount::Holding.account(money.currency()),
                credit: &InternalAccount::Escrow.account(money.currency()),
                money: *money,
            },
        )
        .await?;
        let detail = format!("transfer sent: {money} debited");
        writes::move_to_state(&mut tx, payment_id, PaymentState::Settled, &detail).await?;
        tx.commit().await?;
        Ok(DebitOutcome::Done)
    }
}
