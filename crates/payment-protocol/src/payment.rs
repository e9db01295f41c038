//! The payment as the workflow is given it.

use serde::{Deserialize, Serialize};

use crate::ids::{AccountId, PaymentId, TxId};
use crate::keys::{self, Reference};
use crate::money::Money;
use crate::profile::SwitchProfile;

/// Workflow input. Carries no outside account number and no customer's name, since it stays in the
/// workflow engine's history; the submit reads the destination from our own row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Payment {
    /// Also the Workflow ID of the first run.
    pub payment_id: PaymentId,
    /// Derived from the payment id.
    pub tx_id: TxId,
    /// What is sent.
    pub money: Money,
    /// The account it is taken from, on our books.
    pub source_account: AccountId,
    /// The switch's profile as it was at acceptance.
    pub profile: SwitchProfile,
    /// 0 for the run from the top; n for the n-th time the payment is taken up again.
    pub resume: u32,
}

/// Why a payment is not valid (S0.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidPayment {
    /// The transaction id is not the one derived from the payment id: keys would not match.
    #[error("the transaction id does not belong to the payment id")]
    ForeignTxId,
    /// Over the switch's limit.
    #[error("the amount is over the switch's limit of {limit_minor} minor units")]
    OverSwitchLimit {
        /// The limit of the profile.
        limit_minor: i64,
    },
}

impl Payment {
    /// The reference the switch knows this payment by.
    #[must_use]
    pub fn reference(&self) -> Reference {
        keys::submit(&self.tx_id)
    }

    /// Validates with no external call (S0.2). That the amount is positive and the ids are well
    /// formed is in their types.
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
