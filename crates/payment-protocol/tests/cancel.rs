//! The complete table of the switch's answers to our cancel, and to a poll, which has the same port.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::{
    CancelAnswer, CancelAttemptOutcome, CancelContext, CancelPort, SwitchResponse, VoidReason, attempt,
};
use payment_protocol::facts::FinalStatus;
use payment_protocol::keys::{self, CompensationKey, Reference};
use payment_protocol::poll::{Awaited, PollOutcome, poll};
use payment_protocol::port::WaitOutcome;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{AskRuling, FinalStatusRuling};
use payment_protocol::state::FinalState;
use payment_protocol::submit::QueryAnswer;
use payment_protocol::{Payment, SwitchProfile};
use support::{ALERT_AFTER_MS, RETENTION_MS, SKEW_MS, full_profile, payment, report};

/// Submit's deadline on the switch's clock.
const DEADLINE_MS: i64 = 1_000_000;

/// The clocks when the switch's answer arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// Five seconds before the deadline.
    Before,
    /// At the deadline: a clock of the switch that is behind may accept a delayed submit.
    Deadline,
    /// The last millisecond at which a clock of the switch that is behind may accept.
    Skew,
    /// One millisecond later: no clock of the switch accepts.
    Past,
    /// Past, and the switch sent no `Date` header.
    NoDate,
    /// Past, in the last millisecond of the switch's retention.
    Retained,
    /// Past, and the retention has expired.
    Expired,
}

impl Clock {
    fn respond<A>(self, answer: A) -> SwitchResponse<A> {
        let switch_now_ms = match self {
            Self::Before => Some(DEADLINE_MS - 5_000),
            Self::Deadline => Some(DEADLINE_MS),
            Self::Skew => Some(DEADLINE_MS + SKEW_MS),
            Self::Past | Self::Retained | Self::Expired => Some(DEADLINE_MS + SKEW_MS + 1),
            Self::NoDate => None,
        };
        let first_attempt_age_ms = Some(match self {
            Self::Retained => RETENTION_MS - 1,
            Self::Expired => RETENTION_MS,
            _ => 5_000,
        });
        SwitchResponse { answer, switch_now_ms, first_attempt_age_ms }
    }
}

/// A port with fixed answers that records every call and fails at one of them.
struct ScriptedPort {
    context: CancelContext,
    cancel: CancelAnswer,
    query: QueryAnswer,
    query_ruling: AskRuling,
    /// `None`: the statement says what the query says.
    statement: Option<QueryAnswer>,
    clock: Clock,
    ruling: FinalStatusRuling,
    fails_at: Option<&'static str>,
    calls: RefCell<Vec<String>>,
}

/// The ledger does not answer.
#[derive(Debug, PartialEq, Eq)]
struct LedgerDown;

impl ScriptedPort {
    /// A payment with one attempt whose first cancel attempt begins.
    fn new(cancel: CancelAnswer, query: QueryAnswer, clock: Clock) -> Self {
        let context = CancelContext {
            end: None,
            final_status: None,
            never_sent: false,
            accepted: false,
            has_doubtful_success: false,
            may_have_other_id: false,
            deadline_ms: Some(DEADLINE_MS),
            cancelling_ms: 0,
        };
        Self {
            context,
            cancel,
            query,
            query_ruling: AskRuling::Ask,
            statement: None,
            clock,
            ruling: FinalStatusRuling::First,
            fails_at: None,
            calls: RefCell::default(),
        }
    }

    fn record(&self, call: &'static str, argument: &str) -> Result<(), LedgerDown> {
        self.calls.borrow_mut().push(format!("{call}{argument}"));
        if self.fails_at == Some(call) { Err(LedgerDown) } else { Ok(()) }
    }

    /// Makes one cancel attempt. Returns its outcome in a word, and the calls.
    fn attempt(&self, profile: &SwitchProfile) -> (String, String) {
        let outcome = block_on(attempt(self, &Payment { profile: profile.clone(), ..payment(0) }))
            .map_or_else(|LedgerDown| "ledger down".into(), |outcome| word(&outcome));
        (outcome, self.calls.take().join(" "))
    }
}

impl CancelPort for ScriptedPort {
    type Error = LedgerDown;

    async fn begin(&self) -> Result<CancelContext, LedgerDown> {
        self.record("begin", "").map(|()| self.context.clone())
    }

    async fn bound_deadline(&self, latest_ms: i64) -> Result<i64, LedgerDown> {
        self.record("bound", "").map(|()| latest_ms)
    }

    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, LedgerDown> {
        // Submit's reference identifies the transfer; the key is cancel's own.
        assert_eq!(reference, &payment(0).reference());
        assert_eq!(key, &keys::compensate_submit(&payment(0).tx_id));
        self.record("cancel", "").map(|()| self.clock.respond(self.cancel.clone()))
    }

