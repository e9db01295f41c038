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
    /// Payments that had to wait when they were last looked at, which is every hour.
    pub waiting: i64,
    /// When the last one was erased; `None` while some have to wait.
    pub done_at: Option<Timestamp>,
    /// Why the database refused one of the waiting payments.
    pub failure: Option<String>,
}

/// One step of an erasure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErasureStep {
    /// As many payments were taken, and erased unless they have to wait.
    Taken(i64),
    /// The database refused a payment, which is tried again an hour later. The others go on.
    Failed {
        /// The account.
        account: String,
        /// The payment; `None` if the account's payments could not be read.
        payment: Option<String>,
        /// The database's words.
        reason: String,
    },
}

/// Erasures that are not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenErasures {
    /// Those of which the database refused a payment.
    pub failing: i64,
    /// For how long the oldest has had payments that might have been erased, if nothing had been open of them, in seconds; 0 if none is open.
    pub overdue_s: i64,
}

impl Ledger {
    /// Goes on with an erasure, if one is due: takes the next payments of its account, and erases those that ended `ended_for` ago.
    /// `None` if no erasure is due.
    ///
    /// # Errors
    /// [`LedgerError`]; what was erased stays erased.
    pub async fn go_on_with_erasure(&self, ended_for: Duration) -> Result<Option<ErasureStep>, LedgerError> {
        let step = sqlx::query!(
            "SELECT taken_count, failed_account, failed_payment, failed_because FROM go_on_with_erasure($1 * interval '1 second', $2)",
            ended_for.as_secs_f64(),
            BATCH,
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(match (step.failed_account, step.failed_because) {
            (Some(account), Some(reason)) => {
                Some(ErasureStep::Failed { account, payment: step.failed_payment, reason })
            }
            _ => step.taken_count.map(ErasureStep::Taken),
        })
    }

    /// The erasures that are not done, where a payment may be erased `ended_for` after its end.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn open_erasures(&self, ended_for: Duration) -> Result<OpenErasures, LedgerError> {
        Ok(sqlx::query_as!(
            OpenErasures,
            r#"SELECT count(failure) AS "failing!",
                      greatest(coalesce(extract(epoch FROM clock_timestamp() - min(requested_at) - $1 * interval '1 second'), 0), 0)::bigint AS "overdue_s!"
               FROM erasures WHERE done_at IS NULL"#,
            ended_for.as_secs_f64(),
        )
        .fetch_one(&self.pool)
        .await?)
    }

    /// The erasure of an account, if operators have begun one.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn erasure(&self, account: &AccountId) -> Result<Option<Erasure>, LedgerError> {
        let row = sqlx::query!(
            "SELECT requested_at, payments, waiting, done_at, failure FROM erasures WHERE account_id = $1",
            account.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        Ok(row.map(|row| Erasure {
            requested_at: row.requested_at.to_jiff(),
            payments: row.payments,
            waiting: row.waiting,
            done_at: row.done_at.map(|at| at.to_jiff()),
            failure: row.failure,
        }))
    }
}
