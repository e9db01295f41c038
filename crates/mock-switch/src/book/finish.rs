//! Ending transfers: the due ones in batches, or one on an operator's word. The
//! end and the callback that tells it are one transaction.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;

use super::named::Named;
use super::{Status, events, find, lock, pages};
use crate::behaviour;
use crate::switch::Switch;

/// Most transfers ended in one transaction.
pub(crate) const BATCH: i64 = 256;

/// A pending transfer whose end has come.
#[derive(Debug, Clone)]
struct Due {
    id: i64,
    reference: String,
    amount_minor: i64,
    currency: String,
    status: Status,
    reason: Option<String>,
}

/// Ends what is due; returns how many that were.
pub(crate) async fn finish_due(switch: &Switch) -> Result<usize, sqlx::Error> {
    let mut tx = switch.pool.begin().await?;
    // Locked rows are being cancelled; they come again, if they are still pending then.
    let due = sqlx::query_as!(
        Due,
        r#"SELECT id, reference, amount_minor AS "amount_minor!", currency AS "currency!",
                  due_status AS "status!: Status", due_reason AS reason
           FROM transfers
           WHERE status = 'PENDING' AND due_at <= clock_timestamp()
           ORDER BY due_at LIMIT $1
           FOR UPDATE SKIP LOCKED"#,
        BATCH,
    )
    .fetch_all(&mut *tx)
    .await?;
    if !due.is_empty() {
        finish(switch, &mut tx, &due).await?;
        tx.commit().await?;
    }
    Ok(due.len())
}

/// Ends one pending transfer now; false if there is none under this reference.
pub(crate) async fn finish_now(
    switch: &Switch,
    reference: &str,
    status: Status,
    reason: Option<String>,
) -> Result<bool, sqlx::Error> {
    let mut tx = lock(&switch.pool, reference).await?;
    // An operator of the switch decides by the book, forgotten or not.
    let known = find(&mut *tx, &Named::inside(reference), Timestamp::UNIX_EPOCH).await?;
    let pending = known.filter(|transfer| transfer.status == Status::Pending);
    let Some(transfer) = pending else { return Ok(false) };
    let (Some(amount_minor), Some(currency)) = (transfer.amount_minor, transfer.currency) else {
        return Ok(false);
    };
    let (id, reference) = (transfer.id.0, reference.to_owned());
    let due = Due { id, reference, amount_minor, currency, status, reason };
    finish(switch, &mut tx, &[due]).await?;
    tx.commit().await?;
    Ok(true)
}

async fn finish(switch: &Switch, tx: &mut PgConnection, due: &[Due]) -> Result<(), sqlx::Error> {
    pages::hold_open(&mut *tx).await?;
    let current = switch.settings.current();
    let now = current.now();
    if current.shape.calls_back() {
        tell(switch, &mut *tx, due, now).await?;
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

/// Keeps the callbacks of ends, as their behaviours want them told.
async fn tell(
    switch: &Switch,
    tx: &mut PgConnection,
    due: &[Due],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let references: Vec<_> = due.iter().map(|due| due.reference.clone()).collect();
    let amounts: Vec<_> = due.iter().map(|due| Some(due.amount_minor)).collect();
    let sandboxed = switch.config.sandbox_amounts;
    let plans = behaviour::load_many(&mut *tx, &references, &amounts, sandboxed).await?;

    let mut told = Vec::with_capacity(due.len());
    for (due, plan) in due.iter().zip(&plans) {
        let fact = events::Fact {
            reference: &due.reference,
            settled: due.status == Status::Settled,
            amount_minor: due.amount_minor,
            currency: &due.currency,
            reason: due.reason.as_deref(),
        };
        told.extend(events::of_end(&fact, &plan.callback(), now)?);
    }
    events::insert(tx, &told).await
}
