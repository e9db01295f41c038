//! What a payment can do to the world. The workflow implements it with activities, signals and
//! timers; an explorer implements it with a simulated bank, switch and network.
//!
//! Each call is repeated by its implementer until it has one of the outcomes below. Where an outcome
//! can be unknown, it is a variant, never an error.

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
    /// The amount is held.
    Held,
    /// Refused and recorded.
    Refused(ReserveRefusal),
    /// Another run has this payment.
    AnotherRun,
    /// The payment has ended.
    Ended(FinalState),
    /// No outcome can be known.
    Unknown,
}

/// Outcome of submit, all attempts together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SubmitOutcome {
    /// The switch has it.
    Accepted,
    /// The switch refused it.
    Refused {
        /// The switch's words.
        reason: String,
    },
    /// The switch has already said how it ended, and it settled.
    Settled,
    /// Our own ledger let no attempt out.
    NotSent(NotSent),
    /// No answer within the budget.
    Unknown,
}

/// What our own books say of a submit that gave no answer (S0.11, reconcileSubmission).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReconcileOutcome {
    /// The switch reported SUCCESS.
    Settled,
    /// The switch reported FAILURE, which only leads to asking to cancel.
    Failed {
        /// The switch's words.
        reason: String,
    },
    /// Nothing has come yet: wait.
    Unknown,
}

/// Whether the destination account is this payment's alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AccountLockOutcome {
    /// Held until this payment has ended.
    Held,
    /// Another payment holds it for longer than this one may wait.
    NotGranted,
    /// The customer asked to cancel meanwhile.
    CustomerCancel,
}

/// Outcome of asking to cancel, until it is decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CancelOutcome {
    /// Can never settle; recorded.
    Void,
    /// Settled; recorded.
    Settled,
    /// A SUCCESS came in while asking; whether it is true is for settle to say.
    SuccessReported,
    /// A SUCCESS that differs from the payment; recorded.
    Differs,
    /// No answer of this switch can decide it.
    Undecidable(OperatorReason),
    /// The payment has ended.
    Ended(FinalState),
}

/// Outcome of settle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DebitOutcome {
    /// Debited, once.
    Done,
    /// Refused for good and recorded: Path C.
    Refused {
        /// Why the account cannot be debited.
        reason: String,
    },
    /// The switch's SUCCESS differs from the payment.
    Differs,
    /// The switch has not said SUCCESS of this payment.
    NotConfirmed,
}

/// Outcome of recall, until it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RecallOutcome {
    /// The money came back.
    Recalled,
    /// Refused, in the switch's own recorded form.
    Refused,
    /// The switch has no recall, or has retention_expired the transfer.
    RecallUnsupported,
}

/// Outcome of release.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReleaseOutcome {
    /// Nothing is held any more and the payment has ended, for the cause recorded first.
    Done(Cause),
    /// There was nothing to give back: the payment had already ended.
    Ended(FinalState),
    /// Failed for good.
    Failed {
        /// What went wrong, for the alert.
        detail: String,
    },
}

/// What a run that takes a payment up again finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FenceOutcome {
    /// Open; reserve is fenced. The cause is the one recorded, if any.
    Open(Option<Cause>),
    /// The payment has ended.
    Ended(FinalState),
}

/// What standing before a person begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NeedsOperatorOutcome {
    /// It stands.
    Stands,
    /// A definite answer of the switch is on record.
    Verdict(FinalStatus),
    /// The payment has ended.
    Ended(FinalState),
}

/// What a payment waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitOutcome {
    /// The switch reported SUCCESS; whether it is true is for settle to say.
    SuccessReported,
    /// A definite answer of the switch was written while the payment stood before a person.
    FinalStatusRecorded,
    /// The switch reported FAILURE.
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// The customer asked to cancel, or the workflow was asked to.
    CustomerCancel,
    /// The SLA has passed.
    SlaExpired,
    /// People decided what no answer can.
    Decided(Decision),
}

/// Something a person should see now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OperatorAlert {
    /// An compensation failed for good.
    CompensationFailed {
        /// What went wrong.
        detail: String,
    },
}

/// What a payment can do to the world.
#[allow(async_fn_in_trait, reason = "workflow code runs on one thread; no future of it is sent")]
pub trait PaymentPort {
    /// Records that the payment is not valid, and ends it.
    async fn reject(&self, invalid: &InvalidPayment);
    /// Holds the amount. Key `{payment_id}:reserve`.
    async fn reserve(&self) -> ReserveOutcome;
    /// Records a refusal under reserve's key if nothing is recorded there.
    async fn fence_reserve(&self) -> FenceOutcome;
    /// Sends the transfer. Key `{tx_id}:submit`.
    async fn submit(&self) -> SubmitOutcome;
    /// Looks in our own books for what became of a submit that gave no answer.
    async fn reconcile_submission(&self) -> ReconcileOutcome;
    /// Takes the destination account for this payment alone; waits for the SLA's length at most.
    async fn lock_account(&self) -> AccountLockOutcome;
    /// Gives the destination account back. It is passed on only once this payment has ended.
    async fn unlock_account(&self);
    /// Asks the switch to cancel until its answer decides or a SUCCESS comes in. Key
    /// `{tx_id}:comp-submit`.
    async fn cancel(&self, cause: &Cause) -> CancelOutcome;
    /// Debits what is held. Key `{tx_id}:debit`.
    async fn debit(&self) -> DebitOutcome;
    /// Asks the switch to give the money back until its answer decides. Key `{tx_id}:recall`.
    async fn recall(&self) -> RecallOutcome;
    /// Gives back what is held and ends the payment. Key `{tx_id}:comp-reserve`.
    async fn release(&self, cause: &Cause) -> ReleaseOutcome;
    /// Waits for the inbox or the SLA, which counts from the first wait.
    async fn wait_within_sla(&self) -> WaitOutcome;
    /// Waits for the inbox.
    async fn wait_until_event(&self) -> WaitOutcome;
    /// Carries out what people decided while the payment stood for `reason`.
    async fn apply_decision(&self, decision: &Decision, reason: OperatorReason) -> DecisionOutcome;
    /// Records that the payment stands before a person, and alerts; or says what is on record already.
    async fn needs_operator(&self, reason: OperatorReason) -> NeedsOperatorOutcome;
    /// Alerts.
    async fn alert(&self, alert: OperatorAlert);
    /// Shows where the payment stands, to queries and in the workflow's summary.
    fn show(&self, state: PaymentState, detail: &str);
    /// Whether this run already has a change to the code (see the workflow engine's patching).
    fn patched(&self, change: &str) -> bool;
}
