//! Cancel: ends a pending transfer, leaves a tombstone for an unknown reference, or reports an earlier end.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::answers::{KeyReusedError, record_answer, recorded_answer};
use super::ids::TransferId;
use super::selector::TransferSelector;
use super::{Transfer, find, forget, lock};
use crate::state::Switch;
use crate::status::TransferStatus;

const OPERATION: &str = "cancel";

/// Code of the answer to a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CancelAnswerCode {
    Cancelled,
    AlreadyRejected,
    AlreadySettled,
    AlreadyReturned,
    NotFound,
    Refused,
    InProcess,
    CannotCancel,
}

/// The mock switch's answer to a cancel. It is recorded if it is definite or if the switch has sticky answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CancelAnswer {
    /// `None` from a switch without keys.
    pub(crate) reference: Option<String>,
    /// The switch's own id of the transfer, if the request named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transfer_id: Option<TransferId>,
    pub(crate) answer: CancelAnswerCode,
    /// Whether the switch has received the transfer.
    pub(crate) known: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transfer: Option<Transfer>,
}

/// An answer that changes nothing and is not repeated.
#[derive(Debug, Clone)]
pub(crate) struct IndefiniteAnswer {
    pub(crate) code: CancelAnswerCode,
    pub(crate) reason: Option<String>,
}

impl IndefiniteAnswer {
    pub(crate) fn without_reason(code: CancelAnswerCode) -> Self {
        Self { code, reason: None }
    }
}

/// Cancels the transfer, or repeats the answer recorded under this key. A request without a key, as a switch without
/// keys receives it, is not recorded. A `scripted` answer replaces the cancel.
pub(crate) async fn cancel(
    switch: &Switch,
    selector: &TransferSelector,
    key: Option<&str>,
    scripted: Option<IndefiniteAnswer>,
) -> Result<Result<CancelAnswer, KeyReusedError>, sqlx::Error> {
    let reference = selector.reference.as_str();
    let mut tx = lock(&switch.pool, reference).await?;
    let current = switch.settings.current();
    let (now, since, sticky) = (current.now(), current.remembered_since(), current.shape.sticky_answers);
    let known = find(&mut *tx, selector, since).await?;
    if let Some(key) = key
        && (sticky || scripted.is_none())
    {
        match recorded_answer(&mut tx, OPERATION, key, reference, known.as_ref(), sticky).await? {
            Err(reused) => return Ok(Err(reused)),
            Ok(Some(answer)) => return Ok(Ok(answer)),
            Ok(None) => {}
        }
    }
    // A cancel by the switch's own id leaves no tombstone: the switch assigns ids itself.
    let tombstone = current.shape.tombstone && selector.id.is_none();
    let indefinite = match scripted {
        Some(scripted) => Some(scripted),
        None if !current.shape.cancel => {
            Some(IndefiniteAnswer::without_reason(CancelAnswerCode::CannotCancel))
        }
        None if known.is_none() && !tombstone => {
            Some(IndefiniteAnswer::without_reason(CancelAnswerCode::NotFound))
        }
        None => None,
    };
    let (bound, answer) = match (indefinite, known) {
        (Some(indefinite), known) => (None, indefinite_answer(selector, indefinite, known)),
        (None, Some(transfer)) => {
            end_pending(&mut tx, selector, now).await?;
            (Some(transfer.id), definite_answer(selector, transfer))
        }
        (None, None) => {
            forget(&mut tx, reference, since).await?;
            (
                Some(leave_tombstone(&mut tx, reference, now).await?),
                answer(selector, CancelAnswerCode::Cancelled, None),
            )
        }
    };
    if let Some(key) = key
        && (sticky || bound.is_some())
    {
        record_answer(&mut tx, OPERATION, key, reference, bound, &answer).await?;
    }
    tx.commit().await?;
    Ok(Ok(answer))
}

fn indefinite_answer(
    selector: &TransferSelector,
    indefinite: IndefiniteAnswer,
    known: Option<Transfer>,
) -> CancelAnswer {
    // An answer NOT_FOUND shows no transfer.
    let known = known.filter(|_| indefinite.code != CancelAnswerCode::NotFound);
    CancelAnswer { reason: indefinite.reason, ..answer(selector, indefinite.code, known) }
}

/// The definite answer about a known transfer; a pending one has just been cancelled.
fn definite_answer(selector: &TransferSelector, mut transfer: Transfer) -> CancelAnswer {
    let code = match transfer.status {
        TransferStatus::Pending | TransferStatus::Cancelled => CancelAnswerCode::Cancelled,
        TransferStatus::Settled => CancelAnswerCode::AlreadySettled,
        TransferStatus::Rejected => CancelAnswerCode::AlreadyRejected,
        TransferStatus::Returned => CancelAnswerCode::AlreadyReturned,
    };
    if transfer.status == TransferStatus::Pending {
        transfer.status = TransferStatus::Cancelled;
    }
    CancelAnswer { reason: transfer.reason.clone(), ..answer(selector, code, Some(transfer)) }
}

/// An answer without a reason. A tombstone is not shown as a transfer.
fn answer(selector: &TransferSelector, code: CancelAnswerCode, transfer: Option<Transfer>) -> CancelAnswer {
    let transfer = transfer.filter(|transfer| !transfer.tombstone);
    let (reference, transfer_id) = (selector.visible_reference(), selector.id);
    CancelAnswer { reference, transfer_id, answer: code, known: transfer.is_some(), reason: None, transfer }
}

/// Cancels the pending transfers; a switch that does not deduplicate can have several under one reference.
async fn end_pending(
    db: &mut PgConnection,
    selector: &TransferSelector,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE transfers SET status = 'CANCELLED', finished_at = $2
         WHERE reference = $1 AND status = 'PENDING' AND ($3::bigint IS NULL OR id = $3)",
        selector.reference,
        now.to_sqlx(),
        selector.id.map(|id| id.0),
    )
    .execute(db)
    .await?;
    Ok(())
}

async fn leave_tombstone(
    db: &mut PgConnection,
    reference: &str,
    now: Timestamp,
) -> Result<TransferId, sqlx::Error> {
    sqlx::query_scalar!(
        r#"INSERT INTO transfers (reference, status, tombstone, deduplicated, received_at, finished_at)
           VALUES ($1, 'CANCELLED', true, true, $2, $2) RETURNING id AS "id: TransferId""#,
        reference,
        now.to_sqlx(),
    )
    .fetch_one(db)
    .await
}
