//! Contradictions between the books that open an exception.

use crate::state::text_enum;

text_enum!(
    /// Kinds of exceptions found when a switch reports or a decision is applied, or opened by an operator. Kinds found by a hold audit or a
    /// reconciliation run: [`crate::drift::Drift`].
    ExceptionKind {
        /// SUCCESS for a payment that had ended otherwise.
        LateConfirmation = "late_confirmation",
        /// A final status that contradicts the recorded one.
        ContradictoryFinalStatus = "contradictory_final_status",
        /// The money of a payment came back after the debit. A return_credit credits the account that was debited.
        ReturnedAfterDebit = "returned_after_debit",
        /// A return that does not fit its payment: another switch or currency, more than was charged, or its id used before.
        ReturnDiffers = "return_differs",
        /// SUCCESS with another amount, currency or reference.
        ConfirmationMismatch = "confirmation_mismatch",
        /// A transfer at the switch, settled or not, of a payment without a recorded attempt.
        SettledWithoutAttempt = "settled_without_attempt",
        /// The answer to a submit attempt came, and the attempt's record is gone: the database lost a commit.
        AttemptRecordLost = "attempt_record_lost",
        /// A workflow was started with a payment that is not the ledger's: another amount, account or profile, or no such payment.
        WorkflowInputDiffers = "workflow_input_differs",
        /// The switch accepted a transfer and says now that it does not know it.
        AcceptedThenUnknown = "accepted_then_unknown",
        /// An authentic callback with an unknown reference.
        CallbackForUnknownPayment = "callback_for_unknown_payment",
        /// A report of one switch about another switch's payment.
        CallbackFromOtherSwitch = "callback_from_other_switch",
        /// A callback's event id reused with another body.
        CallbackEventIdReused = "callback_event_id_reused",
        /// A debit charged to the claims account because the customer's account could not be debited.
        DebitedToClaims = "debited_to_claims",
        /// An operator knows of an ended payment what no report says: the money left and was not debited, or never left and was.
        OpenedByOperator = "opened_by_operator",
    }
);
