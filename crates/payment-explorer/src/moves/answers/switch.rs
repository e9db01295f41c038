//! The answers of the switch.

use payment_protocol::cancel::{CancelAnswer, SwitchResponse};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::SettledReport;
use payment_protocol::submit::{QueryAnswer, SendAnswer};

use super::CallResults;
use crate::attempt::AttemptReply;
use crate::model::Model;
use crate::state::{Request, State};
use crate::switch::{
    CancelResult, ClockPhase, QueryResult, RecallResult, RepeatedCancelAnswer, SubmitHandling, SubmitResult,
};

pub(super) fn send(results: &mut CallResults<'_>, own_reference: bool) {
    let no_answer = || Some(AttemptReply::SendAnswer(SendAnswer::Unknown { detail: "no answer".into() }));
    let (profile, from) = (results.model.profile(), results.from);
    let choices = if own_reference { from.switch.submit_choices(profile, from.clock) } else { Vec::new() };
    for handling in choices {
        let description = from.switch.submit_words(profile, handling);
        let handled = |next: &mut State, model: &Model| {
            let result = next.switch.submit(model.profile(), handling);
            Some(AttemptReply::SendAnswer(match reject(model, result) {
                None => SendAnswer::Accepted,
                Some(reject) => SendAnswer::Refused { reject },
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
    // A proxy that repeats a request whose connection broke: only a rail that refuses duplicates is safe from that.
    let refuses_duplicates = profile.burns_reference && !profile.deduplicates;
    if own_reference && refuses_duplicates && from.switch.would_accept(profile, from.clock) {
        results.fault("the request arrives twice, and the second one is answered", |next, model| {
            next.switch.submit(model.profile(), SubmitHandling::Accept);
            let second = next.switch.submit(model.profile(), SubmitHandling::RefuseDuplicate);
            reject(model, second).map(|reject| AttemptReply::SendAnswer(SendAnswer::Refused { reject }))
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

/// The reject in the switch's answer to a submit; `None` if it accepted.
fn reject(model: &Model, result: SubmitResult) -> Option<Reject> {
    match result {
        SubmitResult::Accepted => None,
        SubmitResult::Refused => Some(model.reject(RejectMeaning::Dead)),
        SubmitResult::RefusedUnrecorded => Some(Reject::uncoded("refused")),
        SubmitResult::RefusedDuplicate => Some(model.reject(RejectMeaning::Duplicate)),
    }
}

/// The recorded submit again, in place of a query: the switch answers how the transfer stands, or takes it now.
pub(super) fn repeat(results: &mut CallResults<'_>) {
    let (profile, from) = (results.model.profile(), results.from);
    let no_answer = results.respond(QueryAnswer::NoAnswer { detail: "no answer".into() });
    let lost = no_answer.clone();
    results.fault("the repeat is lost", |_, _| Some(AttemptReply::QueryAnswer(lost)));
    // No request is on its way for as long as the switch remembers references.
    if from.clock == ClockPhase::AfterRetention {
        results.benign("the repeat has no effect after such a delay", |_, _| {
            Some(AttemptReply::QueryAnswer(no_answer))
        });
        return;
    }
    for handling in from.switch.submit_choices(profile, from.clock) {
        let description = from.switch.submit_words(profile, handling);
        let mut after = from.switch.clone();
        let result = after.submit(profile, handling);
        let report = results.model.report.clone();
        let answer = match (after.query(), reject(results.model, result)) {
            (QueryResult::Settled, _) => QueryAnswer::Settled(report),
            (QueryResult::Returned, _) => QueryAnswer::Returned(results.model.returned_report(&after)),
            (QueryResult::Pending, _) | (QueryResult::NotFound | QueryResult::Void, None) => {
                QueryAnswer::Pending
            }
            (QueryResult::NotFound | QueryResult::Void, Some(reject)) => QueryAnswer::Void { reject },
        };
        let (response, lost) = (results.respond(answer), no_answer.clone());
        let arrives = |next: &mut State, model: &Model| {
            next.switch.submit(model.profile(), handling);
        };
        if handling == SubmitHandling::RefuseUnrecorded {
            results.switch_fault(description, |_, _| Some(AttemptReply::QueryAnswer(response)));
        } else {
            results.benign(description, |next, model| {
                arrives(next, model);
                Some(AttemptReply::QueryAnswer(response))
            });
        }
        results.fault("the repeat arrives, its answer is lost", |next, model| {
            arrives(next, model);
            Some(AttemptReply::QueryAnswer(lost))
        });
    }
    results.fault("no answer in time; the repeat is still in transit", |next, _| {
        next.in_transit.push(Request::Send);
        Some(AttemptReply::QueryAnswer(no_answer))
    });
}

pub(super) fn cancel(results: &mut CallResults<'_>, own_reference: bool) {
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
            let returned = results.model.returned_report(&results.from.switch);
            ("the switch had returned the money", CancelAnswer::AlreadyReturned(returned))
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

pub(in crate::moves) fn query(results: &mut CallResults<'_>, result: QueryResult) {
    let report = results.model.report.clone();
    let (description, answer) = match result {
        QueryResult::Pending => ("the switch has not decided", QueryAnswer::Pending),
        QueryResult::Settled => ("the switch reports settled", QueryAnswer::Settled(report.clone())),
        QueryResult::Returned => {
            let returned = results.model.returned_report(&results.from.switch);
            ("the switch reports that the money came back", QueryAnswer::Returned(returned))
        }
        QueryResult::Void => {
            let reject = results.model.reject(RejectMeaning::Dead);
            ("the switch reports void", QueryAnswer::Void { reject })
        }
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

/// The statement: how the transfer ended, or that it is not listed, and until when the statement is complete.
pub(super) fn statement(results: &mut CallResults<'_>) {
    if results.from.switch.statement() != QueryResult::NotFound {
        query(results, results.from.switch.statement());
        return;
    }
    let complete_until_ms = results.model.complete_until_ms(results.from.clock);
    let response = results.respond(QueryAnswer::NotListed { complete_until_ms });
    results
        .benign("the statement does not list the transfer", |_, _| Some(AttemptReply::QueryAnswer(response)));
    for answer in
        [QueryAnswer::NoAnswer { detail: "no answer".into() }, QueryAnswer::OurFault { detail: "401".into() }]
    {
        let response = results.respond(answer);
        results
            .switch_fault("the statement cannot be read", |_, _| Some(AttemptReply::QueryAnswer(response)));
    }
}

pub(super) fn recall(results: &mut CallResults<'_>) {
    let free = results.from.switch.may_return_money();
    let choices: &[bool] = if free { &[true, false] } else { &[true] };
    let unknown = || RecallAnswer::Unknown { detail: "no answer".into() };
    for returns in choices {
        let (description, answer) = match results.from.switch.clone().recall(*returns) {
            RecallResult::Recalled => ("the switch returns the money", RecallAnswer::Recalled),
            RecallResult::Refused => {
                ("the switch refuses to return the money", RecallAnswer::Refused { reason: "kept".into() })
            }
            RecallResult::Unknown => ("the switch has no definite answer", RecallAnswer::Pending),
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
    let promised = results.respond(RecallAnswer::Promised);
    results.fault("no answer in time; the recall is still in transit", |next, _| {
        next.in_transit.push(Request::Recall);
        Some(AttemptReply::RecallAnswer(lost))
    });
    results.switch_fault("the switch promises the money, and does not return it now", |_, _| {
        Some(AttemptReply::RecallAnswer(promised))
    });
    results.switch_fault("the switch does not support recalls", |_, _| {
        Some(AttemptReply::RecallAnswer(unsupported))
    });
}
