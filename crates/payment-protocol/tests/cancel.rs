//! The whole table of the switch's answers to our cancel: the one port to releasing money.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::{
    CancelAnswer, CancelAttemptOutcome, CancelContext, CancelPort, SwitchResponse, VoidReason, ask,
};
use payment_protocol::facts::FinalStatus;
use payment_protocol::keys::{self, CompensationKey, Reference};
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::FinalStatusRuling;
use payment_protocol::state::FinalState;
use payment_protocol::submit::QueryAnswer;
use payment_protocol::{Payment, SwitchProfile};
use support::payment;
use support::{ALERT_AFTER_MS, RETENTION_MS, SKEW_MS, report, whole};

/// Submit's deadline on the switch's clock.
const DEADLINE_MS: i64 = 1_000_000;

/// Where the clocks stand when the switch's answer has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// Five seconds before the deadline.
    Before,
    /// At the deadline: what is on its way may be accepted by a clock that is behind.
    Deadline,
    /// The last millisecond at which a clock that is behind may accept.
    Skew,
    /// One millisecond later: no clock accepts any more.
    Past,
    /// Past, and the switch sent no `Date`.
    NoDate,
    /// Past, in the last millisecond of the switch's retention.
    Remembered,
    /// Past, and the retention has passed.
    Forgotten,
}

impl Clock {
    fn hear<A>(self, answer: A) -> SwitchResponse<A> {
        let switch_now_ms = match self {
            Self::Before => Some(DEADLINE_MS - 5_000),
            Self::Deadline => Some(DEADLINE_MS),
            Self::Skew => Some(DEADLINE_MS + SKEW_MS),
            Self::Past | Self::Remembered | Self::Forgotten => Some(DEADLINE_MS + SKEW_MS + 1),
            Self::NoDate => None,
        };
        let first_attempt_age_ms = Some(match self {
            Self::Remembered => RETENTION_MS - 1,
            Self::Forgotten => RETENTION_MS,
            _ => 5_000,
        });
        SwitchResponse { answer, switch_now_ms, first_attempt_age_ms }
    }
}

/// A port that gives each answer it was told, records every call, and fails at one of them.
struct ScriptedPort {
    begun: CancelContext,
    cancel: CancelAnswer,
    query: QueryAnswer,
    clock: Clock,
    ruling: FinalStatusRuling,
    fails_at: Option<&'static str>,
    calls: RefCell<Vec<String>>,
}

/// The ledger did not answer.
#[derive(Debug, PartialEq, Eq)]
struct Broken;

impl ScriptedPort {
    /// A sent payment that has just begun to be cancelled.
    fn new(cancel: CancelAnswer, query: QueryAnswer, clock: Clock) -> Self {
        let begun = CancelContext {
            end: None,
            final_status: None,
            never_sent: false,
            deadline_ms: Some(DEADLINE_MS),
            cancelling_ms: 0,
        };
        let calls = RefCell::default();
        Self { begun, cancel, query, clock, ruling: FinalStatusRuling::First, fails_at: None, calls }
    }

    fn called(&self, call: &'static str, with: &str) -> Result<(), Broken> {
        self.calls.borrow_mut().push(format!("{call}{with}"));
        if self.fails_at == Some(call) { Err(Broken) } else { Ok(()) }
    }

    /// Asks once: what came of it, and the calls it took.
    fn ask(&self, profile: &SwitchProfile) -> (String, String) {
        let asking = block_on(ask(self, &Payment { profile: profile.clone(), ..payment(0) }))
            .map_or_else(|Broken| "broken".into(), |asking| word(&asking));
        (asking, self.calls.take().join(" "))
    }
}

impl CancelPort for ScriptedPort {
    type Error = Broken;

