//! One state of the whole system: the bank's books, the switch, the requests in transit, and the position of
//! every piece of running code.

use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use payment_protocol::port::WaitOutcome;
use payment_protocol::rules::{self, AskRuling};

use crate::attempt::{ActiveAttempt, Activity};
use crate::bank::{Bank, RunNumber};
use crate::listing::{ListedTransfer, Listing};
use crate::model::Model;
use crate::replay::Index;
use crate::switch::{ClockPhase, Switch};
use crate::workflow::{PortCall, WorkflowError};

/// How many equal zombies are kept. The second one meets what the first has written, as each further one would.
/// Without this bound, a decision that is delivered repeatedly would add another zombie each time.
const EQUAL_ZOMBIES_MAX: usize = 2;

/// One state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Our books.
    pub bank: Bank,
    /// The switch.
    pub switch: Switch,
    /// The listing, at a switch without references.
    pub listing: Listing,
    /// The switch's clock, relative to submit's deadline; starts with the first attempt.
    pub clock: ClockPhase,
    /// Whether a try of submit may have sent the transfer, by Temporal's count of tries.
    pub tried_to_send: bool,
    /// The payment's workflow.
    pub workflow: WorkflowState,
    /// The attempt that Temporal has scheduled for the workflow's present call.
    pub current: Option<ActiveAttempt>,
    /// A run that goes on beside `workflow`: a Temporal that was restored, or that failed over, does not know of it.
    pub older: Option<Box<OlderRun>>,
    /// Attempts that Temporal has abandoned and that still run.
    pub zombies: Vec<Zombie>,
    /// Requests that nobody awaits any more and that arrive later.
    pub in_transit: Vec<Request>,
    /// Inbox messages that have not been signalled yet.
    pub messages: Vec<WaitOutcome>,
    /// A standby of our database that receives no more commits.
    pub standby: Option<Box<Standby>>,
    /// The remaining faults, decisions and recoveries.
    pub budget: Budget,
}

/// A standby of our database, which falls behind and may be promoted: everything that was committed since is lost together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Standby {
    bank: Bank,
    marker: bool,
    known: Option<ListedTransfer>,
    messages: Vec<WaitOutcome>,
}

/// The payment's workflow, as Temporal has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkflowState {
    /// Accepted, not started.
    NotStarted,
    /// Running.
    Running(RunningWorkflow),
    /// Terminated, past its retention, or lost with a server.
    Lost,
    /// Completed.
    Closed(Result<(), WorkflowError>),
}

/// A run of which the present Temporal does not know, with workers of its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OlderRun {
    /// Its workflow.
    pub workflow: WorkflowState,
    /// The attempt that its Temporal has scheduled.
    pub current: Option<ActiveAttempt>,
    /// As [`State::tried_to_send`], by the count of its Temporal.
    pub tried_to_send: bool,
}

/// A running workflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RunningWorkflow {
    /// The run of the attempt.
    pub run: RunNumber,
    /// 0 for the forward workflow, n for the n-th recovery workflow.
    pub resume: u8,
    /// The exchanges so far.
    pub history: Vec<Index>,
    /// Signals that the workflow has not handled.
    pub inbox: Vec<WaitOutcome>,
}

/// Running code whose result nobody awaits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Zombie {
    /// Inside an attempt at the switch.
    Attempt(ActiveAttempt),
    /// Before a step of our ledger.
    Ledger(PortCall, RunNumber),
}

/// A request in transit to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Request {
    /// A submit.
    Send,
    /// A cancel.
    Cancel,
    /// A recall.
    Recall,
}

