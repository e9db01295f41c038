//! The simulated bank: one payment's row and the money it moved, in memory.
//!
//! Each function is one transaction of `payment-ledger`: it reads the facts, asks the protocol's own
//! [`payment_protocol::rules`], and writes what the ledger would write. That the two do the same is a test of
//! the ledger's, against this very type.

use std::rc::Rc;

use payment_protocol::cancel::Begun;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::{Action, CarriedOut};
use payment_protocol::facts::{Facts, HoldStatus, RecallRecord, ReserveRecord, Verdict};
use payment_protocol::ids::RunId;
use payment_protocol::report::{Difference, Expected, SettledReport};
use payment_protocol::rules::{
    self, AttemptRuling, NotSent, ReleaseByDecisionRuling, ReleaseRuling, ReserveRuling,
    SettleByDecisionRuling, SettleRuling, VerdictRuling,
};
use payment_protocol::submit::{Logged, SendAnswer};
use payment_protocol::world::{Fenced, Reconciled, Released, Reserved, Settled, Standing};
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
    Contradiction,
    /// A SUCCESS of another amount.
    ReportDiffers,
    /// A SUCCESS of what was not sent.
    NotSent,
    /// A word of another switch.
    OtherSwitch,
    /// The claims account bore a debit.
    ChargedToClaims,
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
            ChargedToClaims, Contradiction, LateConfirmation, NotSent, OtherSwitch, ReportDiffers,
        };
        let all = [LateConfirmation, Contradiction, ReportDiffers, NotSent, OtherSwitch, ChargedToClaims];
        f.debug_set().entries(all.iter().filter(|exception| self.contain(**exception))).finish()
    }
}

