//! Every transfer to one creditor, in order of arrival: what a client can read
//! back from a switch that knows no keys. The retention hides none.

use jiff::Timestamp;
use serde::Serialize;

use super::ids::TransferId;
use super::{Status, pages};
use crate::switch::Switch;

/// Most transfers in one answer.
pub(crate) const LIMIT: i64 = 100;

/// One transfer, without anything its sender called it by.
#[derive(Debug, Serialize)]
pub(crate) struct Listed {
    transfer_id: TransferId,
    status: Status,
    amount_minor: i64,
    currency: String,
    creditor_account: String,
    received_at: Timestamp,
}

/// A page of the listing.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    transfers: Vec<Listed>,
    /// `after` of the next page, if this one was full.
    next: Option<TransferId>,
}

/// The first transfers to a creditor after this id, [`LIMIT`] at most.
pub(crate) async fn after(switch: &Switch, creditor: &str, after: TransferId) -> Result<Page, sqlx::Error> {
    let mut tx = pages::turn(&switch.pool).await?;
    let transfers = sqlx::query_as!(
        Listed,
        r#"SELECT id AS "transfer_id: TransferId", status AS "status: Status",
                  amount_minor AS "amount_minor!", currency AS "currency!",
                  creditor_account AS "creditor_account!", received_at
           FROM transfers WHERE creditor_account = $1 AND id > $2
           ORDER BY id LIMIT $3"#,
        creditor,
        after.0,
        LIMIT,
    )
    .fetch_all(&mut *tx)
    .await?;
    let full = i64::try_from(transfers.len()).is_ok_and(|rows| rows == LIMIT);
    let next = transfers.last().map(|listed| listed.transfer_id).filter(|_| full);
    Ok(Page { transfers, next })
}

/// The newest `count` transfers to a creditor, still in order of arrival.
pub(crate) async fn last(switch: &Switch, creditor: &str, count: i64) -> Result<Page, sqlx::Error> {
    let mut tx = pages::turn(&switch.pool).await?;
    let mut transfers = sqlx::query_as!(
        Listed,
        r#"SELECT id AS "transfer_id: TransferId", status AS "status: Status",
                  amount_minor AS "amount_minor!", currency AS "currency!",
                  creditor_account AS "creditor_account!", received_at
           FROM transfers WHERE creditor_account = $1
           ORDER BY id DESC LIMIT $2"#,
        creditor,
        count,
    )
    .fetch_all(&mut *tx)
    .await?;
    transfers.reverse();
    Ok(Page { transfers, next: None })
}
