//! One call of an attempt to our ledger or to the switch: every reply it may get.

use payment_protocol::cancel::{CancelAnswer, SwitchResponse};
use payment_protocol::cause::Cause;
use payment_protocol::ids::DecisionId;
use payment_protocol::profile::Strategy;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{
    AttemptRuling, DebitByDecisionRuling, DecisionRefusal, ReleaseByDecisionRuling,
};
use payment_protocol::submit::{QueryAnswer, SendAnswer};

use super::read_back;
use crate::attempt::{Activity, AttemptCall, AttemptReply};
use crate::bank::RunNumber;
use crate::listing::ListedTransfer;
use crate::model::{DEADLINE_MS, Model};
use crate::state::{Budget, Request, State};
use crate::switch::{
    CancelResult, ClockPhase, QueryResult, RecallResult, RepeatedCancelAnswer, SubmitHandling, SubmitResult,
};

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

    /// The switch's answer at this moment.
    pub(super) fn respond<A>(&self, answer: A) -> SwitchResponse<A> {
        SwitchResponse {
            answer,
            switch_now_ms: Some(self.model.date_ms(self.from.clock)),
            first_attempt_age_ms: (self.from.bank.attempts > 0 || self.from.bank.attempts_uncertain)
                .then(|| self.model.age_ms(self.from.clock)),
        }
    }
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
    match call {
        AttemptCall::Send(reference) => send(&mut results, *reference == model.payment().reference()),
        AttemptCall::Cancel(reference, _) => cancel(&mut results, *reference == model.payment().reference()),
        AttemptCall::Query(_) => query(&mut results, from.switch.query()),
        AttemptCall::Statement(_) => query(&mut results, from.switch.statement()),
        AttemptCall::Recall(..) => recall(&mut results),
        _ => ledger(&mut results, run, activity, call),
    }
    if !has_references {
        if let AttemptCall::Send(_) = call {
            results.list.iter_mut().for_each(|result| result.next.listing.record_marker());
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

/// The reply of our ledger.
fn ledger(results: &mut CallResults<'_>, run: RunNumber, activity: &Activity, call: &AttemptCall) {
    results.benign("", |next, model| ledger_reply(next, model, run, activity, call));
    let lost =
        |budget: &mut Budget| budget.lost_commits.checked_sub(1).map(|left| budget.lost_commits = left);
    results.push(lost, false, "commits, and the commit is lost", |next, model| {
        let before = (next.bank.clone(), next.listing.known);
        let reply = ledger_reply(next, model, run, activity, call);
        if next.bank == before.0 {
            return None;
        }
        (next.bank, next.listing.known) = before;
        reply
    });
    let lied =
        |budget: &mut Budget| budget.false_decisions.checked_sub(1).map(|left| budget.false_decisions = left);
    results.push(lied, false, "on false evidence", |next, model| apply_falsely(next, model, activity, call));
    if *call == AttemptCall::RecordAttempt && results.model.profile().strategy == Strategy::Validate {
        results.fault("another payment has sent to the same account", |next, model| {
            let age_ms = model.age_ms(next.clock);
            let ruling = next.bank.record_attempt(run, model.payment(), age_ms, true, next.tried_to_send);
            Some(AttemptReply::RecordAttempt(ruling))
        });
    }
}

fn ledger_reply(
    next: &mut State,
    model: &Model,
    run: RunNumber,
    activity: &Activity,
    call: &AttemptCall,
) -> Option<AttemptReply> {
    Some(match call {
        AttemptCall::Logged => AttemptReply::Logged(next.bank.log.clone()),
        AttemptCall::RecordAttempt => {
            let age_ms = model.age_ms(next.clock);
            let ruling = {
                let account_busy = next.listing.second.keeps_account_busy();
                next.bank.record_attempt(run, model.payment(), age_ms, account_busy, next.tried_to_send)
            };
            next.tried_to_send |= matches!(ruling, AttemptRuling::Send(_));
            AttemptReply::RecordAttempt(ruling)
        }
        AttemptCall::RecordAnswer(n, answer) => {
            next.bank.record_answer(*n, answer);
            if *answer == SendAnswer::Accepted {
                // The answer names the transfer's id at the switch.
                next.listing.known.get_or_insert(ListedTransfer::Ours);
            }
            AttemptReply::Done
        }
        AttemptCall::RecordFound => AttemptReply::RecordFound(next.bank.record_found()),
        AttemptCall::RecordSettled(report) => {
            AttemptReply::FinalStatus(next.bank.record_settled(model.payment(), report))
        }
        AttemptCall::RecordReturned(report) => {
            AttemptReply::FinalStatus(next.bank.record_returned(model.payment(), report))
        }
        AttemptCall::RecordVoid(reason) => AttemptReply::FinalStatus(next.bank.record_void(*reason)),
        AttemptCall::Begin => {
            let (cause, submit_scheduled) = match activity {
                Activity::Cancel(cause, submit_scheduled) => (cause.clone(), *submit_scheduled),
                _ => (Cause::ReleasedByDecision, true),
            };
            AttemptReply::Begin(next.bank.begin_cancel(&cause, DEADLINE_MS, submit_scheduled))
        }
        // The simulated clock has one deadline, which every attempt has.
        AttemptCall::BoundDeadline(_) => AttemptReply::Deadline(DEADLINE_MS),
        AttemptCall::RecallRecorded => AttemptReply::Recall(next.bank.recall_recorded()),
        AttemptCall::RecordRecall(record) => AttemptReply::Recall(Some(next.bank.record_recall(*record))),
        AttemptCall::DecisionRecorded => {
            AttemptReply::Decision(next.bank.decision_outcome(decision_number(activity)?))
        }
        AttemptCall::DebitByDecision => debit_by_decision(next, model, activity)?,
        AttemptCall::ReleaseByDecision => release_by_decision(next, model, activity)?,
        AttemptCall::CloseDecision(outcome) => {
            next.bank.close_decision(decision_number(activity)?, outcome.clone());
            AttemptReply::Done
        }
        AttemptCall::Send(_)
        | AttemptCall::Cancel(..)
        | AttemptCall::Query(_)
        | AttemptCall::Statement(_)
        | AttemptCall::Recall(..) => return None,
    })
}

/// A decision on false evidence; `None` if its evidence is true, or the ledger refuses it.
fn apply_falsely(
    next: &mut State,
    model: &Model,
    activity: &Activity,
    call: &AttemptCall,
) -> Option<AttemptReply> {
    let number = decision_number(activity)?;
    match call {
        AttemptCall::DebitByDecision if !may_debit(next, model) => {
            let ruling = next.bank.debit_by_decision(number);
            (ruling == DebitByDecisionRuling::Charge).then_some(AttemptReply::DebitByDecision(ruling))
        }
        AttemptCall::ReleaseByDecision if !may_release(next, model) => {
            let (ruling, cause) = next.bank.release_by_decision(number);
            (ruling == ReleaseByDecisionRuling::Release)
                .then_some(AttemptReply::ReleaseByDecision(ruling, cause))
        }
        _ => None,
    }
}

/// Whether the evidence for a debit by decision is true.
fn may_debit(next: &State, model: &Model) -> bool {
    next.bank.ended() || (next.switch.settled() && !next.is_being_recalled(model))
}

/// Whether the evidence for a release by decision is true.
fn may_release(next: &State, model: &Model) -> bool {
    next.bank.ended() || !(next.switch.settled() || next.may_settle(model))
}

/// Operators claim only what is true, or notice a false claim in time. Their false claims: [`apply_falsely`].
fn debit_by_decision(next: &mut State, model: &Model, activity: &Activity) -> Option<AttemptReply> {
    if !may_debit(next, model) {
        let refusal = DecisionRefusal::SwitchSaysVoid;
        return Some(AttemptReply::DebitByDecision(DebitByDecisionRuling::Refused(refusal)));
    }
    Some(AttemptReply::DebitByDecision(next.bank.debit_by_decision(decision_number(activity)?)))
}

/// See [`debit_by_decision`].
fn release_by_decision(next: &mut State, model: &Model, activity: &Activity) -> Option<AttemptReply> {
    if !may_release(next, model) {
        let refused = ReleaseByDecisionRuling::Refused(DecisionRefusal::SwitchSaysSettled);
        return Some(AttemptReply::ReleaseByDecision(refused, Cause::ReleasedByDecision));
    }
    let (ruling, cause) = next.bank.release_by_decision(decision_number(activity)?);
    Some(AttemptReply::ReleaseByDecision(ruling, cause))
}

/// The number in a decision's id.
fn decision_number(activity: &Activity) -> Option<u8> {
    let Activity::ApplyDecision(decision, _) = activity else { return None };
    let id: &DecisionId = &decision.decision_id;
    id.as_str().rsplit('-').next()?.parse().ok()
}

fn send(results: &mut CallResults<'_>, own_reference: bool) {
    let no_answer = || Some(AttemptReply::SendAnswer(SendAnswer::Unknown { detail: "no answer".into() }));
    let (profile, from) = (results.model.profile(), results.from);
    let choices = if own_reference { from.switch.submit_choices(profile, from.clock) } else { Vec::new() };
    for handling in choices {
        let description = match handling {
            SubmitHandling::Accept => "the switch accepts",
            SubmitHandling::Refuse => "the switch refuses",
            SubmitHandling::RefuseUnrecorded => "the switch refuses and records nothing",
        };
        let handled = |next: &mut State, model: &Model| {
            Some(AttemptReply::SendAnswer(match next.switch.submit(model.profile(), handling) {
                SubmitResult::Accepted => SendAnswer::Accepted,
                SubmitResult::Refused => SendAnswer::Refused { reason: "refused".into() },
            }))
        };
        if handling == SubmitHandling::RefuseUnrecorded {
            results.switch_fault(description, handled)
        } else {
            results.benign(description, handled)
        }
        results.fault("the submit arrives, its answer is lost", |next, model| {
            next.switch.submit(model.profile(), handling);
            no_answer()
        });
        results.switch_fault("the switch handles the submit and answers 503", |next, model| {
            next.switch.submit(model.profile(), handling);
            no_answer()
        });
    }
    if own_reference && from.switch.submit_choices(profile, from.clock).is_empty() {
        results.benign("the request has no effect after such a delay", |_, _| no_answer());
    }
    results.fault("the request is lost", |_, _| no_answer());
    results.fault("no answer in time; the submit is still in transit", |next, _| {
        next.in_transit.push(Request::Send);
        no_answer()
    });
}

fn cancel(results: &mut CallResults<'_>, own_reference: bool) {
    if !own_reference {
        let answer = if results.model.profile().tombstones {
            CancelAnswer::Cancelled { tombstoned: Some(true) }
        } else {
            CancelAnswer::NotFound
        };
        let response = results.respond(answer);
        results.benign("the switch does not know this reference", |_, _| {
            Some(AttemptReply::CancelAnswer(response))
        });
        return;
    }
    let report = results.model.report.clone();
    let result = results.from.switch.clone().cancel(results.model.profile());
    let (description, answer) = match result {
        CancelResult::Cancelled => {
            ("the switch cancels", CancelAnswer::Cancelled { tombstoned: Some(false) })
        }
        CancelResult::Tombstoned => {
            ("the switch leaves a tombstone", CancelAnswer::Cancelled { tombstoned: Some(true) })
        }
        CancelResult::AlreadyRejected => {
            ("the switch had rejected the transfer", CancelAnswer::AlreadyRejected)
        }
        CancelResult::AlreadySettled => {
            ("the switch had settled the transfer", CancelAnswer::AlreadySettled(report))
        }
        CancelResult::AlreadyReturned => {
            ("the switch had returned the money", CancelAnswer::AlreadyReturned(report))
        }
        CancelResult::NotFound => ("the switch does not find the transfer", CancelAnswer::NotFound),
        CancelResult::Undecided => ("the switch repeats: in process", in_process()),
    };
    let response = results.respond(answer);
    let undated = SwitchResponse { switch_now_ms: None, ..response.clone() };
    results.benign(description, |next, model| {
        next.switch.cancel(model.profile());
        Some(AttemptReply::CancelAnswer(response))
    });
    results.switch_fault("the switch answers without a Date", |next, model| {
        next.switch.cancel(model.profile());
        Some(AttemptReply::CancelAnswer(undated))
    });
    let no_answer = results.respond(CancelAnswer::NoAnswer { detail: "no answer".into() });
    results.fault("the cancel arrives, its answer is lost", |next, model| {
        next.switch.cancel(model.profile());
        Some(AttemptReply::CancelAnswer(no_answer.clone()))
    });
    results.fault("no answer in time; the cancel is still in transit", |next, _| {
        next.in_transit.push(Request::Cancel);
        Some(AttemptReply::CancelAnswer(no_answer))
    });
    cancel_without_effect(results, result);
}

fn in_process() -> CancelAnswer {
    CancelAnswer::Undecided { detail: "in process".into() }
}

/// Answers to a cancel that changes nothing at the switch.
fn cancel_without_effect(results: &mut CallResults<'_>, result: CancelResult) {
    let mut answers = vec![
        ("the switch answers 401", CancelAnswer::OurFault { detail: "401".into() }),
        ("the switch cannot cancel this transfer", CancelAnswer::CannotCancel),
        ("the switch answers: in process", in_process()),
    ];
    let stuck = results.respond(in_process());
    results.switch_fault("the switch answers in process, and repeats it to every cancel", |next, _| {
        next.switch.repeated_cancel_answer = Some(RepeatedCancelAnswer::Undecided);
        Some(AttemptReply::CancelAnswer(stuck))
    });
    if result == CancelResult::AlreadySettled {
        let other = SettledReport { amount_minor: 1, ..results.model.report.clone() };
        answers.push(("the switch had settled another amount", CancelAnswer::AlreadySettled(other)));
    }
    if result == CancelResult::NotFound {
        let unmarked = CancelAnswer::Cancelled { tombstoned: None };
        answers.push(("the switch answers cancelled, without a tombstone", unmarked));
        let stuck = results.respond(CancelAnswer::NotFound);
        results.switch_fault("the switch answers not found, and repeats it to every cancel", |next, _| {
            next.switch.repeated_cancel_answer = Some(RepeatedCancelAnswer::NotFound);
            Some(AttemptReply::CancelAnswer(stuck))
        });
    }
    for (description, answer) in answers {
        let response = results.respond(answer);
        results.switch_fault(description, |_, _| Some(AttemptReply::CancelAnswer(response)));
    }
}

pub(super) fn query(results: &mut CallResults<'_>, result: QueryResult) {
    let report = results.model.report.clone();
    let (description, answer) = match result {
        QueryResult::Pending => ("the switch has not decided", QueryAnswer::Pending),
        QueryResult::Settled => ("the switch reports settled", QueryAnswer::Settled(report.clone())),
        QueryResult::Returned => {
            ("the switch reports that the money came back", QueryAnswer::Returned(report.clone()))
        }
        QueryResult::Void => ("the switch reports void", QueryAnswer::Void { reason: "void".into() }),
        QueryResult::NotFound => ("the switch does not know the transfer", QueryAnswer::NotFound),
    };
    let mut others = vec![
        ("no answer", QueryAnswer::NoAnswer { detail: "no answer".into() }),
        ("the switch answers 401", QueryAnswer::OurFault { detail: "401".into() }),
    ];
    if result == QueryResult::Settled {
        let other = SettledReport { amount_minor: 1, ..report };
        others.push(("the switch reports settled, with another amount", QueryAnswer::Settled(other)));
    }
    // A replica lags behind. A lag beyond the deadline and the skew of the clocks looks like a transfer that never arrived,
    // unless the acceptance is recorded.
    let lag_shows = results.from.clock < ClockPhase::AfterDeadline || results.from.bank.accepted;
    if lag_shows && result != QueryResult::NotFound {
        others.push(("a lagging copy of the switch does not know the transfer yet", QueryAnswer::NotFound));
    }
    let response = results.respond(answer);
    results.benign(description, |_, _| Some(AttemptReply::QueryAnswer(response)));
    for (description, answer) in others {
        let response = results.respond(answer);
        results.switch_fault(description, |_, _| Some(AttemptReply::QueryAnswer(response)));
    }
}

fn recall(results: &mut CallResults<'_>) {
    let free = results.from.switch.may_return_money();
    let choices: &[bool] = if free { &[true, false] } else { &[true] };
    let unknown = || RecallAnswer::Unknown { detail: "no answer".into() };
    for returns in choices {
        let (description, answer) = match results.from.switch.clone().recall(*returns) {
            RecallResult::Recalled => ("the switch returns the money", RecallAnswer::Recalled),
            RecallResult::Refused => {
                ("the switch refuses to return the money", RecallAnswer::Refused { reason: "kept".into() })
            }
            RecallResult::Unknown => ("the switch has no definite answer", unknown()),
        };
        let (response, lost) = (results.respond(answer), results.respond(unknown()));
        results.benign(description, |next, _| {
            next.switch.recall(*returns);
            Some(AttemptReply::RecallAnswer(response))
        });
        results.fault("the recall arrives, its answer is lost", |next, _| {
            next.switch.recall(*returns);
            Some(AttemptReply::RecallAnswer(lost))
        });
    }
    let lost = results.respond(unknown());
    let unsupported = results.respond(RecallAnswer::RecallUnsupported);
    results.fault("no answer in time; the recall is still in transit", |next, _| {
        next.in_transit.push(Request::Recall);
        Some(AttemptReply::RecallAnswer(lost))
    });
    results.switch_fault("the switch does not support recalls", |_, _| {
        Some(AttemptReply::RecallAnswer(unsupported))
    });
}
