//! One question of an attempt to our ledger or to the switch: every answer it may get.

use payment_protocol::cancel::{CancelAnswer, SwitchResponse, VoidReason};
use payment_protocol::cause::Cause;
use payment_protocol::ids::DecisionId;
use payment_protocol::profile::Strategy;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{DebitByDecisionRuling, DecisionRefusal, ReleaseByDecisionRuling};
use payment_protocol::submit::{QueryAnswer, SendAnswer};

use crate::attempt::{Call, Job, Reply};
use crate::bank::Run;
use crate::model::{DEADLINE_MS, Model};
use crate::state::{Left, Message, State};
use crate::switch::{Cancelled, Found, GivenBack, Sent, Take};

/// One answer, and what is different after it.
pub(super) struct Way {
    pub(super) next: State,
    pub(super) reply: Reply,
    /// Whether nothing went wrong.
    pub(super) benign: bool,
    pub(super) told: &'static str,
}

/// The ways of one question, while they are collected.
struct Ways<'m> {
    model: &'m Model,
    from: &'m State,
    list: Vec<Way>,
}

impl Ways<'_> {
    fn push(
        &mut self,
        pay: impl FnOnce(&mut Left) -> Option<()>,
        benign: bool,
        told: &'static str,
        change: impl FnOnce(&mut State, &Model) -> Option<Reply>,
    ) {
        let mut next = self.from.clone();
        if pay(&mut next.left).is_some()
            && let Some(reply) = change(&mut next, self.model)
        {
            self.list.push(Way { next, reply, benign, told });
        }
    }

    /// A way on which nothing goes wrong.
    fn well(&mut self, told: &'static str, change: impl FnOnce(&mut State, &Model) -> Option<Reply>) {
        self.push(|_| Some(()), true, told, change);
    }

    /// A way that costs a fault.
    fn fault(&mut self, told: &'static str, change: impl FnOnce(&mut State, &Model) -> Option<Reply>) {
        let pay = |left: &mut Left| left.faults.checked_sub(1).map(|faults| left.faults = faults);
        self.push(pay, false, told, change);
    }

    /// A way that costs a wrong word of the switch.
    fn word(&mut self, told: &'static str, change: impl FnOnce(&mut State, &Model) -> Option<Reply>) {
        let pay = |left: &mut Left| left.words.checked_sub(1).map(|words| left.words = words);
        self.push(pay, false, told, change);
    }

    fn hear<A>(&self, answer: A) -> SwitchResponse<A> {
        SwitchResponse {
            answer,
            switch_now_ms: Some(self.model.date_ms(self.from.now)),
            first_attempt_age_ms: (self.from.bank.attempts > 0).then(|| self.model.age_ms(self.from.now)),
        }
    }
}

/// Every answer to `call` of an attempt for `run`.
pub(super) fn ways(model: &Model, from: &State, run: Run, job: &Job, call: &Call) -> Vec<Way> {
    let mut ways = Ways { model, from, list: Vec::new() };
    match call {
        Call::Send(reference) => send(&mut ways, *reference == model.payment().reference()),
        Call::Cancel(reference, _) => cancel(&mut ways, *reference == model.payment().reference()),
        Call::Query(_) => seen(&mut ways, from.switch.query()),
        Call::Statement(_) => seen(&mut ways, from.switch.statement()),
        Call::Recall(..) => recall(&mut ways),
        _ => ledger(&mut ways, run, job, call),
    }
    ways.list
}

