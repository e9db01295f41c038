//! The ids by which rails know our transfers: minted once for each payment, stored, and looked up when a rail names one.

use payment_protocol::Payment;
use payment_protocol::ids::{SwitchName, TxId};
use payment_protocol::keys::{self, Reference};
use payment_protocol::profile::IdScheme;
use payment_protocol::rail_id::{RailId, TransferName};
use postgres_kit::Connection;

use crate::row_lock::{LockedPayment, lock_payment};
use crate::stored_id::read_id;
use crate::{Ledger, LedgerError};

/// Ids of one payment that belong to other payments before the mint gives up. One is rare enough.
const CLASHES_MAX: u32 = 8;
/// Longest id of a rail.
const RAIL_ID_BYTES_MAX: usize = 35;

impl Ledger {
    /// How the payment's transfer is called at its switch. If the payment has no id of the rail yet, one is minted and stored first: it belongs to
    /// no other payment from then on, so an answer about it is about this payment.
    ///
    /// # Errors
    /// [`LedgerError`]: no outcome; repeat.
    pub async fn transfer_name(&self, payment: &Payment) -> Result<TransferName, LedgerError> {
        let reference = payment.reference();
        if payment.profile.id_scheme == IdScheme::Plain {
            return Ok(reference.into());
        }
        let id = payment.payment_id.as_str();
        let stored = sqlx::query_scalar!("SELECT rail_id FROM payments WHERE payment_id = $1", id)
            .fetch_optional(&self.pool)
            .await?
            .ok_or_else(|| LedgerError::UnknownPayment(id.to_owned()))?;
        let rail_id = match stored {
            Some(rail_id) => Some(RailId::stored(rail_id)),
            None => {
                let mut tx = self.pool.begin().await?;
                let locked = lock_payment(&mut tx, &payment.payment_id).await?;
                let minted = mint(&mut tx, &locked).await?;
                tx.commit().await?;
                minted
            }
        };
        Ok(TransferName { reference, rail_id })
    }

    /// The transaction that a switch calls by this name: our reference, or an id of the rail, of this switch before any other. `None`
    /// if no payment has the name.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn named_transaction(
        &self,
        switch: &SwitchName,
        name: &str,
    ) -> Result<Option<TxId>, LedgerError> {
        if let Some(reference) = Reference::from_switch(name) {
            return Ok(reference.tx_id());
        }
        let may_be_minted =
            name.len() <= RAIL_ID_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !may_be_minted {
            return Ok(None);
        }
        // One switch that names a transfer of another is an exception of its own, not an unknown payment.
        let payment_id = sqlx::query_scalar!(
            "SELECT payment_id FROM payments WHERE rail_id = $1 ORDER BY switch = $2 DESC LIMIT 1",
            name,
            switch.as_str(),
        )
        .fetch_optional(&self.pool)
        .await?;
        payment_id.map(|id| read_id(&id).map(|id| TxId::derive(&id))).transpose()
    }

    /// Mints the ids of open payments that were marked because attempts may be missing: each is the id of the lost attempt, so that
    /// statements and callbacks find their payments again.
    pub(crate) async fn mint_lost_ids(&self) -> Result<(), LedgerError> {
        loop {
            let lost = sqlx::query_scalar!(
                "SELECT payment_id FROM payments JOIN switch_profiles USING (profile_hash)
                 WHERE ended_at IS NULL AND attempts_uncertain AND rail_id IS NULL AND profile ? 'id_scheme' LIMIT 100",
            )
            .fetch_all(&self.pool)
            .await?;
            if lost.is_empty() {
                return Ok(());
            }
            for id in lost {
                let mut tx = self.pool.begin().await?;
                let locked = lock_payment(&mut tx, &read_id(&id)?).await?;
                mint(&mut tx, &locked).await?;
                tx.commit().await?;
            }
        }
    }
}

/// The id of a locked payment's transfer; minted and stored if it has none. `None` where the switch takes our reference.
pub(crate) async fn mint(tx: &mut Connection, locked: &LockedPayment) -> Result<Option<RailId>, LedgerError> {
    if let Some(stored) = &locked.rail_id {
        return Ok(Some(stored.clone()));
    }
    for clash in 0..CLASHES_MAX {
        let Some(minted) = locked.mint(clash)? else { return Ok(None) };
        let stored = sqlx::query!(
            "UPDATE payments p SET rail_id = $2
             WHERE p.payment_id = $1
               AND NOT EXISTS (SELECT FROM payments o WHERE o.rail_id = $2 AND o.switch = p.switch)",
            locked.payment_id.as_str(),
            minted.as_str(),
        )
        .execute(&mut *tx)
        .await?;
        if stored.rows_affected() > 0 {
            return Ok(Some(minted));
        }
        tracing::warn!(
            payment.id = %locked.payment_id, rail_id = %minted, clash,
            "the id minted for a payment's transfer belongs to another payment, so another one is minted"
        );
    }
    Err(LedgerError::Inconsistent {
        payment_id: locked.payment_id.to_string(),
        detail: "every id that can be minted for the transfer belongs to another payment",
    })
}

impl LockedPayment {
    /// The id of the payment's transfer after so many clashes.
    pub(crate) fn mint(&self, clash: u32) -> Result<Option<RailId>, LedgerError> {
        self.profile.mint(&self.tx_id, self.accepted_at, clash).map_err(|error| LedgerError::Unreadable {
            id: self.payment_id.to_string(),
            column: "profile",
            value: error.to_string(),
        })
    }

    /// How the payment's transfer is called by us and at its switch.
    pub(crate) fn transfer_name(&self) -> TransferName {
        TransferName { reference: keys::submit(&self.tx_id), rail_id: self.rail_id.clone() }
    }

    /// Whether the row may be a second acceptance of a payment whose first one was lost: its time, and so an id with a time, is then
    /// another one, and what the switch does not know by this id may be out by the first. Only a recovery workflow can have had an
    /// earlier run, and a recorded attempt shows that the row is the one of the attempt.
    pub(crate) fn may_have_other_id(&self) -> bool {
        let is_recovery = self.workflow_id != self.payment_id.as_str();
        self.profile.id_scheme.has_time() && is_recovery && self.facts.attempts == 0
    }
}
