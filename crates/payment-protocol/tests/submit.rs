//! One attempt at submit: what is looked at, what is recorded before anything is sent, and what
//! each answer concludes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::keys::Reference;
use payment_protocol::profile::Strategy;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{AttemptRuling, NotSent, VerdictRuling};
use payment_protocol::submit::{Attempt, Logged, QueryAnswer, SendAnswer, SubmitDoor, attempt};
use payment_protocol::{Payment, SwitchProfile};
use support::{payment, report, whole};

struct Door {
    query: QueryAnswer,
    ruling: AttemptRuling,
    answer: SendAnswer,
    verdict: VerdictRuling,
    unsent: Option<NotSent>,
    logged: Option<Logged>,
    fails_at: Option<&'static str>,
    calls: RefCell<Vec<String>>,
}

/// The ledger did not answer.
#[derive(Debug, PartialEq, Eq)]
struct Broken;

impl Door {
    fn new(query: QueryAnswer, ruling: AttemptRuling, answer: SendAnswer) -> Self {
        Self {
            query,
            ruling,
            answer,
            verdict: VerdictRuling::First,
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
                Attempt::Unknown { .. } => "unknown".into(),
                Attempt::Refused { reason } => format!("refused {reason}"),
                Attempt::NotSent(reason) => format!("not sent {reason}"),
                other => format!("{other:?}").to_lowercase(),
            },
        );
        (came, self.calls.take().join(" "))
    }
}

impl SubmitDoor for Door {
    type Error = Broken;

    async fn logged(&self) -> Result<Option<Logged>, Broken> {
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

    async fn record_settled(&self, said: &SettledReport) -> Result<VerdictRuling, Broken> {
        assert_eq!(said, &report());
        self.called("settled", "").map(|()| self.verdict)
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
    let dead = || QueryAnswer::Dead { reason: "closed".into() };
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
        (reference,  NotFound,    stop(NotSent::CancelAsked),         Accepted, "not sent cancel_asked",      "attempt"),
        (reference,  NotFound,    stop(NotSent::CustomerCancel),      Accepted, "not sent customer_cancel",   "attempt"),
        (reference,  NotFound,    stop(NotSent::OnlyOneAttempt),      Accepted, "not sent only_one_attempt",  "attempt"),
        (reference,  NotFound,    stop(NotSent::RetentionPassed),     Accepted, "not sent retention_passed",  "attempt"),
        // A: look first, send only what is not there (check-and-skip).
        (query,      NotFound,    send,                               Accepted, "accepted",                   "query attempt send answer:1"),
        (query,      NotFound,    send,                               limit(),  "refused limit",              "query attempt send answer:1"),
        (query,      NotFound,    send,                               lost(),   "unknown",                    "query attempt send answer:1"),
        (query,      NotFound,    done,                               Accepted, "settled",                    "query attempt"),
        (query,      NotFound,    stop(NotSent::OnlyOneAttempt),      Accepted, "not sent only_one_attempt",  "query attempt"),
        (query,      Pending,     send,                               Accepted, "accepted",                   "query found"),
        (query,      found(),     send,                               Accepted, "settled",                    "query settled"),
        (query,      dead(),      send,                               Accepted, "refused closed",             "query"),
        // Not knowing whether it is there is no reason to send.
        (query,      fault(),     send,                               Accepted, "unknown",                    "query"),
        (query,      silence(),   send,                               Accepted, "unknown",                    "query"),
    ];
    for (n, (strategy, query, ruling, answer, outcome, calls)) in table.into_iter().enumerate() {
        let came = Door::new(query, ruling, answer).attempt(strategy);
        assert_eq!(came, (outcome.to_owned(), calls.to_owned()), "row {n}");
    }
}

/// What a SUCCESS that the query brought means next to what is written.
#[test]
fn a_success_found_is_judged_by_the_record() {
    #[rustfmt::skip]
    let table = [
        (VerdictRuling::First,                       "settled"),
        (VerdictRuling::Same,                        "settled"),
        // On record; settle sees the difference.
        (VerdictRuling::Differs(Difference::Amount), "settled"),
        (VerdictRuling::NoAttempt,                   "not sent reported_unsent"),
        (VerdictRuling::Contradicts,                 "not sent cancel_asked"),
    ];
    for (verdict, outcome) in table {
        let found = QueryAnswer::Settled(report());
        let door = Door { verdict, ..Door::new(found, AttemptRuling::Send(1), SendAnswer::Accepted) };
        assert_eq!(
            door.attempt(Strategy::Query),
            (outcome.to_owned(), "query settled".to_owned()),
            "{verdict:?}"
        );
    }
}

/// A transfer that is there although no attempt is on record is nothing to send on top of: it turns the
/// payment round, and the switch's answer to our cancel decides (R30b).
#[test]
fn a_transfer_found_that_was_not_sent_is_not_taken_for_ours() {
    let send = AttemptRuling::Send(1);
    let unsent = Some(NotSent::ReportedUnsent);
    let door = Door { unsent, ..Door::new(QueryAnswer::Pending, send, SendAnswer::Accepted) };
    assert_eq!(door.attempt(Strategy::Query), ("not sent reported_unsent".into(), "query found".into()));
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
        let door =
            Door { fails_at: Some(call), ..Door::new(query, AttemptRuling::Send(1), SendAnswer::Accepted) };
        assert_eq!(door.attempt(Strategy::Query), ("broken".to_owned(), calls.to_owned()));
    }
}

