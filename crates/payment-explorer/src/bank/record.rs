//! The simulated bank: one payment's row and the money it moved, in memory.
//!
//! Each function is one transaction of `payment-ledger`: it reads the facts, asks the protocol's own
//! [`payment_protocol::rules`], and writes what the ledger would write. That the two do the same is a test of
//! the ledger's, against this very type.

use std::rc::Rc;

use payment_protocol::cancel::CancelContext;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::ids::RunId;
use payment_protocol::port::{
    DebitOutcome, FenceOutcome, NeedsOperatorOutcome, ReconcileOutcome, ReleaseOutcome, ReserveOutcome,
};
use payment_protocol::report::{Difference, Expected, SettledReport};
use payment_protocol::rules::{
    self, AttemptRuling, DebitByDecisionRuling, DebitRuling, FinalStatusRuling, NotSent,
    ReleaseByDecisionRuling, ReleaseRuling, ReserveRuling,
};
use payment_protocol::submit::{LoggedSubmission, SendAnswer};
use payment_protocol::{Payment, PaymentState};

/// Reason recorded when the account cannot be debited.
const FROZEN: &str = "frozen_account";

/// A run of the payment's workflow, by its number.
pub type Run = u8;

/// Name of a run.
fn run_id(run: Run) -> Option<RunId> {
    RunId::new(format!("run-{run}")).ok()
}

/// What contradicts the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exception {
    /// A SUCCESS after the payment had ended without one.
    LateConfirmation,
    /// Two definite words that differ.
    ContradictoryFinalStatus,
    /// A SUCCESS of another amount.
    ConfirmationMismatch,
    /// A SUCCESS of what was not sent.
    SettledWithoutAttempt,
    /// A word of another switch.
    CallbackFromOtherSwitch,
    /// The claims account bore a debit.
    DebitedToClaims,
}

/// Open exceptions, each kind once.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Exceptions(u8);

impl Exceptions {
    /// Whether one of this kind is open.
    #[must_use]
    pub fn contain(self, exception: Exception) -> bool {
        self.0 & (1 << exception as u8) != 0
    }

    fn open(&mut self, exception: Exception) {
        self.0 |= 1 << exception as u8;
    }

    fn close(&mut self, exception: Exception) {
        self.0 &= !(1 << exception as u8);
    }
}

impl std::fmt::Debug for Exceptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use Exception::{
            CallbackFromOtherSwitch, ConfirmationMismatch, ContradictoryFinalStatus, DebitedToClaims,
            LateConfirmation, SettledWithoutAttempt,
        };
        let all = [
            LateConfirmation,
            ContradictoryFinalStatus,
            ConfirmationMismatch,
            SettledWithoutAttempt,
            CallbackFromOtherSwitch,
            DebitedToClaims,
        ];
        f.debug_set().entries(all.iter().filter(|exception| self.contain(**exception))).finish()
    }
}

/// What the journal has of this payment: how often each kind was posted, in units of its amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Journal {
    /// Source -> holding.
    pub reserve: u8,
    /// Holding -> escrow.
    pub debit: u8,
    /// Holding -> source.
    pub release: u8,
    /// Source -> escrow, by people's decision.
    pub late_debit: u8,
    /// Claims -> escrow, by people's decision.
    pub claim: u8,
}

/// A decision of people, from its confirmation on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenDecision {
    /// Its number.
    pub id: u8,
    /// What was decided.
    pub action: Action,
    /// What came of it.
    pub came: Option<DecisionOutcome>,
}

