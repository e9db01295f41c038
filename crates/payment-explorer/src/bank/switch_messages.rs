//! Submit attempts, cancel attempts, and the switch's reports.

use std::rc::Rc;

use payment_protocol::cancel::{CancelContext, VoidReason};
use payment_protocol::cause::Cause;
use payment_protocol::facts::FinalStatus;
use payment_protocol::port::{ReconcileOutcome, SubmitProgress};
use payment_protocol::reject::Reject;
use payment_protocol::report::{Difference, ExpectedTransfer, SettledReport};
use payment_protocol::rules::{self, AskRuling, AttemptRuling, FinalStatusRuling, NotSent};
use payment_protocol::submit::{LoggedSubmission, SendAnswer};
use payment_protocol::{Payment, PaymentState, SwitchProfile};

use super::exceptions::Exception;
use super::record::{Bank, RunNumber, run_id};

impl Bank {
    /// Records a submit attempt of `run`, or refuses it.
    pub fn record_attempt(
        &mut self,
        run: RunNumber,
        payment: &Payment,
        age_ms: u64,
        account_busy: bool,
        tried_before: bool,
    ) -> AttemptRuling {
        let Some(id) = run_id(run) else { return AttemptRuling::NotSent(NotSent::AnotherRun) };
        let ruling = rules::attempt(&self.facts(age_ms, account_busy), &id, &payment.profile, tried_before);
        if let AttemptRuling::Send(_) = ruling {
            self.attempts += 1;
            self.log = Some(LoggedSubmission::Pending);
        }
        ruling
    }

    /// The commit of the only attempt is lost.
    pub fn lose_attempt(&mut self) {
        (self.attempts, self.log) = (0, None);
    }

    /// Counts a query, or refuses it.
    pub fn begin_query(&mut self, profile: &SwitchProfile, age_ms: u64) -> AskRuling {
        let ruling = rules::ask(&self.facts(age_ms, false), profile);
        if ruling == AskRuling::Ask && profile.asks_max > 0 {
            self.asks += 1;
        }
        ruling
    }

    /// Records the answer to attempt `n`; a final reject is the final status.
    pub fn record_answer(&mut self, profile: &SwitchProfile, n: u32, answer: &SendAnswer) {
        if n > u32::from(self.attempts) {
            // The record of the attempt is gone: it is written again.
            self.attempts = u8::try_from(n).unwrap_or(u8::MAX);
            self.attempts_uncertain = true;
            self.log = Some(LoggedSubmission::Pending);
            self.open_exception(Exception::AttemptRecordLost);
        }
        self.accepted |= *answer == SendAnswer::Accepted;
        // The first definite outcome of an attempt is kept.
        if n == u32::from(self.attempts) && self.log == Some(LoggedSubmission::Pending) {
            match answer {
                SendAnswer::Accepted => self.log = Some(LoggedSubmission::Accepted),
                SendAnswer::Refused { reject } => {
                    self.log = Some(LoggedSubmission::Refused { reason: reject.to_string() })
                }
                SendAnswer::Unknown { .. } => {}
            }
        }
        match answer {
            SendAnswer::Accepted => self.mark_submitted(),
            SendAnswer::Refused { reject } => {
                if let Some(ruling) = rules::final_reject(&self.facts_now(), profile, reject) {
                    self.write_void(ruling);
                }
            }
            SendAnswer::Unknown { .. } => {}
        }
    }

    fn write_void(&mut self, ruling: FinalStatusRuling) {
        match ruling {
            FinalStatusRuling::First => {
                self.deny_unconfirmed_report();
                self.final_status = Some(FinalStatus::Void);
            }
            FinalStatusRuling::Contradicts => self.open_exception(Exception::ContradictoryFinalStatus),
            FinalStatusRuling::Same | FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt => {}
        }
    }

    /// What happens now contradicts a callback that no query confirmed, or operators must know of it.
    pub(super) fn deny_unconfirmed_report(&mut self) {
        if rules::has_unconfirmed_report(&self.facts_now()) {
            self.open_exception(Exception::ContradictoryFinalStatus);
        }
    }

    /// Records that the switch has the transfer.
    pub fn record_found(&mut self) -> Option<NotSent> {
        if !rules::has_left(&self.facts_now()) {
            self.open_exception(Exception::SettledWithoutAttempt);
            return Some(NotSent::ReportedWithoutAttempt);
        }
        if self.log == Some(LoggedSubmission::Pending) {
            self.log = Some(LoggedSubmission::Accepted);
            self.accepted = true;
        }
        self.mark_submitted();
        None
    }

    fn mark_submitted(&mut self) {
        if matches!(self.state, PaymentState::Started | PaymentState::Reserved) {
            self.state = PaymentState::Submitted;
        }
    }

    /// Reconciles a submit without an answer with our own books.
    #[must_use]
    pub fn reconcile_submission(&self) -> ReconcileOutcome {
        match self.final_status {
            Some(FinalStatus::Settled) => ReconcileOutcome::Settled,
            _ if self.failure_stored => ReconcileOutcome::Failed { reason: "failure".into() },
            _ => ReconcileOutcome::Unknown,
        }
    }