#[test]
fn s0_11_the_log_says_what_the_strategy_looks_at() {
    let pending = || Some(Logged::Pending);
    let refused = || Some(Logged::Refused { reason: "limit".into() });
    let with = |logged: Option<Logged>, query: QueryAnswer, ruling: AttemptRuling| Door {
        logged,
        ..Door::new(query, ruling, SendAnswer::Accepted)
    };
    let send = AttemptRuling::Send(1);
    let once = AttemptRuling::NotSent(NotSent::OnlyOneAttempt);
    use QueryAnswer::{NotFound, Pending};
    use Strategy::{AtMostOnce, Validate, WriteAhead};
    #[rustfmt::skip]
    let table = [
        // strategy   on record            switch    ledger  outcome                      calls
        (WriteAhead,  None,                NotFound, send,   "accepted",                  "log attempt send answer:1"),
        (WriteAhead,  Some(Logged::Accepted), NotFound, send, "accepted",                 "log"),
        (WriteAhead,  refused(),           NotFound, send,   "refused limit",             "log"),
        // PENDING is ambiguous: the switch is asked.
        (WriteAhead,  pending(),           Pending,  send,   "accepted",                  "log query found"),
        (WriteAhead,  pending(),           NotFound, send,   "accepted",                  "log query attempt send answer:1"),
        (AtMostOnce,  None,                NotFound, send,   "accepted",                  "log attempt send answer:1"),
        (AtMostOnce,  pending(),           Pending,  once,   "accepted",                  "log query found"),
        (AtMostOnce,  pending(),           NotFound, once,   "not sent only_one_attempt", "log query attempt"),
        (Validate,    pending(),           NotFound, once,   "not sent only_one_attempt", "log query attempt"),
    ];
    for (n, (strategy, logged, query, ruling, came, calls)) in table.into_iter().enumerate() {
        let door = with(logged, query, ruling);
        assert_eq!(door.attempt(strategy), (came.into(), calls.into()), "row {n}");
    }
    // Without a query a PENDING is left to the switch's deduplication.
    let no_query = SwitchProfile { strategy: WriteAhead, has_query: false, ..whole() };
    let door = with(pending(), NotFound, send);
    assert_eq!(door.attempt_at(no_query), ("accepted".into(), "log attempt send answer:1".into()));
}