/// One payment in the bank's books.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bank {
    /// The state outside.
    pub state: PaymentState,
    /// The run that reserved from the top.
    pub run: Option<Run>,
    /// How often it was taken up again.
    pub resumes: u8,
    /// Under reserve's key.
    pub reserve: Option<ReserveRecord>,
    /// The hold.
    pub hold: Option<HoldStatus>,
    /// Attempts on record.
    pub attempts: u8,
    /// The last attempt's line in the log.
    pub log: Option<LoggedSubmission>,
    /// The first cause.
    pub cause: Option<Rc<Cause>>,
    /// The switch's first definite answer.
    pub final_status: Option<FinalStatus>,
    /// A refusal under settle's key.
    pub debit_refused: bool,
    /// Under recall's key.
    pub recall: Option<RecallRecord>,
    /// A customer's cancel is in the inbox.
    pub cancel_requested: bool,
    /// A FAILURE of its own switch is stored.
    pub failure_stored: bool,
    /// A SUCCESS of its own switch, naming it, is stored.
    pub success_stored: bool,
    /// Why it stands, or stood last.
    pub operator_reason: Option<OperatorReason>,
    /// Open exceptions, each kind once.
    pub exceptions: Exceptions,
    /// The last decision.
    pub decision: Option<OpenDecision>,
    /// The account may not be debited.
    pub frozen: bool,
    /// The account holds the amount, before anything is set aside for this payment.
    pub funds: bool,
    /// Past `valid_until`.
    pub too_late: bool,
    /// What was posted.
    pub journal: Journal,
}

impl Bank {
    /// A payment of which only the acceptance is written.
    #[must_use]
    pub fn accepted(funds: bool) -> Self {
        Self {
            state: PaymentState::Accepted,
            run: None,
            resumes: 0,
            reserve: None,
            hold: None,
            attempts: 0,
            log: None,
            cause: None,
            final_status: None,
            debit_refused: false,
            recall: None,
            cancel_requested: false,
            failure_stored: false,
            success_stored: false,
            operator_reason: None,
            exceptions: Exceptions::default(),
            decision: None,
            frozen: false,
            funds,
            too_late: false,
            journal: Journal::default(),
        }
    }

    /// What the rules look at. `age_ms` is the first attempt's age.
    #[must_use]
    pub fn facts(&self, age_ms: u64, account_busy: bool) -> Facts {
        Facts {
            state: self.state,
            run_id: self.run.and_then(run_id),
            reserve: self.reserve,
            hold: self.hold,
            attempts: u32::from(self.attempts),
            first_attempt_age_ms: (self.attempts > 0).then_some(age_ms),
            cause: self.cause.as_deref().cloned(),
            final_status: self.final_status,
            confirmation_mismatch: self.exceptions.contain(Exception::ConfirmationMismatch),
            reported_without_attempt: self.exceptions.contain(Exception::SettledWithoutAttempt),
            debit_refused: self.debit_refused.then(|| FROZEN.to_owned()),
            recall: self.recall,
            cancel_requested: self.cancel_requested,
            account_busy,
        }
    }

    fn now(&self) -> Facts {
        self.facts(0, false)
    }

