//! What a payment can do to the world. The workflow implements it with activities, signals and
//! timers; an explorer implements it with a simulated bank, switch and network.
//!
//! Each call is repeated by its implementer until it has one of the outcomes below. Where an outcome
//! can be unknown, it is a variant, never an error.

use serde::{Deserialize, Serialize};

use crate::cause::{Cause, OperatorReason, ReserveRefusal};
use crate::decision::{CarriedOut, Decision};
use crate::facts::Verdict;
use crate::payment::InvalidPayment;
use crate::rules::NotSent;
use crate::state::{End, PaymentState};

/// Outcome of reserve.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reserved {
    /// The amount is held.
    Held,
    /// Refused and recorded.
    Refused(ReserveRefusal),
    /// Another run has this payment.
    AnotherRun,
    /// The payment has ended.
    Ended(End),
    /// No outcome can be known.
    Unknown,
}

/// Outcome of submit, all attempts together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Submitted {
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
pub enum Reconciled {
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
pub enum AccountLock {
    /// Held until this payment has ended.
    Held,
    /// Another payment holds it for longer than this one may wait.
    NotGranted,
    /// The customer asked to cancel meanwhile.
    CustomerCancel,
}

/// Outcome of asking to cancel, until it is decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Asked {
    /// Can never settle; recorded.
    Dead,
    /// Settled; recorded.
    Settled,
    /// A SUCCESS came in while asking; whether it is true is for settle to say.
    SuccessReported,
    /// A SUCCESS that differs from the payment; recorded.
    Differs,
    /// No answer of this switch can decide it.
    Undecidable(OperatorReason),
    /// The payment has ended.
    Ended(End),
}

/// Outcome of settle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Settled {
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
pub enum Recalled {
    /// The money came back.
    Recalled,
    /// Refused, in the switch's own recorded form.
    Refused,
    /// The switch has no recall, or has forgotten the transfer.
    CannotRecall,
}

/// Outcome of release.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Released {
    /// Nothing is held any more and the payment has ended, for the cause recorded first.
    Done(Cause),
    /// There was nothing to give back: the payment had already ended.
    Ended(End),
    /// Failed for good.
    Failed {
        /// What went wrong, for the alert.
        detail: String,
    },
}

/// What a run that takes a payment up again finds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fenced {
    /// Open; reserve is fenced. The cause is the one recorded, if any.
    Open(Option<Cause>),
    /// The payment has ended.
    Ended(End),
}

/// What standing before a person begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Standing {
    /// It stands.
    Stands,
    /// A definite answer of the switch is on record.
    Verdict(Verdict),
    /// The payment has ended.
    Ended(End),
}

/// What a payment waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Event {
    /// The switch reported SUCCESS; whether it is true is for settle to say.
    SuccessReported,
    /// A definite answer of the switch was written while the payment stood before a person.
    VerdictWritten,
    /// The switch reported FAILURE.
    FailureReported {
        /// The switch's words.
        reason: String,
    },
    /// The customer asked to cancel, or the workflow was asked to.
    CustomerCancel,
    /// The SLA has passed.
    SlaPassed,
    /// People decided what no answer can.
    Decided(Decision),
}

/// Something a person should see now.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Alert {
    /// An undo failed for good.
    UndoFailed {
        /// What went wrong.
        detail: String,
    },
}

/// What a payment can do to the world.
#[allow(async_fn_in_trait, reason = "workflow code runs on one thread; no future of it is sent")]
pub trait World {
    /// Records that the payment is not valid, and ends it.
    async fn reject(&self, invalid: &InvalidPayment);
    /// Holds the amount. Key `{payment_id}:reserve`.
    async fn reserve(&self) -> Reserved;
    /// Records a refusal under reserve's key if nothing is recorded there.
    async fn fence_reserve(&self) -> Fenced;
    /// Sends the transfer. Key `{tx_id}:submit`.
    async fn submit(&self) -> Submitted;
    /// Looks in our own books for what became of a submit that gave no answer.
    async fn reconcile_submission(&self) -> Reconciled;
    /// Takes the destination account for this payment alone; waits for the SLA's length at most.
    async fn lock_account(&self) -> AccountLock;
    /// Gives the destination account back. It is passed on only once this payment has ended.
    async fn unlock_account(&self);
    /// Asks the switch to cancel until its answer decides or a SUCCESS comes in. Key
    /// `{tx_id}:comp-submit`.
    async fn ask_to_cancel(&self, cause: &Cause) -> Asked;
    /// Debits what is held. Key `{tx_id}:debit`.
    async fn settle(&self) -> Settled;
    /// Asks the switch to give the money back until its answer decides. Key `{tx_id}:recall`.
    async fn recall(&self) -> Recalled;
    /// Gives back what is held and ends the payment. Key `{tx_id}:comp-reserve`.
    async fn release(&self, cause: &Cause) -> Released;
    /// Waits for the inbox or the SLA, which counts from the first wait.
    async fn wait_within_sla(&self) -> Event;
    /// Waits for the inbox.
    async fn wait_without_end(&self) -> Event;
    /// Carries out what people decided while the payment stood for `reason`.
    async fn carry_out(&self, decision: &Decision, reason: OperatorReason) -> CarriedOut;
    /// Records that the payment stands before a person, and alerts; or says what is on record already.
    async fn needs_operator(&self, reason: OperatorReason) -> Standing;
    /// Alerts.
    async fn alert(&self, alert: Alert);
    /// Shows where the payment stands, to queries and in the workflow's summary.
    fn show(&self, state: PaymentState, detail: &str);
    /// Whether this run already has a change to the code (see the workflow engine's patching).
    fn patched(&self, change: &str) -> bool;
}
