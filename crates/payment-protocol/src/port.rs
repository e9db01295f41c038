//! The port of one payment. The workflow implements it with activities, signals and timers; the explorer
//! implements it with a simulated bank, switch and network.
//!
//! The adapter repeats each call until the call has one of the outcomes below. An unknown outcome is a variant,
//! never an error.

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, OperatorReason, ReserveRefusal};
use crate::decision::{Decision, DecisionOutcome};
use crate::facts::FinalStatus;
use crate::payment::InvalidPayment;
use crate::rules::NotSent;
use crate::state::{FinalState, PaymentState};

/// Outcome of reserve.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReserveOutcome {
    /// The ledger holds the amount.
    Held,
    /// The ledger refused and recorded the refusal.
    Refused(ReserveRefusal),
    /// Another run owns this payment.
    AnotherRun,
    /// The payment has ended.
    Ended(FinalState),
    /// The workflow's payment is not the ledger's: recorded as an exception.
    Differs,
    /// The outcome cannot be known.
    Unknown,
}

/// Outcome of submit, over all attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubmitOutcome {
    /// The switch accepted the transfer.
    Accepted,
    /// The switch refused the transfer.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// The switch has already reported that the transfer settled.
    Settled,
    /// Our own ledger refused every attempt.
    NotSent(NotSent),
    /// No answer within the time budget.
    Unknown,
}

/// How far submit got, as the workflow knows. Temporal's record outlives a commit that our database lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubmitProgress {
    /// The workflow scheduled no submit: nothing was sent.
    #[default]
    NotScheduled,
    /// The workflow scheduled a submit, or does not know.
    Scheduled,
    /// The switch has the transfer: it answered so.
    Accepted,
}

/// Outcome of reconciling a submit that got no answer with our own books (S0.11, reconcileSubmission).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReconcileOutcome {
    /// The switch reported SUCCESS.
    Settled,
    /// The switch reported FAILURE, which only leads to a cancel.
    Failed {
        /// The switch's words.
        reason: String,
    },
    /// No report of the switch is recorded yet: wait.
    Unknown,
}

/// Outcome of locking the destination account for one payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AccountLockOutcome {
    /// Locked until this payment has ended.
    Held,
    /// Another payment holds the lock for longer than this payment may wait.
    NotGranted,
    /// The customer cancelled while the payment waited for the lock.
    CustomerCancel,
}

/// Outcome of cancel, over all attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CancelOutcome {
    /// The transfer will never settle, or its money came back: recorded. The customer owes nothing.
    Void,
    /// The transfer settled; recorded.
    Settled,
    /// The switch reported SUCCESS while the cancel was under way; debit verifies the report.
    SuccessReported,
    /// The switch reported a SUCCESS that differs from the payment; recorded.
    Differs,
    /// No answer of this switch can decide it.
    Undecidable(OperatorReason),
    /// The payment has ended.
    Ended(FinalState),
}

impl CancelOutcome {
    /// Whether the switch has, or had, the transfer. A callback that says so may be false.
    #[must_use]
    pub fn shows_acceptance(&self) -> bool {
        matches!(self, Self::Settled | Self::Differs | Self::Undecidable(OperatorReason::AcceptedThenUnknown))
    }
}

/// Outcome of debit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DebitOutcome {
    /// The customer was debited, once.
    Done,
    /// The ledger refused permanently and recorded the refusal: Path C.
    Refused {
        /// Why the account cannot be debited.
        reason: String,
    },
    /// The money came back before the debit: the customer owes nothing.
    Returned,
    /// The money left, and the ledger has no hold to debit.
    NoHold,
    /// The database refused the debit for good.
    Failed {
        /// The failure, for the alert.
        detail: String,
    },
    /// The switch's SUCCESS differs from the payment.
    Differs,
    /// The switch has not reported SUCCESS for this payment.
    NotConfirmed,
}

/// Outcome of recall, over all attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecallOutcome {
    /// The switch returned the money.
    Recalled,
    /// The switch refused the recall and recorded the refusal.
    Refused,
    /// The switch does not support recalls, or its retention of the transfer has expired.
    RecallUnsupported,
}

/// Outcome of release.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReleaseOutcome {
    /// Nothing is held any more, and the payment has ended for the cause recorded first.
    Done(Cause),
    /// Nothing was held: the payment had already ended.
    Ended(FinalState),
    /// The release failed permanently.
    Failed {
        /// The failure, for the alert.
        detail: String,
    },
}