/// Optional events that may still happen in this sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Faults: lost answers, crashes, zombies, late requests, terminations, resets.
    pub faults: u8,
    /// False, misdirected and mismatching messages of the switch.
    pub switch_faults: u8,
    /// Commits of our ledger that are confirmed and lost: a failover to a standby, or a restored backup.
    pub lost_commits: u8,
    /// Failovers to a standby that has fallen behind.
    pub failovers: u8,
    /// Runs that go on beside a restored Temporal, or beside a recovery.
    pub second_runs: u8,
    /// Other payments of this bank to the same account.
    pub second_payments: u8,
    /// Decisions on false evidence.
    pub false_decisions: u8,
    /// Operator decisions.
    pub decisions: u8,
    /// How many of the following three events may still happen.
    pub events: u8,
    /// Whether the customer's cancel may still happen.
    pub customer_cancel: bool,
    /// Whether a freeze of the account may still happen.
    pub freeze: bool,
    /// Whether `valid_until` may still pass before the start.
    pub late_start: bool,
}

impl State {
    /// The first state: accepted, nothing done.
    #[must_use]
    pub fn accepted(funds: bool, budget: Budget) -> Self {
        Self {
            bank: Bank::accepted(funds),
            switch: Switch::default(),
            listing: Listing::default(),
            clock: ClockPhase::BeforeDeadline,
            tried_to_send: false,
            workflow: WorkflowState::NotStarted,
            current: None,
            older: None,
            zombies: Vec::new(),
            in_transit: Vec::new(),
            messages: Vec::new(),
            standby: None,
            budget,
        }
    }

    /// A standby with everything that is committed now.
    #[must_use]
    pub fn standby_now(&self) -> Standby {
        Standby {
            bank: self.bank.clone(),
            marker: self.listing.marker,
            known: self.listing.known,
            messages: self.messages.clone(),
        }
    }

    /// Promotes the standby.
    pub fn fail_over(&mut self, standby: Standby) {
        self.bank = standby.bank;
        (self.listing.marker, self.listing.known) = (standby.marker, standby.known);
        self.messages = standby.messages;
        self.standby = None;
    }

    /// Whether a transfer may still settle: accepted and undecided, in transit, or about to be sent by an attempt
    /// that the ledger allowed.
    #[must_use]
    pub fn may_settle(&self, model: &Model) -> bool {
        let may_arrive = self.in_transit.contains(&Request::Send)
            || self.attempts().any(|attempt| model.is_about_to_send(attempt));
        self.switch.pending() || (may_arrive && self.switch.would_accept(model.profile(), self.clock))
    }

    /// The first attempt's age, by our database's clock, in milliseconds. Once the switch drops its references, every statement that
    /// could have decided is long closed.
    #[must_use]
    pub fn age_ms(&self, model: &Model) -> u64 {
        let age_ms = model.age_ms(self.clock);
        match model.profile().statement_decides_within_ms() {
            Some(within_ms) if self.switch.retention_expired => age_ms.max(within_ms),
            Some(_) | None => age_ms,
        }
    }

    /// Whether the switch answers a query now: it offers one, and none of its limits is reached.
    #[must_use]
    pub fn can_be_queried(&self, model: &Model) -> bool {
        let profile = model.profile();
        let facts = self.bank.facts(model.age_ms(self.clock), false);
        profile.has_query && (!profile.limits_queries() || rules::ask(&facts, profile) == AskRuling::Ask)
    }

    /// Whether a recall that nobody awaits may still arrive.
    #[must_use]
    pub fn is_being_recalled(&self, model: &Model) -> bool {
        let recalls = |attempt: &ActiveAttempt| *model.activity(attempt.activity) == Activity::Recall;
        self.in_transit.contains(&Request::Recall) || self.attempts().any(recalls)
    }

    /// Every attempt that runs, whether or not its workflow still awaits it.
    fn attempts(&self) -> impl Iterator<Item = &ActiveAttempt> {
        let abandoned = self.zombies.iter().filter_map(|zombie| match zombie {
            Zombie::Attempt(attempt) => Some(attempt),
            Zombie::Ledger(..) => None,
        });
        let older = self.older.iter().filter_map(|older| older.current.as_ref());
        abandoned.chain(&self.current).chain(older)
    }

