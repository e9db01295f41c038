//! Inbox messages: the ledger stores them for a payment's workflow, another process delivers them.

use crate::decision::Decision;
use crate::ids::PaymentId;
use crate::state::text_enum;

text_enum!(
    /// The result of a transfer in a switch callback.
    CallbackStatus {
        /// The transfer settled.
        Success = "SUCCESS",
        /// The transfer failed, according to the switch at that moment. Never a final status.
        Failure = "FAILURE",
        /// The transfer settled, and the money came back.
        Returned = "RETURNED",
    }
);

/// One stored message for a payment's workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxMessage {
    /// Primary key of the row in `inbox`.
    pub inbox_id: i64,
    /// The payment.
    pub payment_id: PaymentId,
    /// Workflow ID of the payment's current workflow.
    pub workflow_id: String,
    /// Whether the payment has ended; most messages then need no delivery.
    pub ended: bool,
    /// The content.
    pub kind: InboxMessageKind,
}

/// Content of an inbox message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxMessageKind {
    /// A callback of the switch was stored.
    Callback {
        /// The reported result.
        status: CallbackStatus,
        /// The switch's reason, mostly for a failure.
        reason: Option<String>,
        /// The switch's id of the event.
        event_id: String,
    },
    /// The customer requested a cancel.
    Cancel,
    /// A final status was recorded while the payment awaited an operator.
    FinalStatusRecorded,
    /// An operator decision is to be applied; delivered as an Update with the decision's id.
    Decision(Decision),
}
