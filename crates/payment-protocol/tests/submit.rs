//! One attempt at submit: what is looked at, what is recorded before anything is sent, and what
//! each answer concludes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::keys::Reference;
use payment_protocol::profile::Strategy;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{AttemptRuling, FinalStatusRuling, NotSent};
use payment_protocol::submit::{
    LoggedSubmission, QueryAnswer, SendAnswer, SubmitAttemptOutcome, SubmitPort, attempt,
};
use payment_protocol::{Payment, SwitchProfile};
use support::{payment, report, whole};

struct ScriptedPort {
    query: QueryAnswer,
    ruling: AttemptRuling,
    answer: SendAnswer,
    final_status: FinalStatusRuling,
    unsent: Option<NotSent>,
    logged: Option<LoggedSubmission>,
    fails_at: Option<&'static str>,
    calls: RefCell<Vec<String>>,
}

/// The ledger did not answer.
#[derive(Debug, PartialEq, Eq)]
struct Broken;

impl ScriptedPort {
    fn new(query: QueryAnswer, ruling: AttemptRuling, answer: SendAnswer) -> Self {
        Self {
            query,
            ruling,
            answer,
            final_status: FinalStatusRuling::First,
            unsent: None,
            logged: None,
            fails_at: None,
            calls: RefCell::default(),
        }
    }

    fn called(&self, call: &'static str, with: &str) -> Result<(), Broken> {
        self.calls.borrow_mut().push(format!("{call}{with}"));
        if self.fails_at == Some(call) { Err(Broken) } else { Ok(()) }
    }

    fn attempt(&self, strategy: Strategy) -> (String, String) {
        self.attempt_at(SwitchProfile { strategy, ..whole() })
    }

    fn attempt_at(&self, profile: SwitchProfile) -> (String, String) {
        let came = block_on(attempt(self, &Payment { profile, ..payment(0) })).map_or_else(
            |Broken| "broken".into(),
            |came| match came {
                SubmitAttemptOutcome::Unknown { .. } => "unknown".into(),
                SubmitAttemptOutcome::Refused { reason } => format!("refused {reason}"),
                SubmitAttemptOutcome::NotSent(reason) => format!("not sent {reason}"),
                other => format!("{other:?}").to_lowercase(),
            },
        );
        (came, self.calls.take().join(" "))
    }
}

impl SubmitPort for ScriptedPort {
    type Error = Broken;

