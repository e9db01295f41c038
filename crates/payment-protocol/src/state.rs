//! The states of a payment, as the API, the database and the events name them.

/// Declares an enum whose values have one word each: the same word in the API, the database, logs and JSON.
/// A crate that uses the macro needs serde among its dependencies.
#[macro_export]
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $text)] $variant),+
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word used in the API, the database and logs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The value of a word; `None` if no value has this word.
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
    /// The state of a payment. [`PaymentState::successors`] lists the allowed transitions.
    PaymentState {
        /// The API stored the payment; the starter will start its workflow.
        Accepted = "accepted",
        /// The starter started the payment's workflow.
        Started = "started",
        /// The ledger holds the amount in the customer's account.
        Reserved = "reserved",
        /// The switch accepted the transfer.
        Submitted = "submitted",
        /// The switch reported a SUCCESS that matches the payment; the customer is not debited yet.
        Confirmed = "confirmed",
        /// The workflow cancels at the switch; the switch's answer decides.
        Cancelling = "cancelling",
        /// The payment waits for an operator or for a definite answer of the switch, for a recorded reason.
        NeedsOperator = "needs_operator",
        /// Final: the customer was debited once, and the money left.
        Settled = "settled",
        /// Final: refused before anything was held or sent.
        Rejected = "rejected",
        /// Final: nothing was charged; the switch or the bank refused.
        Failed = "failed",
        /// Final: nothing was charged; the switch did not confirm within the SLA.
        TimedOut = "timed_out",
        /// Final: nothing was charged; the customer cancelled.
        Cancelled = "cancelled",
    }
);

text_enum!(
    /// The final states of a payment.
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
    /// This state as a final state; `None` if the payment is still open.
    #[must_use]
    pub fn end(self) -> Option<FinalState> {
        FinalState::parse(self.as_str())
    }

    /// The states that may follow this state; empty for a final state. The only table of transitions: the
    /// explorer compares every step of the protocol with it, and docs/state-diagram.md is generated from it.
    #[must_use]
    pub fn successors(self) -> &'static [Self] {
        match self {
            // The starter may stop before it marks the start: a running workflow can then find `accepted`.
            Self::Accepted => &[
                Self::Started,
                Self::Reserved,
                Self::Cancelling,
                Self::NeedsOperator,
                Self::Rejected,
                Self::Cancelled,
            ],
            Self::Started => {
                &[Self::Reserved, Self::Cancelling, Self::NeedsOperator, Self::Rejected, Self::Cancelled]
            }
            // A callback can arrive before submit returns. Settled: the answer that confirms a callback is written with the debit.
            Self::Reserved => {
                &[Self::Submitted, Self::Confirmed, Self::Cancelling, Self::NeedsOperator, Self::Settled]
            }
            Self::Submitted => &[Self::Confirmed, Self::Cancelling, Self::NeedsOperator, Self::Settled],
            // The bank cannot debit (Path C): the switch returned the money, or an operator decides.
            Self::Confirmed => {
                &[Self::NeedsOperator, Self::Settled, Self::Failed, Self::TimedOut, Self::Cancelled]
            }
            // Settled: a SUCCESS can arrive before a decision to retry the cancel is applied.
            Self::Cancelling => &[
                Self::Confirmed,
                Self::NeedsOperator,
                Self::Settled,
                Self::Failed,
                Self::TimedOut,
                Self::Cancelled,
            ],
            // Reserved and rejected: a payment whose start Temporal refused is started after all.
            Self::NeedsOperator => &[
                Self::Reserved,
                Self::Confirmed,
                Self::Cancelling,
                Self::Settled,
                Self::Rejected,
                Self::Failed,
                Self::TimedOut,
                Self::Cancelled,
            ],
            Self::Settled | Self::Rejected | Self::Failed | Self::TimedOut | Self::Cancelled => &[],
        }
    }

    /// Whether a payment in this state may change to `next`. A state that stays the same is no change.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        self.successors().contains(&next)
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
    fn payment_states_are_parsed_from_their_text_and_include_final_states() {
        for state in PaymentState::ALL {
            assert_eq!(PaymentState::parse(state.as_str()), Some(*state));
        }
        for end in FinalState::ALL {
            assert_eq!(PaymentState::from(*end).end(), Some(*end));
        }
        assert_eq!(PaymentState::NeedsOperator.end(), None);
        assert_eq!(PaymentState::parse("blocked"), None);
    }

    #[test]
    fn only_final_payment_states_have_no_successors() {
        for state in PaymentState::ALL {
            assert_eq!(state.successors().is_empty(), state.end().is_some(), "{state}");
            assert!(!state.may_become(*state), "{state} is listed as its own successor");
        }
    }

    #[test]
    fn every_payment_state_is_reachable_and_can_reach_a_final_state() {
        for state in PaymentState::ALL {
            assert!(reachable(PaymentState::Accepted).contains(state), "{state} is not reachable");
            let ends = reachable(*state).iter().any(|reached| reached.end().is_some());
            assert!(ends, "{state} reaches no final state");
        }
    }

    /// `from` and every state that a payment can reach from there.
    fn reachable(from: PaymentState) -> Vec<PaymentState> {
        let mut reached = vec![from];
        let mut at = 0;
        while at < reached.len() {
            for next in reached[at].successors() {
                if !reached.contains(next) {
                    reached.push(*next);
                }
            }
            at += 1;
        }
        reached
    }
}
