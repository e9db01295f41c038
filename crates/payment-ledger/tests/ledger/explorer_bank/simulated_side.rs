//! An operation on two simulated banks with one account.

use std::rc::Rc;

use payment_explorer::bank::{Bank, Exception, OpenDecision};
use payment_explorer::listing::{ListedTransfer, Listing};
use payment_ledger::steps::restore::RestoreOutcome;
use payment_protocol::Payment;
use payment_protocol::action::Action;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::decision::DecisionOutcome;
use payment_protocol::drift::Drift;
use payment_protocol::reject::Reject;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{DebitByDecisionRuling, DecisionRefusal, ReleaseByDecisionRuling};

use super::ledger_side::{
    DEAD, Known, LedgerSide, begun, debug, event, other_amount, other_switch, refused, submit_progress,
    variant,
};
use super::op::{Message, Op};
use crate::support::report;

/// The simulated banks of two payments, which share the source account.
#[derive(Clone, PartialEq)]
pub(crate) struct SimulatedSide {
    fixed: Rc<[(Payment, SettledReport); 2]>,
    pub(crate) banks: [Bank; 2],
    /// What is recorded of each payment about the listing of a switch without references.
    pub(crate) listings: [Listing; 2],
    /// The decisions about each open payment, from their proposal on.
    proposals: [Vec<Proposal>; 2],
    /// The event ids of the stored callbacks.
    events: Vec<String>,
    /// The funding of the account, in amounts of a payment.
    funds: i64,
}

#[derive(Clone, PartialEq)]
struct Proposal {
    action: Action,
    status: Status,
}

#[derive(Clone, Copy, PartialEq)]
enum Status {
    Proposed,
    Confirmed,
    Withdrawn,
}

impl SimulatedSide {
    pub(crate) fn new(ledger: &LedgerSide<'_>, funds: u8) -> Self {
        let fixed = [0, 1].map(|n| (ledger.payment(n), report(&ledger.samples[n])));
        Self {
            fixed: Rc::new(fixed),
            banks: [Bank::accepted(false), Bank::accepted(false)],
            listings: [Listing::default(), Listing::default()],
            proposals: [Vec::new(), Vec::new()],
            events: Vec::new(),
            funds: i64::from(funds),
        }
    }

    /// The available balance of the account, in amounts of a payment.
    pub(crate) fn available(&self) -> i64 {
        let entries = self.banks.iter().map(|Bank { journal, .. }| {
            let credited = journal.release + journal.advance + journal.returned + journal.return_credit;
            i64::from(credited) - i64::from(journal.reserve + journal.collect + journal.late_debit)
        });
        self.funds + entries.sum::<i64>()
    }

    /// Applies one operation to a payment; returns what it returned.
    pub(crate) fn apply(&mut self, payment: usize, op: &Op, known: &Known) -> String {
        let is_funded = self.available() > 0;
        self.banks[payment].funds = is_funded;
        let returned = self.apply_funded(payment, op, known);
        // Read from the balance before each operation.
        self.banks[payment].funds = false;
        returned
    }

    fn apply_funded(&mut self, payment: usize, op: &Op, known: &Known) -> String {
        let bank = &mut self.banks[payment];
        match op {
            Op::Message(message) => self.store(payment, *message, known.round),
            Op::Expire => {
                bank.too_late = true;
                String::new()
            }
            Op::MarkOpenPayments => {
                for bank in self.banks.iter_mut().filter(|bank| !bank.ended()) {
                    bank.attempts_uncertain = true;
                }
                String::new()
            }
            Op::CustomerCancel => match bank.state.end() {
                Some(end) => format!("ended {end:?}"),
                None => format!("new {}", !std::mem::replace(&mut bank.cancel_requested, true)),
            },
            Op::Freeze(frozen) => {
                self.banks.iter_mut().for_each(|bank| bank.frozen = *frozen);
                debug(&())
            }
            Op::Drift(drift) => {
                // The ledger does not open a contradiction again that is open from the switch's report.
                let is_open = *drift != Drift::DebitedNotSettled
                    && [Exception::LateConfirmation, Exception::ContradictoryFinalStatus]
                        .iter()
                        .any(|kind| bank.exceptions.contain(*kind));
                if bank.ended() && !is_open {
                    bank.record_drift(*drift);
                }
                String::new()
            }
            Op::Correct(correction) => {
                let is_allowed = bank.allows_correction(*correction) && !self.has_open_decision(payment);
                if is_allowed {
                    self.banks[payment].correct(*correction);
                }
                format!("corrected {is_allowed}")
            }
            Op::Propose(action) => format!("accepted {}", self.propose(payment, *action)),
            Op::Confirm | Op::Withdraw | Op::ApplyDecision | Op::RefuseDecision => {
                let decision = known.payments[payment].decision.as_ref();
                decision.map_or_else(String::new, |(_, number, _)| self.decide(payment, op, *number))
            }
            Op::Attempt(run) => {
                let is_busy = self.banks[1 - payment].keeps_account_busy();
                let tried_before = *run == 2;
                let of = &self.fixed[payment].0;
                debug(&self.banks[payment].record_attempt(*run, of, 0, is_busy, tried_before))
            }
            _ => self.step(payment, op, known),
        }
    }