/// The answer of our ledger to what only reads or writes there.
fn ledger(ways: &mut Ways<'_>, run: Run, job: &Job, call: &Call) {
    ways.well("", |next, model| {
        let age_ms = model.age_ms(next.now);
        Some(match call {
            Call::Logged => Reply::Logged(next.bank.log.clone()),
            Call::RecordAttempt => {
                Reply::RecordAttempt(next.bank.record_attempt(run, model.payment(), age_ms, false))
            }
            Call::RecordAnswer(n, answer) => {
                next.bank.record_answer(*n, answer);
                Reply::Done
            }
            Call::RecordFound => Reply::Found(next.bank.record_found()),
            Call::RecordSettled(report) => {
                Reply::FinalStatus(next.bank.write_settled(model.payment(), report))
            }
            Call::RecordVoid(death) => {
                Reply::FinalStatus(next.bank.write_dead(*death == VoidReason::NeverSent))
            }
            Call::Begin => {
                let cause = match job {
                    Job::Cancel(cause) => cause.clone(),
                    _ => Cause::ReleasedByDecision,
                };
                Reply::Begin(next.bank.begin_cancel(&cause, DEADLINE_MS))
            }
            Call::Recalled => Reply::Recall(next.bank.recall),
            Call::RecordRecall(record) => Reply::Recall(Some(next.bank.record_recall(*record))),
            Call::DecisionRecorded => Reply::Decision(next.bank.decision_outcome(number(job)?)),
            Call::DebitByDecision => {
                // What people claim on evidence is true: a false claim is theirs to answer for, not the
                // protocol's, and here they see it in time.
                if !next.bank.ended() && (!next.switch.settled() || next.is_being_recalled(model)) {
                    let seen = DecisionRefusal::SwitchSaysVoid;
                    return Some(Reply::DebitByDecision(DebitByDecisionRuling::Refused(seen)));
                }
                Reply::DebitByDecision(next.bank.debit_by_decision(number(job)?))
            }
            Call::ReleaseByDecision => {
                let may_settle = next.switch.settled() || next.may_settle(model);
                if !next.bank.ended() && may_settle {
                    let seen = ReleaseByDecisionRuling::Refused(DecisionRefusal::SwitchSaysSettled);
                    return Some(Reply::ReleaseByDecision(seen, Cause::ReleasedByDecision));
                }
                let (ruling, cause) = next.bank.release_by_decision(number(job)?);
                Reply::ReleaseByDecision(ruling, cause)
            }
            Call::CloseDecision(came) => {
                next.bank.close_decision(number(job)?, came.clone());
                Reply::Done
            }
            Call::Send(_) | Call::Cancel(..) | Call::Query(_) | Call::Statement(_) | Call::Recall(..) => {
                return None;
            }
        })
    });
    if *call == Call::RecordAttempt && ways.model.profile().strategy == Strategy::Validate {
        ways.fault("another payment has sent to the same account", |next, model| {
            let age_ms = model.age_ms(next.now);
            Some(Reply::RecordAttempt(next.bank.record_attempt(run, model.payment(), age_ms, true)))
        });
    }
}

/// The number in a decision's name.
fn number(job: &Job) -> Option<u8> {
    let Job::CarryOut(decision, _) = job else { return None };
    let name: &DecisionId = &decision.decision_id;
    name.as_str().rsplit('-').next()?.parse().ok()
}

fn send(ways: &mut Ways<'_>, ours: bool) {
    let lost = || Some(Reply::SendAnswer(SendAnswer::Unknown { detail: "no answer".into() }));
    let profile = ways.model.profile();
    let takes = if ours { ways.from.switch.takes(profile, ways.from.now) } else { Vec::new() };
    for take in takes {
        let told = match take {
            Take::Accept => "the switch accepts",
            Take::Refuse => "the switch refuses",
            Take::RefuseUnrecorded => "the switch refuses, and keeps no record",
        };
        let taken = |next: &mut State, model: &Model| {
            Some(Reply::SendAnswer(match next.switch.submit(model.profile(), take) {
                Sent::Accepted => SendAnswer::Accepted,
                Sent::Refused => SendAnswer::Refused { reason: "refused".into() },
            }))
        };
        if take == Take::RefuseUnrecorded {
            ways.word(told, taken)
        } else {
            ways.well(told, taken)
        }
        ways.fault("the switch takes it, its answer is lost", |next, model| {
            next.switch.submit(model.profile(), take);
            lost()
        });
    }
    if ours && ways.from.switch.takes(profile, ways.from.now).is_empty() {
        ways.well("the request comes to nothing after so long", |_, _| lost());
    }
    ways.fault("the request is lost", |_, _| lost());
    ways.fault("no answer in time; the request is still on its way", |next, _| {
        next.wire.push(Message::Send);
        lost()
    });
}

