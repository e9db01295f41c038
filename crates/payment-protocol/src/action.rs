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

text_enum!(
    /// How money moves after a payment's end. Each needs two operators and an open exception of that payment.
    Correction {
        /// The money left and was not debited: debits the customer, else the claims account.
        LateDebit = "late_debit",
        /// The amount was debited, and the money came back or never left: credits the account that was debited.
        ReturnCredit = "return_credit",
        /// The bank gives up its claim: moves it from the claims account to the losses.
        WriteOff = "write_off",
    }
);

impl Correction {
    /// Whether evidence is required: the correction depends on how the transfer ended at the switch.
    #[must_use]
    pub fn needs_evidence(self) -> bool {
        matches!(self, Self::LateDebit | Self::ReturnCredit)
    }
}

/// The action of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// An action on an open payment that needs an operator.
    OpenPayment(Action),
    /// A correction after the end of the payment.
    Correction(Correction),
    /// Close an exception without moving money.
    Close,
}

impl OperatorAction {
    /// The word in the table.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpenPayment(action) => action.as_str(),
            Self::Correction(correction) => correction.as_str(),
            Self::Close => "close",
        }
    }

    /// Reads the word back; `None` for any other.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "close" => Some(Self::Close),
            text => Action::parse(text)
                .map(Self::OpenPayment)
                .or_else(|| Correction::parse(text).map(Self::Correction)),
        }
    }

    /// Whether a second operator must confirm it.
    #[must_use]
    pub fn moves_money(self) -> bool {
        match self {
            Self::OpenPayment(action) => action.moves_money(),
            Self::Correction(_) => true,
            Self::Close => false,
        }
    }
}

impl std::fmt::Display for OperatorAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