    fn step(&mut self, payment: usize, op: &Op, known: &Known) -> String {
        let known = &known.payments[payment];
        let (of, report) = &self.fixed[payment];
        let bank = &mut self.banks[payment];
        match op {
            Op::Start => debug(&bank.mark_started()),
            Op::RefuseUnreserved(refusal) => debug(&bank.refuse_unreserved(*refusal)),
            Op::Reject => debug(&bank.refuse_unreserved(ReserveRefusal::Invalid)),
            // Another process was faster.
            Op::Resume if bank.resumes != known.resumes => debug(&None::<bool>),
            Op::Resume => debug(&bank.resume()),
            Op::Reserve(run) => debug(&bank.reserve(*run)),
            Op::Fence => debug(&bank.fence_reserve()),
            Op::Answer(which, answer) => {
                if let Some(n) = known.answered(*which) {
                    bank.record_answer(&of.profile, n, answer);
                }
                String::new()
            }
            Op::FoundAtSwitch => debug(&bank.record_found()),
            Op::Marker(which) => known.answered(*which).map_or_else(String::new, |n| {
                let is_recorded = n <= u32::from(bank.attempts);
                if is_recorded {
                    self.listings[payment].record_marker();
                }
                debug(&is_recorded)
            }),
            // A lookup finds a transfer only after the marker of a recorded attempt.
            Op::TransferId(_) if bank.attempts == 0 => debug(&None::<String>),
            Op::TransferId(at) => {
                let recorded =
                    self.listings[payment].record_transfer_id(ListedTransfer::Other(*at), bank.ended());
                debug(&recorded.map(transfer_id))
            }
            Op::Reconcile => variant(&bank.reconcile_submission()),
            Op::BeginCancel(cause) => {
                begun(&bank.begin_cancel(&of.profile, cause, 0, submit_progress(cause)))
            }
            Op::BeginQuery => debug(&bank.begin_query(&of.profile, 0)),
            Op::QueriedSettled => debug(&bank.record_settled(of, report)),
            Op::QueriedReturned => debug(&bank.record_returned(of, report)),
            Op::Void(reason) => debug(&bank.record_void(&of.profile, *reason)),
            Op::Return(n) => {
                bank.store_return(of, *n);
                String::new()
            }
            Op::Restore if of.profile.restore_customer_after_ms.is_none() => debug(&RestoreOutcome::NotDue),
            Op::Restore => debug(&restore(bank)),
            Op::Debit => variant(&bank.debit(&of.profile)),
            Op::DebitConfirmed => variant(&bank.debit_confirmed(of, Some(report))),
            Op::Release(cause) => debug(&bank.release(cause)),
            Op::BeginRecall => debug(&bank.recall_recorded()),
            Op::Recall(answer) if known.is_settled => debug(&bank.record_recall(*answer)),
            Op::Recall(_) => String::new(),
            Op::NeedsOperator(reason) => debug(&bank.needs_operator(*reason)),
            _ => unreachable!("not a step of one payment: {op:?}"),
        }
    }

    fn store(&mut self, payment: usize, message: Message, round: usize) -> String {
        let (of, report) = &self.fixed[payment];
        let event = event(round, message, &of.tx_id);
        if self.events.contains(&event) {
            return "Duplicate".into();
        }
        self.events.push(event);
        let bank = &mut self.banks[payment];
        let is_notified = match message {
            Message::Success => bank.store_success(of, report),
            Message::OtherAmount => bank.store_success(of, &other_amount(report)),
            Message::OtherSwitch => bank.store_success(of, &other_switch(report)),
            Message::Returned => bank.store_returned(of, report),
            Message::Failure => bank.store_failure(of, &Reject::uncoded("account closed")),
            Message::FinalReject => {
                let reject = Reject { code: Some(DEAD.into()), reason: "account closed".into() };
                bank.store_failure(of, &reject)
            }
        };
        format!("notified {is_notified}")
    }

    fn is_allowed(&self, payment: usize, action: Action) -> bool {
        let bank = &self.banks[payment];
        !bank.ended() && bank.operator_reason.is_some_and(|reason| reason.allowed().contains(&action))
    }

