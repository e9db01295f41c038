//! Erasure of personal fields: operators begin it by a change, for the payments that an account has made until then; background-worker goes on
//! with it. A payment is erased some time after its end, and once nothing of it is open.

use std::time::Duration;

use jiff::Timestamp;
use payment_protocol::ids::AccountId;

use crate::{Ledger, LedgerError};

/// Payments of one transaction.
const BATCH: i32 = 500;

/// The erasure of an account's payments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// Payments accepted before then are erased.
    pub requested_at: Timestamp,
    /// Payments erased so far.
    pub payments: i64,
    /// When the last one was erased; `None` while some have to wait.
    pub done_at: Option<Timestamp>,
}

impl Ledger {
    /// Goes on with an erasure, if one is due: takes the next payments of its account, and erases those that ended `ended_for` ago.
    /// Returns how many it took; `None` if no erasure is due.
    ///
    /// # Errors
    /// [`LedgerError`]; what was erased stays erased.
    pub async fn go_on_with_erasure(&self, ended_for: Duration) -> Result<Option<i64>, LedgerError> {
        let taken = sqlx::query_scalar!(
            "SELECT go_on_with_erasure($1 * interval '1 second', $2)",
            ended_for.as_secs_f64(),
            BATCH,
        );
        Ok(taken.fetch_one(&self.pool).await?)
    }

    /// The erasure of an account, if operators have begun one.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn erasure(&self, account: &AccountId) -> Result<Option<Erasure>, LedgerError> {
        let row = sqlx::query!(
            "SELECT requested_at, payments, done_at FROM erasures WHERE account_id = $1",
            account.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| Erasure {
            requested_at: row.requested_at.to_jiff(),
            payments: row.payments,
            done_at: row.done_at.map(|at| at.to_jiff()),
        }))
    }
}
