//! Cancelling: the pending transfer ends, an unknown reference gets a tombstone,
//! and an end that came first is told.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use super::ids::TransferId;
use super::named::Named;
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

/// The answer as it is sent, and recorded if it is definite or the switch sticks
/// to what it said first.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// None from a switch without keys.
    pub(crate) reference: Option<String>,
    /// The id it was asked by, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transfer_id: Option<TransferId>,
    pub(crate) answer: Verdict,
    /// Whether such a transfer ever came.
    pub(crate) known: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transfer: Option<Transfer>,
}

/// An answer that changes nothing and binds nobody.
#[derive(Debug, Clone)]
pub(crate) struct Indefinite {
    pub(crate) verdict: Verdict,
    pub(crate) reason: Option<String>,
}

impl Indefinite {
    /// An answer without a reason.
    pub(crate) fn plain(verdict: Verdict) -> Self {
        Self { verdict, reason: None }
    }
}

/// Cancels, or repeats what was answered under this key. Without a key, which is
/// how a switch without keys is asked, nothing is recorded. `scripted` is to be
/// answered instead of cancelling.
pub(crate) async fn cancel(
    switch: &Switch,
    named: &Named,
    key: Option<&str>,
    scripted: Option<Indefinite>,
) -> Result<Result<Answer, KeyReused>, sqlx::Error> {
    let reference = named.reference.as_str();
    let mut tx = lock(&switch.pool, reference).await?;
    let current = switch.settings.current();
    let (now, since, sticky) = (current.now(), current.remembered_since(), current.shape.sticky_answers);
    let known = find(&mut *tx, named, since).await?;
    if let Some(key) = key
        && (sticky || scripted.is_none())
    {
        match recorded(&mut tx, OPERATION, key, reference, known.as_ref(), sticky).await? {
            Err(reused) => return Ok(Err(reused)),
            Ok(Some(answer)) => return Ok(Ok(answer)),
            Ok(None) => {}
        }
    }
    // The switch's own ids are never unknown before they are known: they get no tombstone.
    let tombstone = current.shape.tombstone && named.id.is_none();
    let indefinite = match scripted {
        Some(scripted) => Some(scripted),
        None if !current.shape.cancel => Some(Indefinite::plain(Verdict::CannotCancel)),
        None if known.is_none() && !tombstone => Some(Indefinite::plain(Verdict::NotFound)),
        None => None,
    };
    let (bound, answer) = match (indefinite, known) {
        (Some(indefinite), known) => (None, undecided(named, indefinite, known)),
        (None, Some(transfer)) => {
            end_pending(&mut tx, named, now).await?;
            (Some(transfer.id), definite(named, transfer))
        }
        (None, None) => {
            forget(&mut tx, reference, since).await?;
            (Some(leave_tombstone(&mut tx, reference, now).await?), answer(named, Verdict::Cancelled, None))
        }
    };
    if let Some(key) = key
        && (sticky || bound.is_some())
    {
        record(&mut tx, OPERATION, key, reference, bound, &answer).await?;
    }
    tx.commit().await?;
    Ok(Ok(answer))
}

fn undecided(named: &Named, indefinite: Indefinite, known: Option<Transfer>) -> Answer {
    // Who answers that there is nothing claims to know nothing.
    let known = known.filter(|_| indefinite.verdict != Verdict::NotFound);
    Answer { reason: indefinite.reason, ..answer(named, indefinite.verdict, known) }
}

/// The answer for a known transfer whose pending state has just been ended.
fn definite(named: &Named, mut transfer: Transfer) -> Answer {
    let verdict = match transfer.status {
        Status::Pending | Status::Cancelled => Verdict::Cancelled,
        Status::Settled => Verdict::AlreadySettled,
        // Recalled money is as little on its way as rejected money.
        Status::Rejected | Status::Recalled => Verdict::AlreadyRejected,
    };
    if transfer.status == Status::Pending {
        transfer.status = Status::Cancelled;
    }
    Answer { reason: transfer.reason.clone(), ..answer(named, verdict, Some(transfer)) }
}

/// An answer without a reason. A tombstone is no transfer to be shown.
fn answer(named: &Named, answer: Verdict, transfer: Option<Transfer>) -> Answer {
    let transfer = transfer.filter(|transfer| !transfer.tombstone);
    let (reference, transfer_id) = (named.shown(), named.id);
    Answer { reference, transfer_id, answer, known: transfer.is_some(), reason: None, transfer }
}

/// Several can be pending under one reference if the switch does not deduplicate.
async fn end_pending(db: &mut PgConnection, named: &Named, now: Timestamp) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE transfers SET status = 'CANCELLED', finished_at = $2
         WHERE reference = $1 AND status = 'PENDING' AND ($3::bigint IS NULL OR id = $3)",
        named.reference,
        now.to_sqlx(),
        named.id.map(|id| id.0),
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