    /// The workflows of the present run and of the older one.
    pub fn workflows(&self) -> impl Iterator<Item = &WorkflowState> {
        std::iter::once(&self.workflow).chain(self.older.iter().map(|older| &older.workflow))
    }

    /// Whether operators decided on false evidence, and the decision was applied.
    #[must_use]
    pub fn was_decided_falsely(&self, model: &Model) -> bool {
        self.budget.false_decisions < model.bounds.false_decisions
    }

    /// Whether the customer or the bank is charged exactly if the money left, and no transfer may settle any more.
    #[must_use]
    pub fn is_booked_right(&self, model: &Model) -> bool {
        !self.may_settle(model) && self.bank.is_debited() == self.switch.settled()
    }

    /// Swaps the present run and the older one, so that a move of the present run is one of the older run.
    pub(crate) fn swap_runs(&mut self) {
        if let Some(older) = &mut self.older {
            std::mem::swap(&mut self.workflow, &mut older.workflow);
            std::mem::swap(&mut self.current, &mut older.current);
            std::mem::swap(&mut self.tried_to_send, &mut older.tried_to_send);
        }
    }

    /// Sorts unordered parts, so that equal states are equal, and drops messages that need no delivery.
    pub fn normalise(&mut self) {
        self.in_transit.sort_unstable();
        if self.bank.decision.as_ref().is_some_and(|decision| decision.outcome.is_some()) {
            self.messages.retain(|event| !matches!(event, WaitOutcome::Decided(_)));
        }
        if self.zombies.len() > 1 {
            self.zombies.sort_by_cached_key(|zombie| FixedState::default().hash_one(zombie));
            let mut at = EQUAL_ZOMBIES_MAX;
            while at < self.zombies.len() {
                if self.zombies[at] == self.zombies[at - EQUAL_ZOMBIES_MAX] {
                    self.zombies.remove(at);
                } else {
                    at += 1;
                }
            }
        }
    }

    /// A workflow that awaits an operator makes no requests: signals it a final status or a final state that was
    /// written since `before`.
    pub fn signal_final_status(&mut self, before: &Self) {
        let written = before.bank.final_status != self.bank.final_status || self.bank.ended();
        let open = self.workflows().any(|workflow| !matches!(workflow, WorkflowState::Closed(_)));
        if written && before.bank.may_await_operator() && open {
            self.store_message(WaitOutcome::FinalStatusRecorded);
        }
    }

    /// A decision that ended nothing is forgotten, so that operators may decide again, however often: a payment whose every decision is
    /// refused is a dead end. Not while something of the decision is left that would be taken for the next one's.
    pub fn allow_another_decision(&mut self, model: &Model) {
        let is_decided = |event: &WaitOutcome| matches!(event, WaitOutcome::Decided(_));
        let applies = |attempt: &ActiveAttempt| {
            matches!(&*model.activity(attempt.activity), Activity::ApplyDecision(..))
        };
        let is_delivered_again = self.workflows().any(|workflow| match workflow {
            WorkflowState::Running(running) => running.inbox.iter().any(is_decided),
            WorkflowState::NotStarted | WorkflowState::Lost | WorkflowState::Closed(_) => false,
        });
        // Its close may be lost, and the decision is then delivered again.
        let is_closed = self.bank.decision.as_ref().is_some_and(|decision| decision.outcome.is_some());
        let is_walked = self.older.is_none() && model.bounds.second_payments == 0;
        if is_walked && is_closed && !is_delivered_again && !self.attempts().any(applies) {
            self.messages.retain(|event| !is_decided(event));
            self.bank.decision = None;
            // A failover may have brought back an earlier decision.
            self.budget.decisions = (self.budget.decisions + 1).min(model.bounds.decisions);
        }
    }

    /// Stores an inbox message; a message that is already stored is not stored twice.
    pub fn store_message(&mut self, event: WaitOutcome) {
        if !self.messages.contains(&event) {
            self.messages.push(event);
        }
    }
}
