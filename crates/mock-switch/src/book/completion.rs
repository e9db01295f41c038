//! Completes transfers: due ones in batches, or one by an admin command. A transfer's end and its callbacks are one
//! transaction.

use std::time::Duration;

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;

use super::selector::TransferSelector;
use super::{callbacks, find, lock, page_lock};
use crate::plan;
use crate::settings::RejectCodes;
use crate::state::Switch;
use crate::status::TransferStatus;

/// Upper bound of transfers completed in one transaction.
pub(crate) const BATCH: i64 = 256;

/// A pending transfer that is due.
#[derive(Debug, Clone)]
struct DueTransfer {
    id: i64,
    reference: String,
    amount_minor: i64,
    currency: String,
    status: TransferStatus,
    reason: Option<String>,
}

/// A batch of due transfers.
pub(crate) struct DueBatch {
    /// How many transfers were completed.
    pub(crate) completed: usize,
    /// Time until the next transfer is due; zero if one is due that the batch has not, `None` if none is pending.
    pub(crate) next_due: Option<Duration>,
}

/// Completes one batch of due transfers.
pub(crate) async fn complete_due(switch: &Switch) -> Result<DueBatch, sqlx::Error> {
    let mut tx = switch.pool.begin().await?;
    // A locked row is being cancelled; the next batch includes it if it is still pending then.
    let due = sqlx::query_as!(
        DueTransfer,
        r#"SELECT id, reference, amount_minor AS "amount_minor!", currency AS "currency!",
                  due_status AS "status!: TransferStatus", due_reason AS reason
           FROM transfers
           WHERE status = 'PENDING' AND due_at <= clock_timestamp()
           ORDER BY due_at LIMIT $1
           FOR UPDATE SKIP LOCKED"#,
        BATCH,
    )
    .fetch_all(&mut *tx)
    .await?;
    if !due.is_empty() {
        complete(switch, &mut tx, &due).await?;
        tx.commit().await?;
    }
    let next_due_ms = sqlx::query_scalar!(
        r#"SELECT ceil(extract(epoch FROM min(due_at) - clock_timestamp()) * 1000)::bigint
           FROM transfers WHERE status = 'PENDING'"#
    )
    .fetch_one(&switch.pool)
    .await?;
    let next_due = next_due_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
    Ok(DueBatch { completed: due.len(), next_due })
}

/// Completes one pending transfer now; false if the reference has none.
pub(crate) async fn complete_now(
    switch: &Switch,
    reference: &str,
    status: TransferStatus,
    reason: Option<String>,
) -> Result<bool, sqlx::Error> {
    let mut tx = lock(&switch.pool, reference).await?;
    // The admin API also completes transfers beyond the retention.
    let known = find(&mut *tx, &TransferSelector::for_admin(reference), Timestamp::UNIX_EPOCH).await?;
    let pending = known.filter(|transfer| transfer.status == TransferStatus::Pending);
    let Some(transfer) = pending else { return Ok(false) };
    let (Some(amount_minor), Some(currency)) = (transfer.amount_minor, transfer.currency) else {
        return Ok(false);
    };
    let (id, reference) = (transfer.id.0, reference.to_owned());
    let due = DueTransfer { id, reference, amount_minor, currency, status, reason };
    complete(switch, &mut tx, &[due]).await?;
    tx.commit().await?;
    Ok(true)
}

/// Outcome of a return by the receiving bank.
pub(crate) enum ReturnOutcome {
    /// The money came back, and the switch reports it in a callback.
    Returned,
    /// The reference has no settled transfer whose money could come back.
    NotSettled,
    /// More than the transfer's amount would have come back.
    TooMuch,
    /// The id was used before.
    IdUsed,
}

