//! The state that the next calls observe.
//!
//! A freeze, a tick of the clock, a customer's cancel or a signal changes nothing until a call observes it. Such an
//! event at *any* earlier moment leads to the same result as the event right before the first observation, so the
//! explorer makes it only there. This prunes nothing: the order of an event and a call that does not observe the
//! event is irrelevant. Everything else (decisions of the switch, callbacks, faults, zombies) moves at every moment.

use std::rc::Rc;

use payment_protocol::cause::OperatorReason;

use crate::attempt::{ActiveAttempt, Activity, AttemptCall};
use crate::model::Model;
use crate::replay::Progress;
use crate::state::{State, WorkflowState, Zombie};
use crate::workflow::PortCall;

/// The state that the next calls would observe.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observation {
    /// The switch's clock, the first attempt's age, and whether references are retained.
    pub(super) clock: bool,
    /// Whether the account may be debited and has the funds.
    pub(super) account: bool,
    /// The customer's cancel request, and `valid_until`.
    pub(super) customer: bool,
    /// Signals.
    pub(super) inbox: bool,
    /// Why the payment needs an operator, while the workflow awaits one.
    pub(super) operator_reason: Option<OperatorReason>,
}

impl Observation {
    pub(super) fn of(model: &Model, state: &State) -> Self {
        let mut observed = Self { clock: !state.in_transit.is_empty(), ..Self::default() };
        observed.add_run(model, state, &state.workflow, state.current.as_ref());
        if let Some(older) = &state.older {
            // Operators decide about the present run only.
            let operator_reason = observed.operator_reason;
            observed.add_run(model, state, &older.workflow, older.current.as_ref());
            observed.operator_reason = operator_reason;
        }
        for zombie in &state.zombies {
            match zombie {
                Zombie::Ledger(call, _) => observed.add_ledger_call(call),
                Zombie::Attempt(attempt) => {
                    observed.add_attempt_call(&model.attempt_at(attempt.activity, &attempt.history));
                }
            }
        }
        // A correction after the payment ended observes the account.
        observed.account |= state.bank.ended();
        observed
    }

    fn add_run(
        &mut self,
        model: &Model,
        state: &State,
        workflow: &WorkflowState,
        current: Option<&ActiveAttempt>,
    ) {
        match workflow {
            WorkflowState::NotStarted => self.customer = true,
            WorkflowState::Running(running) => {
                if let Progress::Awaits(call) = &*model.workflow_at(running.resume, &running.history) {
                    self.add_port_call(model, state, call, current);
                }
            }
            WorkflowState::Lost | WorkflowState::Closed(_) => {}
        }
    }

    fn add_port_call(
        &mut self,
        model: &Model,
        state: &State,
        call: &PortCall,
        current: Option<&ActiveAttempt>,
    ) {
        let activity = match call {
            PortCall::Submit => Some(Activity::Submit),
            PortCall::Cancel(cause, submit) => {
                self.inbox = true;
                Some(Activity::Cancel(cause.clone(), *submit))
            }
            PortCall::Recall => Some(Activity::Recall),
            PortCall::Debit if model.confirms_by_query() => Some(Activity::Debit),
            PortCall::ApplyDecision(decision, reason, submit) => {
                Some(Activity::ApplyDecision(decision.clone(), *reason, *submit))
            }
            PortCall::WaitWithinSla | PortCall::WaitUntilEvent => {
                (self.inbox, self.customer) = (true, true);
                if *call == PortCall::WaitUntilEvent {
                    self.operator_reason = state.bank.operator_reason;
                }
                model.is_polled(&state.bank, call).then_some(Activity::Poll)
            }
            PortCall::Lock => {
                (self.inbox, self.customer) = (true, true);
                None
            }
            _ => {
                self.add_ledger_call(call);
                None
            }
        };
        if let Some(activity) = activity {
            let (activity, history) = match current {
                Some(attempt) => (attempt.activity, attempt.history.as_slice()),
                None => (model.intern_activity(activity), [].as_slice()),
            };
            self.add_attempt_call(&model.attempt_at(activity, history));
        }
    }

    fn add_ledger_call(&mut self, call: &PortCall) {
        match call {
            PortCall::Reserve => (self.account, self.customer) = (true, true),
            PortCall::Debit => self.account = true,
            _ => {}
        }
    }

    fn add_attempt_call<T>(&mut self, progress: &Rc<Progress<AttemptCall, T>>) {
        let Progress::Awaits(call) = &**progress else { return };
        match call {
            AttemptCall::RecordAttempt => (self.clock, self.customer) = (true, true),
            AttemptCall::Send(_)
            | AttemptCall::Cancel(..)
            | AttemptCall::BeginQuery
            | AttemptCall::Query(_)
            | AttemptCall::Statement(_)
            | AttemptCall::Recall(..) => {
                self.clock = true;
            }
            AttemptCall::Debit(_) | AttemptCall::DebitByDecision => self.account = true,
            _ => {}
        }
    }
}