    async fn begin_query(&self) -> Result<AskRuling, LedgerDown> {
        self.record("ask", "").map(|()| self.query_ruling)
    }

    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, LedgerDown> {
        assert_eq!(reference, &payment(0).reference());
        self.record("query", "").map(|()| self.clock.respond(self.query.clone()))
    }

    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, LedgerDown> {
        assert_eq!(reference, &payment(0).reference());
        let listed = match (&self.statement, &self.query) {
            (Some(listed), _) => listed.clone(),
            (None, QueryAnswer::NotFound) => QueryAnswer::NotListed { complete_until_ms: None },
            (None, listed) => listed.clone(),
        };
        self.record("statement", "").map(|()| self.clock.respond(listed))
    }

    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, LedgerDown> {
        self.record("void", &format!(":{reason:?}")).map(|()| self.ruling)
    }

    async fn record_settled(&self, settled: &SettledReport) -> Result<FinalStatusRuling, LedgerDown> {
        assert_eq!(settled, &report());
        self.record("settled", "").map(|()| self.ruling)
    }

    async fn record_returned(&self, returned: &SettledReport) -> Result<FinalStatusRuling, LedgerDown> {
        assert_eq!(returned, &report());
        self.record("returned", "").map(|()| self.ruling)
    }
}

/// An outcome in a word; `!` means that an alert is raised.
fn word(outcome: &CancelAttemptOutcome) -> String {
    match outcome {
        CancelAttemptOutcome::Void => "void".into(),
        CancelAttemptOutcome::Settled => "settled".into(),
        CancelAttemptOutcome::Differs => "differs".into(),
        CancelAttemptOutcome::Undecidable(reason) => format!("operator: {reason}"),
        CancelAttemptOutcome::Ended(end) => format!("ended: {end}"),
        CancelAttemptOutcome::Retry { not_before_ms: Some(ms), alert: false, .. } => {
            format!("retry in {ms} ms")
        }
        CancelAttemptOutcome::Retry { not_before_ms: None, alert: false, .. } => "retry".into(),
        CancelAttemptOutcome::Retry { not_before_ms: None, alert: true, .. } => "retry!".into(),
        other => format!("{other:?}"),
    }
}

fn undecided() -> CancelAnswer {
    CancelAnswer::Undecided { detail: "in process".into() }
}

fn no_answer() -> CancelAnswer {
    CancelAnswer::NoAnswer { detail: "timeout".into() }
}

fn pending() -> QueryAnswer {
    QueryAnswer::Pending
}

/// One row of the table (answer x profile x clock) -> outcome: the switch's answers to a cancel and to a query, its profile,
/// the clock, the expected outcome, and the expected calls after `begin`.
type Row<'a> = (CancelAnswer, QueryAnswer, &'a SwitchProfile, Clock, &'a str, &'a str);

const RETENTION_EXPIRED: &str = "operator: switch_retention_expired";
const INCONCLUSIVE: &str = "operator: not_found_is_inconclusive";

fn cancelled() -> CancelAnswer {
    CancelAnswer::Cancelled { tombstoned: Some(false) }
}

fn tombstoned() -> CancelAnswer {
    CancelAnswer::Cancelled { tombstoned: Some(true) }
}

fn fault() -> CancelAnswer {
    CancelAnswer::OurFault { detail: "401".into() }
}

fn settled() -> QueryAnswer {
    QueryAnswer::Settled(report())
}

fn returned() -> QueryAnswer {
    QueryAnswer::Returned(report())
}

fn rejected() -> QueryAnswer {
    QueryAnswer::Void { reject: Reject::uncoded("limit") }
}

fn unknown() -> QueryAnswer {
    QueryAnswer::NotFound
}

fn query_fault() -> QueryAnswer {
    QueryAnswer::OurFault { detail: "404".into() }
}

fn silent() -> QueryAnswer {
    QueryAnswer::NoAnswer { detail: "timeout".into() }
}

fn check<'a>(table: impl IntoIterator<Item = Row<'a>>) {
    for (n, (cancel, query, profile, clock, outcome, calls)) in table.into_iter().enumerate() {
        let row = format!("row {n}: {cancel:?}, {query:?}, {clock:?}");
        let calls = format!("begin {calls}").trim_end().to_owned();
        assert_eq!(
            ScriptedPort::new(cancel, query, clock).attempt(profile),
            (outcome.to_owned(), calls),
            "{row}"
        );
    }
}