/// Outcome of fencing reserve, the first step of a recovery workflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FenceOutcome {
    /// The payment is open and its reserve is fenced; with the cause, `None` if no cause is recorded.
    Open(Option<Cause>),
    /// The database refused the fence for good.
    Failed {
        /// The failure, for the alert.
        detail: String,
    },
    /// The payment has ended.
    Ended(FinalState),
    /// The workflow's payment is not the ledger's: recorded as an exception.
    Differs,
}

/// Outcome of recording that a payment needs an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NeedsOperatorOutcome {
    /// Recorded: the payment awaits an operator.
    AwaitsOperator,
    /// Recorded, and a definite answer of the switch was recorded before; or a callback said that the money left, which the debit asks the
    /// switch to confirm.
    FinalStatus(FinalStatus),
    /// The payment has ended.
    Ended(FinalState),
}

/// The event that ended a wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitOutcome {
    /// The switch reported SUCCESS; debit verifies the report.
    SuccessReported,
    /// A definite answer of the switch was recorded: a return, or any answer while the payment needed an operator.
    FinalStatusRecorded,
    /// The switch reported FAILURE.
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// The customer cancelled, or the workflow received a cancellation request.
    CustomerCancel,
    /// The SLA has expired.
    SlaExpired,
    /// An operator decision was delivered.
    Decided(Decision),
    /// The payment has waited long for an operator: call again, in case the database lost the call.
    OperatorCallDue,
}

/// An alert for an operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperatorAlert {
    /// A compensation failed permanently.
    CompensationFailed {
        /// The failure.
        detail: String,
    },
    /// The database refused the debit of money that left.
    DebitFailed {
        /// The failure.
        detail: String,
    },
}

/// The actions and waits of one payment.
#[allow(async_fn_in_trait, reason = "workflow code runs on one thread; no future of it is sent")]
pub trait PaymentPort {
    /// Records that the payment is invalid, and ends it.
    async fn reject(&self, invalid: &InvalidPayment);
    /// Holds the amount. Key `{payment_id}:reserve`.
    async fn reserve(&self) -> ReserveOutcome;
    /// Records a refusal under reserve's key, unless an outcome is recorded there.
    async fn fence_reserve(&self) -> FenceOutcome;
    /// Sends the transfer. Key `{tx_id}:submit`.
    async fn submit(&self) -> SubmitOutcome;
    /// Reads from our own books the outcome of a submit that got no answer.
    async fn reconcile_submission(&self) -> ReconcileOutcome;
    /// Locks the destination account for this payment; waits for at most the length of the SLA.
    async fn lock_account(&self) -> AccountLockOutcome;
    /// Unlocks the destination account. The lock service grants it to another payment only after this payment
    /// has ended.
    async fn unlock_account(&self);
    /// Cancels at the switch until its answer decides or it reports SUCCESS. Key `{tx_id}:comp-submit`. `submit`: unless
    /// this workflow knows that it scheduled none, "never sent" is not believed without a recorded attempt; after an acceptance that our
    /// record has lost, "not found" is a contradiction.
    async fn cancel(&self, cause: &Cause, submit: SubmitProgress) -> CancelOutcome;
    /// Debits the hold. Key `{tx_id}:debit`.
    async fn debit(&self) -> DebitOutcome;
    /// Asks the switch to return the money, until its answer decides. Key `{tx_id}:recall`.
    async fn recall(&self) -> RecallOutcome;
    /// Releases the hold and ends the payment. Key `{tx_id}:comp-reserve`.
    async fn release(&self, cause: &Cause) -> ReleaseOutcome;
    /// Waits for an inbox message or the SLA, which counts from the first wait.
    async fn wait_within_sla(&self) -> WaitOutcome;
    /// Waits for an inbox message, or until an operator is to be called again.
    async fn wait_until_event(&self) -> WaitOutcome;
    /// Applies an operator decision while the payment needs an operator for `reason`.
    async fn apply_decision(
        &self,
        decision: &Decision,
        reason: OperatorReason,
        submit: SubmitProgress,
    ) -> DecisionOutcome;
    /// Records that the payment needs an operator and raises an alert; returns what is recorded already.
    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome;
    /// Raises an alert.
    async fn alert(&self, alert: OperatorAlert);
    /// Reports the payment's state to workflow queries and in the workflow's current details.
    fn report_status(&self, state: PaymentState, detail: &str);
    /// Whether this run includes a change to the workflow code (Temporal patching).
    fn patched(&self, change: &str) -> bool;
}
