//! What the next questions look at.
//!
//! A freeze, a tick of the clock, a cancel of the customer or a signal changes nothing until something looks at
//! it. Such an event at *any* earlier moment leads to the same as the event right before the first look, so it
//! is made only there. This prunes nothing: the order of an event and a question that does not see it is no
//! order. Everything else (the switch deciding, callbacks, faults, zombies) moves at every moment.

use std::rc::Rc;

use payment_protocol::cause::OperatorReason;

use crate::attempt::{Call, Job};
use crate::model::Model;
use crate::run::Step;
use crate::script::Came;
use crate::state::{Run, State, Zombie};

/// What would be looked at next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attention {
    /// The switch's clock, the first attempt's age, whether references are remembered.
    pub(super) clock: bool,
    /// Whether the account may be debited and has the funds.
    pub(super) account: bool,
    /// Whether the customer's cancel, or `valid_until`, has come.
    pub(super) customer: bool,
    /// What was signalled.
    pub(super) inbox: bool,
    /// Why the payment stands before a person, while it follows_switch there.
    pub(super) stands: Option<OperatorReason>,
}

impl Attention {
    pub(super) fn of(model: &Model, state: &State) -> Self {
        let mut seen = Self { clock: !state.wire.is_empty(), ..Self::default() };
        match &state.run {
            Run::NotStarted => seen.customer = true,
            Run::Live(live) => {
                if let Came::Asks(step) = &*model.run_at(live.resume, &live.past) {
                    seen.look_of_step(model, state, step);
                }
            }
            Run::Lost | Run::Closed(_) => {}
        }
        for zombie in &state.zombies {
            match zombie {
                Zombie::Ledger(step, _) => seen.look_of_ledger(step),
                Zombie::Attempt(attempt) => {
                    seen.look_of_call(&model.attempt_at(attempt.job, &attempt.past));
                }
            }
        }
        // A correction after the end looks at the account.
        seen.account |= state.bank.ended();
        seen
    }

    fn look_of_step(&mut self, model: &Model, state: &State, step: &Step) {
        let job = match step {
            Step::Submit => Some(Job::Submit),
            Step::Cancel(cause) => {
                self.inbox = true;
                Some(Job::Cancel(cause.clone()))
            }
            Step::Recall => Some(Job::Recall),
            Step::ApplyDecision(decision, reason) => Some(Job::CarryOut(decision.clone(), *reason)),
            Step::WaitWithinSla | Step::WaitUntilEvent => {
                (self.inbox, self.customer) = (true, true);
                if *step == Step::WaitUntilEvent {
                    self.stands = state.bank.operator_reason;
                }
                model.profile().must_be_polled().then_some(Job::Poll)
            }
            Step::Lock => {
                (self.inbox, self.customer) = (true, true);
                None
            }
            _ => {
                self.look_of_ledger(step);
                None
            }
        };
        if let Some(job) = job {
            let (job, past) = match &state.current {
                Some(attempt) => (attempt.job, attempt.past.as_slice()),
                None => (model.job(job), [].as_slice()),
            };
            self.look_of_call(&model.attempt_at(job, past));
        }
    }

    fn look_of_ledger(&mut self, step: &Step) {
        match step {
            Step::Reserve => (self.account, self.customer) = (true, true),
            Step::Debit => self.account = true,
            _ => {}
        }
    }

    fn look_of_call<R>(&mut self, came: &Rc<Came<Call, R>>) {
        let Came::Asks(call) = &**came else { return };
        match call {
            Call::RecordAttempt => (self.clock, self.customer) = (true, true),
            Call::Send(_) | Call::Cancel(..) | Call::Query(_) | Call::Recall(..) => self.clock = true,
            Call::DebitByDecision => self.account = true,
            _ => {}
        }
    }
}