#[test]
fn a_cancel_answer_that_is_definite_or_not_found_leads_to_its_outcome() {
    use CancelAnswer::{AlreadyRejected, AlreadyReturned, AlreadySettled, NotFound};
    use Clock::{Before, Deadline, Expired, NoDate, Past, Retained, Skew};
    let full = full_profile();
    let tombstone_only = SwitchProfile { honours_deadline: false, ..full_profile() };
    let deadline_only = SwitchProfile { tombstones: false, ..full_profile() };
    let neither = SwitchProfile { tombstones: false, honours_deadline: false, ..full_profile() };
    let no_query = SwitchProfile { has_query: false, ..full_profile() };
    #[rustfmt::skip]
    let table = [
        // cancel answer           query answer   profile                 clock     outcome                         calls after begin
        // Cancelled: release. A tombstone proves nothing after the retention.
        (cancelled(),              pending(),     &full,                  Before,   "void",                         "cancel void:Cancelled"),
        (cancelled(),              pending(),     &neither,               Before,   "void",                         "cancel void:Cancelled"),
        (cancelled(),              pending(),     &full,                  Expired,  "void",                         "cancel void:Cancelled"),
        (tombstoned(),             pending(),     &full,                  Before,   "void",                         "cancel void:Tombstoned"),
        (tombstoned(),             pending(),     &tombstone_only,        NoDate,   "void",                         "cancel void:Tombstoned"),
        (tombstoned(),             pending(),     &full,                  Retained, "void",                         "cancel void:Tombstoned"),
        (tombstoned(),             pending(),     &full,                  Expired,  RETENTION_EXPIRED,              "cancel"),
        // AlreadyRejected: release.
        (AlreadyRejected,          pending(),     &full,                  Before,   "void",                         "cancel void:Rejected"),
        (AlreadyRejected,          pending(),     &neither,               Expired,  "void",                         "cancel void:Rejected"),
        // AlreadySettled: debit.
        (AlreadySettled(report()), pending(),     &full,                  Before,   "settled",                      "cancel settled"),
        (AlreadySettled(report()), pending(),     &neither,               Expired,  "settled",                      "cancel settled"),
        // AlreadyReturned: the customer owes nothing.
        (AlreadyReturned(report()), pending(),    &full,                  Before,   "void",                         "cancel returned"),
        (AlreadyReturned(report()), pending(),    &neither,               Expired,  "void",                         "cancel returned"),
        (NotFound,                 returned(),    &deadline_only,         Before,   "void",                         "cancel query returned"),
        (undecided(),              returned(),    &full,                  Before,   "void",                         "cancel query returned"),
        // NotFound: a query decides, because it has no key under which the switch could repeat an old answer.
        // "Not found" proves nothing before the deadline has passed on the switch's clock.
        (NotFound,                 unknown(),     &deadline_only,         Before,   "retry in 6001 ms",             "cancel query"),
        (NotFound,                 unknown(),     &deadline_only,         Deadline, "retry in 1001 ms",             "cancel query"),
        (NotFound,                 unknown(),     &deadline_only,         Skew,     "retry in 1 ms",                "cancel query"),
        (NotFound,                 unknown(),     &deadline_only,         Past,     "void",                         "cancel query void:DeadlinePassed"),
        (NotFound,                 unknown(),     &deadline_only,         Retained, "void",                         "cancel query void:DeadlinePassed"),
        (NotFound,                 unknown(),     &deadline_only,         NoDate,   "retry",                        "cancel query"),
        (NotFound,                 unknown(),     &deadline_only,         Expired,  RETENTION_EXPIRED,              "cancel query"),
        (NotFound,                 unknown(),     &neither,               Before,   INCONCLUSIVE,                   "cancel query"),
        (NotFound,                 unknown(),     &neither,               Past,     INCONCLUSIVE,                   "cancel query"),
        (NotFound,                 unknown(),     &neither,               Expired,  RETENTION_EXPIRED,              "cancel query"),
        (NotFound,                 pending(),     &deadline_only,         Past,     "retry",                        "cancel query"),
        (NotFound,                 settled(),     &deadline_only,         Past,     "settled",                      "cancel query settled"),
        (NotFound,                 settled(),     &neither,               Expired,  "settled",                      "cancel query settled"),
        (NotFound,                 silent(),      &deadline_only,         Past,     "retry",                        "cancel query"),
        (NotFound,                 settled(),     &no_query,              Before,   "retry in 6001 ms",             "cancel"),
        (NotFound,                 settled(),     &no_query,              Past,     "void",                         "cancel void:DeadlinePassed"),
        // A switch without tombstones cancelled an unknown reference: this is "not found".
        (tombstoned(),             unknown(),     &deadline_only,         Before,   "retry in 6001 ms",             "cancel query"),
        (tombstoned(),             unknown(),     &deadline_only,         Past,     "void",                         "cancel query void:DeadlinePassed"),
        (tombstoned(),             unknown(),     &neither,               Past,     INCONCLUSIVE,                   "cancel query"),
        (tombstoned(),             settled(),     &neither,               Past,     "settled",                      "cancel query settled"),
    ];
    check(table);
}