    async fn logged(&self) -> Result<Option<LoggedSubmission>, Broken> {
        self.called("log", "").map(|()| self.logged.clone())
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        assert_eq!(reference, &payment(0).reference());
        self.calls.borrow_mut().push("query".into());
        self.query.clone()
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, Broken> {
        self.called("attempt", "").map(|()| self.ruling)
    }

    async fn send(&self, reference: &Reference) -> SendAnswer {
        assert_eq!(reference, &payment(0).reference());
        self.calls.borrow_mut().push("send".into());
        self.answer.clone()
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), Broken> {
        assert_eq!(answer, &self.answer);
        self.called("answer", &format!(":{n}"))
    }

    async fn record_found(&self) -> Result<Option<NotSent>, Broken> {
        self.called("found", "").map(|()| self.unsent)
    }

    async fn record_settled(&self, said: &SettledReport) -> Result<FinalStatusRuling, Broken> {
        assert_eq!(said, &report());
        self.called("settled", "").map(|()| self.final_status)
    }
}

fn limit() -> SendAnswer {
    SendAnswer::Refused { reason: "limit".into() }
}

fn lost() -> SendAnswer {
    SendAnswer::Unknown { detail: "timeout".into() }
}

/// (strategy x what the query finds x what our ledger rules x what the switch answers).
#[test]
fn the_whole_table_of_attempts() {
    use QueryAnswer::{NotFound, Pending};
    use SendAnswer::Accepted;
    let (query, reference) = (Strategy::Query, Strategy::Reference);
    let send = AttemptRuling::Send(1);
    let third = AttemptRuling::Send(3);
    let done = AttemptRuling::Settled;
    let stop = AttemptRuling::NotSent;
    let dead = || QueryAnswer::Void { reason: "closed".into() };
    let found = || QueryAnswer::Settled(report());
    let fault = || QueryAnswer::OurFault { detail: "401".into() };
    let silence = || QueryAnswer::NoAnswer { detail: "timeout".into() };
    #[rustfmt::skip]
    let table = [
        // strategy  query finds  ruling                              answer    outcome                       calls
        // B: the switch deduplicates; every attempt is recorded, then sent.
        (reference,  NotFound,    send,                               Accepted, "accepted",                   "attempt send answer:1"),
        (reference,  NotFound,    third,                              Accepted, "accepted",                   "attempt send answer:3"),
        (reference,  NotFound,    send,                               limit(),  "refused limit",              "attempt send answer:1"),
        (reference,  NotFound,    send,                               lost(),   "unknown",                    "attempt send answer:1"),
        (reference,  Pending,     send,                               Accepted, "accepted",                   "attempt send answer:1"),
        (reference,  NotFound,    done,                               Accepted, "settled",                    "attempt"),
        (reference,  NotFound,    stop(NotSent::NoOpenHold),          Accepted, "not sent no_open_hold",      "attempt"),
        (reference,  NotFound,    stop(NotSent::AnotherRun),          Accepted, "not sent another_run",       "attempt"),
        (reference,  NotFound,    stop(NotSent::CancelStarted),         Accepted, "not sent cancel_started",      "attempt"),
        (reference,  NotFound,    stop(NotSent::CustomerCancel),      Accepted, "not sent customer_cancel",   "attempt"),
        (reference,  NotFound,    stop(NotSent::SecondAttemptForbidden),      Accepted, "not sent second_attempt_forbidden",  "attempt"),
        (reference,  NotFound,    stop(NotSent::SwitchRetentionExpired),     Accepted, "not sent switch_retention_expired",  "attempt"),
        // A: look first, send only what is not there (check-and-skip).
        (query,      NotFound,    send,                               Accepted, "accepted",                   "query attempt send answer:1"),
        (query,      NotFound,    send,                               limit(),  "refused limit",              "query attempt send answer:1"),
        (query,      NotFound,    send,                               lost(),   "unknown",                    "query attempt send answer:1"),
        (query,      NotFound,    done,                               Accepted, "settled",                    "query attempt"),
        (query,      NotFound,    stop(NotSent::SecondAttemptForbidden),      Accepted, "not sent second_attempt_forbidden",  "query attempt"),
        (query,      Pending,     send,                               Accepted, "accepted",                   "query found"),
        (query,      found(),     send,                               Accepted, "settled",                    "query settled"),
        (query,      dead(),      send,                               Accepted, "refused closed",             "query"),
        // Not knowing whether it is there is no reason to send.
        (query,      fault(),     send,                               Accepted, "unknown",                    "query"),
        (query,      silence(),   send,                               Accepted, "unknown",                    "query"),
    ];
    for (n, (strategy, query, ruling, answer, outcome, calls)) in table.into_iter().enumerate() {
        let came = ScriptedPort::new(query, ruling, answer).attempt(strategy);
        assert_eq!(came, (outcome.to_owned(), calls.to_owned()), "row {n}");
    }
}

/// What a SUCCESS that the query brought means next to what is written.
#[test]
fn a_success_found_is_judged_by_the_record() {
    #[rustfmt::skip]
    let table = [
        (FinalStatusRuling::First,                       "settled"),
        (FinalStatusRuling::Same,                        "settled"),
        // On record; settle sees the difference.
        (FinalStatusRuling::Differs(Difference::Amount), "settled"),
        (FinalStatusRuling::NoAttempt,                   "not sent reported_without_attempt"),
        (FinalStatusRuling::Contradicts,                 "not sent cancel_started"),
    ];
    for (final_status, outcome) in table {
        let found = QueryAnswer::Settled(report());
        let port = ScriptedPort {
            final_status,
            ..ScriptedPort::new(found, AttemptRuling::Send(1), SendAnswer::Accepted)
        };
        assert_eq!(
            port.attempt(Strategy::Query),
            (outcome.to_owned(), "query settled".to_owned()),
            "{final_status:?}"
        );
    }
}

/// A transfer that is there although no attempt is on record is nothing to send on top of: it turns the
/// payment round, and the switch's answer to our cancel decides (R30b).
#[test]
fn a_transfer_found_that_was_not_sent_is_not_taken_for_ours() {
    let send = AttemptRuling::Send(1);
    let unsent = Some(NotSent::ReportedWithoutAttempt);
    let port = ScriptedPort { unsent, ..ScriptedPort::new(QueryAnswer::Pending, send, SendAnswer::Accepted) };
    assert_eq!(
        port.attempt(Strategy::Query),
        ("not sent reported_without_attempt".into(), "query found".into())
    );
}

/// Where our ledger does not answer nothing is sent, and nothing is concluded.
#[test]
fn a_broken_door_concludes_nothing() {
    #[rustfmt::skip]
    let table = [
        ("found",   QueryAnswer::Pending,           "query found"),
        ("settled", QueryAnswer::Settled(report()), "query settled"),
        ("attempt", QueryAnswer::NotFound,          "query attempt"),
        ("answer",  QueryAnswer::NotFound,          "query attempt send answer:1"),
    ];
    for (call, query, calls) in table {
        let port = ScriptedPort {
            fails_at: Some(call),
            ..ScriptedPort::new(query, AttemptRuling::Send(1), SendAnswer::Accepted)
        };
        assert_eq!(port.attempt(Strategy::Query), ("broken".to_owned(), calls.to_owned()));
    }
}

#[test]
fn s0_11_the_log_says_what_the_strategy_looks_at() {
    let pending = || Some(LoggedSubmission::Pending);
    let refused = || Some(LoggedSubmission::Refused { reason: "limit".into() });
    let with = |logged: Option<LoggedSubmission>, query: QueryAnswer, ruling: AttemptRuling| ScriptedPort {
        logged,
        ..ScriptedPort::new(query, ruling, SendAnswer::Accepted)
    };
    let send = AttemptRuling::Send(1);
    let once = AttemptRuling::NotSent(NotSent::SecondAttemptForbidden);
    use QueryAnswer::{NotFound, Pending};
    use Strategy::{AtMostOnce, Validate, WriteAhead};
    #[rustfmt::skip]
    let table = [
        // strategy   on record            switch    ledger  outcome                      calls
        (WriteAhead,  None,                NotFound, send,   "accepted",                  "log attempt send answer:1"),
        (WriteAhead,  Some(LoggedSubmission::Accepted), NotFound, send, "accepted",                 "log"),
        (WriteAhead,  refused(),           NotFound, send,   "refused limit",             "log"),
        // PENDING is ambiguous: the switch is asked.
        (WriteAhead,  pending(),           Pending,  send,   "accepted",                  "log query found"),
        (WriteAhead,  pending(),           NotFound, send,   "accepted",                  "log query attempt send answer:1"),
        (AtMostOnce,  None,                NotFound, send,   "accepted",                  "log attempt send answer:1"),
        (AtMostOnce,  pending(),           Pending,  once,   "accepted",                  "log query found"),
        (AtMostOnce,  pending(),           NotFound, once,   "not sent second_attempt_forbidden", "log query attempt"),
        (Validate,    pending(),           NotFound, once,   "not sent second_attempt_forbidden", "log query attempt"),
    ];
    for (n, (strategy, logged, query, ruling, came, calls)) in table.into_iter().enumerate() {
        let port = with(logged, query, ruling);
        assert_eq!(port.attempt(strategy), (came.into(), calls.into()), "row {n}");
    }
    // Without a query a PENDING is left to the switch's deduplication.
    let no_query = SwitchProfile { strategy: WriteAhead, has_query: false, ..whole() };
    let port = with(pending(), NotFound, send);
    assert_eq!(port.attempt_at(no_query), ("accepted".into(), "log attempt send answer:1".into()));
}
