//! The whole table of the switch's answers to our cancel: the one door to releasing money.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::{Asking, Begun, CancelAnswer, CancelDoor, Death, Heard, ask};
use payment_protocol::facts::Verdict;
use payment_protocol::keys::{self, Reference, UndoKey};
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::VerdictRuling;
use payment_protocol::state::End;
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
    fn hear<A>(self, answer: A) -> Heard<A> {
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
        Heard { answer, switch_now_ms, first_attempt_age_ms }
    }
}

/// A door that gives each answer it was told, records every call, and fails at one of them.
struct Door {
    begun: Begun,
    cancel: CancelAnswer,
    query: QueryAnswer,
    clock: Clock,
    ruling: VerdictRuling,
    fails_at: Option<&'static str>,
    calls: RefCell<Vec<String>>,
}

/// The ledger did not answer.
#[derive(Debug, PartialEq, Eq)]
struct Broken;

impl Door {
    /// A sent payment that has just begun to be cancelled.
    fn new(cancel: CancelAnswer, query: QueryAnswer, clock: Clock) -> Self {
        let begun = Begun {
            end: None,
            verdict: None,
            never_sent: false,
            deadline_ms: Some(DEADLINE_MS),
            cancelling_ms: 0,
        };
        let calls = RefCell::default();
        Self { begun, cancel, query, clock, ruling: VerdictRuling::First, fails_at: None, calls }
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

impl CancelDoor for Door {
    type Error = Broken;

    async fn begin(&self) -> Result<Begun, Broken> {
        self.called("begin", "").map(|()| self.begun.clone())
    }

    async fn cancel(&self, reference: &Reference, key: &UndoKey) -> Result<Heard<CancelAnswer>, Broken> {
        // The transfer is named by submit's reference; the undo's key is the asking's own.
        assert_eq!(reference, &payment(0).reference());
        assert_eq!(key, &keys::undo_submit(&payment(0).tx_id));
        self.called("cancel", "").map(|()| self.clock.hear(self.cancel.clone()))
    }

    async fn query(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, Broken> {
        assert_eq!(reference, &payment(0).reference());
        self.called("query", "").map(|()| self.clock.hear(self.query.clone()))
    }

    async fn statement(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, Broken> {
        assert_eq!(reference, &payment(0).reference());
        self.called("statement", "").map(|()| self.clock.hear(self.query.clone()))
    }

    async fn record_dead(&self, death: Death) -> Result<VerdictRuling, Broken> {
        self.called("dead", &format!(":{death:?}")).map(|()| self.ruling)
    }

    async fn record_settled(&self, said: &SettledReport) -> Result<VerdictRuling, Broken> {
        assert_eq!(said, &report());
        self.called("settled", "").map(|()| self.ruling)
    }
}

/// An outcome in a word; `!` raises an alert.
fn word(asking: &Asking) -> String {
    match asking {
        Asking::Dead => "dead".into(),
        Asking::Settled => "settled".into(),
        Asking::Differs => "differs".into(),
        Asking::Undecidable(reason) => format!("person: {reason}"),
        Asking::Ended(end) => format!("ended: {end}"),
        Asking::Again { not_before_ms: Some(ms), alert: false, .. } => format!("again in {ms} ms"),
        Asking::Again { not_before_ms: None, alert: false, .. } => "again".into(),
        Asking::Again { not_before_ms: None, alert: true, .. } => "again!".into(),
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
    let rejected = || QueryAnswer::Dead { reason: "limit".into() };
    let none = || QueryAnswer::NotFound;
    let query_fault = || QueryAnswer::OurFault { detail: "404".into() };
    let silence = || QueryAnswer::NoAnswer { detail: "timeout".into() };
    const FORGOTTEN: &str = "person: retention_passed";
    const NOTHING: &str = "person: nothing_proves";
    #[rustfmt::skip]
    let table = [
        // cancel says              query says      profile                 clock       outcome             calls after begin
        // Cancelled: release. A mark on an unknown reference proves nothing after the retention.
        (struck(),                  pending(),      &full,                  Before,     "dead",             "cancel dead:Cancelled"),
        (struck(),                  pending(),      &neither,               Before,     "dead",             "cancel dead:Cancelled"),
        (struck(),                  pending(),      &full,                  Forgotten,  "dead",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &full,                  Before,     "dead",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &mark_only,             NoDate,     "dead",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &full,                  Remembered, "dead",             "cancel dead:Cancelled"),
        (marked(),                  pending(),      &full,                  Forgotten,  FORGOTTEN,          "cancel"),
        // AlreadyRejected: release.
        (AlreadyRejected,           pending(),      &full,                  Before,     "dead",             "cancel dead:Rejected"),
        (AlreadyRejected,           pending(),      &neither,               Forgotten,  "dead",             "cancel dead:Rejected"),
        // AlreadySettled: settle, forward.
        (AlreadySettled(report()),  pending(),      &full,                  Before,     "settled",          "cancel settled"),
        (AlreadySettled(report()),  pending(),      &neither,               Forgotten,  "settled",          "cancel settled"),
        // NotFound: a query, which has no key that could repeat an old answer, has the word. It proves
        // nothing before the deadline has passed on the switch's clock.
        (NotFound,                  none(),         &deadline_only,         Before,     "again in 6001 ms", "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Deadline,   "again in 1001 ms", "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Skew,       "again in 1 ms",    "cancel query"),
        (NotFound,                  none(),         &deadline_only,         Past,       "dead",             "cancel query dead:DeadlinePassed"),
        (NotFound,                  none(),         &deadline_only,         Remembered, "dead",             "cancel query dead:DeadlinePassed"),
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
        (NotFound,                  found(),        &no_query,              Past,       "dead",             "cancel dead:DeadlinePassed"),
        // Cancelled what it does not know, by a switch that leaves no mark: that is nothing found.
        (marked(),                  none(),         &deadline_only,         Before,     "again in 6001 ms", "cancel query"),
        (marked(),                  none(),         &deadline_only,         Past,       "dead",             "cancel query dead:DeadlinePassed"),
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
        (CannotCancel,              rejected(),     &full,                  Before,     "dead",             "cancel query dead:Rejected"),
        (CannotCancel,              none(),         &full,                  Before,     "again in 6001 ms", "cancel query"),
        (CannotCancel,              none(),         &full,                  Past,       "dead",             "cancel query dead:DeadlinePassed"),
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
        (struck(),                  rejected(),     &no_cancel,             Before,     "dead",             "query dead:Rejected"),
        (struck(),                  none(),         &no_cancel,             Before,     "again in 6001 ms", "query"),
        (struck(),                  none(),         &no_cancel,             Skew,       "again in 1 ms",    "query"),
        (struck(),                  none(),         &no_cancel,             Past,       "dead",             "query dead:DeadlinePassed"),
        (struck(),                  none(),         &no_cancel,             NoDate,     "again",            "query"),
        (struck(),                  none(),         &no_cancel,             Forgotten,  FORGOTTEN,          "query"),
        (struck(),                  none(),         &no_cancel_no_deadline, Past,       NOTHING,            "query"),
        (struck(),                  query_fault(),  &no_cancel,             Past,       "again!",           "query"),
        (struck(),                  silence(),      &no_cancel,             NoDate,     "again",            "query"),
        // Neither cancel nor query: only a callback can move it.
        (struck(),                  found(),        &mute,                  Past,       "person: cannot_ask", ""),
    ];
    for (n, (cancel, query, profile, clock, outcome, calls)) in table.into_iter().enumerate() {
        let row = format!("row {n}: {cancel:?}, {query:?}, {clock:?}");
        let calls = format!("begin {calls}").trim_end().to_owned();
        assert_eq!(Door::new(cancel, query, clock).ask(profile), (outcome.to_owned(), calls), "{row}");
    }
}

/// What our own books already say is not asked of the switch.
#[test]
fn our_own_books_speak_first() {
    let sent = || Door::new(undecided(), pending(), Clock::Before).begun;
    #[rustfmt::skip]
    let table = [
        (Begun { end: Some(End::Settled), ..sent() },                                "ended: settled",  "begin"),
        (Begun { end: Some(End::Failed), verdict: Some(Verdict::Dead), ..sent() },   "ended: failed",   "begin"),
        (Begun { verdict: Some(Verdict::Settled), ..sent() },                        "settled",         "begin"),
        (Begun { verdict: Some(Verdict::Dead), ..sent() },                           "dead",            "begin"),
        (Begun { verdict: Some(Verdict::Settled), never_sent: true, ..sent() },      "settled",         "begin"),
        // The only short way: nothing was ever sent.
        (Begun { never_sent: true, deadline_ms: None, ..sent() },                         "dead",            "begin dead:NeverSent"),
        (sent(),                                                                     "again",           "begin cancel query"),
    ];
    for (begun, outcome, calls) in table {
        let row = format!("{begun:?}");
        let door = Door { begun, ..Door::new(undecided(), pending(), Clock::Before) };
        assert_eq!(door.ask(&whole()), (outcome.to_owned(), calls.to_owned()), "{row}");
    }
}

/// The first definite answer on record stands, whatever the switch says now.
#[test]
fn the_first_answer_on_record_stands() {
    let dead = || CancelAnswer::AlreadyRejected;
    let settled = || CancelAnswer::AlreadySettled(report());
    #[rustfmt::skip]
    let table = [
        (dead(),    VerdictRuling::First,                           "dead"),
        (dead(),    VerdictRuling::Same,                            "dead"),
        (dead(),    VerdictRuling::Contradicts,                     "settled"),
        (settled(), VerdictRuling::First,                           "settled"),
        (settled(), VerdictRuling::Same,                            "settled"),
        (settled(), VerdictRuling::Contradicts,                     "dead"),
        (settled(), VerdictRuling::Differs(Difference::Amount),     "differs"),
        (settled(), VerdictRuling::Differs(Difference::Switch),     "differs"),
        (settled(), VerdictRuling::NoAttempt,                       "person: settled_not_sent"),
    ];
    for (cancel, ruling, outcome) in table {
        let row = format!("{cancel:?} {ruling:?}");
        let door = Door { ruling, ..Door::new(cancel, pending(), Clock::Before) };
        assert_eq!(door.ask(&whole()).0, outcome, "{row}");
    }
}

/// An undecided asking raises an alert by the age of the cancelling, whatever leaves it undecided.
#[test]
fn what_stays_undecided_is_alerted_by_its_age() {
    for (cancelling_ms, outcome) in [(0, "again"), (ALERT_AFTER_MS - 1, "again"), (ALERT_AFTER_MS, "again!")]
    {
        for cancel in [undecided(), unheard(), CancelAnswer::CannotCancel] {
            let mut door = Door::new(cancel, pending(), Clock::Before);
            door.begun.cancelling_ms = cancelling_ms;
            assert_eq!(door.ask(&whole()).0, outcome, "{cancelling_ms} ms, {:?}", door.cancel);
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
        ("dead",    CancelAnswer::AlreadyRejected,          "begin cancel dead:Rejected"),
        ("settled", CancelAnswer::AlreadySettled(report()), "begin cancel settled"),
    ];
    for (call, cancel, calls) in table {
        let door = Door { fails_at: Some(call), ..Door::new(cancel, pending(), Clock::Before) };
        assert_eq!(door.ask(&whole()), ("broken".to_owned(), calls.to_owned()));
    }
}

/// Without a recorded deadline nothing found proves nothing, whatever the profile promises.
#[test]
fn no_recorded_deadline_proves_nothing() {
    let mut door = Door::new(CancelAnswer::NotFound, QueryAnswer::NotFound, Clock::Past);
    door.begun.deadline_ms = None;
    assert_eq!(door.ask(&whole()).0, "person: nothing_proves");
}

/// Clocks at the ends of their range neither overflow nor release.
#[test]
fn a_clock_at_the_end_of_its_range_releases_nothing() {
    let mut door = Door::new(CancelAnswer::NotFound, QueryAnswer::NotFound, Clock::Past);
    door.begun.deadline_ms = Some(i64::MAX);
    assert!(door.ask(&whole()).0.starts_with("again in"));
    let unbounded = SwitchProfile { max_skew_ms: u64::MAX, ..whole() };
    door.begun.deadline_ms = Some(DEADLINE_MS);
    assert!(door.ask(&unbounded).0.starts_with("again in"));
}