#[test]
fn a_cancel_answer_that_is_undecided_leads_to_its_outcome() {
    use CancelAnswer::CannotCancel;
    use Clock::{Before, Expired, NoDate, Past};
    let full = full_profile();
    let neither = SwitchProfile { tombstones: false, honours_deadline: false, ..full_profile() };
    let no_query = SwitchProfile { has_query: false, ..full_profile() };
    #[rustfmt::skip]
    let table = [
        // cancel answer           query answer   profile                 clock     outcome                         calls after begin
        // Undecided: a switch may repeat this answer under our key for ever. A definite status by query counts.
        (undecided(),              pending(),     &full,                  Past,     "retry",                        "cancel query"),
        // Undecided beyond the retention: the switch need never decide, and operators do.
        (undecided(),              pending(),     &full,                  Expired,  RETENTION_EXPIRED,              "cancel query"),
        (undecided(),              settled(),     &full,                  Before,   "settled",                      "cancel query settled"),
        (undecided(),              rejected(),    &full,                  Past,     "void",                         "cancel query void:Rejected"),
        (undecided(),              unknown(),     &full,                  Past,     "retry",                        "cancel query"),
        (undecided(),              query_fault(), &full,                  Past,     "retry",                        "cancel query"),
        (undecided(),              silent(),      &full,                  Past,     "retry",                        "cancel query"),
        (undecided(),              settled(),     &no_query,              Past,     "retry",                        "cancel"),
        // The switch cannot cancel this transfer: a query is used instead.
        (CannotCancel,             pending(),     &full,                  Past,     "retry",                        "cancel query"),
        (CannotCancel,             settled(),     &full,                  Before,   "settled",                      "cancel query settled"),
        (CannotCancel,             rejected(),    &full,                  Before,   "void",                         "cancel query void:Rejected"),
        (CannotCancel,             unknown(),     &full,                  Before,   "retry in 6001 ms",             "cancel query"),
        (CannotCancel,             unknown(),     &full,                  Past,     "void",                         "cancel query void:DeadlinePassed"),
        (CannotCancel,             settled(),     &no_query,              Past,     "retry",                        "cancel"),
        // Our fault: alert at once, retry.
        (fault(),                  settled(),     &full,                  Past,     "retry!",                       "cancel"),
        // After the retention no answer will come that decides: operators do.
        (fault(),                  unknown(),     &neither,               Expired,  RETENTION_EXPIRED,              "cancel"),
        // No answer: retry without end.
        (no_answer(),              settled(),     &full,                  NoDate,   "retry",                        "cancel"),
        (no_answer(),              unknown(),     &full,                  Expired,  RETENTION_EXPIRED,              "cancel"),
    ];
    check(table);
}

#[test]
fn a_switch_that_cannot_cancel_is_decided_by_query_or_an_operator() {
    use Clock::{Before, Expired, NoDate, Past, Retained, Skew};
    let no_cancel = SwitchProfile { can_cancel: false, ..full_profile() };
    let no_cancel_no_deadline =
        SwitchProfile { can_cancel: false, honours_deadline: false, ..full_profile() };
    let callback_only = SwitchProfile { can_cancel: false, has_query: false, ..full_profile() };
    #[rustfmt::skip]
    let table = [
        // cancel answer           query answer   profile                 clock     outcome                         calls after begin
        // A switch without cancel: the same table by query.
        (cancelled(),              pending(),     &no_cancel,             Past,     "retry",                        "query"),
        (cancelled(),              pending(),     &no_cancel,             Retained, "retry",                        "query"),
        (cancelled(),              pending(),     &no_cancel,             Expired,  RETENTION_EXPIRED,              "query"),
        (cancelled(),              settled(),     &no_cancel,             Expired,  "settled",                      "query settled"),
        (cancelled(),              rejected(),    &no_cancel,             Before,   "void",                         "query void:Rejected"),
        (cancelled(),              unknown(),     &no_cancel,             Before,   "retry in 6001 ms",             "query"),
        (cancelled(),              unknown(),     &no_cancel,             Skew,     "retry in 1 ms",                "query"),
        (cancelled(),              unknown(),     &no_cancel,             Past,     "void",                         "query void:DeadlinePassed"),
        (cancelled(),              unknown(),     &no_cancel,             NoDate,   "retry",                        "query"),
        (cancelled(),              unknown(),     &no_cancel,             Expired,  RETENTION_EXPIRED,              "query"),
        (cancelled(),              unknown(),     &no_cancel_no_deadline, Past,     INCONCLUSIVE,                   "query"),
        (cancelled(),              query_fault(), &no_cancel,             Past,     "retry!",                       "query"),
        (cancelled(),              silent(),      &no_cancel,             NoDate,   "retry",                        "query"),
        // Neither cancel nor query: only a callback can move the payment.
        (cancelled(),              settled(),     &callback_only,         Past,     "operator: no_cancel_or_query", ""),
    ];
    check(table);
}

