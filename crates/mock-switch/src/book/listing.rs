//! The listing: every transfer to one creditor account, in order of arrival, regardless of the retention. Clients of a
//! switch without keys look up their transfers in it.

use jiff::Timestamp;
use serde::Serialize;

use super::ids::TransferId;
use super::page_lock;
use crate::state::Switch;
use crate::status::TransferStatus;

/// Upper bound of transfers on one page.
pub(crate) const LIMIT: i64 = 100;

/// A transfer without its reference and end-to-end id.
#[derive(Debug, Serialize)]
pub(crate) struct ListedTransfer {
    transfer_id: TransferId,
    status: TransferStatus,
    amount_minor: i64,
    currency: String,
    creditor_account: String,
    received_at: Timestamp,
}

/// A page of the listing.
#[derive(Debug, Serialize)]
pub(crate) struct ListingPage {
    transfers: Vec<ListedTransfer>,
    /// `after` of the next page; `None` if this page is not full.
    next: Option<TransferId>,
}

/// The first transfers to a creditor account after this id, at most [`LIMIT`].
pub(crate) async fn after(
    switch: &Switch,
    creditor: &str,
    after: TransferId,
) -> Result<ListingPage, sqlx::Error> {
    let mut tx = page_lock::begin_page_read(&switch.pool).await?;
    let transfers = sqlx::query_as!(
        ListedTransfer,
        r#"SELECT id AS "transfer_id: TransferId", status AS "status: TransferStatus",
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
    Ok(ListingPage { transfers, next })
}

/// The newest `count` transfers to a creditor account, in order of arrival.
pub(crate) async fn last(switch: &Switch, creditor: &str, count: i64) -> Result<ListingPage, sqlx::Error> {
    let mut tx = page_lock::begin_page_read(&switch.pool).await?;
    let mut transfers = sqlx::query_as!(
        ListedTransfer,
        r#"SELECT id AS "transfer_id: TransferId", status AS "status: TransferStatus",
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
    Ok(ListingPage { transfers, next: None })
}