    fn has_open_decision(&self, payment: usize) -> bool {
        let bank = &self.banks[payment];
        let is_confirmed = bank.decision.as_ref().is_some_and(|decision| decision.outcome.is_none());
        // A proposal is withdrawn when the payment ends.
        let is_proposed = self.proposals[payment].iter().any(|proposal| proposal.status == Status::Proposed);
        is_confirmed || is_proposed && !bank.ended()
    }

    fn propose(&mut self, payment: usize, action: Action) -> bool {
        if !self.is_allowed(payment, action) {
            return false;
        }
        if self.has_open_decision(payment) {
            // A repeated proposal returns the first one.
            return self.proposals[payment].last().is_some_and(|last| last.action == action);
        }
        let number = u8::try_from(self.proposals[payment].len()).unwrap();
        let status = if action.moves_money() { Status::Proposed } else { Status::Confirmed };
        self.proposals[payment].push(Proposal { action, status });
        if status == Status::Confirmed {
            self.approve(payment, number, action);
        }
        true
    }

    fn approve(&mut self, payment: usize, id: u8, action: Action) {
        self.banks[payment].decision = Some(OpenDecision { id, action, outcome: None });
    }

    fn decide(&mut self, payment: usize, op: &Op, number: u8) -> String {
        let Proposal { action, status } = self.proposals[payment][usize::from(number)];
        match op {
            Op::Confirm => {
                let is_accepted = match status {
                    Status::Proposed => self.is_allowed(payment, action),
                    // Ann alone decides to cancel again; Bob repeats his confirmation of the others.
                    Status::Confirmed => action.moves_money(),
                    Status::Withdrawn => false,
                };
                if is_accepted && status == Status::Proposed {
                    self.proposals[payment][usize::from(number)].status = Status::Confirmed;
                    self.approve(payment, number, action);
                }
                format!("accepted {is_accepted}")
            }
            Op::Withdraw => {
                if status == Status::Proposed {
                    self.proposals[payment][usize::from(number)].status = Status::Withdrawn;
                }
                format!("accepted {}", status != Status::Confirmed)
            }
            Op::RefuseDecision => debug(&self.banks[payment].close_decision(number, refused())),
            _ => self.apply_decision(payment, number, action, status == Status::Confirmed),
        }
    }

    fn apply_decision(&mut self, payment: usize, id: u8, action: Action, is_confirmed: bool) -> String {
        let bank = &mut self.banks[payment];
        // Refused by its workflow before, which the ledger answers as it answers a decision that is not confirmed.
        let is_refused = bank.decision_outcome(id) == Some(refused());
        let is_applicable = is_confirmed && !is_refused;
        match action {
            Action::RetryCancel => debug(&bank.close_decision(id, DecisionOutcome::RetryCancel)),
            Action::Debit if !is_applicable => {
                debug(&DebitByDecisionRuling::Refused(DecisionRefusal::NotConfirmed))
            }
            Action::Debit => {
                let ruling = bank.debit_by_decision(id, &self.fixed[payment].0.profile);
                if let DebitByDecisionRuling::Ended(end) = ruling {
                    bank.close_decision(id, DecisionOutcome::Ended(end));
                }
                debug(&ruling)
            }
            Action::Release if !is_applicable => {
                let cause = bank.cause.as_deref().cloned().unwrap_or(Cause::ReleasedByDecision);
                debug(&(ReleaseByDecisionRuling::Refused(DecisionRefusal::NotConfirmed), cause))
            }
            Action::Release => {
                let ruling = bank.release_by_decision(id);
                if let ReleaseByDecisionRuling::Ended(end) = ruling.0 {
                    bank.close_decision(id, DecisionOutcome::Ended(end));
                }
                debug(&ruling)
            }
        }
    }
}

/// The switch's id of a listed transfer.
pub(crate) fn transfer_id(listed: ListedTransfer) -> String {
    match listed {
        ListedTransfer::Ours => "ours".into(),
        ListedTransfer::Other(at) => format!("transfer {at}"),
    }
}

/// Restores the customer's account; returns what the ledger returns.
fn restore(bank: &mut Bank) -> RestoreOutcome {
    let before = (bank.journal, bank.state);
    bank.restore();
    match (bank.journal.advance > before.0.advance, bank.ended(), bank.state != before.1) {
        (true, ..) => RestoreOutcome::Advanced,
        (false, true, true) => RestoreOutcome::Released,
        (false, false, true) => RestoreOutcome::CompensationBegun,
        (false, _, false) => RestoreOutcome::NotDue,
    }
}
