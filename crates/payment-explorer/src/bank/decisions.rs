//! Operator decisions and corrections.

use payment_protocol::action::Correction;
use payment_protocol::cause::Cause;
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::drift::Drift;
use payment_protocol::facts::{FinalStatus, HoldStatus};
use payment_protocol::rules::{self, DebitByDecisionRuling, ReleaseByDecisionRuling};
use payment_protocol::{FinalState, PaymentState, SwitchProfile};

use super::exceptions::Exception;
use super::record::Bank;

impl Bank {
    /// The recorded outcome of a decision; `None` until the decision is closed.
    #[must_use]
    pub fn decision_outcome(&self, id: u8) -> Option<DecisionOutcome> {
        let decision = self.decision.as_ref().filter(|decision| decision.id == id);
        decision.and_then(|decision| decision.outcome.clone())
    }

    /// Closes a decision; the first outcome is kept.
    pub fn close_decision(&mut self, id: u8, outcome: DecisionOutcome) {
        if let Some(decision) = self.decision.as_mut().filter(|decision| decision.id == id) {
            if outcome == DecisionOutcome::RetryCancel
                && decision.outcome.is_none()
                && self.state == PaymentState::NeedsOperator
            {
                self.state = PaymentState::Cancelling;
            }
            decision.outcome.get_or_insert(outcome);
        }
    }

    /// Debits by decision: the hold, else the customer, else the claims account.
    pub fn debit_by_decision(&mut self, id: u8, profile: &SwitchProfile) -> DebitByDecisionRuling {
        if self.decision_outcome(id) == Some(DecisionOutcome::Settled) {
            return DebitByDecisionRuling::Charge;
        }
        let ruling = rules::debit_by_decision(&self.facts_now());
        if ruling == DebitByDecisionRuling::Charge {
            if self.final_status.is_none() {
                self.final_status = Some(FinalStatus::Settled);
                self.open_exceptions_for_callbacks();
            }
            self.close_decision(id, DecisionOutcome::Settled);
            match self.hold {
                Some(HoldStatus::Open) if !self.frozen || self.restored => self.debit_hold(profile),
                Some(HoldStatus::Open) => self.charge_bank(),
                _ if self.can_pay() => self.journal.late_debit += 1,
                _ => self.charge_claims(),
            }
            self.end(FinalState::Settled);
            self.book_kept_return();
        }
        ruling
    }

    /// Charges the bank instead of the hold, which the account may not be debited for.
    pub(super) fn charge_bank(&mut self) {
        self.hold = Some(HoldStatus::Released);
        self.journal.release += 1;
        self.charge_claims();
    }

    fn charge_claims(&mut self) {
        self.journal.claim += 1;
        self.claim_open = true;
        self.open_exception(Exception::DebitedToClaims);
    }

    /// Releases by decision.
    pub fn release_by_decision(&mut self, id: u8) -> (ReleaseByDecisionRuling, Cause) {
        if let Some(DecisionOutcome::Released(cause)) = self.decision_outcome(id) {
            return (ReleaseByDecisionRuling::Release, cause);
        }
        let facts = self.facts_now();
        let first = rules::first_cause(&facts, &Cause::ReleasedByDecision);
        let ruling = rules::release_by_decision(&facts);
        if ruling == ReleaseByDecisionRuling::Release {
            self.deny_unconfirmed_report();
            self.final_status.get_or_insert(FinalStatus::Void);
            self.close_decision(id, DecisionOutcome::Released(first.clone()));
            self.release_or_fence(&first);
        }
        (ruling, first)
    }

    /// Whether the ledger allows a correction that an exception of this kind asks for.
    #[must_use]
    pub fn allows_correction(&self, correction: Correction) -> bool {
        let open = |kinds: &[Exception]| kinds.iter().any(|kind| self.exceptions.contain(*kind));
        let debited = self.journal.debits() > 0;
        self.ended()
            && match correction {
                Correction::LateDebit if self.claim_open => {
                    self.can_pay()
                        && self.final_status != Some(FinalStatus::Returned)
                        && open(&[Exception::DebitedToClaims])
                }
                Correction::LateDebit => {
                    let is_returned = self.final_status == Some(FinalStatus::Returned);
                    !debited
                        && (open(&[Exception::SettledNotDebited])
                            || !is_returned && open(&[Exception::LateConfirmation]))
                }
                Correction::ReturnCredit => {
                    debited
                        && self.journal.returns() == 0
                        && open(&[Exception::ReturnedAfterDebit, Exception::DebitedNotSettled])
                }
                Correction::WriteOff => self.claim_open && open(&[Exception::DebitedToClaims]),
            }
    }

    /// Books a correction after the payment ended, and closes the exceptions that asked for it.
    pub fn correct(&mut self, correction: Correction) {
        let closed: &[Exception] = match correction {
            Correction::LateDebit if self.claim_open => {
                self.collect();
                &[Exception::DebitedToClaims]
            }
            Correction::LateDebit if self.can_pay() => {
                self.journal.late_debit += 1;
                &[Exception::LateConfirmation, Exception::SettledNotDebited]
            }
            Correction::LateDebit => {
                self.charge_claims();
                &[Exception::LateConfirmation, Exception::SettledNotDebited]
            }
            Correction::ReturnCredit => {
                if self.claim_open || self.journal.write_off > 0 {
                    self.journal.return_to_bank += 1;
                    self.claim_open = false;
                } else {
                    self.journal.return_credit += 1;
                }
                &[Exception::ReturnedAfterDebit, Exception::DebitedNotSettled]
            }
            Correction::WriteOff => {
                self.journal.write_off += 1;
                self.claim_open = false;
                &[Exception::DebitedToClaims]
            }
        };
        closed.iter().for_each(|exception| self.exceptions.close(*exception));
        if correction == Correction::LateDebit {
            self.book_kept_return();
        }
    }

    /// Records what reconciliation found.
    pub fn record_drift(&mut self, drift: Drift) {
        match drift {
            Drift::DebitedNotSettled => self.open_exception(Exception::DebitedNotSettled),
            Drift::SettledNotDebited | Drift::ReleasedButSettled => {
                self.open_exception(Exception::SettledNotDebited);
            }
            _ => {}
        }
    }
}
