//! Taking back money that left. Another operation than cancel: it never stops a
//! transfer, and its refusal is for ever.

use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};

use super::ids::TransferId;
use super::named::Named;
use super::{KeyReused, Status, Transfer, find, lock, record, recorded};
use crate::switch::Switch;

const OPERATION: &str = "recall";

/// What a recall can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Verdict {
    Recalled,
    Refused,
    InProcess,
    NotSettled,
    NotFound,
    CannotRecall,
}

/// The answer as it is sent, and recorded if it is `RECALLED` or `REFUSED`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// None from a switch without keys.
    pub(crate) reference: Option<String>,
    /// The id it was asked by, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transfer_id: Option<TransferId>,
    pub(crate) answer: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl Answer {
    /// An answer without a reason.
    pub(crate) fn plain(named: &Named, answer: Verdict) -> Self {
        Self { reference: named.shown(), transfer_id: named.id, answer, reason: None }
    }
}

/// Recalls, or repeats what was answered under this key, if there is one.
/// `refusal` is the reason to refuse a settled transfer's first recall with.
pub(crate) async fn recall(
    switch: &Switch,
    named: &Named,
    key: Option<&str>,
    refusal: Option<String>,
) -> Result<Result<Answer, KeyReused>, sqlx::Error> {
    let mut tx = lock(&switch.pool, &named.reference).await?;
    let current = switch.settings.current();
    let known = find(&mut *tx, named, current.remembered_since()).await?;
    if let Some(key) = key {
        match recorded(&mut tx, OPERATION, key, &named.reference, known.as_ref(), false).await? {
            Err(reused) => return Ok(Err(reused)),
            Ok(Some(answer)) => return Ok(Ok(answer)),
            Ok(None) => {}
        }
    }
    if !current.shape.recall {
        return Ok(Ok(Answer::plain(named, Verdict::CannotRecall)));
    }
    let Some(transfer) = known else {
        return Ok(Ok(Answer::plain(named, Verdict::NotFound)));
    };
    let answer = decide(named, &transfer, refusal);
    match answer.answer {
        Verdict::Recalled if transfer.status == Status::Settled => {
            sqlx::query!(
                "UPDATE transfers SET status = 'RECALLED', finished_at = $2 WHERE id = $1",
                transfer.id.0,
                current.now().to_sqlx(),
            )
            .execute(&mut *tx)
            .await?;
        }
        Verdict::Refused => {
            sqlx::query!(
                "UPDATE transfers SET recall_refusal = $2 WHERE id = $1",
                transfer.id.0,
                answer.reason,
            )
            .execute(&mut *tx)
            .await?;
        }
        Verdict::Recalled => {}
        _ => return Ok(Ok(answer)),
    }
    if let Some(key) = key {
        record(&mut tx, OPERATION, key, &named.reference, Some(transfer.id), &answer).await?;
    }
    tx.commit().await?;
    Ok(Ok(answer))
}

fn decide(named: &Named, transfer: &Transfer, refusal: Option<String>) -> Answer {
    let refusal = transfer.recall_refusal.clone().or(refusal);
    let (answer, reason) = match (transfer.status, refusal) {
        (Status::Recalled, _) | (Status::Settled, None) => (Verdict::Recalled, None),
        (Status::Settled, refusal) => (Verdict::Refused, refusal),
        (Status::Pending | Status::Rejected | Status::Cancelled, _) => (Verdict::NotSettled, None),
    };
    Answer { reason, ..Answer::plain(named, answer) }
}