    /// Begins a cancel attempt.
    pub fn begin_cancel(
        &mut self,
        profile: &SwitchProfile,
        cause: &Cause,
        deadline_ms: i64,
        submit: SubmitProgress,
    ) -> CancelContext {
        self.mark_acceptance(submit);
        self.attempts_uncertain |= rules::may_lack_attempts(&self.facts_now(), submit);
        let facts = self.facts_now();
        let context = CancelContext {
            end: facts.state.end(),
            final_status: facts.final_status,
            never_sent: rules::never_sent(&facts),
            accepted: self.is_accepted(),
            has_doubtful_success: rules::has_doubtful_success(&facts),
            may_have_other_id: self.may_have_other_id(profile),
            deadline_ms: (self.attempts > 0).then_some(deadline_ms),
            cancelling_ms: 0,
        };
        if rules::begins_cancel(&facts) {
            self.begin_compensation(cause);
        }
        context
    }

    /// Marks the payment if its record lacks the switch's acceptance.
    pub fn mark_acceptance(&mut self, submit: SubmitProgress) {
        self.accepted |= rules::lacks_acceptance(&self.facts_now(), self.is_accepted(), submit);
    }

    /// Records the cause, unless one is recorded, and that the payment is cancelling.
    pub(super) fn begin_compensation(&mut self, cause: &Cause) {
        self.cause.get_or_insert_with(|| Rc::new(cause.clone()));
        // A late zombie attempt must not remove the payment from the operators' queue.
        if self.state != PaymentState::NeedsOperator {
            self.state = PaymentState::Cancelling;
        }
    }

    /// Whether the workflow may await an operator, so that a final status or a final state written now must be
    /// signalled. The state does not show it: a late cancel attempt may have changed the state.
    #[must_use]
    pub fn may_await_operator(&self) -> bool {
        self.operator_reason.is_some() && !self.ended()
    }

    /// Whether the switch must be queried before the debit.
    #[must_use]
    pub fn needs_query(&self, payment: &Payment) -> bool {
        rules::needs_query(&self.facts_now(), &payment.profile, payment.money)
    }

    /// Records a SUCCESS that answers us, or the exception that it is.
    pub fn record_settled(&mut self, payment: &Payment, report: &SettledReport) -> FinalStatusRuling {
        self.write_settled(payment, report, true)
    }

    fn write_settled(
        &mut self,
        payment: &Payment,
        report: &SettledReport,
        answers_us: bool,
    ) -> FinalStatusRuling {
        let expected = ExpectedTransfer::from(payment);
        let ruling = rules::settled_report(&self.facts_now(), &expected, report, answers_us);
        match ruling {
            FinalStatusRuling::Same => {}
            FinalStatusRuling::First => {
                self.final_status = Some(FinalStatus::Settled);
                self.state = PaymentState::Confirmed;
                self.open_exceptions_for_callbacks();
            }
            FinalStatusRuling::Differs(Difference::Switch) => {
                self.open_exception(Exception::CallbackFromOtherSwitch);
            }
            FinalStatusRuling::Differs(_) => self.open_exception(Exception::ConfirmationMismatch),
            FinalStatusRuling::NoAttempt => self.open_exception(Exception::SettledWithoutAttempt),
            FinalStatusRuling::Contradicts if self.ended() => {
                self.open_exception(Exception::LateConfirmation);
            }
            FinalStatusRuling::Contradicts => self.open_exception(Exception::ContradictoryFinalStatus),
        }
        ruling
    }

    /// Records a return that answers us, or the exception that it is.
    pub fn record_returned(&mut self, payment: &Payment, report: &SettledReport) -> FinalStatusRuling {
        self.write_returned(payment, report, true)
    }

    fn write_returned(
        &mut self,
        payment: &Payment,
        report: &SettledReport,
        answers_us: bool,
    ) -> FinalStatusRuling {
        let (facts, expected) = (self.facts_now(), ExpectedTransfer::from(payment));
        let ruling = if answers_us {
            rules::returned_report(&facts, &expected, report, answers_us)
        } else {
            rules::returned_callback(&facts, &payment.profile, &expected, report)
        };
        match ruling {
            FinalStatusRuling::Same => {}
            FinalStatusRuling::First => {
                if self.final_status.is_none() {
                    self.open_exceptions_for_callbacks();
                }
                self.final_status = Some(FinalStatus::Returned);
                if !self.ended() {
                    self.state = PaymentState::Confirmed;
                }
                if self.is_debited() {
                    self.open_exception(Exception::ReturnedAfterDebit);
                }
            }
            FinalStatusRuling::Differs(Difference::Switch) => {
                self.open_exception(Exception::CallbackFromOtherSwitch);
            }
            FinalStatusRuling::Differs(_) => self.open_exception(Exception::ConfirmationMismatch),
            FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts if self.is_debited() => {
                self.open_exception(Exception::ReturnedAfterDebit);
            }
            FinalStatusRuling::Contradicts => self.open_exception(Exception::ContradictoryFinalStatus),
            FinalStatusRuling::NoAttempt => {
                self.returned_unexpectedly = true;
                self.open_exception(Exception::SettledWithoutAttempt);
            }
        }
        ruling
    }