/// A recorded final state or final status makes a request to the switch unnecessary.
#[test]
fn a_recorded_final_status_decides_a_cancel_without_a_switch_request() {
    let sent = || ScriptedPort::new(undecided(), pending(), Clock::Before).context;
    #[rustfmt::skip]
    let table = [
        (CancelContext { end: Some(FinalState::Settled), ..sent() },                                       "ended: settled", "begin"),
        (CancelContext { end: Some(FinalState::Failed), final_status: Some(FinalStatus::Void), ..sent() }, "ended: failed",  "begin"),
        (CancelContext { final_status: Some(FinalStatus::Settled), ..sent() },                             "settled",        "begin"),
        (CancelContext { final_status: Some(FinalStatus::Void), ..sent() },                                "void",           "begin"),
        (CancelContext { final_status: Some(FinalStatus::Settled), never_sent: true, ..sent() },           "settled",        "begin"),
        // Nothing was ever sent: no request to the switch.
        (CancelContext { never_sent: true, deadline_ms: None, ..sent() },                                  "void",           "begin void:NeverSent"),
        (sent(),                                                                                           "retry",          "begin cancel query"),
    ];
    for (context, outcome, calls) in table {
        let row = format!("{context:?}");
        let port = ScriptedPort { context, ..ScriptedPort::new(undecided(), pending(), Clock::Before) };
        assert_eq!(port.attempt(&full_profile()), (outcome.to_owned(), calls.to_owned()), "{row}");
    }
}

/// The first recorded definite answer is used, whatever the switch answers now.
#[test]
fn the_first_recorded_final_status_outranks_a_later_cancel_answer() {
    let rejected = || CancelAnswer::AlreadyRejected;
    let settled = || CancelAnswer::AlreadySettled(report());
    let returned = || CancelAnswer::AlreadyReturned(report());
    #[rustfmt::skip]
    let table = [
        (rejected(), FinalStatusRuling::First,                       "void"),
        (rejected(), FinalStatusRuling::Same,                        "void"),
        (rejected(), FinalStatusRuling::Contradicts,                 "settled"),
        (settled(),  FinalStatusRuling::First,                       "settled"),
        (settled(),  FinalStatusRuling::Same,                        "settled"),
        (settled(),  FinalStatusRuling::Contradicts,                 "void"),
        (settled(),  FinalStatusRuling::Differs(Difference::Amount), "differs"),
        (settled(),  FinalStatusRuling::Differs(Difference::Switch), "differs"),
        (settled(),  FinalStatusRuling::NoAttempt,                   "operator: settled_without_attempt"),
        // Nothing can settle any more: operators may release what another amount came back for.
        (returned(), FinalStatusRuling::Differs(Difference::Amount), "operator: confirmation_mismatch"),
        (returned(), FinalStatusRuling::NoAttempt,                   "operator: settled_without_attempt"),
    ];
    for (cancel, ruling, outcome) in table {
        let row = format!("{cancel:?} {ruling:?}");
        let port = ScriptedPort { ruling, ..ScriptedPort::new(cancel, pending(), Clock::Before) };
        assert_eq!(port.attempt(&full_profile()).0, outcome, "{row}");
    }
}

/// The age of the cancel raises the alert, whatever the reason for which the attempt is undecided.
#[test]
fn a_cancel_that_stays_undecided_raises_an_alert_by_its_age() {
    for (cancelling_ms, outcome) in [(0, "retry"), (ALERT_AFTER_MS - 1, "retry"), (ALERT_AFTER_MS, "retry!")]
    {
        for cancel in [undecided(), no_answer(), CancelAnswer::CannotCancel] {
            let mut port = ScriptedPort::new(cancel, pending(), Clock::Before);
            port.context.cancelling_ms = cancelling_ms;
            assert_eq!(port.attempt(&full_profile()).0, outcome, "{cancelling_ms} ms, {:?}", port.cancel);
        }
    }
}

/// If our ledger does not answer any one call, the attempt concludes nothing.
#[test]
fn a_cancel_attempt_while_the_ledger_is_down_has_no_outcome() {
    #[rustfmt::skip]
    let table = [
        ("begin",   CancelAnswer::AlreadyRejected,          "begin"),
        ("cancel",  CancelAnswer::AlreadyRejected,          "begin cancel"),
        ("query",   undecided(),                            "begin cancel query"),
        ("void",    CancelAnswer::AlreadyRejected,          "begin cancel void:Rejected"),
        ("settled", CancelAnswer::AlreadySettled(report()), "begin cancel settled"),
    ];
    for (call, cancel, calls) in table {
        let port =
            ScriptedPort { fails_at: Some(call), ..ScriptedPort::new(cancel, pending(), Clock::Before) };
        assert_eq!(port.attempt(&full_profile()), ("ledger down".to_owned(), calls.to_owned()));
    }
}

/// Without a recorded attempt the deadline is the latest that a lost attempt can have: "not found" counts once it has passed.
#[test]
fn a_cancel_answered_not_found_without_a_deadline_waits_for_the_latest_one() {
    let mut port = ScriptedPort::new(CancelAnswer::NotFound, QueryAnswer::NotFound, Clock::Past);
    port.context.deadline_ms = None;
    let distance_ms = full_profile().submit_deadline_ms + u64::try_from(SKEW_MS).unwrap() + 1;
    assert_eq!(
        port.attempt(&full_profile()),
        (format!("retry in {distance_ms} ms"), "begin cancel query bound".to_owned())
    );
}

