//! Conditions of one payment that call an operator.

use crate::state::text_enum;

text_enum!(
    /// Kinds of alerts about one payment.
    AlertKind {
        /// The payment needs an operator.
        NeedsOperator = "needs_operator",
        /// A compensation failed; the other ones go on.
        CompensationFailed = "compensation_failed",
        /// The database refused the debit of money that left.
        DebitFailed = "debit_failed",
        /// The cancel is undecided for longer than the profile's `alert_after_ms`, or the switch rejects our cancel request as invalid.
        CancelUndecided = "cancel_undecided",
        /// The recall is undecided.
        RecallUndecided = "recall_undecided",
    }
);
