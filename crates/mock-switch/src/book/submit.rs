//! Submit: accepts or refuses a transfer, or repeats the first outcome.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;

use super::ids::TransferId;
use super::selector::TransferSelector;
use super::{Transfer, callbacks, find, forget, lock};
use crate::plan::{Plan, Settlement};
use crate::state::Switch;
use crate::status::TransferStatus;

/// Reason for refusing a submit whose reference was cancelled before.
pub(crate) const CANCELLED_BEFORE_RECEIPT: &str = "cancelled_before_receipt";
/// Reason for refusing a submit that arrived after its deadline.
pub(crate) const DEADLINE_PASSED: &str = "deadline_passed";

/// Reason for refusing a submit whose reference is in use.
pub(crate) const DUPLICATE_REFERENCE: &str = "duplicate_reference";

/// A validated order.
#[derive(Debug, Clone)]
pub(crate) struct TransferOrder {
    pub(crate) reference: String,
    pub(crate) amount_minor: i64,
    pub(crate) currency: String,
    pub(crate) creditor_account: String,
    pub(crate) end_to_end_id: Option<String>,
    /// Latest time of receipt, on the switch's clock.
    pub(crate) deadline: Option<Timestamp>,
}

/// Outcome of a submit.
#[derive(Debug)]
pub(crate) enum SubmitOutcome {
    /// Accepted or refused; `duplicate` if the transfer was recorded before.
    Recorded { transfer: Transfer, duplicate: bool },
    /// The reference has a tombstone.
    Tombstoned,
    /// The reference has a transfer, and this switch neither repeats its outcome nor takes another one.
    Duplicate,
    /// The reference belongs to a transfer with another amount, currency or account.
    Conflict,
}

/// Records a submitted transfer, or repeats the recorded outcome. `refusal` is the reason with which a script refuses the first submit.
pub(crate) async fn submit(
    switch: &Switch,
    order: &TransferOrder,
    plan: &Plan,
    refusal: Option<String>,
) -> Result<SubmitOutcome, sqlx::Error> {
    let mut tx = lock(&switch.pool, &order.reference).await?;
    // Read after the lock, because the deadline may have passed while the request waited for it.
    let current = switch.settings.current();
    let (now, since) = (current.now(), current.remembered_since());
    let shape = current.shape;
    let selector = TransferSelector::of_reference(order.reference.clone(), shape.keys);
    let known = if shape.keys { find(&mut *tx, &selector, since).await? } else { None };
    match known {
        Some(transfer) if transfer.tombstone => return Ok(SubmitOutcome::Tombstoned),
        Some(transfer) if shape.dedup => {
            return Ok(if order.matches(&transfer) {
                SubmitOutcome::Recorded { transfer, duplicate: true }
            } else {
                SubmitOutcome::Conflict
            });
        }
        Some(_) if shape.refuses_duplicates => return Ok(SubmitOutcome::Duplicate),
        _ => {
            forget(&mut tx, &order.reference, since).await?;
        }
    }
    let late = shape.deadline && order.deadline.is_some_and(|deadline| now > deadline);
    let refusal = refusal.or_else(|| late.then(|| DEADLINE_PASSED.to_owned()));
    let settlement = plan.settlement(switch.config.settle_after_ms, shape.decides_within_ms);
    let dedup = shape.dedup && shape.keys;
    let mut transfer = insert(&mut tx, order, dedup, now, refusal, settlement).await?;
    transfer.reference = selector.visible_reference();
    if !transfer.refused && plan.callback().early && shape.calls_back() {
        let end = callbacks::TransferEnd::settled(&order.reference, order.amount_minor, &order.currency);
        callbacks::insert(&mut tx, &[callbacks::NewCallback::new(&end, now)?]).await?;
    }
    tx.commit().await?;
    Ok(SubmitOutcome::Recorded { transfer, duplicate: false })
}

impl TransferOrder {
    /// Whether a recorded transfer has the same amount, currency and account.
    fn matches(&self, transfer: &Transfer) -> bool {
        transfer.amount_minor == Some(self.amount_minor)
            && transfer.currency.as_deref() == Some(&self.currency)
            && transfer.creditor_account.as_deref() == Some(&self.creditor_account)
    }
}

async fn insert(
    db: &mut PgConnection,
    order: &TransferOrder,
    dedup: bool,
    now: Timestamp,
    refusal: Option<String>,
    settlement: Settlement,
) -> Result<Transfer, sqlx::Error> {
    let refused = refusal.is_some();
    let status = if refused { TransferStatus::Rejected } else { TransferStatus::Pending };
    let after_ms = settlement.after_ms.filter(|_| !refused);
    let id = sqlx::query_scalar!(
        r#"INSERT INTO transfers (reference, status, refused, deduplicated, amount_minor, currency,
             creditor_account, end_to_end_id, reason, received_at, deadline, finished_at,
             due_at, due_status, due_reason)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
             CASE WHEN $3 THEN $10::timestamptz END,
             clock_timestamp() + $12::bigint * interval '1 millisecond', $13, $14)
         RETURNING id AS "id: TransferId""#,
        order.reference,
        status.as_str(),
        refused,
        dedup,
        order.amount_minor,
        order.currency,
        order.creditor_account,
        order.end_to_end_id,
        refusal,
        now.to_sqlx(),
        order.deadline.map(ToSqlx::to_sqlx) as _,
        after_ms,
        settlement.status.as_str(),
        settlement.reason,
    )
    .fetch_one(db)
    .await?;
    Ok(Transfer {
        id,
        reference: None,
        status,
        tombstone: false,
        refused,
        amount_minor: Some(order.amount_minor),
        currency: Some(order.currency.clone()),
        creditor_account: Some(order.creditor_account.clone()),
        end_to_end_id: order.end_to_end_id.clone(),
        reason: refusal,
        recall_refusal: None,
        recall_asked: false,
        received_at: now,
    })
}