/// The switch accepted the transfer, according to our record: that it does not know it is a contradiction for operators.
#[test]
fn an_accepted_transfer_that_the_switch_does_not_know_needs_an_operator() {
    const CONTRADICTION: &str = "operator: accepted_then_unknown";
    let unsaid = CancelAnswer::Cancelled { tombstoned: None };
    for (cancel, clock, accepted, outcome) in [
        (tombstoned(), Clock::Before, true, CONTRADICTION),
        (tombstoned(), Clock::Before, false, "void"),
        (CancelAnswer::NotFound, Clock::Past, true, CONTRADICTION),
        (CancelAnswer::NotFound, Clock::Before, true, "retry in 6001 ms"),
        // It cancelled what it had accepted.
        (cancelled(), Clock::Before, true, "void"),
        (unsaid.clone(), Clock::Before, true, "void"),
        (unsaid.clone(), Clock::Before, false, "void"),
        (unsaid, Clock::Expired, true, RETENTION_EXPIRED),
    ] {
        let mut port = ScriptedPort::new(cancel.clone(), QueryAnswer::NotFound, clock);
        port.context.accepted = accepted;
        assert_eq!(port.attempt(&full_profile()).0, outcome, "{cancel:?} {clock:?} {accepted}");
    }
}

/// A switch that does not say whether it knew what it cancelled: our record says why the transfer is void, and with it which later report
/// contradicts.
#[test]
fn a_cancel_of_an_unsaid_transfer_is_void_for_the_reason_that_our_record_gives() {
    let no_query = SwitchProfile { has_query: false, ..full_profile() };
    for (accepted, profile, reason) in [
        (false, full_profile(), "Tombstoned"),
        (false, no_query.clone(), "Tombstoned"),
        (true, full_profile(), "CancelledUnsaid"),
        (true, no_query, "Cancelled"),
    ] {
        let mut port =
            ScriptedPort::new(CancelAnswer::Cancelled { tombstoned: None }, pending(), Clock::Before);
        port.context.accepted = accepted;
        let calls = format!("begin cancel void:{reason}");
        assert_eq!(port.attempt(&profile), ("void".to_owned(), calls), "{accepted} {}", profile.has_query);
    }
}

/// A switch that does not say whether it knew what it cancelled, and had reported a SUCCESS that was not taken: its status decides.
#[test]
fn a_cancel_that_may_contradict_a_success_is_decided_by_the_status() {
    for (query, outcome) in [
        (rejected(), "void"),
        (settled(), "settled"),
        (QueryAnswer::NotFound, "operator: accepted_then_unknown"),
        (pending(), "retry"),
    ] {
        let unsaid = CancelAnswer::Cancelled { tombstoned: None };
        let mut port = ScriptedPort::new(unsaid, query.clone(), Clock::Past);
        (port.context.accepted, port.context.has_doubtful_success) = (true, true);
        assert_eq!(port.attempt(&full_profile()).0, outcome, "{query:?}");
    }
}

/// A row that may be a second acceptance has another id than the transfer of the first: that the switch does not know this id proves
/// nothing, today or later, and operators decide. An answer about the transfer itself counts.
#[test]
fn an_absence_proves_nothing_where_the_transfer_may_have_another_id() {
    let closed = QueryAnswer::NotListed { complete_until_ms: Some(DEADLINE_MS + SKEW_MS + 101) };
    let closing = SwitchProfile { settled_within_ms: Some(100), ..rail() };
    for (cancel, query, profile, outcome) in [
        (tombstoned(), unknown(), full_profile(), INCONCLUSIVE),
        (CancelAnswer::NotFound, unknown(), full_profile(), INCONCLUSIVE),
        (undecided(), unknown(), closing, INCONCLUSIVE),
        (cancelled(), unknown(), full_profile(), "void"),
        (CancelAnswer::AlreadyRejected, unknown(), full_profile(), "void"),
    ] {
        let row = format!("{cancel:?} {query:?}");
        let mut port = ScriptedPort::new(cancel, query, Clock::Past);
        port.statement = Some(closed.clone());
        port.context.may_have_other_id = true;
        assert_eq!(port.attempt(&profile).0, outcome, "{row}");
    }
}

/// Only a person knows which of several listed transfers is the payment's (decision 0008).
#[test]
fn an_ambiguous_transfer_needs_an_operator() {
    let ambiguous = QueryAnswer::Ambiguous { detail: "two transfers".into() };
    let port = ScriptedPort::new(CancelAnswer::CannotCancel, ambiguous, Clock::Before);
    assert_eq!(port.attempt(&full_profile()).0, "operator: ambiguous_transfer");
}

#[test]
fn an_extreme_deadline_or_clock_skew_neither_overflows_nor_voids() {
    let mut port = ScriptedPort::new(CancelAnswer::NotFound, QueryAnswer::NotFound, Clock::Past);
    port.context.deadline_ms = Some(i64::MAX);
    assert!(port.attempt(&full_profile()).0.starts_with("retry in"));
    let unbounded = SwitchProfile { max_skew_ms: u64::MAX, ..full_profile() };
    port.context.deadline_ms = Some(DEADLINE_MS);
    assert!(port.attempt(&unbounded).0.starts_with("retry in"));
}