    async fn begin(&self) -> Result<CancelContext, Broken> {
        self.called("begin", "").map(|()| self.begun.clone())
    }

    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, Broken> {
        // The transfer is named by submit's reference; the undo's key is the asking's own.
        assert_eq!(reference, &payment(0).reference());
        assert_eq!(key, &keys::compensate_submit(&payment(0).tx_id));
        self.called("cancel", "").map(|()| self.clock.hear(self.cancel.clone()))
    }

    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Broken> {
        assert_eq!(reference, &payment(0).reference());
        self.called("query", "").map(|()| self.clock.hear(self.query.clone()))
    }

    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Broken> {
        assert_eq!(reference, &payment(0).reference());
        self.called("statement", "").map(|()| self.clock.hear(self.query.clone()))
    }

    async fn record_void(&self, death: VoidReason) -> Result<FinalStatusRuling, Broken> {
        self.called("void", &format!(":{death:?}")).map(|()| self.ruling)
    }

    async fn record_settled(&self, said: &SettledReport) -> Result<FinalStatusRuling, Broken> {
        assert_eq!(said, &report());
        self.called("settled", "").map(|()| self.ruling)
    }
}

/// An outcome in a word; `!` raises an alert.
fn word(asking: &CancelAttemptOutcome) -> String {
    match asking {
        CancelAttemptOutcome::Void => "void".into(),
        CancelAttemptOutcome::Settled => "settled".into(),
        CancelAttemptOutcome::Differs => "differs".into(),
        CancelAttemptOutcome::Undecidable(reason) => format!("person: {reason}"),
        CancelAttemptOutcome::Ended(end) => format!("ended: {end}"),
        CancelAttemptOutcome::Again { not_before_ms: Some(ms), alert: false, .. } => {
            format!("again in {ms} ms")
        }
        CancelAttemptOutcome::Again { not_before_ms: None, alert: false, .. } => "again".into(),
        CancelAttemptOutcome::Again { not_before_ms: None, alert: true, .. } => "again!".into(),
        other => format!("{other:?}"),
    }
}

fn undecided() -> CancelAnswer {
    CancelAnswer::Undecided { detail: "in process".into() }
}

fn unheard() -> CancelAnswer {
    CancelAnswer::NoAnswer { detail: "timeout".into() }
}

fn pending() -> QueryAnswer {
    QueryAnswer::Pending
}