    /// Earlier callbacks contradict that the money left.
    pub(super) fn open_exceptions_for_callbacks(&mut self) {
        if self.failure_stored {
            self.open_exception(Exception::ContradictoryFinalStatus);
        }
        if self.other_amount_to_confirm {
            self.open_exception(Exception::ConfirmationMismatch);
        }
    }

    /// Whether the switch accepted the transfer, or money of it came back.
    fn is_accepted(&self) -> bool {
        self.accepted || self.has_unbooked_return || rules::has_unconfirmed_report(&self.facts_now())
    }

    /// Whether the row may be a second acceptance, under whose id the switch does not know the transfer.
    fn may_have_other_id(&self, profile: &SwitchProfile) -> bool {
        profile.id_scheme.has_time() && self.resumes > 0 && self.attempts == 0
    }

    /// Records that the transfer is void.
    pub fn record_void(&mut self, profile: &SwitchProfile, reason: VoidReason) -> FinalStatusRuling {
        let facts = self.facts_now();
        if reason.is_absence() && self.may_have_other_id(profile) {
            return FinalStatusRuling::NoAttempt;
        }
        if !rules::void_is_believed(&facts, reason, self.is_accepted()) {
            return FinalStatusRuling::NoAttempt;
        }
        let ruling = rules::void_report(&facts);
        self.write_void(ruling);
        ruling
    }

    /// Stores a callback with SUCCESS. Returns whether the workflow must be signalled.
    pub fn store_success(&mut self, payment: &Payment, report: &SettledReport) -> bool {
        let reported = FinalStatus::Settled;
        let (facts, expected) = (self.facts_now(), ExpectedTransfer::from(payment));
        let delivers_again = rules::delivers_again(&facts, &payment.profile, payment.money, reported);
        self.store_to_confirm(payment, report);
        if rules::is_unconfirmed(&facts, &payment.profile, &expected, report, reported) {
            self.success_stored = true;
            return delivers_again;
        }
        let ruling = self.write_settled(payment, report, false);
        if !matches!(ruling, FinalStatusRuling::Differs(Difference::Switch)) {
            self.success_stored = true;
        }
        match ruling {
            FinalStatusRuling::First => facts.state.end().is_none(),
            FinalStatusRuling::Differs(Difference::Switch)
            | FinalStatusRuling::NoAttempt
            | FinalStatusRuling::Contradicts => false,
            FinalStatusRuling::Same | FinalStatusRuling::Differs(_) => delivers_again,
        }
    }

    /// Stores that a callback says that the money left; returns whether a query must confirm it.
    fn store_to_confirm(&mut self, payment: &Payment, report: &SettledReport) -> bool {
        let must_confirm =
            payment.profile.confirms_by_query(payment.money) && report.switch == payment.profile.switch;
        self.report_to_confirm |= must_confirm;
        self.other_amount_to_confirm |= must_confirm && report.amount_minor != payment.money.amount_minor();
        must_confirm
    }

    /// Stores a callback with RETURNED. Returns whether the workflow must be signalled.
    pub fn store_returned(&mut self, payment: &Payment, report: &SettledReport) -> bool {
        let reported = FinalStatus::Returned;
        let (facts, expected) = (self.facts_now(), ExpectedTransfer::from(payment));
        let delivers_again = rules::delivers_again(&facts, &payment.profile, payment.money, reported);
        self.return_to_confirm |= self.store_to_confirm(payment, report);
        if rules::is_unconfirmed(&facts, &payment.profile, &expected, report, reported) {
            self.return_stored = true;
            return delivers_again;
        }
        let ruling = self.write_returned(payment, report, false);
        // Another amount is an exception, and for operators.
        self.return_stored |= !matches!(ruling, FinalStatusRuling::Differs(_));
        match ruling {
            FinalStatusRuling::First => facts.state.end().is_none(),
            FinalStatusRuling::Same => delivers_again,
            FinalStatusRuling::Differs(_) | FinalStatusRuling::NoAttempt | FinalStatusRuling::Contradicts => {
                false
            }
        }
    }

    /// Stores a callback with FAILURE; a final reject is the final status. Returns whether the workflow must be signalled.
    pub fn store_failure(&mut self, payment: &Payment, reject: &Reject) -> bool {
        let (facts, profile) = (self.facts_now(), &payment.profile);
        let delivers_again = rules::delivers_again(&facts, profile, payment.money, FinalStatus::Void);
        self.failure_stored = true;
        if matches!(self.final_status, Some(FinalStatus::Settled | FinalStatus::Returned)) {
            self.open_exception(Exception::ContradictoryFinalStatus);
            return false;
        }
        if self.ended() {
            return false;
        }
        match rules::final_reject_callback(&facts, profile, payment.money, reject) {
            Some(ruling) => {
                self.write_void(ruling);
                ruling == FinalStatusRuling::First || delivers_again
            }
            None => delivers_again,
        }
    }
}
