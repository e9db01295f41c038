//! Cancelling by reference: the pending transfer ends, an unknown one gets a
//! tombstone, and an end that came first is told.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::{KeyReused, Status, Transfer, find, forget, lock, record, recorded};
use crate::switch::Switch;

const OPERATION: &str = "cancel";

/// What a cancel can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Verdict {
    Cancelled,
    AlreadyRejected,
    AlreadySettled,
    NotFound,
    Refused,
    InProcess,
    CannotCancel,
}

/// The answer as it is sent, and recorded if it is definite.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) reference: String,
    pub(crate) answer: Verdict,
    /// Whether a transfer under this reference ever came.
    pub(crate) known: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transfer: Option<Transfer>,
}

/// Cancels, or repeats what was answered under this key.
pub(crate) async fn cancel(
    switch: &Switch,
    reference: &str,
    key: &str,
) -> Result<Result<Answer, KeyReused>, sqlx::Error> {
    let mut tx = lock(&switch.pool, reference).await?;
    let current = switch.settings.current();
    let (now, since) = (current.now(), current.remembered_since());
    let known = find(&mut *tx, reference, since).await?;
    match recorded(&mut tx, OPERATION, key, reference, known.as_ref()).await? {
        Err(reused) => return Ok(Err(reused)),
        Ok(Some(answer)) => return Ok(Ok(answer)),
        Ok(None) => {}
    }
    if !current.shape.cancel {
        return Ok(Ok(indefinite(reference, Verdict::CannotCancel, known)));
    }
    let (transfer_id, answer) = match known {
        Some(transfer) => {
            // Several can be pending if the switch does not deduplicate.
            end_pending(&mut tx, reference, now).await?;
            (transfer.id, definite(transfer))
        }
        None if current.shape.tombstone => {
            forget(&mut tx, reference, since).await?;
            (leave_tombstone(&mut tx, reference, now).await?, tombstoned(reference))
        }
        None => return Ok(Ok(indefinite(reference, Verdict::NotFound, None))),
    };
    record(&mut tx, OPERATION, key, transfer_id, &answer).await?;
    tx.commit().await?;
    Ok(Ok(answer))
}

/// An answer that changes nothing and binds nobody.
pub(crate) fn indefinite(reference: &str, answer: Verdict, known: Option<Transfer>) -> Answer {
    Answer {
        reference: reference.to_owned(),
        answer,
        known: known.as_ref().is_some_and(|transfer| !transfer.tombstone),
        reason: None,
        transfer: known.filter(|transfer| !transfer.tombstone),
    }
}

fn tombstoned(reference: &str) -> Answer {
    indefinite(reference, Verdict::Cancelled, None)
}

/// The answer for a known transfer whose pending state has just been ended.
fn definite(mut transfer: Transfer) -> Answer {
    let answer = match transfer.status {
        Status::Pending | Status::Cancelled => Verdict::Cancelled,
        Status::Settled => Verdict::AlreadySettled,
        // Recalled money is as little on its way as rejected money.
        Status::Rejected | Status::Recalled => Verdict::AlreadyRejected,
    };
    if transfer.status == Status::Pending {
        transfer.status = Status::Cancelled;
    }
    Answer {
        reference: transfer.reference.clone(),
        answer,
        known: !transfer.tombstone,
        reason: transfer.reason.clone(),
        transfer: Some(transfer).filter(|transfer| !transfer.tombstone),
    }
}

async fn end_pending(db: &mut PgConnection, reference: &str, now: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE transfers SET status = 'CANCELLED', finished_at = $2
         WHERE reference = $1 AND status = 'PENDING'",
        reference,
        now.to_sqlx(),
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn leave_tombstone(db: &mut PgConnection, reference: &str, now: Timestamp) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar!(
        "INSERT INTO transfers (reference, status, tombstone, deduplicated, received_at, finished_at)
         VALUES ($1, 'CANCELLED', true, true, $2, $2) RETURNING id",
        reference,
        now.to_sqlx(),
    )
    .fetch_one(db)
    .await
}