/// A rail: no cancel, a query with limits, a statement.
fn rail() -> SwitchProfile {
    SwitchProfile {
        can_cancel: false,
        tombstones: false,
        has_statement: true,
        asks_max: 3,
        reject_codes: [("AC04".into(), RejectMeaning::Dead), ("AM05".into(), RejectMeaning::Duplicate)]
            .into(),
        ..full_profile()
    }
}

/// The ruling on a query, its answer, the statement's answer, the profile, the clock, the expected outcome and calls.
type LimitedRow<'a> =
    (AskRuling, QueryAnswer, Option<QueryAnswer>, &'a SwitchProfile, Clock, &'a str, &'a str);

#[test]
fn a_query_that_the_switch_would_refuse_is_not_sent_and_spent_queries_lead_to_the_statement() {
    let not_listed = |complete_until_ms| Some(QueryAnswer::NotListed { complete_until_ms });
    let early = AskRuling::TooEarly { wait_ms: 700 };
    let closing = SwitchProfile { settled_within_ms: Some(100), ..rail() };
    let closed = Some(DEADLINE_MS + SKEW_MS + 101);
    let open = Some(DEADLINE_MS + SKEW_MS + 100);
    let no_statement = SwitchProfile { has_statement: false, ..rail() };
    let delayed = SwitchProfile { honours_deadline: false, ..closing.clone() };
    let retained = Some(DEADLINE_MS + SKEW_MS + 101 + i64::try_from(RETENTION_MS).unwrap());
    let spent = "operator: queries_spent";
    use AskRuling::{Ask, Spent};
    #[rustfmt::skip]
    let table: Vec<LimitedRow<'_>> = vec![
        // ruling query        statement           profile        clock         outcome                  calls
        (early,   pending(),   not_listed(None),   rail_ref(),   Clock::Before, "retry in 700 ms",      "ask"),
        (Ask,     pending(),   not_listed(closed), &closing,      Clock::Past,   "retry",                "ask query"),
        (Ask,     settled(),   not_listed(None),   rail_ref(),   Clock::Before, "settled",              "ask query settled"),
        (Spent,   pending(),   Some(settled()),    rail_ref(),   Clock::Past,   "settled",              "ask statement settled"),
        (Spent,   pending(),   not_listed(closed), rail_ref(),   Clock::Past,   spent,                  "ask statement"),
        (Spent,   pending(),   not_listed(open),   &closing,      Clock::Past,   "retry",                "ask statement"),
        (Spent,   pending(),   not_listed(closed), &closing,      Clock::Past,   "void",                 "ask statement void:NotInClosedStatement"),
        (Spent,   pending(),   Some(returned()),   &closing,      Clock::Past,   "void",                 "ask statement returned"),
        (Spent,   pending(),   None,               &no_statement, Clock::Past,   spent,                  "ask"),
        // "Not found" is believed after the deadline, or the statement decides.
        (Ask,     unknown(),   not_listed(None),   rail_ref(),   Clock::Past,   "void",                 "ask query statement void:DeadlinePassed"),
        (Ask,     unknown(),   Some(settled()),    rail_ref(),   Clock::Past,   "settled",              "ask query statement settled"),
        (Ask,     unknown(),   not_listed(closed), &delayed,      Clock::Past,   "retry",                "ask query statement"),
        (Ask,     unknown(),   not_listed(retained), &delayed,    Clock::Expired, "void",                "ask query statement void:NotInClosedStatement"),
        (Ask,     query_fault(), Some(returned()), rail_ref(),   Clock::Past,   "void",                 "ask query statement returned"),
    ];
    for (n, (query_ruling, query, statement, profile, clock, outcome, calls)) in table.into_iter().enumerate()
    {
        let port = ScriptedPort { query_ruling, statement, ..ScriptedPort::new(undecided(), query, clock) };
        let expected = (outcome.to_owned(), format!("begin {calls}"));
        assert_eq!(port.attempt(profile), expected, "row {n}");
    }
}

/// A return of another amount waits for no complete statement.
#[test]
fn a_return_of_another_amount_calls_operators_at_once() {
    let closing = SwitchProfile { settled_within_ms: Some(100), ..rail() };
    let port = ScriptedPort {
        query_ruling: AskRuling::Spent,
        statement: Some(returned()),
        ruling: FinalStatusRuling::Differs(Difference::Amount),
        ..ScriptedPort::new(undecided(), pending(), Clock::Before)
    };
    assert_eq!(port.attempt(&closing).0, "operator: confirmation_mismatch");
}

/// [`rail`], once.
fn rail_ref() -> &'static SwitchProfile {
    static RAIL: std::sync::OnceLock<SwitchProfile> = std::sync::OnceLock::new();
    RAIL.get_or_init(rail)
}