fn cancel(ways: &mut Ways<'_>, ours: bool) {
    let report = ways.model.report.clone();
    let no_answer = || CancelAnswer::NoAnswer { detail: "no answer".into() };
    if !ours {
        // Another reference is one it does not know.
        let answer = if ways.model.profile().tombstones {
            CancelAnswer::Cancelled { tombstoned: true }
        } else {
            CancelAnswer::NotFound
        };
        let heard = ways.hear(answer);
        ways.well("the switch does not know this reference", |_, _| Some(Reply::CancelAnswer(heard)));
        return;
    }
    let said = ways.from.switch.clone().cancel(ways.model.profile());
    let answer = match said {
        Cancelled::Cancelled => CancelAnswer::Cancelled { tombstoned: false },
        Cancelled::Tombstoned => CancelAnswer::Cancelled { tombstoned: true },
        Cancelled::AlreadyRejected => CancelAnswer::AlreadyRejected,
        Cancelled::AlreadySettled => CancelAnswer::AlreadySettled(report.clone()),
        Cancelled::NotFound => CancelAnswer::NotFound,
    };
    let told = match said {
        Cancelled::Cancelled => "the switch cancels",
        Cancelled::Tombstoned => "the switch leaves a tombstone",
        Cancelled::AlreadyRejected => "the switch had rejected it",
        Cancelled::AlreadySettled => "the switch had settled it",
        Cancelled::NotFound => "the switch does not find it",
    };
    let heard = ways.hear(answer);
    let undated = SwitchResponse { switch_now_ms: None, ..heard.clone() };
    ways.well(told, |next, model| {
        next.switch.cancel(model.profile());
        Some(Reply::CancelAnswer(heard))
    });
    ways.word("the switch answers without a Date", |next, model| {
        next.switch.cancel(model.profile());
        Some(Reply::CancelAnswer(undated))
    });
    let lost = ways.hear(no_answer());
    ways.fault("the cancel arrives, its answer is lost", |next, model| {
        next.switch.cancel(model.profile());
        Some(Reply::CancelAnswer(lost.clone()))
    });
    ways.fault("no answer in time; the cancel is still on its way", |next, _| {
        next.wire.push(Message::Cancel);
        Some(Reply::CancelAnswer(lost))
    });
    let mut harmless = vec![
        ("the switch says 401", CancelAnswer::OurFault { detail: "401".into() }),
        ("the switch cannot cancel this one", CancelAnswer::CannotCancel),
        ("in process", CancelAnswer::Undecided { detail: "in process".into() }),
    ];
    if said == Cancelled::AlreadySettled {
        let other = SettledReport { amount_minor: 1, ..report };
        harmless.push(("the switch had settled another amount", CancelAnswer::AlreadySettled(other)));
    }
    if said == Cancelled::NotFound {
        harmless.push(("cancelled, without a mark", CancelAnswer::Cancelled { tombstoned: true }));
        let stuck = ways.hear(CancelAnswer::NotFound);
        ways.word("not found; repeated to every cancel", |next, _| {
            next.switch.stuck_not_found = true;
            Some(Reply::CancelAnswer(stuck))
        });
    }
    for (told, answer) in harmless {
        let heard = ways.hear(answer);
        ways.word(told, |_, _| Some(Reply::CancelAnswer(heard)));
    }
}

fn seen(ways: &mut Ways<'_>, found: Found) {
    let report = ways.model.report.clone();
    let (told, answer) = match found {
        Found::Pending => ("the switch has not decided", QueryAnswer::Pending),
        Found::Settled => ("the switch says settled", QueryAnswer::Settled(report.clone())),
        Found::Void => ("the switch says dead", QueryAnswer::Void { reason: "void".into() }),
        Found::Nothing => ("the switch knows nothing", QueryAnswer::NotFound),
    };
    let mut others = vec![
        ("no answer", QueryAnswer::NoAnswer { detail: "no answer".into() }),
        ("the switch says 401", QueryAnswer::OurFault { detail: "401".into() }),
    ];
    if found == Found::Settled {
        let other = SettledReport { amount_minor: 1, ..report };
        others.push(("the switch says settled, of another amount", QueryAnswer::Settled(other)));
    }
    let heard = ways.hear(answer);
    ways.well(told, |_, _| Some(Reply::QueryAnswer(heard)));
    for (told, answer) in others {
        let heard = ways.hear(answer);
        ways.word(told, |_, _| Some(Reply::QueryAnswer(heard)));
    }
}

fn recall(ways: &mut Ways<'_>) {
    let free = ways.from.switch.may_give_back();
    let choices: &[bool] = if free { &[true, false] } else { &[true] };
    for gives in choices {
        let said = ways.from.switch.clone().recall(*gives);
        let (told, answer) = match said {
            GivenBack::Recalled => ("the switch gives it back", RecallAnswer::Recalled),
            GivenBack::Refused => {
                ("the switch refuses to give it back", RecallAnswer::Refused { reason: "kept".into() })
            }
            GivenBack::Unknown => ("the switch cannot say", unknown()),
        };
        let (heard, lost) = (ways.hear(answer), ways.hear(unknown()));
        ways.well(told, |next, _| {
            next.switch.recall(*gives);
            Some(Reply::RecallAnswer(heard))
        });
        ways.fault("the recall arrives, its answer is lost", |next, _| {
            next.switch.recall(*gives);
            Some(Reply::RecallAnswer(lost))
        });
    }
    let (lost, unable) = (ways.hear(unknown()), ways.hear(RecallAnswer::RecallUnsupported));
    ways.fault("no answer in time; the recall is still on its way", |next, _| {
        next.wire.push(Message::Recall);
        Some(Reply::RecallAnswer(lost))
    });
    ways.word("the switch has no recall", |_, _| Some(Reply::RecallAnswer(unable)));
}

fn unknown() -> RecallAnswer {
    RecallAnswer::Unknown { detail: "no answer".into() }
}