/// The design's table, row by row: (answer x profile x clock) -> what the bank does.
#[test]
fn the_whole_table_of_cancel_answers() {
    use CancelAnswer::{AlreadyRejected, AlreadySettled, CannotCancel, NotFound};
    use Clock::{Before, Deadline, Forgotten, NoDate, Past, Remembered, Skew};
    let full = whole();
    let mark_only = SwitchProfile { honours_deadline: false, ..whole() };
    let deadline_only = SwitchProfile { tombstones: false, ..whole() };
    let neither = SwitchProfile { tombstones: false, honours_deadline: false, ..whole() };
    let no_query = SwitchProfile { has_query: false, ..whole() };
    let no_cancel = SwitchProfile { can_cancel: false, ..whole() };
    let no_cancel_no_deadline = SwitchProfile { can_cancel: false, honours_deadline: false, ..whole() };
    let mute = SwitchProfile { can_cancel: false, has_query: false, ..whole() };
    let struck = || CancelAnswer::Cancelled { tombstoned: false };
    let marked = || CancelAnswer::Cancelled { tombstoned: true };
    let fault = || CancelAnswer::OurFault { detail: "401".into() };
    let found = || QueryAnswer::Settled(report());
    let rejected = || QueryAnswer::Void { reason: "limit".into() };
    let none = || QueryAnswer::NotFound;
    let query_fault = || QueryAnswer::OurFault { detail: "404".into() };
    let silence = || QueryAnswer::NoAnswer { detail: "timeout".into() };
    const FORGOTTEN: &str = "person: switch_retention_expired";
    const NOTHING: &str = "person: not_found_is_inconclusive";
    #[rustfmt::skip]
    let table = [
        // cancel says              query says      profile                 clock       outcome             calls after begin
        // Cancelled: release. A mark on an unknown reference proves nothing after the retention.
        (struck(),                  pending(),      &full,                  Before,     "void",             "cancel dead:Cancelled"),
        (struck(),                  pending(),      &neither,               Before,     "void",             "cancel dead:Cancelled"),
        (struck(),                  pending(),      &full,                  Forgotten,  "void",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &full,                  Before,     "void",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &mark_only,             NoDate,     "void",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &full,                  Remembered, "void",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &full,                  Forgotten,  FORGOTTEN,          "cancel"),
        // AlreadyRejected: release.
        (AlreadyRejected,           pending(),      &full,                  Before,     "void",             "cancel dead:Rejected"),
        (AlreadyRejected,           pending(),      &neither,               Forgotten,  "void",             "cancel dead:Rejected"),
        // AlreadySettled: settle, forward.
        (AlreadySettled(report()),  pending(),      &full,                  Before,     "settled",          "cancel settled"),
        (AlreadySettled(report()),  pending(),      &neither,               Forgotten,  "settled",          "cancel settled"),
        // NotFound: a query, which has no key that could repeat an old answer, has the word. It proves
        // nothing before the deadline has passed on the switch's clock.
        (NotFound,                  none(),         &deadline_only,         Before,     "again in 6001 ms", "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Deadline,   "again in 1001 ms", "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Skew,       "again in 1 ms",    "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Past,       "void",             "cancel query dead:DeadlinePassed"),
        (NotFound,                  none(),         &deadline_only,         Remembered, "void",             "cancel query dead:DeadlinePassed"),
        (NotFound,                  none(),         &deadline_only,         NoDate,     "again",            "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Forgotten,  FORGOTTEN,          "cancel query"),
        (NotFound,                  none(),         &neither,               Before,     NOTHING,            "cancel query"),
        (NotFound,                  none(),         &neither,               Past,       NOTHING,            "cancel query"),
        (NotFound,                  none(),         &neither,               Forgotten,  FORGOTTEN,          "cancel query"),
        (NotFound,                  pending(),      &deadline_only,         Past,       "again",            "cancel query"),
        (NotFound,                  found(),        &deadline_only,         Past,       "settled",          "cancel query settled"),
        (NotFound,                  found(),        &neither,               Forgotten,  "settled",          "cancel query settled"),
        (NotFound,                  silence(),      &deadline_only,         Past,       "again",            "cancel query"),
        (NotFound,                  found(),        &no_query,              Before,     "again in 6001 ms", "cancel"),
        (NotFound,                  found(),        &no_query,              Past,       "void",             "cancel dead:DeadlinePassed"),
        // Cancelled what it does not know, by a switch that leaves no mark: that is nothing found.
        (marked(),                  none(),         &deadline_only,         Before,     "again in 6001 ms", "cancel query"),
        (marked(),                  none(),         &deadline_only,         Past,       "void",             "cancel query dead:DeadlinePassed"),
        (marked(),                  none(),         &neither,               Past,       NOTHING,            "cancel query"),
        (marked(),                  found(),        &neither,               Past,       "settled",          "cancel query settled"),
        // Refused, in process: may still settle; a query can find that it has, not that it never will.
        (undecided(),               pending(),      &full,                  Past,       "again",            "cancel query"),
        (undecided(),               found(),        &full,                  Before,     "settled",          "cancel query settled"),
        (undecided(),               rejected(),     &full,                  Past,       "again",            "cancel query"),
        (undecided(),               none(),         &full,                  Past,       "again",            "cancel query"),
        (undecided(),               query_fault(),  &full,                  Past,       "again",            "cancel query"),
        (undecided(),               silence(),      &full,                  Past,       "again",            "cancel query"),
        (undecided(),               found(),        &no_query,              Past,       "again",            "cancel"),
        // It has no cancel for this transfer: a query stands in.
        (CannotCancel,              pending(),      &full,                  Past,       "again",            "cancel query"),
        (CannotCancel,              found(),        &full,                  Before,     "settled",          "cancel query settled"),
        (CannotCancel,              rejected(),     &full,                  Before,     "void",             "cancel query dead:Rejected"),
        (CannotCancel,              none(),         &full,                  Before,     "again in 6001 ms", "cancel query"),
        (CannotCancel,              none(),         &full,                  Past,       "void",             "cancel query dead:DeadlinePassed"),
        (CannotCancel,              found(),        &no_query,              Past,       "again",            "cancel"),
        // Our fault: alert at once, ask again.
        (fault(),                   found(),        &full,                  Past,       "again!",           "cancel"),
        (fault(),                   none(),         &neither,               Forgotten,  "again!",           "cancel"),
        // No answer: ask again, for ever.
        (unheard(),                 found(),        &full,                  NoDate,     "again",            "cancel"),
        (unheard(),                 none(),         &full,                  Forgotten,  "again",            "cancel"),
        // A switch without cancel feeds the same table by query.
        (struck(),                  pending(),      &no_cancel,             Past,       "again",            "query"),
        (struck(),                  found(),        &no_cancel,             Forgotten,  "settled",          "query settled"),
        (struck(),                  rejected(),     &no_cancel,             Before,     "void",             "query dead:Rejected"),
        (struck(),                  none(),         &no_cancel,             Before,     "again in 6001 ms", "query"),
        (struck(),                  none(),         &no_cancel,             Skew,       "again in 1 ms",    "query"),
        (struck(),                  none(),         &no_cancel,             Past,       "void",             "query dead:DeadlinePassed"),
        (struck(),                  none(),         &no_cancel,             NoDate,     "again",            "query"),
        (struck(),                  none(),         &no_cancel,             Forgotten,  FORGOTTEN,          "query"),
        (struck(),                  none(),         &no_cancel_no_deadline, Past,       NOTHING,            "query"),
        (struck(),                  query_fault(),  &no_cancel,             Past,       "again!",           "query"),
        (struck(),                  silence(),      &no_cancel,             NoDate,     "again",            "query"),
        // Neither cancel nor query: only a callback can move it.
        (struck(),                  found(),        &mute,                  Past,       "person: no_cancel_or_query", ""),
    ];
    for (n, (cancel, query, profile, clock, outcome, calls)) in table.into_iter().enumerate() {
        let row = format!("row {n}: {cancel:?}, {query:?}, {clock:?}");
        let calls = format!("begin {calls}").trim_end().to_owned();
        assert_eq!(
            ScriptedPort::new(cancel, query, clock).ask(profile),
            (outcome.to_owned(), calls),
            "{row}"
        );
    }
}

/// What our own books already say is not asked of the switch.
#[test]
fn our_own_books_speak_first() {
    let sent = || ScriptedPort::new(undecided(), pending(), Clock::Before).begun;
    #[rustfmt::skip]
    let table = [
        (CancelContext { end: Some(FinalState::Settled), ..sent() },                                "ended: settled",  "begin"),
        (CancelContext { end: Some(FinalState::Failed), final_status: Some(FinalStatus::Void), ..sent() },   "ended: failed",   "begin"),
        (CancelContext { final_status: Some(FinalStatus::Settled), ..sent() },                        "settled",         "begin"),
        (CancelContext { final_status: Some(FinalStatus::Void), ..sent() },                           "void",            "begin"),
        (CancelContext { final_status: Some(FinalStatus::Settled), never_sent: true, ..sent() },      "settled",         "begin"),
        // The only short way: nothing was ever sent.
        (CancelContext { never_sent: true, deadline_ms: None, ..sent() },                         "void",            "begin dead:NeverSent"),
        (sent(),                                                                     "again",           "begin cancel query"),
    ];
    for (begun, outcome, calls) in table {
        let row = format!("{begun:?}");
        let port = ScriptedPort { begun, ..ScriptedPort::new(undecided(), pending(), Clock::Before) };
        assert_eq!(port.ask(&whole()), (outcome.to_owned(), calls.to_owned()), "{row}");
    }
}

/// The first definite answer on record stands, whatever the switch says now.
#[test]
fn the_first_answer_on_record_stands() {
    let dead = || CancelAnswer::AlreadyRejected;
    let settled = || CancelAnswer::AlreadySettled(report());
    #[rustfmt::skip]
    let table = [
        (dead(),    FinalStatusRuling::First,                           "void"),
        (dead(),    FinalStatusRuling::Same,                            "void"),
        (dead(),    FinalStatusRuling::Contradicts,                     "settled"),
        (settled(), FinalStatusRuling::First,                           "settled"),
        (settled(), FinalStatusRuling::Same,                            "settled"),
        (settled(), FinalStatusRuling::Contradicts,                     "void"),
        (settled(), FinalStatusRuling::Differs(Difference::Amount),     "differs"),
        (settled(), FinalStatusRuling::Differs(Difference::Switch),     "differs"),
        (settled(), FinalStatusRuling::NoAttempt,                       "person: settled_without_attempt"),
    ];
    for (cancel, ruling, outcome) in table {
        let row = format!("{cancel:?} {ruling:?}");
        let port = ScriptedPort { ruling, ..ScriptedPort::new(cancel, pending(), Clock::Before) };
        assert_eq!(port.ask(&whole()).0, outcome, "{row}");
    }
}

/// An undecided asking raises an alert by the age of the cancelling, whatever leaves it undecided.
#[test]
fn what_stays_undecided_is_alerted_by_its_age() {
    for (cancelling_ms, outcome) in [(0, "again"), (ALERT_AFTER_MS - 1, "again"), (ALERT_AFTER_MS, "again!")]
    {
        for cancel in [undecided(), unheard(), CancelAnswer::CannotCancel] {
            let mut port = ScriptedPort::new(cancel, pending(), Clock::Before);
            port.begun.cancelling_ms = cancelling_ms;
            assert_eq!(port.ask(&whole()).0, outcome, "{cancelling_ms} ms, {:?}", port.cancel);
        }
    }
}

/// Where our ledger does not answer nothing is concluded, at whichever call.
#[test]
fn a_broken_door_concludes_nothing() {
    #[rustfmt::skip]
    let table = [
        ("begin",   CancelAnswer::AlreadyRejected,          "begin"),
        ("cancel",  CancelAnswer::AlreadyRejected,          "begin cancel"),
        ("query",   undecided(),                            "begin cancel query"),
        ("void",    CancelAnswer::AlreadyRejected,          "begin cancel dead:Rejected"),
        ("settled", CancelAnswer::AlreadySettled(report()), "begin cancel settled"),
    ];
    for (call, cancel, calls) in table {
        let port =
            ScriptedPort { fails_at: Some(call), ..ScriptedPort::new(cancel, pending(), Clock::Before) };
        assert_eq!(port.ask(&whole()), ("broken".to_owned(), calls.to_owned()));
    }
}

/// Without a recorded deadline nothing found proves nothing, whatever the profile promises.
#[test]
fn no_recorded_deadline_proves_nothing() {
    let mut port = ScriptedPort::new(CancelAnswer::NotFound, QueryAnswer::NotFound, Clock::Past);
    port.begun.deadline_ms = None;
    assert_eq!(port.ask(&whole()).0, "person: not_found_is_inconclusive");
}

/// Clocks at the ends of their range neither overflow nor release.
#[test]
fn a_clock_at_the_end_of_its_range_releases_nothing() {
    let mut port = ScriptedPort::new(CancelAnswer::NotFound, QueryAnswer::NotFound, Clock::Past);
    port.begun.deadline_ms = Some(i64::MAX);
    assert!(port.ask(&whole()).0.starts_with("again in"));
    let unbounded = SwitchProfile { max_skew_ms: u64::MAX, ..whole() };
    port.begun.deadline_ms = Some(DEADLINE_MS);
    assert!(port.ask(&unbounded).0.starts_with("again in"));
}
