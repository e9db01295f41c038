//! The states of a payment as the outside sees them.

/// An enum whose values have one word each, the same in the API, the database, logs and JSON. Who calls it from
/// another crate needs serde among its dependencies.
#[macro_export]
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every value, in the order a payment may meet them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word used in the API, the database and logs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// Reads the word back; `None` for any other.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub use text_enum;

text_enum!(
    /// Where a payment stands.
    PaymentState {
        /// Stored by the API; will happen.
        Accepted = "accepted",
        /// Its workflow was started.
        Started = "started",
        /// The amount is held in the customer's account.
        Reserved = "reserved",
        /// The switch said "accepted".
        Submitted = "submitted",
        /// The switch said SUCCESS and it matches; not yet debited.
        Confirmed = "confirmed",
        /// The switch is being asked to cancel; its answer decides.
        Cancelling = "cancelling",
        /// Stands with a reason until a definite answer or a person moves it.
        NeedsOperator = "needs_operator",
        /// End: debited once, the money left.
        Settled = "settled",
        /// End: refused before anything was held or sent.
        Rejected = "rejected",
        /// End: nothing was charged; the switch or the bank refused.
        Failed = "failed",
        /// End: nothing was charged; the switch did not confirm within the SLA.
        TimedOut = "timed_out",
        /// End: nothing was charged; the customer cancelled.
        Cancelled = "cancelled",
    }
);

text_enum!(
    /// The ends of a payment.
    FinalState {
        /// See [`PaymentState::Settled`].
        Settled = "settled",
        /// See [`PaymentState::Rejected`].
        Rejected = "rejected",
        /// See [`PaymentState::Failed`].
        Failed = "failed",
        /// See [`PaymentState::TimedOut`].
        TimedOut = "timed_out",
        /// See [`PaymentState::Cancelled`].
        Cancelled = "cancelled",
    }
);

impl PaymentState {
    /// The end that this state is, if it is one.
    #[must_use]
    pub fn end(self) -> Option<FinalState> {
        FinalState::parse(self.as_str())
    }
}

impl From<FinalState> for PaymentState {
    fn from(end: FinalState) -> Self {
        match end {
            FinalState::Settled => Self::Settled,
            FinalState::Rejected => Self::Rejected,
            FinalState::Failed => Self::Failed,
            FinalState::TimedOut => Self::TimedOut,
            FinalState::Cancelled => Self::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back_and_ends_are_states() {
        for state in PaymentState::ALL {
            assert_eq!(PaymentState::parse(state.as_str()), Some(*state));
        }
        for end in FinalState::ALL {
            assert_eq!(PaymentState::from(*end).end(), Some(*end));
        }
        assert_eq!(PaymentState::NeedsOperator.end(), None);
        assert_eq!(PaymentState::parse("blocked"), None);
    }
}
