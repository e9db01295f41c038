//! The payment's row.

use std::rc::Rc;

use payment_protocol::PaymentState;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::ids::RunId;
use payment_protocol::submit::LoggedSubmission;

use super::exceptions::{Exception, Exceptions};

/// Reason that is recorded if the account cannot be debited.
pub(super) const FROZEN: &str = "frozen_account";

/// The number of a workflow run.
pub type RunNumber = u8;

/// The run id of a number.
pub(super) fn run_id(run: RunNumber) -> Option<RunId> {
    RunId::new(format!("run-{run}")).ok()
}

/// The journal's entries of this payment: how often each kind was posted, in units of the payment's amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Journal {
    /// Number of entries source -> holding.
    pub reserve: u8,
    /// Number of entries holding -> escrow.
    pub debit: u8,
    /// Number of entries holding -> source.
    pub release: u8,
    /// Number of entries claims -> source, which restore the customer's account.
    pub advance: u8,
    /// Number of entries source -> claims, which collect a claim from the customer.
    pub collect: u8,
    /// Number of entries holding -> claims, which release a hold that the bank bears.
    pub release_to_claims: u8,
    /// Number of entries source -> escrow, by decision.
    pub late_debit: u8,
    /// Number of entries claims -> escrow, by decision.
    pub claim: u8,
    /// Number of entries escrow -> source of a return.
    pub returned: u8,
    /// Number of entries escrow -> claims, or -> losses after a write-off, of a return.
    pub returned_to_bank: u8,
    /// Number of entries escrow -> source, by decision.
    pub return_credit: u8,
    /// Number of entries escrow -> claims, or -> losses after a write-off, by decision.
    pub return_to_bank: u8,
    /// Number of entries losses -> claims, by decision.
    pub write_off: u8,
}

impl Journal {
    /// Number of entries in favour of escrow: the customer or the bank is charged.
    #[must_use]
    pub fn debits(&self) -> u8 {
        self.debit + self.late_debit + self.claim
    }

    /// Number of entries that credit back what was charged.
    #[must_use]
    pub fn returns(&self) -> u8 {
        self.returned + self.returned_to_bank + self.return_credit + self.return_to_bank
    }
}

/// An operator decision, from its approval on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OpenDecision {
    /// Number of the decision.
    pub id: u8,
    /// The decided action.
    pub action: Action,
    /// The outcome; `None` until the decision is closed.
    pub outcome: Option<DecisionOutcome>,
}

/// One payment in the bank's books.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bank {
    /// The payment's state.
    pub state: PaymentState,
    /// The run that reserved; `None` before reserve.
    pub run: Option<RunNumber>,
    /// How many recovery workflows were started.
    pub resumes: u8,
    /// The outcome recorded under reserve's key.
    pub reserve: Option<ReserveRecord>,
    /// The status of the hold.
    pub hold: Option<HoldStatus>,
    /// Recorded submit attempts.
    pub attempts: u8,
    /// Counted queries, at a switch that limits them.
    pub asks: u8,
    /// Whether attempts may be missing from this record.
    pub attempts_uncertain: bool,
    /// Whether the switch accepted an attempt, according to the submission log.
    pub accepted: bool,
    /// The last attempt in the submission log.
    pub log: Option<LoggedSubmission>,
    /// The first cause.
    pub cause: Option<Rc<Cause>>,
    /// The switch's first definite answer.
    pub final_status: Option<FinalStatus>,
    /// Whether a refusal is recorded under debit's key.
    pub debit_refused: bool,
    /// The outcome recorded under recall's key.
    pub recall: Option<RecallRecord>,
    /// Whether a customer's cancel request is in the inbox.
    pub cancel_requested: bool,
    /// Whether a FAILURE of the payment's own switch is stored.
    pub failure_stored: bool,
    /// Whether a SUCCESS of the payment's own switch for this payment is stored.
    pub success_stored: bool,
    /// Whether a callback is stored that says that the money left, and that a query must confirm.
    pub report_to_confirm: bool,
    /// Whether such a callback has another amount than the payment.
    pub other_amount_to_confirm: bool,
    /// Whether such a callback says that the money came back.
    pub return_to_confirm: bool,
    /// Whether a RETURNED of the payment's own switch for this payment is stored.
    pub return_stored: bool,
    /// Whether the switch reported a return for which no attempt was recorded.
    pub returned_unexpectedly: bool,
    /// Why the payment needs an operator, or last needed one.
    pub operator_reason: Option<OperatorReason>,
    /// The open exceptions.
    pub exceptions: Exceptions,
    /// The last decision.
    pub decision: Option<OpenDecision>,
    /// Whether the account may not be debited.
    pub frozen: bool,
    /// Whether the account had the amount before this payment reserved.
    pub funds: bool,
    /// The returns by messages of their own that are stored, a bit for each id.
    pub returns_stored: u8,
    /// Whether a return is kept that is booked with the debit.
    pub has_unbooked_return: bool,
    /// Whether `valid_until` has passed.
    pub too_late: bool,
    /// Whether an advance restored the customer's account, so that the bank bears the hold.
    pub restored: bool,
    /// Whether the customer has spent the restored amount.
    pub spent: bool,
    /// Whether the bank has paid an amount of this payment that nobody has paid back.
    pub claim_open: bool,
    /// The journal's entries.
    pub journal: Journal,
}

