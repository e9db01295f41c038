//! The submit strategies.

use crate::state::text_enum;

text_enum!(
    /// How a submit is made safe to repeat (S0.11).
    Strategy {
        /// A: query by reference first, and send only what the switch does not know. An attempt that is recorded with the reserve is
        /// the first, and needs no query.
        Query = "query",
        /// B: our reference is in the request, and the switch deduplicates by it.
        Reference = "reference",
        /// C: our own log, `PENDING` before and answered after each attempt. Nothing is queried before the first
        /// attempt; a `PENDING` found by a retry is ambiguous and resolved by query or by deduplication.
        WriteAhead = "write_ahead",
        /// D: at most one attempt, recorded before sending; then our own books are reconciled. Includes the log
        /// of C.
        AtMostOnce = "at_most_once",
        /// For a switch without references: send once, then read the transfer back in the switch's list of
        /// transfers to that account. Runs under the account lock, so that a transfer found can only be ours.
        Validate = "validate",
    }
);

impl Strategy {
    /// Whether a submit attempt reads our own submission log before anything else.
    #[must_use]
    pub fn uses_submission_log(self) -> bool {
        matches!(self, Self::WriteAhead | Self::AtMostOnce | Self::Validate)
    }

    /// Whether a submit without an answer is reconciled with our own books instead of compensated.
    #[must_use]
    pub fn reconciles(self) -> bool {
        matches!(self, Self::AtMostOnce | Self::Validate)
    }
}
