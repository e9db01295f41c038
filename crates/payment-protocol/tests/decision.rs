//! The complete table of a debit by decision: the switch is asked first, always, and a definite answer overrides the decision.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use std::cell::RefCell;

use futures::executor::block_on;
use payment_protocol::cancel::{CancelAnswer, CancelContext, CancelPort, SwitchResponse, VoidReason};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, Decision, DecisionOutcome, DecisionPort, apply_decision};
use payment_protocol::facts::{FinalStatus, RecallRecord};
use payment_protocol::ids::DecisionId;
use payment_protocol::keys::{CompensationKey, Reference};
use payment_protocol::reject::Reject;
use payment_protocol::report::{Difference, SettledReport};
use payment_protocol::rules::{AskRuling, DebitByDecisionRuling, FinalStatusRuling, ReleaseByDecisionRuling};
use payment_protocol::submit::QueryAnswer;
use payment_protocol::{Payment, SwitchProfile};
use support::{RETENTION_MS, full_profile, payment, report};

/// A switch that answers the query, and a ledger that records the settlement as `ruling` says.
struct ScriptedPort {
    query: QueryAnswer,
    age_ms: Option<u64>,
    ruling: FinalStatusRuling,
    calls: RefCell<Vec<&'static str>>,
}

impl ScriptedPort {
    fn record<T>(&self, call: &'static str, reply: T) -> Result<T, ()> {
        self.calls.borrow_mut().push(call);
        Ok(reply)
    }
}

impl CancelPort for ScriptedPort {
    type Error = ();

    async fn begin(&self) -> Result<CancelContext, ()> {
        unreachable!("a debit begins no cancel")
    }

    async fn bound_deadline(&self, latest_ms: i64) -> Result<i64, ()> {
        Ok(latest_ms)
    }

    async fn cancel(&self, _: &Reference, _: &CompensationKey) -> Result<SwitchResponse<CancelAnswer>, ()> {
        unreachable!("a debit never cancels")
    }

    async fn begin_query(&self) -> Result<AskRuling, ()> {
        unreachable!("the switch does not limit queries")
    }

    async fn query(&self, _: &Reference) -> Result<SwitchResponse<QueryAnswer>, ()> {
        let answer = self.query.clone();
        self.record(
            "query",
            SwitchResponse { answer, switch_now_ms: Some(0), first_attempt_age_ms: self.age_ms },
        )
    }

    /// Complete, without the transfer.
    async fn statement(&self, _: &Reference) -> Result<SwitchResponse<QueryAnswer>, ()> {
        let answer = QueryAnswer::NotListed { complete_until_ms: Some(i64::MAX) };
        self.record(
            "statement",
            SwitchResponse { answer, switch_now_ms: Some(0), first_attempt_age_ms: self.age_ms },
        )
    }

    async fn record_void(&self, _: VoidReason) -> Result<FinalStatusRuling, ()> {
        self.record("void", self.ruling)
    }

    async fn record_settled(&self, _: &SettledReport) -> Result<FinalStatusRuling, ()> {
        self.record("settled", self.ruling)
    }

    async fn record_returned(&self, _: &SettledReport) -> Result<FinalStatusRuling, ()> {
        self.record("returned", self.ruling)
    }
}

impl DecisionPort for ScriptedPort {
    async fn recorded(&self) -> Result<Option<DecisionOutcome>, ()> {
        Ok(None)
    }

    async fn record_recall(&self, answer: RecallRecord) -> Result<(), ()> {
        let call = if answer == RecallRecord::Refused { "recall:refused" } else { "recall:unsupported" };
        self.record(call, ())
    }

    async fn debit_by_decision(&self) -> Result<DebitByDecisionRuling, ()> {
        self.record("debit", DebitByDecisionRuling::Charge)
    }

    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), ()> {
        unreachable!("a debit releases nothing")
    }

    async fn close(&self, _: &DecisionOutcome, _: &str) -> Result<(), ()> {
        self.record("close", ())
    }
}

/// The outcome in a word, and the calls.
fn debit(profile: &SwitchProfile, reason: OperatorReason, port: &ScriptedPort) -> (String, String) {
    let decision = Decision { decision_id: DecisionId::new("dec_1").unwrap(), action: Action::Debit };
    let payment = Payment { profile: profile.clone(), ..payment(0) };
    let outcome = match block_on(apply_decision(port, &payment, &decision, reason)).unwrap() {
        DecisionOutcome::Settled => "debited".into(),
        DecisionOutcome::FinalStatus(FinalStatus::Settled) => "follows: settled".into(),
        DecisionOutcome::FinalStatus(FinalStatus::Returned) => "follows: returned".into(),
        DecisionOutcome::FinalStatus(FinalStatus::Void) => "follows: void".into(),
        DecisionOutcome::Refused { .. } => "refused".into(),
        other => format!("{other:?}"),
    };
    (outcome, port.calls.take().join(" "))
}

