//! The input of a payment's workflow: read from the payment's row, and compared with it again by the first step of each run.
//!
//! A process that can write to Temporal can start a workflow with any payment. Activities therefore take a payment id, and read the
//! amount, the accounts and the profile here.

use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::{AccountId, PaymentId, TxId};
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::{Payment, SwitchProfile};

use crate::profiles::{self, Profiles};
use crate::row_lock::{LockedPayment, lock_payment};
use crate::stored_id::read_id;
use crate::transaction::LedgerTransaction;
use crate::{Ledger, LedgerError};

/// Columns of a payment that make the input of its workflow.
pub(crate) struct PaymentRow {
    pub(crate) payment_id: String,
    pub(crate) source_account: String,
    pub(crate) amount_minor: i64,
    pub(crate) currency: String,
    pub(crate) profile_hash: Vec<u8>,
    pub(crate) resume_count: i32,
}

impl Ledger {
    /// The payment as it was accepted, with the number of its recovery workflows.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn accepted_payment(&self, payment_id: &PaymentId) -> Result<Payment, LedgerError> {
        self.accepted_and_decided(payment_id).await.map(|(payment, _)| payment)
    }

    /// As [`Ledger::accepted_payment`], and whether the payment has ended or a definite answer of the switch is recorded.
    pub(crate) async fn accepted_and_decided(
        &self,
        payment_id: &PaymentId,
    ) -> Result<(Payment, bool), LedgerError> {
        let row = sqlx::query!(
            r#"SELECT payment_id, source_account, amount_minor, currency, profile_hash, resume_count,
                      ended_at IS NOT NULL OR final_status IS NOT NULL AS "is_decided!"
               FROM payments WHERE payment_id = $1"#,
            payment_id.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?
        .ok_or_else(|| LedgerError::UnknownPayment(payment_id.to_string()))?;
        let profiles = profiles::read(&self.pool, std::iter::once(row.profile_hash.as_slice())).await?;
        let payment_row = PaymentRow {
            payment_id: row.payment_id,
            source_account: row.source_account,
            amount_minor: row.amount_minor,
            currency: row.currency,
            profile_hash: row.profile_hash,
            resume_count: row.resume_count,
        };
        Ok((payment(payment_row, &profiles)?, row.is_decided))
    }
}

/// Locks the row of a workflow's payment. `None` if the row is another payment or does not exist: an exception is opened, and the
/// caller commits it and does nothing else.
pub(crate) async fn lock_same(
    tx: &mut LedgerTransaction,
    payment: &Payment,
) -> Result<Option<LockedPayment>, LedgerError> {
    let (payment_id, kind) = (&payment.payment_id, ExceptionKind::WorkflowInputDiffers);
    let origin = payment_id.as_str();
    let locked = match lock_payment(tx, payment_id).await {
        Ok(locked) => locked,
        Err(LedgerError::UnknownPayment(_)) => {
            let detail = format!("a workflow was started with the payment {payment_id}, which is not stored");
            tx.open_exception(None, kind, origin, &detail).await?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let different = differences(&locked, payment);
    if different.is_empty() {
        return Ok(Some(locked));
    }
    let detail = format!("a workflow was started with a payment that differs in {}", different.join(", "));
    tx.open_exception(Some(payment_id), kind, origin, &detail).await?;
    Ok(None)
}

/// What differs between a workflow's payment and the ledger's, in words. How often the payment was resumed is not compared: an older
/// run may make its first step late.
pub(crate) fn differences(locked: &LockedPayment, payment: &Payment) -> Vec<&'static str> {
    let differences = [
        ("transaction id", locked.tx_id != payment.tx_id),
        ("amount", locked.money != payment.money),
        ("source account", locked.source_account != payment.source_account),
        ("profile", *locked.profile != payment.profile),
    ];
    differences.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
}

/// The payment of a locked row, for a run with this number of recovery workflows.
pub(crate) fn of_locked(locked: &LockedPayment, resume: u32) -> Payment {
    Payment {
        payment_id: locked.payment_id.clone(),
        tx_id: locked.tx_id.clone(),
        money: locked.money,
        source_account: locked.source_account.clone(),
        profile: SwitchProfile::clone(&locked.profile),
        resume,
    }
}

/// The payment of a row.
pub(crate) fn payment(row: PaymentRow, profiles: &Profiles) -> Result<Payment, LedgerError> {
    let unreadable = |column: &'static str, value: String| LedgerError::Unreadable {
        id: row.payment_id.clone(),
        column,
        value,
    };
    let payment_id = read_id(&row.payment_id)?;
    Ok(Payment {
        tx_id: TxId::derive(&payment_id),
        money: parse_currency(&row.currency)
            .and_then(|currency| Money::from_minor(row.amount_minor, currency))
            .map_err(|error| unreadable("amount_minor", error.to_string()))?,
        source_account: AccountId::new(row.source_account.as_str())
            .map_err(|error| unreadable("source_account", error.to_string()))?,
        profile: SwitchProfile::clone(&*profiles.of(&row.payment_id, &row.profile_hash)?),
        resume: u32::try_from(row.resume_count)
            .map_err(|error| unreadable("resume_count", error.to_string()))?,
        payment_id,
    })
}