/// What the journal has of this payment: how often each kind was posted, in units of its amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Journal {
    /// Source -> holding.
    pub reserve: u8,
    /// Holding -> escrow.
    pub settle: u8,
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
    pub came: Option<CarriedOut>,
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
    pub log: Option<Logged>,
    /// The first cause.
    pub cause: Option<Rc<Cause>>,
    /// The switch's first definite answer.
    pub verdict: Option<Verdict>,
    /// A refusal under settle's key.
    pub settle_refused: bool,
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
            verdict: None,
            settle_refused: false,
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
            verdict: self.verdict,
            report_differs: self.exceptions.contain(Exception::ReportDiffers),
            reported_unsent: self.exceptions.contain(Exception::NotSent),
            settle_refused: self.settle_refused.then(|| FROZEN.to_owned()),
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
    pub fn reserve(&mut self, run: Run) -> Reserved {
        let Some(id) = run_id(run) else { return Reserved::Unknown };
        let refusal = match rules::reserve(&self.now(), &id, self.too_late) {
            ReserveRuling::Recorded(ReserveRecord::Held) => return Reserved::Held,
            ReserveRuling::Recorded(ReserveRecord::Refused(refusal)) => return Reserved::Refused(refusal),
            ReserveRuling::AnotherRun => return Reserved::AnotherRun,
            ReserveRuling::Ended(end) => return Reserved::Ended(end),
            ReserveRuling::Refuse(refusal) => Some(refusal),
            ReserveRuling::Try if self.frozen => Some(ReserveRefusal::FrozenAccount),
            ReserveRuling::Try if !self.funds => Some(ReserveRefusal::InsufficientFunds),
            ReserveRuling::Try => None,
        };
        self.run = Some(run);
        match refusal {
            Some(refusal) => {
                self.refuse(refusal);
                Reserved::Refused(refusal)
            }
            None => {
                self.reserve = Some(ReserveRecord::Held);
                self.hold = Some(HoldStatus::Open);
                self.journal.reserve += 1;
                self.state = PaymentState::Reserved;
                Reserved::Held
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
    pub fn fence_reserve(&mut self) -> Fenced {
        if let Some(end) = self.state.end() {
            return Fenced::Ended(end);
        }
        if self.reserve.is_none() {
            self.reserve = Some(ReserveRecord::Refused(ReserveRefusal::Fenced));
        }
        Fenced::Open(self.cause.as_deref().cloned())
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
            self.log = Some(Logged::Pending);
        }
        ruling
    }

    /// Records what attempt `n` brought.
    pub fn record_answer(&mut self, n: u32, answer: &SendAnswer) {
        if n == u32::from(self.attempts) {
            match answer {
                SendAnswer::Accepted => self.log = Some(Logged::Accepted),
                SendAnswer::Refused { reason } => self.log = Some(Logged::Refused { reason: reason.clone() }),
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
            self.except(Exception::NotSent);
            return Some(NotSent::ReportedUnsent);
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
    pub fn reconcile_submission(&self) -> Reconciled {
        match self.verdict {
            Some(Verdict::Settled) => Reconciled::Settled,
            _ if self.failure_stored => Reconciled::Failed { reason: "failure".into() },
            _ => Reconciled::Unknown,
        }
    }

    /// Begins to ask for a cancel.
    pub fn begin_cancel(&mut self, cause: &Cause, deadline_ms: i64) -> Begun {
        let facts = self.now();
        let begun = Begun {
            end: facts.state.end(),
            verdict: facts.verdict,
            never_sent: rules::never_sent(&facts),
            deadline_ms: (self.attempts > 0).then_some(deadline_ms),
            cancelling_ms: 0,
        };
        if begun.end.is_none() && begun.verdict.is_none() {
            self.cause.get_or_insert_with(|| Rc::new(cause.clone()));
            // An asking that was given up and comes late must not take it out of the people's queue.
            if self.state != PaymentState::NeedsOperator {
                self.state = PaymentState::Cancelling;
            }
        }
        begun
    }

    /// Whether a verdict or an end written now must wake a workflow that may stand before a person. The state does not
    /// say so: an asking that comes late may have changed it.
    #[must_use]
    pub fn may_stand(&self) -> bool {
        self.operator_reason.is_some() && !self.ended()
    }

    /// Writes a SUCCESS next to what is written, or the exception it is.
    pub fn write_settled(&mut self, payment: &Payment, report: &SettledReport) -> VerdictRuling {
        let ruling = rules::settled_report(&self.now(), &Expected::from(payment), report);
        match ruling {
            VerdictRuling::Same => {}
            VerdictRuling::First => {
                self.verdict = Some(Verdict::Settled);
                self.state = PaymentState::Confirmed;
                self.contradict_earlier_failure();
            }
            VerdictRuling::Differs(Difference::Switch) => self.except(Exception::OtherSwitch),
            VerdictRuling::Differs(_) => self.except(Exception::ReportDiffers),
            VerdictRuling::NoAttempt => self.except(Exception::NotSent),
            VerdictRuling::Contradicts if self.ended() => self.except(Exception::LateConfirmation),
            VerdictRuling::Contradicts => self.except(Exception::Contradiction),
        }
        ruling
    }

    fn contradict_earlier_failure(&mut self) {
        if self.failure_stored {
            self.except(Exception::Contradiction);
        }
    }

    /// Writes that the transfer can never settle.
    pub fn write_dead(&mut self, never_sent: bool) -> VerdictRuling {
        let facts = self.now();
        if never_sent && !rules::never_sent(&facts) {
            return VerdictRuling::NoAttempt;
        }
        let ruling = rules::dead_report(&facts);
        match ruling {
            VerdictRuling::First => self.verdict = Some(Verdict::Dead),
            VerdictRuling::Contradicts => self.except(Exception::Contradiction),
            VerdictRuling::Same | VerdictRuling::Differs(_) | VerdictRuling::NoAttempt => {}
        }
        ruling
    }

    /// Stores a SUCCESS; says whether the workflow must be told.
    pub fn store_success(&mut self, payment: &Payment, report: &SettledReport) -> bool {
        let open = !self.ended();
        let ruling = self.write_settled(payment, report);
        if !matches!(ruling, VerdictRuling::Differs(Difference::Switch)) {
            self.success_stored = true;
        }
        open && match ruling {
            VerdictRuling::First | VerdictRuling::Same => true,
            VerdictRuling::Differs(difference) => difference != Difference::Switch,
            VerdictRuling::NoAttempt | VerdictRuling::Contradicts => false,
        }
    }

    /// Stores a FAILURE; says whether the workflow must be told.
    pub fn store_failure(&mut self) -> bool {
        self.failure_stored = true;
        if self.verdict == Some(Verdict::Settled) {
            self.except(Exception::Contradiction);
            return false;
        }
        !self.ended()
    }

    /// Debits what is held.
    pub fn settle(&mut self) -> Settled {
        match rules::settle(&self.now()) {
            SettleRuling::Already => Settled::Done,
            SettleRuling::Refused(reason) => Settled::Refused { reason },
            SettleRuling::Differs => Settled::Differs,
            SettleRuling::NotConfirmed => Settled::NotConfirmed,
            SettleRuling::Debit if self.frozen => {
                self.settle_refused = true;
                Settled::Refused { reason: FROZEN.into() }
            }
            SettleRuling::Debit => {
                self.debit_hold();
                Settled::Done
            }
        }
    }

    fn debit_hold(&mut self) {
        self.hold = Some(HoldStatus::Settled);
        self.journal.settle += 1;
        self.state = PaymentState::Settled;
    }

    /// Records a definite answer to a recall; the first stands.
    pub fn record_recall(&mut self, answer: RecallRecord) -> RecallRecord {
        *self.recall.get_or_insert(answer)
    }

    /// Gives back what is held, and ends the payment.
    pub fn release(&mut self, cause: &Cause) -> Released {
        let facts = self.now();
        let first = rules::first_cause(&facts, cause);
        match rules::release(&facts) {
            ReleaseRuling::Already => return Released::Done(first),
            ReleaseRuling::Ended(end) => return Released::Ended(end),
            ReleaseRuling::Refused(refusal) => return Released::Failed { detail: refusal.to_string() },
            ReleaseRuling::Fence | ReleaseRuling::GiveBack => self.give_back(&first),
        }
        Released::Done(first)
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
    pub fn needs_operator(&mut self, reason: OperatorReason) -> Standing {
        if let Some(end) = self.state.end() {
            return Standing::Ended(end);
        }
        self.operator_reason = Some(reason);
        self.state = PaymentState::NeedsOperator;
        self.verdict.map_or(Standing::Stands, Standing::Verdict)
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
    pub fn decision_outcome(&self, id: u8) -> Option<CarriedOut> {
        self.decision.as_ref().filter(|decision| decision.id == id).and_then(|decision| decision.came.clone())
    }

    /// Closes a decision; the first outcome stands.
    pub fn close_decision(&mut self, id: u8, came: CarriedOut) {
        if let Some(decision) = self.decision.as_mut().filter(|decision| decision.id == id) {
            if came == CarriedOut::AskAgain
                && decision.came.is_none()
                && self.state == PaymentState::NeedsOperator
            {
                self.state = PaymentState::Cancelling;
            }
            decision.came.get_or_insert(came);
        }
    }

    /// Debits by people's decision: what is held, else the customer, else the claims account.
    pub fn settle_by_decision(&mut self, id: u8) -> SettleByDecisionRuling {
        if self.decision_outcome(id) == Some(CarriedOut::Settled) {
            return SettleByDecisionRuling::Charge;
        }
        let ruling = rules::settle_by_decision(&self.now());
        if ruling == SettleByDecisionRuling::Charge {
            if self.verdict.is_none() {
                self.verdict = Some(Verdict::Settled);
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
            self.close_decision(id, CarriedOut::Settled);
        }
        ruling
    }

    fn charge_claims(&mut self) {
        self.journal.claim += 1;
        self.except(Exception::ChargedToClaims);
    }

    /// Releases by people's decision.
    pub fn release_by_decision(&mut self, id: u8) -> (ReleaseByDecisionRuling, Cause) {
        if let Some(CarriedOut::Released(cause)) = self.decision_outcome(id) {
            return (ReleaseByDecisionRuling::Release, cause);
        }
        let facts = self.now();
        let first = rules::first_cause(&facts, &Cause::ReleasedByDecision);
        let ruling = rules::release_by_decision(&facts);
        if ruling == ReleaseByDecisionRuling::Release {
            self.verdict.get_or_insert(Verdict::Dead);
            self.give_back(&first);
            self.close_decision(id, CarriedOut::Released(first.clone()));
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