    /// Whether it has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.state.end().is_some()
    }

    fn except(&mut self, exception: Exception) {
        self.exceptions.open(exception);
    }

    /// The starter began it.
    pub fn mark_started(&mut self) {
        if self.state == PaymentState::Accepted {
            self.state = PaymentState::Started;
        }
    }

    /// Reserve, by `run`.
    pub fn reserve(&mut self, run: Run) -> ReserveOutcome {
        let Some(id) = run_id(run) else { return ReserveOutcome::Unknown };
        let refusal = match rules::reserve(&self.now(), &id, self.too_late) {
            ReserveRuling::Recorded(ReserveRecord::Held) => return ReserveOutcome::Held,
            ReserveRuling::Recorded(ReserveRecord::Refused(refusal)) => {
                return ReserveOutcome::Refused(refusal);
            }
            ReserveRuling::AnotherRun => return ReserveOutcome::AnotherRun,
            ReserveRuling::Ended(end) => return ReserveOutcome::Ended(end),
            ReserveRuling::Refuse(refusal) => Some(refusal),
            ReserveRuling::Try if self.frozen => Some(ReserveRefusal::FrozenAccount),
            ReserveRuling::Try if !self.funds => Some(ReserveRefusal::InsufficientFunds),
            ReserveRuling::Try => None,
        };
        self.run = Some(run);
        match refusal {
            Some(refusal) => {
                self.refuse(refusal);
                ReserveOutcome::Refused(refusal)
            }
            None => {
                self.reserve = Some(ReserveRecord::Held);
                self.hold = Some(HoldStatus::Open);
                self.journal.reserve += 1;
                self.state = PaymentState::Reserved;
                ReserveOutcome::Held
            }
        }
    }

    fn refuse(&mut self, refusal: ReserveRefusal) {
        self.reserve = Some(ReserveRecord::Refused(refusal));
        self.state = refusal.end().into();
    }

    /// Ends what has held and sent nothing.
    pub fn refuse_unreserved(&mut self, refusal: ReserveRefusal) {
        if self.reserve.is_none() && !self.ended() {
            self.refuse(refusal);
        }
    }

    /// Makes a late reserve refuse.
    pub fn fence_reserve(&mut self) -> FenceOutcome {
        if let Some(end) = self.state.end() {
            return FenceOutcome::Ended(end);
        }
        if self.reserve.is_none() {
            self.reserve = Some(ReserveRecord::Refused(ReserveRefusal::Fenced));
        }
        FenceOutcome::Open(self.cause.as_deref().cloned())
    }

    /// Lets an attempt of `run` out, or says why not.
    pub fn record_attempt(
        &mut self,
        run: Run,
        payment: &Payment,
        age_ms: u64,
        account_busy: bool,
    ) -> AttemptRuling {
        let Some(id) = run_id(run) else { return AttemptRuling::NotSent(NotSent::AnotherRun) };
        let ruling = rules::attempt(&self.facts(age_ms, account_busy), &id, &payment.profile);
        if let AttemptRuling::Send(_) = ruling {
            self.attempts += 1;
            self.log = Some(LoggedSubmission::Pending);
        }
        ruling
    }

    /// Records what attempt `n` brought.
    pub fn record_answer(&mut self, n: u32, answer: &SendAnswer) {
        if n == u32::from(self.attempts) {
            match answer {
                SendAnswer::Accepted => self.log = Some(LoggedSubmission::Accepted),
                SendAnswer::Refused { reason } => {
                    self.log = Some(LoggedSubmission::Refused { reason: reason.clone() })
                }
                SendAnswer::Unknown { .. } => {}
            }
        }
        if *answer == SendAnswer::Accepted {
            self.show_submitted();
        }
    }

    /// The switch was found to have the transfer.
    pub fn record_found(&mut self) -> Option<NotSent> {
        if self.attempts == 0 {
            self.except(Exception::SettledWithoutAttempt);
            return Some(NotSent::ReportedWithoutAttempt);
        }
        self.show_submitted();
        None
    }

    fn show_submitted(&mut self) {
        if matches!(self.state, PaymentState::Started | PaymentState::Reserved) {
            self.state = PaymentState::Submitted;
        }
    }

    /// What our own books say of a submit without an answer.
    #[must_use]
    pub fn reconcile_submission(&self) -> ReconcileOutcome {
        match self.final_status {
            Some(FinalStatus::Settled) => ReconcileOutcome::Settled,
            _ if self.failure_stored => ReconcileOutcome::Failed { reason: "failure".into() },
            _ => ReconcileOutcome::Unknown,
        }
    }

    /// Begins to ask for a cancel.
    pub fn begin_cancel(&mut self, cause: &Cause, deadline_ms: i64) -> CancelContext {
        let facts = self.now();
        let begun = CancelContext {
            end: facts.state.end(),
            final_status: facts.final_status,
            never_sent: rules::never_sent(&facts),
            deadline_ms: (self.attempts > 0).then_some(deadline_ms),
            cancelling_ms: 0,
        };
        if begun.end.is_none() && begun.final_status.is_none() {
            self.cause.get_or_insert_with(|| Rc::new(cause.clone()));
            // An asking that was given up and comes late must not take it out of the people's queue.
            if self.state != PaymentState::NeedsOperator {
                self.state = PaymentState::Cancelling;
            }
        }
        begun
    }

    /// Whether a final_status or an end written now must wake a workflow that may stand before a person. The state does not
    /// say so: an asking that comes late may have changed it.
    #[must_use]
    pub fn may_stand(&self) -> bool {
        self.operator_reason.is_some() && !self.ended()
    }

    /// Writes a SUCCESS next to what is written, or the exception it is.
    pub fn write_settled(&mut self, payment: &Payment, report: &SettledReport) -> FinalStatusRuling {
        let ruling = rules::settled_report(&self.now(), &Expected::from(payment), report);
        match ruling {
            FinalStatusRuling::Same => {}
            FinalStatusRuling::First => {
                self.final_status = Some(FinalStatus::Settled);
                self.state = PaymentState::Confirmed;
                self.contradict_earlier_failure();
            }
            FinalStatusRuling::Differs(Difference::Switch) => self.except(Exception::CallbackFromOtherSwitch),
            FinalStatusRuling::Differs(_) => self.except(Exception::ConfirmationMismatch),
            FinalStatusRuling::NoAttempt => self.except(Exception::SettledWithoutAttempt),
            FinalStatusRuling::Contradicts if self.ended() => self.except(Exception::LateConfirmation),
            FinalStatusRuling::Contradicts => self.except(Exception::ContradictoryFinalStatus),
        }
        ruling
    }

    fn contradict_earlier_failure(&mut self) {
        if self.failure_stored {
            self.except(Exception::ContradictoryFinalStatus);
        }
    }

    /// Writes that the transfer can never settle.
    pub fn write_dead(&mut self, never_sent: bool) -> FinalStatusRuling {
        let facts = self.now();
        if never_sent && !rules::never_sent(&facts) {
            return FinalStatusRuling::NoAttempt;
        }
        let ruling = rules::void_report(&facts);
        match ruling {
            FinalStatusRuling::First => self.final_status = Some(FinalStatus::Void),
            FinalStatusRuling::Contradicts => self.except(Exception::ContradictoryFinalStatus),
            FinalStatusRuling::Same | FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => {}
        }
        ruling
    }

    /// Stores a SUCCESS; says whether the workflow must be told.
    pub fn store_success(&mut self, payment: &Payment, report: &SettledReport) -> bool {
        let open = !self.ended();
        let ruling = self.write_settled(payment, report);
        if !matches!(ruling, FinalStatusRuling::Differs(Difference::Switch)) {
            self.success_stored = true;
        }
        open && match ruling {
            FinalStatusRuling::First | FinalStatusRuling::Same => true,
            FinalStatusRuling::Differs(difference) => difference != Difference::Switch,
            FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts => false,
        }
    }

    /// Stores a FAILURE; says whether the workflow must be told.
    pub fn store_failure(&mut self) -> bool {
        self.failure_stored = true;
        if self.final_status == Some(FinalStatus::Settled) {
            self.except(Exception::ContradictoryFinalStatus);
            return false;
        }
        !self.ended()
    }

    /// Debits what is held.
    pub fn debit(&mut self) -> DebitOutcome {
        match rules::debit(&self.now()) {
            DebitRuling::Already => DebitOutcome::Done,
            DebitRuling::Refused(reason) => DebitOutcome::Refused { reason },
            DebitRuling::Differs => DebitOutcome::Differs,
            DebitRuling::NotConfirmed => DebitOutcome::NotConfirmed,
            DebitRuling::Debit if self.frozen => {
                self.debit_refused = true;
                DebitOutcome::Refused { reason: FROZEN.into() }
            }
            DebitRuling::Debit => {
                self.debit_hold();
                DebitOutcome::Done
            }
        }
    }

    fn debit_hold(&mut self) {
        self.hold = Some(HoldStatus::Settled);
        self.journal.debit += 1;
        self.state = PaymentState::Settled;
    }

    /// Records a definite answer to a recall; the first stands.
    pub fn record_recall(&mut self, answer: RecallRecord) -> RecallRecord {
        *self.recall.get_or_insert(answer)
    }

    /// Gives back what is held, and ends the payment.
    pub fn release(&mut self, cause: &Cause) -> ReleaseOutcome {
        let facts = self.now();
        let first = rules::first_cause(&facts, cause);
        match rules::release(&facts) {
            ReleaseRuling::Already => return ReleaseOutcome::Done(first),
            ReleaseRuling::Ended(end) => return ReleaseOutcome::Ended(end),
            ReleaseRuling::Refused(refusal) => return ReleaseOutcome::Failed { detail: refusal.to_string() },
            ReleaseRuling::Fence | ReleaseRuling::GiveBack => self.give_back(&first),
        }
        ReleaseOutcome::Done(first)
    }

    /// Gives back what is held, or fences what is not.
    fn give_back(&mut self, first: &Cause) {
        if self.hold == Some(HoldStatus::Open) {
            self.hold = Some(HoldStatus::Released);
            self.journal.release += 1;
        } else if self.reserve.is_none() {
            self.reserve = Some(ReserveRecord::Refused(ReserveRefusal::Fenced));
        }
        self.cause = Some(Rc::new(first.clone()));
        self.state = first.end().into();
    }

    /// Stands before a person.
    pub fn needs_operator(&mut self, reason: OperatorReason) -> NeedsOperatorOutcome {
        if let Some(end) = self.state.end() {
            return NeedsOperatorOutcome::Ended(end);
        }
        self.operator_reason = Some(reason);
        self.state = PaymentState::NeedsOperator;
        self.final_status.map_or(NeedsOperatorOutcome::Stands, NeedsOperatorOutcome::Verdict)
    }

    /// The next resume. None if it has ended; else whether it may start from the top.
    pub fn resume(&mut self) -> Option<bool> {
        if self.ended() {
            return None;
        }
        self.resumes += 1;
        Some(self.run.is_none() && self.reserve.is_none() && self.cause.is_none())
    }

    /// What came of a decision, if it is known.
    #[must_use]
    pub fn decision_outcome(&self, id: u8) -> Option<DecisionOutcome> {
        self.decision.as_ref().filter(|decision| decision.id == id).and_then(|decision| decision.came.clone())
    }

    /// Closes a decision; the first outcome stands.
    pub fn close_decision(&mut self, id: u8, came: DecisionOutcome) {
        if let Some(decision) = self.decision.as_mut().filter(|decision| decision.id == id) {
            if came == DecisionOutcome::RetryCancel
                && decision.came.is_none()
                && self.state == PaymentState::NeedsOperator
            {
                self.state = PaymentState::Cancelling;
            }
            decision.came.get_or_insert(came);
        }
    }

    /// Debits by people's decision: what is held, else the customer, else the claims account.
    pub fn debit_by_decision(&mut self, id: u8) -> DebitByDecisionRuling {
        if self.decision_outcome(id) == Some(DecisionOutcome::Settled) {
            return DebitByDecisionRuling::Charge;
        }
        let ruling = rules::debit_by_decision(&self.now());
        if ruling == DebitByDecisionRuling::Charge {
            if self.final_status.is_none() {
                self.final_status = Some(FinalStatus::Settled);
                self.contradict_earlier_failure();
            }
            match self.hold {
                Some(HoldStatus::Open) if !self.frozen => self.debit_hold(),
                Some(HoldStatus::Open) => {
                    self.hold = Some(HoldStatus::Released);
                    self.journal.release += 1;
                    self.charge_claims();
                }
                _ if !self.frozen && self.funds => self.journal.late_debit += 1,
                _ => self.charge_claims(),
            }
            self.state = PaymentState::Settled;
            self.close_decision(id, DecisionOutcome::Settled);
        }
        ruling
    }

    fn charge_claims(&mut self) {
        self.journal.claim += 1;
        self.except(Exception::DebitedToClaims);
    }

    /// Releases by people's decision.
    pub fn release_by_decision(&mut self, id: u8) -> (ReleaseByDecisionRuling, Cause) {
        if let Some(DecisionOutcome::Released(cause)) = self.decision_outcome(id) {
            return (ReleaseByDecisionRuling::Release, cause);
        }
        let facts = self.now();
        let first = rules::first_cause(&facts, &Cause::ReleasedByDecision);
        let ruling = rules::release_by_decision(&facts);
        if ruling == ReleaseByDecisionRuling::Release {
            self.final_status.get_or_insert(FinalStatus::Void);
            self.give_back(&first);
            self.close_decision(id, DecisionOutcome::Released(first.clone()));
        }
        (ruling, first)
    }

    /// A correction after the end: the customer is debited late, or the claims account.
    pub fn late_debit(&mut self) {
        if self.funds && !self.frozen {
            self.journal.late_debit += 1;
        } else {
            self.charge_claims();
        }
        self.exceptions.close(Exception::LateConfirmation);
    }
}
