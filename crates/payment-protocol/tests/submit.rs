//! One submit attempt: which checks it makes, what it records before sending, and the outcome of each answer.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::VoidReason;
use payment_protocol::keys::Reference;
use payment_protocol::profile::Strategy;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{AskRuling, AttemptRuling, FinalStatusRuling, NotSent};
use payment_protocol::submit::{
    LoggedSubmission, QueryAnswer, SendAnswer, SubmitAttemptOutcome, SubmitPort, attempt,
};
use payment_protocol::{Payment, SwitchProfile};
use support::{full_profile, payment, report};

struct ScriptedPort {
    query: QueryAnswer,
    query_ruling: AskRuling,
    ruling: AttemptRuling,
    answer: SendAnswer,
    final_status: FinalStatusRuling,
    found: Option<NotSent>,
    logged: Option<LoggedSubmission>,
    fails_at: Option<&'static str>,
    calls: RefCell<Vec<String>>,
}

/// The ledger does not answer.
#[derive(Debug, PartialEq, Eq)]
struct LedgerDown;

impl ScriptedPort {
    fn new(query: QueryAnswer, ruling: AttemptRuling, answer: SendAnswer) -> Self {
        Self {
            query,
            query_ruling: AskRuling::Ask,
            ruling,
            answer,
            final_status: FinalStatusRuling::First,
            found: None,
            logged: None,
            fails_at: None,
            calls: RefCell::default(),
        }
    }

    fn record(&self, call: &'static str, argument: &str) -> Result<(), LedgerDown> {
        self.calls.borrow_mut().push(format!("{call}{argument}"));
        if self.fails_at == Some(call) { Err(LedgerDown) } else { Ok(()) }
    }

    fn attempt(&self, strategy: Strategy) -> (String, String) {
        self.attempt_with(SwitchProfile { strategy, ..full_profile() })
    }

    fn attempt_with(&self, profile: SwitchProfile) -> (String, String) {
        let outcome = block_on(attempt(self, &Payment { profile, ..payment(0) })).map_or_else(
            |LedgerDown| "ledger down".into(),
            |outcome| match outcome {
                SubmitAttemptOutcome::Unknown { .. } => "unknown".into(),
                SubmitAttemptOutcome::Refused { reason } => format!("refused {reason}"),
                SubmitAttemptOutcome::NotSent(reason) => format!("not sent {reason}"),
                other => format!("{other:?}").to_lowercase(),
            },
        );
        (outcome, self.calls.take().join(" "))
    }
}

impl SubmitPort for ScriptedPort {
    type Error = LedgerDown;

    async fn logged(&self) -> Result<Option<LoggedSubmission>, LedgerDown> {
        self.record("log", "").map(|()| self.logged.clone())
    }

