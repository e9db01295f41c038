//! Charging a debit that operators decided: from the hold, the customer, or the bank's claims account, so that money that
//! left is always booked.

use payment_protocol::facts::HoldStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::keys;
use payment_protocol::rules::{self, Bearer};

use crate::row_lock::LockedPayment;
use crate::steps::debit::{late_debit, post_debit};
use crate::steps::release::release_hold;
use crate::transaction::LedgerTransaction;
use crate::{LedgerError, claims, writes};

/// Debits an open payment under the decision's own key. Returns in words what was booked.
pub(super) async fn by_decision(
    tx: &mut LedgerTransaction,
    locked: &LockedPayment,
    decision_id: &DecisionId,
) -> Result<String, LedgerError> {
    locked.require_consistent_hold()?;
    let LockedPayment { payment_id, tx_id, money, .. } = locked;
    let key = keys::debit_by_decision(tx_id, decision_id);
    let has_hold = locked.facts.hold == Some(HoldStatus::Open);
    if has_hold && rules::bearer(&locked.facts) == Bearer::Bank {
        writes::record_done(tx, key.as_str(), payment_id).await?;
        post_debit(tx, locked, key.as_str()).await?;
        return claims::collect_or_keep(tx, locked).await;
    }
    if has_hold && claims::debit_bar(tx, locked).await?.is_none() {
        writes::record_done(tx, key.as_str(), payment_id).await?;
        post_debit(tx, locked, key.as_str()).await?;
        return Ok(format!("{money} debited"));
    }
    if has_hold {
        let release_key = keys::compensate_reserve_by_decision(tx_id, decision_id);
        writes::record_done(tx, release_key.as_str(), payment_id).await?;
        release_hold(tx, locked, &release_key).await?;
    }
    late_debit(tx, locked, &key).await.map(|(_, booked)| booked)
}