impl Bank {
    /// A payment that was only accepted.
    #[must_use]
    pub fn accepted(funds: bool) -> Self {
        Self {
            state: PaymentState::Accepted,
            run: None,
            resumes: 0,
            reserve: None,
            hold: None,
            attempts: 0,
            asks: 0,
            attempts_uncertain: false,
            accepted: false,
            log: None,
            cause: None,
            final_status: None,
            debit_refused: false,
            recall: None,
            cancel_requested: false,
            failure_stored: false,
            success_stored: false,
            report_to_confirm: false,
            other_amount_to_confirm: false,
            return_to_confirm: false,
            return_stored: false,
            returned_unexpectedly: false,
            operator_reason: None,
            exceptions: Exceptions::default(),
            decision: None,
            frozen: false,
            funds,
            returns_stored: 0,
            has_unbooked_return: false,
            too_late: false,
            restored: false,
            spent: false,
            claim_open: false,
            journal: Journal::default(),
        }
    }

    /// The facts that the rules read. `age_ms` is the first attempt's age.
    #[must_use]
    pub fn facts(&self, age_ms: u64, account_busy: bool) -> Facts {
        Facts {
            state: self.state,
            run_id: self.run.and_then(run_id),
            reserve: self.reserve,
            hold: self.hold,
            attempts: u32::from(self.attempts),
            asks: u32::from(self.asks),
            // The simulated clock has no times between two queries.
            last_ask_age_ms: None,
            attempts_uncertain: self.attempts_uncertain,
            first_attempt_age_ms: (self.attempts > 0 || self.attempts_uncertain).then_some(age_ms),
            cause: self.cause.as_deref().cloned(),
            final_status: self.final_status,
            confirmation_mismatch: self.exceptions.contain(Exception::ConfirmationMismatch),
            reported_without_attempt: self.exceptions.contain(Exception::SettledWithoutAttempt),
            returned_without_attempt: self.returned_unexpectedly,
            report_to_confirm: self.report_to_confirm,
            return_to_confirm: self.return_to_confirm,
            failure_reported: self.failure_stored,
            debit_refused: self.debit_refused.then(|| FROZEN.to_owned()),
            recall: self.recall,
            cancel_requested: self.cancel_requested,
            account_busy,
            restored: self.restored,
            has_unbooked_return: self.has_unbooked_return,
        }
    }

    /// The facts for rules that depend on neither the attempt's age nor the account.
    pub(super) fn facts_now(&self) -> Facts {
        self.facts(0, false)
    }

    /// Whether the payment has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.state.end().is_some()
    }

    /// Whether the payment keeps its destination account busy at a switch without references.
    #[must_use]
    pub fn keeps_account_busy(&self) -> bool {
        !self.ended() && (self.attempts > 0 || self.attempts_uncertain)
    }

    /// Whether the bank knows that the money came back.
    #[must_use]
    pub fn knows_of_return(&self) -> bool {
        self.final_status == Some(FinalStatus::Returned) || self.return_stored || self.returned_unexpectedly
    }

    /// Whether the customer or the bank is charged and not credited back.
    #[must_use]
    pub fn is_debited(&self) -> bool {
        self.journal.debits() > self.journal.returns()
    }

    /// Whether the account may be debited and has the amount, while nothing of it is held.
    pub(super) fn can_pay(&self) -> bool {
        self.funds && !self.frozen && !self.spent
    }

    pub(super) fn open_exception(&mut self, exception: Exception) {
        self.exceptions.open(exception);
    }
}