    async fn begin_query(&self) -> Result<AskRuling, LedgerDown> {
        self.record("ask", "").map(|()| self.query_ruling)
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        assert_eq!(reference, &payment(0).reference());
        self.calls.borrow_mut().push("query".into());
        self.query.clone()
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, LedgerDown> {
        self.record("attempt", "").map(|()| self.ruling)
    }

    async fn send(&self, reference: &Reference) -> SendAnswer {
        assert_eq!(reference, &payment(0).reference());
        self.calls.borrow_mut().push("send".into());
        self.answer.clone()
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), LedgerDown> {
        assert_eq!(answer, &self.answer);
        self.record("answer", &format!(":{n}"))
    }

    async fn record_found(&self) -> Result<Option<NotSent>, LedgerDown> {
        self.record("found", "").map(|()| self.found)
    }

    async fn record_settled(&self, settled: &SettledReport) -> Result<FinalStatusRuling, LedgerDown> {
        assert_eq!(settled, &report());
        self.record("settled", "").map(|()| self.final_status)
    }

    async fn record_returned(&self, returned: &SettledReport) -> Result<FinalStatusRuling, LedgerDown> {
        assert_eq!(returned, &report());
        self.record("returned", "").map(|()| self.final_status)
    }

    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, LedgerDown> {
        assert_eq!(reason, VoidReason::Rejected);
        self.record("void", "").map(|()| self.final_status)
    }
}

fn limit() -> SendAnswer {
    SendAnswer::Refused { reject: Reject::uncoded("limit") }
}

fn lost() -> SendAnswer {
    SendAnswer::Unknown { detail: "timeout".into() }
}

/// The table of (strategy x query answer x ruling of the ledger x answer of the switch) -> outcome.
#[test]
fn each_switch_and_ledger_answer_to_a_submit_leads_to_its_outcome() {
    use QueryAnswer::{NotFound, Pending};
    use SendAnswer::Accepted;
    let (query, reference) = (Strategy::Query, Strategy::Reference);
    let send = AttemptRuling::Send(1);
    let third = AttemptRuling::Send(3);
    let done = AttemptRuling::Settled;
    let stop = AttemptRuling::NotSent;
    let void = || QueryAnswer::Void { reject: Reject::uncoded("closed") };
    let settled = || QueryAnswer::Settled(report());
    let back = || QueryAnswer::Returned(report());
    let fault = || QueryAnswer::OurFault { detail: "401".into() };
    let silent = || QueryAnswer::NoAnswer { detail: "timeout".into() };
    #[rustfmt::skip]
    let table = [
        // strategy query      ruling                                 answer    outcome                              calls
        // B: the switch deduplicates; every attempt is recorded, then sent.
        (reference, NotFound,  send,                                  Accepted, "accepted",                          "attempt send answer:1"),
        (reference, NotFound,  third,                                 Accepted, "accepted",                          "attempt send answer:3"),
        (reference, NotFound,  send,                                  limit(),  "refused limit",                     "attempt send answer:1"),
        (reference, NotFound,  send,                                  lost(),   "unknown",                           "attempt send answer:1"),
        (reference, Pending,   send,                                  Accepted, "accepted",                          "attempt send answer:1"),
        (reference, NotFound,  done,                                  Accepted, "settled",                           "attempt"),
        (reference, NotFound,  stop(NotSent::NoOpenHold),             Accepted, "not sent no_open_hold",             "attempt"),
        (reference, NotFound,  stop(NotSent::AnotherRun),             Accepted, "not sent another_run",              "attempt"),
        (reference, NotFound,  stop(NotSent::CancelStarted),          Accepted, "not sent cancel_started",           "attempt"),
        (reference, NotFound,  stop(NotSent::CustomerCancel),         Accepted, "not sent customer_cancel",          "attempt"),
        (reference, NotFound,  stop(NotSent::SecondAttemptForbidden), Accepted, "not sent second_attempt_forbidden", "attempt"),
        (reference, NotFound,  stop(NotSent::SwitchRetentionExpired), Accepted, "not sent switch_retention_expired", "attempt"),
        // A: query first, and send only what the switch does not know.
        (query,     NotFound,  send,                                  Accepted, "accepted",                          "query attempt send answer:1"),
        (query,     NotFound,  send,                                  limit(),  "refused limit",                     "query attempt send answer:1"),
        (query,     NotFound,  send,                                  lost(),   "unknown",                           "query attempt send answer:1"),
        (query,     NotFound,  done,                                  Accepted, "settled",                           "query attempt"),
        (query,     NotFound,  stop(NotSent::SecondAttemptForbidden), Accepted, "not sent second_attempt_forbidden", "query attempt"),
        (query,     Pending,   send,                                  Accepted, "accepted",                          "query found"),
        (query,     settled(), send,                                  Accepted, "settled",                           "query settled"),
        (query,     void(),    send,                                  Accepted, "refused closed",                    "query"),
        // The debit reads the recorded return, and charges nothing.
        (query,     back(),    send,                                  Accepted, "settled",                           "query returned"),
        // The query got no answer: nothing is sent.
        (query,     fault(),   send,                                  Accepted, "unknown",                           "query"),
        (query,     silent(),  send,                                  Accepted, "unknown",                           "query"),
    ];
    for (n, (strategy, query, ruling, answer, outcome, calls)) in table.into_iter().enumerate() {
        let attempted = ScriptedPort::new(query, ruling, answer).attempt(strategy);
        assert_eq!(attempted, (outcome.to_owned(), calls.to_owned()), "row {n}");
    }
}

#[test]
fn a_settled_query_answer_before_a_submit_follows_the_ledgers_ruling() {
    #[rustfmt::skip]
    let table = [
        (FinalStatusRuling::First,                       "settled"),
        (FinalStatusRuling::Same,                        "settled"),
        // Recorded; the debit reads the difference.
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

/// A transfer without a recorded attempt compensates the payment, and the switch's answer to our cancel decides
/// (R30b).
#[test]
fn a_transfer_found_without_a_recorded_attempt_is_not_sent_again() {
    let send = AttemptRuling::Send(1);
    let found = Some(NotSent::ReportedWithoutAttempt);
    let port = ScriptedPort { found, ..ScriptedPort::new(QueryAnswer::Pending, send, SendAnswer::Accepted) };
    assert_eq!(
        port.attempt(Strategy::Query),
        ("not sent reported_without_attempt".into(), "query found".into())
    );
}

#[test]
fn a_submit_attempt_while_the_ledger_is_down_has_no_outcome() {
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
        assert_eq!(port.attempt(Strategy::Query), ("ledger down".to_owned(), calls.to_owned()));
    }
}

#[test]
fn s0_11_a_logged_submission_decides_whether_to_query_or_send() {
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
        // strategy  logged                            query     ruling  outcome                              calls
        (WriteAhead, None,                             NotFound, send,   "accepted",                          "log attempt send answer:1"),
        (WriteAhead, Some(LoggedSubmission::Accepted), NotFound, send,   "accepted",                          "log"),
        (WriteAhead, refused(),                        NotFound, send,   "refused limit",                     "log"),
        // PENDING is ambiguous: the switch is queried.
        (WriteAhead, pending(),                        Pending,  send,   "accepted",                          "log query found"),
        (WriteAhead, pending(),                        NotFound, send,   "accepted",                          "log query attempt send answer:1"),
        (AtMostOnce, None,                             NotFound, send,   "accepted",                          "log attempt send answer:1"),
        (AtMostOnce, pending(),                        Pending,  once,   "accepted",                          "log query found"),
        (AtMostOnce, pending(),                        NotFound, once,   "not sent second_attempt_forbidden", "log query attempt"),
        (Validate,   pending(),                        NotFound, once,   "not sent second_attempt_forbidden", "log query attempt"),
    ];
    for (n, (strategy, logged, query, ruling, outcome, calls)) in table.into_iter().enumerate() {
        let port = with(logged, query, ruling);
        assert_eq!(port.attempt(strategy), (outcome.into(), calls.into()), "row {n}");
    }
    // Without a query, the switch's deduplication resolves a PENDING.
    let no_query = SwitchProfile { strategy: WriteAhead, has_query: false, ..full_profile() };
    let port = with(pending(), NotFound, send);
    assert_eq!(port.attempt_with(no_query), ("accepted".into(), "log attempt send answer:1".into()));
}

/// A rail whose rejects are final and whose queries are limited.
fn rail(strategy: Strategy) -> SwitchProfile {
    SwitchProfile {
        strategy,
        reject_is_final: true,
        burns_reference: true,
        reject_codes: [("AC04".into(), RejectMeaning::Dead), ("AM05".into(), RejectMeaning::Duplicate)]
            .into(),
        first_ask_after_ms: 9_000,
        ..full_profile()
    }
}

#[test]
fn a_duplicate_is_no_refusal_because_the_first_transfer_is_alive() {
    let reject = |code: &str| Reject { code: Some(code.into()), reason: "no".into() };
    let sends = |code| {
        let answer = rail(Strategy::Reference).read_send_answer(SendAnswer::Refused { reject: reject(code) });
        ScriptedPort::new(QueryAnswer::NotFound, AttemptRuling::Send(1), answer)
            .attempt_with(rail(Strategy::Reference))
    };
    assert_eq!(sends("AC04"), ("refused AC04: no".into(), "attempt send answer:1".into()));
    assert_eq!(sends("AM05"), ("unknown".into(), "attempt send answer:1".into()));
    assert_eq!(sends("XX99"), ("refused XX99: no".into(), "attempt send answer:1".into()));
}

#[test]
fn a_logged_attempt_is_queried_only_when_the_switch_answers_queries() {
    let queried = |strategy, query_ruling, query| {
        let ruling = AttemptRuling::NotSent(NotSent::SecondAttemptForbidden);
        let port = ScriptedPort {
            query_ruling,
            logged: Some(LoggedSubmission::Pending),
            ..ScriptedPort::new(query, ruling, SendAnswer::Accepted)
        };
        port.attempt_with(rail(strategy))
    };
    let early = AskRuling::TooEarly { wait_ms: 1 };
    let void = || QueryAnswer::Void { reject: Reject { code: Some("AC04".into()), reason: "no".into() } };
    for (strategy, query_ruling, query, outcome, calls) in [
        // The ledger refuses the second attempt, and the payment waits.
        (Strategy::AtMostOnce, early, void(), "not sent second_attempt_forbidden", "log ask attempt"),
        (Strategy::WriteAhead, early, void(), "unknown", "log ask"),
        (Strategy::WriteAhead, AskRuling::Spent, void(), "unknown", "log ask"),
        (Strategy::WriteAhead, AskRuling::Ask, void(), "refused AC04: no", "log ask query void"),
        (Strategy::WriteAhead, AskRuling::Ask, QueryAnswer::Pending, "accepted", "log ask query found"),
    ] {
        assert_eq!(
            queried(strategy, query_ruling, query),
            (outcome.into(), calls.into()),
            "{strategy} {query_ruling:?}"
        );
    }
}