#[test]
fn a_queried_reject_is_believed_only_if_its_code_means_that_the_transfer_is_dead() {
    let void = |code: Option<&str>| QueryAnswer::Void {
        reject: Reject { code: code.map(str::to_owned), reason: "no".into() },
    };
    let profile = SwitchProfile { has_statement: false, ..rail() };
    for (code, outcome) in
        [(Some("AC04"), "void"), (Some("AM05"), "retry"), (Some("XX99"), "retry"), (None, "retry")]
    {
        let port = ScriptedPort::new(undecided(), void(code), Clock::Past);
        assert_eq!(port.attempt(&profile).0, outcome, "{code:?}");
    }
    // A switch without codes says it of the transfer.
    let no_codes = SwitchProfile { reject_codes: [].into(), ..profile };
    assert_eq!(ScriptedPort::new(undecided(), void(None), Clock::Past).attempt(&no_codes).0, "void");
}

/// A poll wakes the workflow for what changes the payment. A report that is recorded as an exception is polled again at the poll's own
/// intervals; if it woke the workflow, the debit would refuse it, and the workflow would poll again at once.
#[test]
fn a_poll_wakes_the_workflow_only_for_what_changes_the_payment() {
    use FinalStatusRuling::{Contradicts, Differs, First, NoAttempt, Same};
    use PollOutcome::{ReturnReported, SuccessReported};
    let settlement = Some(WaitOutcome::SuccessReported);
    let money_back = Some(WaitOutcome::FinalStatusRecorded);
    let failure = Some(WaitOutcome::FailureReported { reason: "limit".into() });
    let differs = Differs(Difference::Amount);
    #[rustfmt::skip]
    let table = [
        // the switch says, ruling       the poll                     within the SLA      needs an operator
        (settled(),        First,        Some(SuccessReported),       settlement.clone(), settlement.clone()),
        (settled(),        Same,         Some(SuccessReported),       settlement.clone(), settlement.clone()),
        (settled(),        differs,      Some(PollOutcome::Differs),  settlement.clone(), None),
        (settled(),        NoAttempt,    None,                        None,               None),
        (settled(),        Contradicts,  None,                        None,               None),
        (returned(),       First,        Some(ReturnReported),        money_back.clone(), money_back.clone()),
        (returned(),       Same,         Some(ReturnReported),        money_back.clone(), money_back),
        (returned(),       differs,      None,                        None,               None),
        (returned(),       NoAttempt,    None,                        None,               None),
        (rejected(),       First,        Some(PollOutcome::FailureReported { reason: "limit".into() }), failure, None),
        (pending(),        First,        None,                        None,               None),
        (unknown(),        First,        None,                        None,               None),
        (silent(),         First,        None,                        None,               None),
    ];
    let paid = Payment { profile: full_profile(), ..payment(0) };
    for (n, (query, ruling, polled, within_sla, with_operator)) in table.into_iter().enumerate() {
        let port = ScriptedPort { ruling, ..ScriptedPort::new(no_answer(), query, Clock::Past) };
        let outcome = block_on(poll(&port, &paid)).unwrap();
        assert_eq!(outcome.wait_outcome(Awaited::Confirmation), within_sla, "row {n}");
        assert_eq!(outcome.wait_outcome(Awaited::FinalStatus), with_operator, "row {n}");
        // A payment whose SUCCESS is known gains nothing from another one.
        let only_return = with_operator.filter(|event| *event == WaitOutcome::FinalStatusRecorded);
        assert_eq!(outcome.wait_outcome(Awaited::Return), only_return, "row {n}");
        match polled {
            Some(polled) => assert_eq!(outcome, polled, "row {n}"),
            None => assert!(matches!(outcome, PollOutcome::Retry { .. }), "row {n}: {outcome:?}"),
        }
    }
}

/// A transfer that the switch does not have may be out under another id; one that it cancelled or rejected is not.
#[test]
fn three_reasons_say_that_the_switch_does_not_have_the_transfer() {
    for (reason, is_absence) in [
        (VoidReason::NeverSent, false),
        (VoidReason::Cancelled, false),
        (VoidReason::CancelledUnsaid, false),
        (VoidReason::Tombstoned, true),
        (VoidReason::Rejected, false),
        (VoidReason::DeadlinePassed, true),
        (VoidReason::NotInClosedStatement, true),
    ] {
        assert_eq!(reason.is_absence(), is_absence, "{reason:?}");
    }
}

#[test]
fn a_cancel_shows_the_acceptance_of_a_transfer_that_settled_or_was_known() {
    use payment_protocol::cause::OperatorReason::{AcceptedThenUnknown, AmbiguousTransfer};
    use payment_protocol::port::CancelOutcome;
    for (outcome, shows) in [
        (CancelOutcome::Void, false),
        (CancelOutcome::Settled, true),
        // A callback, which may be false.
        (CancelOutcome::SuccessReported, false),
        (CancelOutcome::Differs, true),
        (CancelOutcome::Undecidable(AcceptedThenUnknown), true),
        (CancelOutcome::Undecidable(AmbiguousTransfer), false),
        (CancelOutcome::Ended(FinalState::Cancelled), false),
    ] {
        assert_eq!(outcome.shows_acceptance(), shows, "{outcome:?}");
    }
}
