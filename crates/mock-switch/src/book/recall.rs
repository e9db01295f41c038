//! Recall: returns the money of a settled transfer. Unlike a cancel it never stops a pending transfer, and its refusal is
//! final. On most rails the receiving bank answers days later.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};

use super::answers::{KeyReusedError, record_answer, recorded_answer};
use super::callbacks::{self, NewCallback, RecallAnswered};
use super::ids::TransferId;
use super::selector::TransferSelector;
use super::{Transfer, find, lock};
use crate::state::Switch;
use crate::status::TransferStatus;

const OPERATION: &str = "recall";

/// Code of the answer to a recall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum RecallAnswerCode {
    Recalled,
    Refused,
    InProcess,
    NotSettled,
    NotFound,
    CannotRecall,
}

/// The answer to a recall; recorded if it is `RECALLED` or `REFUSED`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RecallAnswer {
    /// `None` from a switch without keys.
    pub(crate) reference: Option<String>,
    /// The switch's own id of the transfer, if the request named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transfer_id: Option<TransferId>,
    pub(crate) answer: RecallAnswerCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl RecallAnswer {
    pub(crate) fn without_reason(selector: &TransferSelector, answer: RecallAnswerCode) -> Self {
        Self { reference: selector.visible_reference(), transfer_id: selector.id, answer, reason: None }
    }
}

/// Why a recall is refused as a request.
#[derive(Debug)]
pub(crate) enum RecallConflict {
    /// The key was used for another reference.
    KeyReused,
    /// This switch takes one recall of a transfer.
    Repeated,
}

impl From<KeyReusedError> for RecallConflict {
    fn from(_: KeyReusedError) -> Self {
        Self::KeyReused
    }
}

/// Recalls the transfer, or repeats the answer recorded under this key. `refusal` is the reason with which a script
/// refuses the first recall of a settled transfer.
pub(crate) async fn recall(
    switch: &Switch,
    selector: &TransferSelector,
    key: Option<&str>,
    refusal: Option<String>,
) -> Result<Result<RecallAnswer, RecallConflict>, sqlx::Error> {
    let mut tx = lock(&switch.pool, &selector.reference).await?;
    let current = switch.settings.current();
    let known = find(&mut *tx, selector, current.remembered_since()).await?;
    if let Some(key) = key {
        match recorded_answer(&mut tx, OPERATION, key, &selector.reference, known.as_ref(), false).await? {
            Err(reused) => return Ok(Err(reused.into())),
            Ok(Some(answer)) => return Ok(Ok(answer)),
            Ok(None) => {}
        }
    }
    if !current.shape.recall {
        return Ok(Ok(RecallAnswer::without_reason(selector, RecallAnswerCode::CannotRecall)));
    }
    let Some(transfer) = known else {
        return Ok(Ok(RecallAnswer::without_reason(selector, RecallAnswerCode::NotFound)));
    };
    if current.shape.one_recall && transfer.recall_asked {
        return Ok(Err(RecallConflict::Repeated));
    }
    if transfer.status == TransferStatus::Settled {
        sqlx::query!(
            "UPDATE transfers SET recall_asked_at = coalesce(recall_asked_at, $2) WHERE id = $1",
            transfer.id.0,
            current.now().to_sqlx(),
        )
        .execute(&mut *tx)
        .await?;
        if current.shape.recall_takes_time && transfer.recall_refusal.is_none() && refusal.is_none() {
            tx.commit().await?;
            return Ok(Ok(RecallAnswer::without_reason(selector, RecallAnswerCode::InProcess)));
        }
    }
    let answer = decide(selector, &transfer, refusal);
    match answer.answer {
        RecallAnswerCode::Recalled if transfer.status == TransferStatus::Settled => {
            sqlx::query!(
                "UPDATE transfers SET status = 'RETURNED', finished_at = $2 WHERE id = $1",
                transfer.id.0,
                current.now().to_sqlx(),
            )
            .execute(&mut *tx)
            .await?;
        }
        RecallAnswerCode::Refused => {
            sqlx::query!(
                "UPDATE transfers SET recall_refusal = $2 WHERE id = $1",
                transfer.id.0,
                answer.reason,
            )
            .execute(&mut *tx)
            .await?;
        }
        RecallAnswerCode::Recalled => {}
        _ => return Ok(Ok(answer)),
    }
    if let Some(key) = key {
        record_answer(&mut tx, OPERATION, key, &selector.reference, Some(transfer.id), &answer).await?;
    }
    tx.commit().await?;
    Ok(Ok(answer))
}

fn decide(selector: &TransferSelector, transfer: &Transfer, refusal: Option<String>) -> RecallAnswer {
    let refusal = transfer.recall_refusal.clone().or(refusal);
    let (answer, reason) = match (transfer.status, refusal) {
        (TransferStatus::Returned, _) | (TransferStatus::Settled, None) => (RecallAnswerCode::Recalled, None),
        (TransferStatus::Settled, refusal) => (RecallAnswerCode::Refused, refusal),
        (TransferStatus::Pending | TransferStatus::Rejected | TransferStatus::Cancelled, _) => {
            (RecallAnswerCode::NotSettled, None)
        }
    };
    RecallAnswer { reason, ..RecallAnswer::without_reason(selector, answer) }
}

/// The receiving bank's answer to a recall that it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LaterAnswer {
    /// It has not decided.
    Pending,
    /// It will return the money.
    Promised,
    /// It keeps the money.
    Refused,
}

/// Gives the receiving bank's answer to the recall of a settled transfer, with its callback; false if no recall waits for one.
pub(crate) async fn answer_later(
    switch: &Switch,
    reference: &str,
    answer: LaterAnswer,
    reason: Option<&str>,
) -> Result<bool, sqlx::Error> {
    let mut tx = lock(&switch.pool, reference).await?;
    let known = find(&mut *tx, &TransferSelector::for_admin(reference), Timestamp::UNIX_EPOCH).await?;
    let asked = known.filter(|transfer| transfer.recall_asked);
    let Some((transfer, (amount_minor, currency))) =
        asked.and_then(|transfer| Some((transfer.id, (transfer.amount_minor?, transfer.currency?))))
    else {
        return Ok(false);
    };
    if answer == LaterAnswer::Refused {
        let reason = reason.unwrap_or("no reason given");
        sqlx::query!("UPDATE transfers SET recall_refusal = $2 WHERE id = $1", transfer.0, reason)
            .execute(&mut *tx)
            .await?;
    }
    let current = switch.settings.current();
    if current.shape.calls_back() {
        let answered = RecallAnswered { reference, answer, amount_minor, currency: &currency, reason };
        let callback = NewCallback::of_recall(&answered, current.now())?;
        callbacks::insert(&mut tx, &[callback]).await?;
    }
    tx.commit().await?;
    Ok(true)
}
