//! The actions an operator may decide on.

use crate::state::text_enum;

text_enum!(
    /// An operator's decision about a payment that needs an operator.
    Action {
        /// Cancel at the switch again, and follow its answer.
        RetryCancel = "retry_cancel",
        /// Debit the customer: the money left.
        Debit = "debit",
        /// Release the hold: the money did not leave and never will.
        Release = "release",
    }
);

impl Action {
    /// Whether the action moves money and therefore needs the approval of a second operator.
    #[must_use]
    pub fn moves_money(self) -> bool {
        match self {
            Self::RetryCancel => false,
            Self::Debit | Self::Release => true,
        }
    }
}
