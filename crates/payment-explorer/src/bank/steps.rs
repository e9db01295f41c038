//! The ledger's steps: reserve, debit, release, recall, recovery.

use std::rc::Rc;

use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::facts::{FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::port::{
    DebitOutcome, FenceOutcome, NeedsOperatorOutcome, ReleaseOutcome, ReserveOutcome,
};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{
    self, AttemptRuling, Bearer, DebitRuling, ReleaseRuling, ReserveRuling, RestoreRuling,
};
use payment_protocol::{FinalState, Payment, PaymentState, SwitchProfile};

use super::exceptions::Exception;
use super::record::{Bank, FROZEN, RunNumber, run_id};

impl Bank {
    /// Marks that the starter started the workflow.
    pub fn mark_started(&mut self) {
        if self.state == PaymentState::Accepted {
            self.state = PaymentState::Started;
        }
    }

    /// Reserves, by `run`.
    pub fn reserve(&mut self, run: RunNumber) -> ReserveOutcome {
        let Some(id) = run_id(run) else { return ReserveOutcome::Unknown };
        let refusal = match rules::reserve(&self.facts_now(), &id, self.too_late) {
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

    /// Reserves for `run` and records the first submit attempt, or changes nothing. Returns whether it did: only where nothing is
    /// recorded yet, and both are allowed.
    pub fn reserve_with_attempt(&mut self, run: RunNumber, payment: &Payment) -> bool {
        let mut both = self.clone();
        let is_new = self.reserve.is_none() && both.reserve(run) == ReserveOutcome::Held;
        let is_recorded =
            is_new && both.record_attempt(run, payment, 0, false, false) == AttemptRuling::Send(1);
        if is_recorded {
            *self = both;
        }
        is_recorded
    }

    fn refuse(&mut self, refusal: ReserveRefusal) {
        self.reserve = Some(ReserveRecord::Refused(refusal));
        self.end(refusal.end());
    }

    /// Ends the payment. An open decision is closed: it comes too late.
    pub(super) fn end(&mut self, end: FinalState) {
        self.state = end.into();
        if let Some(decision) = &mut self.decision {
            decision.outcome.get_or_insert(DecisionOutcome::Ended(end));
        }
    }

    /// Ends a payment that has neither reserved nor sent anything.
    pub fn refuse_unreserved(&mut self, refusal: ReserveRefusal) {
        if rules::may_refuse_unreserved(&self.facts_now(), refusal) {
            self.refuse(refusal);
        }
    }

    /// Fences reserve: a late reserve is refused.
    pub fn fence_reserve(&mut self) -> FenceOutcome {
        if let Some(end) = self.state.end() {
            return FenceOutcome::Ended(end);
        }
        if self.reserve.is_none() {
            self.reserve = Some(ReserveRecord::Refused(ReserveRefusal::Fenced));
        }
        FenceOutcome::Open(self.cause.as_deref().cloned())
    }

    /// Debits the hold. After an advance the bank bears it, and the customer's account is only asked to pay the claim.
    pub fn debit(&mut self, profile: &SwitchProfile) -> DebitOutcome {
        match rules::debit(&self.facts_now()) {
            DebitRuling::Already => DebitOutcome::Done,
            DebitRuling::Refused(reason) => DebitOutcome::Refused { reason },
            DebitRuling::Returned => DebitOutcome::Returned,
            DebitRuling::NoHold => DebitOutcome::NoHold,
            DebitRuling::Differs => DebitOutcome::Differs,
            DebitRuling::NotConfirmed => DebitOutcome::NotConfirmed,
            DebitRuling::Debit if self.frozen && !self.restored && profile.recalls_after_end() => {
                self.charge_bank();
                self.end(FinalState::Settled);
                self.book_kept_return();
                DebitOutcome::Done
            }
            DebitRuling::Debit if self.frozen && !self.restored => {
                self.debit_refused = true;
                DebitOutcome::Refused { reason: FROZEN.into() }
            }
            DebitRuling::Debit => {
                self.debit_hold(profile);
                DebitOutcome::Done
            }
        }
    }

    /// Debits the hold, with the record of the SUCCESS that the switch answered to a query.
    pub fn debit_confirmed(&mut self, payment: &Payment, confirmed: Option<&SettledReport>) -> DebitOutcome {
        if let Some(report) = confirmed {
            self.record_settled(payment, report);
        }
        self.debit(&payment.profile)
    }

    pub(super) fn debit_hold(&mut self, profile: &SwitchProfile) {
        self.hold = Some(HoldStatus::Debited);
        self.journal.debit += 1;
        if rules::collects(&self.facts_now(), profile) && self.can_pay() {
            self.collect();
        } else if self.restored {
            self.open_exception(Exception::DebitedToClaims);
        }
        self.end(FinalState::Settled);
        self.book_kept_return();
    }

    pub(super) fn collect(&mut self) {
        self.journal.collect += 1;
        self.claim_open = false;
    }

    /// Restores the customer's account, which is due.
    pub fn restore(&mut self) {
        match rules::restore(&self.facts_now()) {
            RestoreRuling::Advance => {
                self.restored = true;
                self.claim_open = true;
                self.journal.advance += 1;
                self.begin_compensation(&Cause::SlaExpired);
            }
            RestoreRuling::Compensate(cause) => self.begin_compensation(&cause),
            RestoreRuling::Release(cause) => self.release_or_fence(&cause),
            RestoreRuling::NotDue => {}
        }
    }

    /// The recorded answer to a recall. Money that came back by itself needs no recall.
    pub fn recall_recorded(&mut self) -> Option<RecallRecord> {
        if self.final_status == Some(FinalStatus::Returned) {
            return Some(RecallRecord::Recalled);
        }
        // The refusal that leads to a recall may be lost: no late debit may succeed beside it.
        self.debit_refused |= self.hold == Some(HoldStatus::Open);
        self.recall
    }

    /// Records a definite answer to a recall. Returns the first recorded answer.
    pub fn record_recall(&mut self, answer: RecallRecord) -> RecallRecord {
        if self.recall.is_none() && answer == RecallRecord::Recalled {
            self.final_status = Some(FinalStatus::Returned);
        }
        *self.recall.get_or_insert(answer)
    }

    /// Releases the hold, and ends the payment.
    pub fn release(&mut self, cause: &Cause) -> ReleaseOutcome {
        let facts = self.facts_now();
        let first = rules::first_cause(&facts, cause);
        match rules::release(&facts) {
            ReleaseRuling::Already => return ReleaseOutcome::Done(first),
            ReleaseRuling::Ended(end) => return ReleaseOutcome::Ended(end),
            ReleaseRuling::Refused(refusal) => return ReleaseOutcome::Failed { detail: refusal.to_string() },
            ReleaseRuling::Fence | ReleaseRuling::Release => self.release_or_fence(&first),
        }
        ReleaseOutcome::Done(first)
    }

    /// Releases the hold, or fences a reserve that is not recorded.
    pub(super) fn release_or_fence(&mut self, first: &Cause) {
        if self.hold == Some(HoldStatus::Open) {
            self.hold = Some(HoldStatus::Released);
            match rules::bearer(&self.facts_now()) {
                Bearer::Customer => self.journal.release += 1,
                Bearer::Bank => {
                    self.journal.release_to_claims += 1;
                    self.claim_open = false;
                }
            }
        } else if self.reserve.is_none() {
            self.reserve = Some(ReserveRecord::Refused(ReserveRefusal::Fenced));
        }
        self.cause = Some(Rc::new(first.clone()));
        self.end(first.end());
        self.close_kept_return();
    }

    /// Records that the payment needs an operator.
    pub fn needs_operator(&mut self, reason: OperatorReason) -> NeedsOperatorOutcome {
        if let Some(end) = self.state.end() {
            return NeedsOperatorOutcome::Ended(end);
        }
        self.operator_reason = Some(reason);
        if reason == OperatorReason::AcceptedThenUnknown {
            self.open_exception(Exception::AcceptedThenUnknown);
        }
        self.deny_unconfirmed_report();
        self.state = PaymentState::NeedsOperator;
        rules::reported(&self.facts_now())
            .map_or(NeedsOperatorOutcome::AwaitsOperator, NeedsOperatorOutcome::FinalStatus)
    }

    /// Starts the next recovery. Returns whether the workflow may run forward; `None` if the payment has ended.
    pub fn resume(&mut self) -> Option<bool> {
        if self.ended() {
            return None;
        }
        self.resumes += 1;
        let has_begun = self.run.is_some() || self.reserve.is_some() || self.cause.is_some();
        Some(!has_begun && !self.attempts_uncertain)
    }
}
