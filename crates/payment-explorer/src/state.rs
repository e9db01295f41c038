//! One moment of the whole: the bank's books, the switch, what is on its way between them, and where every
//! piece of running code stands.

use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use payment_protocol::PaymentError;
use payment_protocol::port::WaitOutcome;

use crate::attempt::Job;
use crate::bank::{self, Bank};
use crate::model::Model;
use crate::run::Step;
use crate::script::Number;
use crate::switch::{Moment, Switch};

/// So many pieces of given up code at the very same place are kept. The second finds what the first has written, as each
/// further one would; without a bound, a decision that is told again and again leaves another asking behind each time.
const ALIKE_MAX: usize = 2;

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Our books.
    pub bank: Bank,
    /// The other party.
    pub switch: Switch,
    /// The switch's clock, relative to submit's deadline; starts with the first attempt.
    pub now: Moment,
    /// The payment's workflow.
    pub run: Run,
    /// The attempt that the server has given the present step.
    pub current: Option<AttemptInFlight>,
    /// Attempts that the server has given up and that live on.
    pub zombies: Vec<Zombie>,
    /// Requests that nobody waits for any more and that arrive later.
    pub wire: Vec<Message>,
    /// What is stored in the inbox and was not signalled yet.
    pub messages: Vec<WaitOutcome>,
    /// What may still go wrong or be asked for.
    pub left: Left,
}

/// The payment's workflow, as the engine has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Run {
    /// Accepted, not started.
    NotStarted,
    /// Running.
    Live(Live),
    /// Terminated, retention_expired, or gone with a server.
    Lost,
    /// Completed.
    Closed(Result<(), ClosedWith>),
}

/// What a workflow failed with, in its stable words.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClosedWith {
    /// The end it names.
    pub end: payment_protocol::FinalState,
    /// The word of the error.
    pub code: &'static str,
}

impl From<PaymentError> for ClosedWith {
    fn from(error: PaymentError) -> Self {
        Self { end: error.end(), code: error.code() }
    }
}

/// A running workflow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Live {
    /// Its run id.
    pub id: bank::Run,
    /// 0 from the top, else the n-th taking up.
    pub resume: u8,
    /// The answers it has had.
    pub past: Vec<Number>,
    /// What was signalled and not heard.
    pub inbox: Vec<WaitOutcome>,
}

/// An attempt of an activity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttemptInFlight {
    /// Of which activity, by its number in the model.
    pub job: Number,
    /// For which run.
    pub run: bank::Run,
    /// The replies it has had.
    pub past: Vec<Number>,
}

/// Code that nobody waits for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Zombie {
    /// Inside an attempt at the switch.
    Attempt(AttemptInFlight),
    /// Before a step of our ledger.
    Ledger(Step, bank::Run),
}

/// A request on its way to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Message {
    /// A submit.
    Send,
    /// A cancel.
    Cancel,
    /// A recall.
    Recall,
}

/// What may still happen that need not: each is given once, or so many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Left {
    /// Faults: lost answers, crashes, zombies, late requests, terminations, resets.
    pub faults: u8,
    /// False, foreign and wrong words of the switch.
    pub words: u8,
    /// Decisions by people.
    pub decisions: u8,
    /// The customer's cancel.
    pub customer_cancel: bool,
    /// A freeze of the account.
    pub freeze: bool,
    /// `valid_until` passing before the start.
    pub lateness: bool,
}

impl State {
    /// The beginning: accepted, nothing done.
    #[must_use]
    pub fn accepted(funds: bool, left: Left) -> Self {
        Self {
            bank: Bank::accepted(funds),
            switch: Switch::default(),
            now: Moment::Before,
            run: Run::NotStarted,
            current: None,
            zombies: Vec::new(),
            wire: Vec::new(),
            messages: Vec::new(),
            left,
        }
    }

    /// Whether something that was sent may still settle: taken and undecided, or on its way, or about to be
    /// sent by an attempt that was let out.
    #[must_use]
    pub fn may_settle(&self, model: &Model) -> bool {
        let lands = self.wire.contains(&Message::Send)
            || self
                .zombies
                .iter()
                .any(|zombie| matches!(zombie, Zombie::Attempt(attempt) if model.is_about_to_send(attempt)));
        self.switch.pending() || (lands && self.switch.would_take(model.profile(), self.now))
    }

    /// Whether a recall that nobody waits for may still arrive.
    #[must_use]
    pub fn is_being_recalled(&self, model: &Model) -> bool {
        let recalls = |zombie: &Zombie| matches!(zombie, Zombie::Attempt(attempt) if *model.job_of(attempt.job) == Job::Recall);
        self.wire.contains(&Message::Recall) || self.zombies.iter().any(recalls)
    }

    /// Puts what is unordered into one order, so that equal states are equal, and drops what needs no telling.
    pub fn tidy(&mut self) {
        self.wire.sort_unstable();
        if self.bank.decision.as_ref().is_some_and(|decision| decision.came.is_some()) {
            self.messages.retain(|event| !matches!(event, WaitOutcome::Decided(_)));
        }
        if self.zombies.len() > 1 {
            self.zombies.sort_by_cached_key(|zombie| FixedState::default().hash_one(zombie));
            let mut at = ALIKE_MAX;
            while at < self.zombies.len() {
                if self.zombies[at] == self.zombies[at - ALIKE_MAX] {
                    self.zombies.remove(at);
                } else {
                    at += 1;
                }
            }
        }
    }

    /// Who stands before a person asks nobody any more: a final_status or an end that somebody else wrote since `before`
    /// must be signalled.
    pub fn wake_who_may_stand(&mut self, before: &Self) {
        let came = before.bank.final_status != self.bank.final_status || self.bank.ended();
        if came && before.bank.may_stand() && !matches!(self.run, Run::Closed(_)) {
            self.message(WaitOutcome::FinalStatusRecorded);
        }
    }

    /// Stores what must be signalled; a repeat of what waits says nothing new.
    pub fn message(&mut self, event: WaitOutcome) {
        if !self.messages.contains(&event) {
            self.messages.push(event);
        }
    }
}