/// Every reason that permits a debit, with every answer of a switch within its retention.
#[test]
fn a_debit_by_decision_asks_the_switch_first_whatever_the_reason() {
    use FinalStatusRuling::{Contradicts, Differs, First, NoAttempt, Same};
    let no_answer = || QueryAnswer::NoAnswer { detail: "timeout".into() };
    let reasons: Vec<_> = OperatorReason::ALL
        .iter()
        .copied()
        .filter(|reason| reason.allowed().contains(&Action::Debit))
        .collect();
    assert!(reasons.len() > 10, "{reasons:?}");
    for reason in reasons {
        let follows = reason.follows_switch();
        // A settlement that is recorded is what the decision is about, where it could not be booked.
        let recorded = if follows {
            ("follows: settled", "query settled close")
        } else {
            ("debited", "query settled debit")
        };
        // A switch that honours deadlines and does not know the transfer says that it is void; not if it had accepted it.
        let proves_nothing =
            matches!(reason, OperatorReason::AcceptedThenUnknown | OperatorReason::NotFoundIsInconclusive);
        let says_void = follows && !proves_nothing;
        let unknown = if says_void { ("refused", "query close") } else { ("debited", "query debit") };
        // What another amount came back for is released where operators may, else booked and corrected.
        let returned_otherwise = if reason.allowed().contains(&Action::Release) {
            ("refused", "query returned close")
        } else {
            ("debited", "query returned debit")
        };
        // Operators who may release decide that; for the others a SUCCESS was the switch's first word, unless its record is lost.
        let (void_first, void_after_success) = if reason.allowed().contains(&Action::Release) {
            (("refused", "query close"), ("refused", "query close"))
        } else {
            (("follows: void", "query void close"), ("debited", "query void debit"))
        };
        // The answer to the recall is on record before the debit, which it permits.
        let recalled = match reason {
            OperatorReason::RecallRefused => "recall:refused debit",
            OperatorReason::RecallUnsupported => "recall:unsupported debit",
            _ => "debit",
        };
        let void = || QueryAnswer::Void { reject: Reject::uncoded("no") };
        #[rustfmt::skip]
        let rows = [
            (QueryAnswer::Settled(report()),  First,       ("follows: settled", "query settled close")),
            (QueryAnswer::Settled(report()),  Same,        recorded),
            (QueryAnswer::Settled(report()),  Contradicts, ("refused", "query settled close")),
            (QueryAnswer::Settled(report()),  NoAttempt,   ("debited", "query settled debit")),
            (QueryAnswer::Returned(report()), First,       ("follows: returned", "query returned close")),
            (QueryAnswer::Returned(report()), Same,        ("follows: returned", "query returned close")),
            (QueryAnswer::Returned(report()), Contradicts, ("follows: returned", "query returned close")),
            (QueryAnswer::Returned(report()), NoAttempt,   returned_otherwise),
            (QueryAnswer::Returned(report()), Differs(Difference::Amount), returned_otherwise),
            (void(),                          First,       void_first),
            (void(),                          Same,        void_first),
            (void(),                          Contradicts, void_after_success),
            (QueryAnswer::Pending,            First,       ("refused", "query close")),
            (no_answer(),                     First,       ("refused", "query close")),
            (QueryAnswer::NotFound,           First,       unknown),
            (QueryAnswer::Ambiguous { detail: "two".into() }, First, ("debited", "query debit")),
        ];
        for (query, ruling, (outcome, calls)) in rows {
            let port =
                ScriptedPort { query: query.clone(), age_ms: Some(5_000), ruling, calls: RefCell::default() };
            let applied = debit(&full_profile(), reason, &port);
            let calls = calls.replace("debit", recalled);
            assert_eq!(applied, (outcome.into(), calls), "{reason} {query:?} {ruling:?}");
        }
    }
}

/// A switch that is silent, or never decides, blocks a decision for its retention and not for ever.
#[test]
fn a_debit_by_decision_believes_the_evidence_when_the_switch_decides_nothing_beyond_its_retention() {
    let reason = OperatorReason::SwitchRetentionExpired;
    for query in [QueryAnswer::NoAnswer { detail: "timeout".into() }, QueryAnswer::Pending] {
        let undecided = |age_ms| ScriptedPort {
            query: query.clone(),
            age_ms,
            ruling: FinalStatusRuling::First,
            calls: RefCell::default(),
        };
        // Without an attempt on record, its age is unknown.
        for (age_ms, outcome) in
            [(Some(RETENTION_MS - 1), "refused"), (Some(RETENTION_MS), "debited"), (None, "debited")]
        {
            assert_eq!(debit(&full_profile(), reason, &undecided(age_ms)).0, outcome, "{query:?} {age_ms:?}");
        }
    }
}

/// A complete statement without the transfer is an answer too, unless a SUCCESS is on record.
#[test]
fn a_debit_by_decision_is_refused_by_a_complete_statement_unless_a_success_is_on_record() {
    use FinalStatusRuling::{Contradicts, First, NoAttempt};
    let profile = SwitchProfile {
        has_query: false,
        has_statement: true,
        settled_within_ms: Some(100),
        ..full_profile()
    };
    for (reason, ruling, outcome) in [
        (OperatorReason::QueriesSpent, First, "refused"),
        (OperatorReason::RecallRefused, First, "follows: void"),
        (OperatorReason::RecallRefused, Contradicts, "debited"),
        (OperatorReason::RecallRefused, NoAttempt, "debited"),
    ] {
        let port = ScriptedPort {
            query: QueryAnswer::Pending,
            age_ms: Some(5_000),
            ruling,
            calls: RefCell::default(),
        };
        assert_eq!(debit(&profile, reason, &port).0, outcome, "{reason} {ruling:?}");
    }
}

/// A switch without query and statement cannot be asked.
#[test]
fn a_debit_by_decision_asks_nobody_where_the_switch_offers_nothing() {
    let profile = SwitchProfile { has_query: false, ..full_profile() };
    let port = ScriptedPort {
        query: QueryAnswer::Pending,
        age_ms: Some(0),
        ruling: FinalStatusRuling::First,
        calls: RefCell::default(),
    };
    assert_eq!(debit(&profile, OperatorReason::NoCancelOrQuery, &port), ("debited".into(), "debit".into()));
}