/// Returns the money of a settled transfer, as the receiving bank may at any time. `part`: the id and the amount of a return by a message
/// of its own; without it the whole transfer is returned at once.
pub(crate) async fn return_now(
    switch: &Switch,
    reference: &str,
    reason: &str,
    part: Option<(&str, Option<i64>)>,
) -> Result<ReturnOutcome, sqlx::Error> {
    let mut tx = lock(&switch.pool, reference).await?;
    let known = find(&mut *tx, &TransferSelector::for_admin(reference), Timestamp::UNIX_EPOCH).await?;
    let settled = known.filter(|transfer| transfer.status == TransferStatus::Settled);
    let Some(transfer) = settled else { return Ok(ReturnOutcome::NotSettled) };
    let (Some(amount_minor), Some(currency)) = (transfer.amount_minor, transfer.currency.as_deref()) else {
        return Ok(ReturnOutcome::NotSettled);
    };
    let current = switch.settings.current();
    let now = current.now();
    let mut is_whole = true;
    let mut callback = None;
    if let Some((return_id, part_minor)) = part {
        let returned_minor = sqlx::query_scalar!(
            r#"SELECT coalesce(sum(amount_minor), 0)::bigint AS "minor!" FROM returns WHERE transfer_id = $1"#,
            transfer.id.0
        )
        .fetch_one(&mut *tx)
        .await?;
        let left_minor = amount_minor - returned_minor;
        let part_minor = part_minor.unwrap_or(left_minor);
        if part_minor > left_minor {
            return Ok(ReturnOutcome::TooMuch);
        }
        let inserted = sqlx::query!(
            "INSERT INTO returns (return_id, transfer_id, amount_minor, reason, returned_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT DO NOTHING",
            return_id,
            transfer.id.0,
            part_minor,
            reason,
            now.to_sqlx(),
        )
        .execute(&mut *tx)
        .await?;
        if inserted.rows_affected() == 0 {
            return Ok(ReturnOutcome::IdUsed);
        }
        is_whole = part_minor == left_minor;
        let returned =
            callbacks::Returned { reference, return_id, amount_minor: part_minor, currency, reason };
        callback = Some(callbacks::NewCallback::of_return(&returned, now)?);
    }
    if is_whole {
        sqlx::query!(
            "UPDATE transfers SET status = 'RETURNED', reason = $2, finished_at = $3 WHERE id = $1",
            transfer.id.0,
            reason,
            now.to_sqlx(),
        )
        .execute(&mut *tx)
        .await?;
    }
    if current.shape.calls_back() {
        let callback = match callback {
            Some(callback) => callback,
            None => {
                let status = callbacks::CallbackStatus::Returned;
                let reason = Some(reason);
                let end = callbacks::TransferEnd {
                    reference,
                    status,
                    amount_minor,
                    currency,
                    reason,
                    reason_code: None,
                    posting: None,
                };
                callbacks::NewCallback::new(&end, now)?
            }
        };
        callbacks::insert(&mut tx, &[callback]).await?;
    }
    tx.commit().await?;
    Ok(ReturnOutcome::Returned)
}

async fn complete(switch: &Switch, tx: &mut PgConnection, due: &[DueTransfer]) -> Result<(), sqlx::Error> {
    page_lock::lock_for_write(&mut *tx).await?;
    let current = switch.settings.current();
    let now = current.now();
    if current.shape.calls_back() {
        insert_callbacks(switch, &mut *tx, due, current.shape.reject_codes, now).await?;
    }
    let ids: Vec<_> = due.iter().map(|due| due.id).collect();
    let statuses: Vec<_> = due.iter().map(|due| due.status.as_str().to_owned()).collect();
    let reasons: Vec<_> = due.iter().map(|due| due.reason.clone()).collect();
    sqlx::query!(
        "UPDATE transfers t SET status = e.status, reason = e.reason, finished_at = $4
         FROM unnest($1::bigint[], $2::text[], $3::text[]) AS e (id, status, reason)
         WHERE t.id = e.id",
        &ids,
        &statuses,
        &reasons as _,
        now.to_sqlx(),
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Inserts the callbacks of the transfers' ends, as their behaviours require.
async fn insert_callbacks(
    switch: &Switch,
    tx: &mut PgConnection,
    due: &[DueTransfer],
    codes: RejectCodes,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let references: Vec<_> = due.iter().map(|due| due.reference.clone()).collect();
    let amounts: Vec<_> = due.iter().map(|due| Some(due.amount_minor)).collect();
    let sandboxed = switch.config.sandbox_amounts;
    let plans = plan::load_many(&mut *tx, &references, &amounts, sandboxed).await?;

    let mut new_callbacks = Vec::with_capacity(due.len());
    for (due, plan) in due.iter().zip(&plans) {
        let end = callbacks::TransferEnd {
            reference: &due.reference,
            status: if due.status == TransferStatus::Settled {
                callbacks::CallbackStatus::Success
            } else {
                callbacks::CallbackStatus::Failure
            },
            amount_minor: due.amount_minor,
            currency: &due.currency,
            reason: due.reason.as_deref(),
            reason_code: codes.of(due.status, due.reason.as_deref()),
            posting: plan.callback().posting.filter(|_| due.status == TransferStatus::Settled),
        };
        new_callbacks.extend(callbacks::for_end(&end, &plan.callback(), now)?);
    }
    callbacks::insert(tx, &new_callbacks).await
}
