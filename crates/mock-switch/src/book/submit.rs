//! Submitting a transfer: accepted, refused, or the first outcome again.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::PgConnection;

use super::ids::TransferId;
use super::named::Named;
use super::{Status, Transfer, events, find, forget, lock};
use crate::behaviour::{Plan, Settlement};
use crate::switch::Switch;

/// Reason of a submit that came after its own cancel.
pub(crate) const CANCELLED_BEFORE_RECEIPT: &str = "cancelled_before_receipt";
/// Reason of a submit that came after its deadline.
pub(crate) const DEADLINE_PASSED: &str = "deadline_passed";

/// What a client orders, already checked.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) reference: String,
    pub(crate) amount_minor: i64,
    pub(crate) currency: String,
    pub(crate) creditor_account: String,
    pub(crate) end_to_end_id: Option<String>,
    /// On the switch's clock.
    pub(crate) deadline: Option<Timestamp>,
}

/// What became of an order.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// Taken, or refused; `duplicate` if it was so before.
    Recorded { transfer: Transfer, duplicate: bool },
    /// The reference was cancelled before it came.
    Tombstoned,
    /// The reference means another transfer.
    Conflict,
}

/// Submits. `refusal` is the reason to refuse a first submit with.
pub(crate) async fn submit(
    switch: &Switch,
    order: &Order,
    plan: &Plan,
    refusal: Option<String>,
) -> Result<Submitted, sqlx::Error> {
    let mut tx = lock(&switch.pool, &order.reference).await?;
    // After the lock: it may have been waited for, and the deadline may have passed.
    let current = switch.settings.current();
    let (now, since) = (current.now(), current.remembered_since());
    let shape = current.shape;
    let named = Named { reference: order.reference.clone(), id: None, keys: shape.keys };
    let known = if shape.keys { find(&mut *tx, &named, since).await? } else { None };
    match known {
        Some(transfer) if transfer.tombstone => return Ok(Submitted::Tombstoned),
        Some(transfer) if shape.dedup => {
            return Ok(if order.means(&transfer) {
                Submitted::Recorded { transfer, duplicate: true }
            } else {
                Submitted::Conflict
            });
        }
        _ => forget(&mut tx, &order.reference, since).await?,
    }
    let late = shape.deadline && order.deadline.is_some_and(|deadline| now > deadline);
    let refusal = refusal.or_else(|| late.then(|| DEADLINE_PASSED.to_owned()));
    let settlement = plan.settlement(switch.config.settle_after_ms);
    let dedup = shape.dedup && shape.keys;
    let mut transfer = insert(&mut tx, order, dedup, now, refusal, settlement).await?;
    transfer.reference = named.shown();
    if !transfer.refused && plan.callback().early && shape.calls_back() {
        let fact = events::Fact::settled(&order.reference, order.amount_minor, &order.currency);
        events::insert(&mut tx, &[events::Event::of(&fact, now)?]).await?;
    }
    tx.commit().await?;
    Ok(Submitted::Recorded { transfer, duplicate: false })
}

impl Order {
    /// Whether a transfer already in the book is this very order.
    fn means(&self, transfer: &Transfer) -> bool {
        transfer.amount_minor == Some(self.amount_minor)
            && transfer.currency.as_deref() == Some(&self.currency)
            && transfer.creditor_account.as_deref() == Some(&self.creditor_account)
    }
}

async fn insert(
    db: &mut PgConnection,
    order: &Order,
    dedup: bool,
    now: Timestamp,
    refusal: Option<String>,
    settlement: Settlement,
) -> Result<Transfer, sqlx::Error> {
    let refused = refusal.is_some();
    let status = if refused { Status::Rejected } else { Status::Pending };
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
        received_at: now,
    })
}
