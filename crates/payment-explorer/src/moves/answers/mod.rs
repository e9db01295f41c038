//! One call of an attempt to our ledger or to the switch: every reply it may get.

mod ledger;
mod switch;

use payment_protocol::cancel::{CancelAnswer, SwitchResponse};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::{QueryAnswer, SendAnswer};

use super::read_back;
use crate::attempt::{Activity, AttemptCall, AttemptReply};
use crate::bank::RunNumber;
use crate::model::Model;
use crate::state::{Budget, State};

pub(super) use switch::query;

/// One reply, and the state after it.
pub(super) struct CallResult {
    pub(super) next: State,
    pub(super) reply: AttemptReply,
    /// Whether nothing went wrong in this reply.
    pub(super) benign: bool,
    pub(super) description: &'static str,
}

/// The results of one call, while they are collected.
pub(super) struct CallResults<'m> {
    pub(super) model: &'m Model,
    pub(super) from: &'m State,
    list: Vec<CallResult>,
}

impl CallResults<'_> {
    fn push(
        &mut self,
        spend: impl FnOnce(&mut Budget) -> Option<()>,
        benign: bool,
        description: &'static str,
        change: impl FnOnce(&mut State, &Model) -> Option<AttemptReply>,
    ) {
        let mut next = self.from.clone();
        if spend(&mut next.budget).is_some()
            && let Some(reply) = change(&mut next, self.model)
        {
            self.list.push(CallResult { next, reply, benign, description });
        }
    }

    /// A result in which nothing goes wrong.
    pub(super) fn benign(
        &mut self,
        description: &'static str,
        change: impl FnOnce(&mut State, &Model) -> Option<AttemptReply>,
    ) {
        self.push(|_| Some(()), true, description, change);
    }

    /// A result that costs a fault.
    fn fault(
        &mut self,
        description: &'static str,
        change: impl FnOnce(&mut State, &Model) -> Option<AttemptReply>,
    ) {
        let spend = |budget: &mut Budget| budget.faults.checked_sub(1).map(|faults| budget.faults = faults);
        self.push(spend, false, description, change);
    }

    /// A result that costs a fault of the switch.
    fn switch_fault(
        &mut self,
        description: &'static str,
        change: impl FnOnce(&mut State, &Model) -> Option<AttemptReply>,
    ) {
        let spend = |budget: &mut Budget| {
            budget.switch_faults.checked_sub(1).map(|faults| budget.switch_faults = faults)
        };
        self.push(spend, false, description, change);
    }

    /// The marker is recorded before the transfer is sent. Its commit may be lost, and the attempt's with it.
    fn record_markers(&mut self) {
        let lost: Vec<_> = self.list.iter().flat_map(lost_markers).collect();
        self.list.iter_mut().for_each(|result| result.next.listing.record_marker());
        self.list.extend(lost);
    }

    /// The switch's answer at this moment.
    pub(super) fn respond<A>(&self, answer: A) -> SwitchResponse<A> {
        SwitchResponse {
            answer,
            switch_now_ms: Some(self.model.date_ms(self.from.clock)),
            first_attempt_age_ms: (self.from.bank.attempts > 0 || self.from.bank.attempts_uncertain)
                .then(|| self.from.age_ms(self.model)),
        }
    }
}

/// The result of a submit whose marker's commit is lost: alone, and together with the attempt's.
fn lost_markers(sent: &CallResult) -> Vec<CallResult> {
    let Some(left) = sent.next.budget.lost_commits.checked_sub(1) else { return Vec::new() };
    [(false, "and the marker's commit is lost"), (true, "and the commits of attempt and marker are lost")]
        .map(|(with_attempt, description)| {
            let mut next = sent.next.clone();
            next.budget.lost_commits = left;
            if with_attempt {
                next.bank.lose_attempt();
            }
            CallResult { next, reply: sent.reply.clone(), benign: false, description }
        })
        .into()
}

/// Every result of `call` of an attempt for `run`.
pub(super) fn call_results(
    model: &Model,
    from: &State,
    run: RunNumber,
    activity: &Activity,
    call: &AttemptCall,
) -> Vec<CallResult> {
    let mut results = CallResults { model, from, list: Vec::new() };
    if from.switch.silent && silence(&mut results, call) {
        return results.list;
    }
    let has_references = !model.profile().needs_account_lock();
    if !has_references && read_back::instead(&mut results, call) {
        read_back::record_transfer_id(from, &mut results.list);
        return results.list;
    }
    if !has_references && matches!(call, AttemptCall::Send(_)) && from.bank.attempts == 0 {
        // The marker finds no attempt: its commit is lost.
        let unknown = SendAnswer::Unknown { detail: "not sent".into() };
        results.benign("no marker can be recorded, and nothing is sent", |_, _| {
            Some(AttemptReply::SendAnswer(unknown))
        });
        return results.list;
    }
    match call {
        AttemptCall::Send(reference) => switch::send(&mut results, *reference == model.payment().reference()),
        AttemptCall::Cancel(reference, _) => {
            switch::cancel(&mut results, *reference == model.payment().reference())
        }
        AttemptCall::Query(_) if model.profile().query_is_repeat => switch::repeat(&mut results),
        AttemptCall::Query(_) => switch::query(&mut results, from.switch.query()),
        AttemptCall::Statement(_) => switch::statement(&mut results),
        AttemptCall::Recall(..) => switch::recall(&mut results),
        _ => ledger::reply(&mut results, run, activity, call),
    }
    if let AttemptCall::Query(_) = call {
        let age_ms = model.age_ms(from.clock);
        results.list.iter_mut().for_each(|result| result.next.switch.count_query(model.profile(), age_ms));
    }
    if !has_references {
        if let AttemptCall::Send(_) = call {
            results.record_markers();
        }
        read_back::record_transfer_id(from, &mut results.list);
    }
    results.list
}

/// No answer. Returns whether the call is one of the switch.
pub(super) fn silence(results: &mut CallResults<'_>, call: &AttemptCall) -> bool {
    let detail = || "no answer".to_owned();
    let reply = match call {
        AttemptCall::Send(_) => AttemptReply::SendAnswer(SendAnswer::Unknown { detail: detail() }),
        AttemptCall::Cancel(..) => {
            AttemptReply::CancelAnswer(results.respond(CancelAnswer::NoAnswer { detail: detail() }))
        }
        AttemptCall::Query(_) | AttemptCall::Statement(_) => {
            AttemptReply::QueryAnswer(results.respond(QueryAnswer::NoAnswer { detail: detail() }))
        }
        AttemptCall::Recall(..) => {
            AttemptReply::RecallAnswer(results.respond(RecallAnswer::Unknown { detail: detail() }))
        }
        _ => return false,
    };
    results.benign("no answer", |_, _| Some(reply));
    true
}
