//! The payment, as the workflow receives it.

use serde::{Deserialize, Serialize};

use crate::ids::{AccountId, PaymentId, TxId};
use crate::keys::{self, Reference};
use crate::money::Money;
use crate::profile::SwitchProfile;

/// Input of the payment workflow. Contains neither the destination account nor the customer's name, because the input
/// stays in Temporal's history; submit reads the destination from our own row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Payment {
    /// The payment id; also the Workflow ID of the first run.
    pub payment_id: PaymentId,
    /// The transaction id, derived from the payment id.
    pub tx_id: TxId,
    /// The amount that is sent.
    pub money: Money,
    /// The customer's account, on our books.
    pub source_account: AccountId,
    /// The switch's profile at acceptance.
    pub profile: SwitchProfile,
    /// 0 for the first workflow, which runs forward; n for the n-th recovery workflow.
    pub resume: u32,
}

/// Why a payment is not valid (S0.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidPayment {
    /// The transaction id is not derived from the payment id: keys would not match.
    #[error("the payment's transaction id is not derived from its payment id")]
    ForeignTxId,
    /// The amount exceeds the switch's limit.
    #[error("the payment's amount exceeds the switch's limit of {limit_minor} minor units")]
    OverSwitchLimit {
        /// The limit in the profile, in minor units.
        limit_minor: i64,
    },
}

impl Payment {
    /// The reference by which the switch knows this payment.
    #[must_use]
    pub fn reference(&self) -> Reference {
        keys::submit(&self.tx_id)
    }

    /// Validates without an external call (S0.2). The types ensure a positive amount and well-formed ids.
    ///
    /// # Errors
    /// [`InvalidPayment`].
    pub fn validate(&self) -> Result<(), InvalidPayment> {
        if self.tx_id != TxId::derive(&self.payment_id) {
            return Err(InvalidPayment::ForeignTxId);
        }
        let limit_minor = self.profile.amount_limit_minor;
        if self.money.amount_minor() > limit_minor {
            return Err(InvalidPayment::OverSwitchLimit { limit_minor });
        }
        Ok(())
    }
}
