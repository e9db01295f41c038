//! The rules as truth tables, and the promises they keep over every combination of facts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_protocol::SwitchProfile;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::ids::{RunId, SwitchName};
use payment_protocol::report::{Difference, Expected};
use payment_protocol::rules::{
    self, AttemptRuling, DebitRuling, FinalStatusRuling, NotSent, ReleaseRefusal, ReleaseRuling,
    ReserveRuling,
};
use payment_protocol::state::{FinalState, PaymentState};
use support::{RETENTION_MS, payment, report, whole};

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// Reserved by run `a`; nothing sent.
fn held() -> Facts {
    Facts {
        state: PaymentState::Reserved,
        run_id: Some(run("a")),
        reserve: Some(ReserveRecord::Held),
        hold: Some(HoldStatus::Open),
        ..Facts::accepted()
    }
}

/// Held, and one attempt on record.
fn sent() -> Facts {
    Facts { attempts: 1, first_attempt_age_ms: Some(5_000), ..held() }
}

#[test]
fn what_a_reserve_may_do() {
    use ReserveRuling::{AnotherRun, Ended, Recorded, Refuse, Try};
    let fresh = Facts::accepted;
    let refused = |refusal| Facts { reserve: Some(ReserveRecord::Refused(refusal)), ..fresh() };
    let ended = |state| Facts { state, ..held() };
    let poor = ReserveRefusal::InsufficientFunds;
    #[rustfmt::skip]
    let table = [
        // facts                                                run   too late  ruling
        (fresh(),                                               "a",  false,    Try),
        (fresh(),                                               "a",  true,     Refuse(ReserveRefusal::StartedTooLate)),
        (Facts { cancel_requested: true, ..fresh() },           "a",  false,    Refuse(ReserveRefusal::CustomerCancel)),
        (Facts { cancel_requested: true, ..fresh() },           "a",  true,     Refuse(ReserveRefusal::CustomerCancel)),
        // What is being undone ends for the cause of the undo.
        (Facts { cause: Some(Cause::ReserveUnknown), ..fresh() }, "a",  false,    AnotherRun),
        (Facts { cause: Some(Cause::ReserveUnknown), cancel_requested: true, ..fresh() }, "a", true, AnotherRun),
        (Facts { run_id: Some(run("a")), ..fresh() },           "a",  false,    Try),
        (Facts { run_id: Some(run("a")), ..fresh() },           "b",  false,    AnotherRun),
        (held(),                                                "a",  false,    Recorded(ReserveRecord::Held)),
        (held(),                                                "a",  true,     Recorded(ReserveRecord::Held)),
        (Facts { cancel_requested: true, ..held() },            "a",  false,    Recorded(ReserveRecord::Held)),
        (held(),                                                "b",  false,    AnotherRun),
        (ended(PaymentState::Settled),                          "a",  false,    Ended(FinalState::Settled)),
        (ended(PaymentState::TimedOut),                         "b",  false,    Ended(FinalState::TimedOut)),
        // A recorded refusal is the answer for ever, to whoever asks.
        (refused(poor),                                         "a",  false,    Recorded(ReserveRecord::Refused(poor))),
        (refused(poor),                                         "b",  true,     Recorded(ReserveRecord::Refused(poor))),
        (Facts { state: PaymentState::Rejected, ..refused(poor) }, "a", false,  Recorded(ReserveRecord::Refused(poor))),
        (Facts { cancel_requested: true, ..refused(ReserveRefusal::Fenced) }, "a", true, Recorded(ReserveRecord::Refused(ReserveRefusal::Fenced))),
    ];
    for (n, (facts, who, too_late, ruling)) in table.into_iter().enumerate() {
        assert_eq!(rules::reserve(&facts, &run(who), too_late), ruling, "row {n}");
    }
}

#[test]
fn what_an_attempt_may_do() {
    use AttemptRuling::{NotSent as No, Send, Settled};
    let full = whole();
    let forgets_nothing_twice = SwitchProfile { deduplicates: false, ..whole() };
    let aged = |ms| Facts { first_attempt_age_ms: Some(ms), ..sent() };
    let hold = |hold| Facts { hold, ..sent() };
    #[rustfmt::skip]
    let table = [
        // facts                                                     run  profile                 ruling
        (held(),                                                     "a", &full,                  Send(1)),
        (sent(),                                                     "a", &full,                  Send(2)),
        (Facts { attempts: 7, ..sent() },                            "a", &full,                  Send(8)),
        (held(),                                                     "b", &full,                  No(NotSent::AnotherRun)),
        (Facts::accepted(),                                          "a", &full,                  No(NotSent::AnotherRun)),
        (hold(None),                                                 "a", &full,                  No(NotSent::NoOpenHold)),
        (hold(Some(HoldStatus::Released)),                           "a", &full,                  No(NotSent::NoOpenHold)),
        (hold(Some(HoldStatus::Settled)),                            "a", &full,                  No(NotSent::NoOpenHold)),
        (Facts { cause: Some(Cause::SlaExpired), ..sent() },          "a", &full,                  No(NotSent::CancelStarted)),
        (Facts { final_status: Some(FinalStatus::Void), ..sent() },           "a", &full,                  No(NotSent::CancelStarted)),
        (Facts { cancel_requested: true, ..held() },                 "a", &full,                  No(NotSent::CustomerCancel)),
        (held(),                                                     "a", &forgets_nothing_twice, Send(1)),
        (sent(),                                                     "a", &forgets_nothing_twice, No(NotSent::SecondAttemptForbidden)),
        (aged(RETENTION_MS - 1),                                     "a", &full,                  Send(2)),
        (aged(RETENTION_MS),                                         "a", &full,                  No(NotSent::SwitchRetentionExpired)),
        // The switch has said it settled: there is nothing to send, whoever asks.
        (Facts { final_status: Some(FinalStatus::Settled), ..sent() },        "a", &full,                  Settled),
        (Facts { final_status: Some(FinalStatus::Settled), ..sent() },        "b", &full,                  Settled),
    ];
    for (n, (facts, who, profile, ruling)) in table.into_iter().enumerate() {
        assert_eq!(rules::attempt(&facts, &run(who), profile), ruling, "row {n}");
    }
}

#[test]
fn what_a_settle_may_do() {
    use DebitRuling::{Already, Debit, Differs, NotConfirmed, Refused};
    let settled = Some(FinalStatus::Settled);
    let dead = Some(FinalStatus::Void);
    let (open, spent, back) = (Some(HoldStatus::Open), Some(HoldStatus::Settled), Some(HoldStatus::Released));
    #[rustfmt::skip]
    let table = [
        // hold  final_status   differs  refused  ruling
        (open,   settled,  false,   false,   Debit),
        (open,   settled,  true,    false,   Debit),
        (open,   settled,  false,   true,    Refused("frozen".into())),
        (open,   settled,  true,    true,    Refused("frozen".into())),
        (open,   None,     false,   false,   NotConfirmed),
        (open,   None,     true,    false,   Differs),
        (open,   dead,     false,   false,   NotConfirmed),
        (open,   dead,     true,    false,   NotConfirmed),
        (spent,  settled,  false,   false,   Already),
        (spent,  settled,  true,    false,   Already),
        (back,   dead,     false,   false,   NotConfirmed),
        (back,   settled,  false,   true,    NotConfirmed),
        (None,   None,     false,   false,   NotConfirmed),
        (None,   None,     true,    false,   Differs),
        (None,   settled,  false,   false,   NotConfirmed),
    ];
    for (n, (hold, final_status, confirmation_mismatch, refused, ruling)) in table.into_iter().enumerate() {
        let debit_refused = refused.then(|| "frozen".into());
        let facts = Facts { hold, final_status, confirmation_mismatch, debit_refused, ..sent() };
        assert_eq!(rules::debit(&facts), ruling, "row {n}");
    }
}

#[test]
fn what_a_release_may_do() {
    use ReleaseRuling::{Already, Fence, GiveBack};
    let shut = ReleaseRuling::Refused(ReleaseRefusal::MayStillSettle);
    let spent = ReleaseRuling::Refused(ReleaseRefusal::HoldSettled);
    let (open, settled, released) =
        (Some(HoldStatus::Open), Some(HoldStatus::Settled), Some(HoldStatus::Released));
    let (success, dead) = (Some(FinalStatus::Settled), Some(FinalStatus::Void));
    let (yes, no) = (Some(RecallRecord::Recalled), Some(RecallRecord::Refused));
    let (running, over) = (PaymentState::Cancelling, PaymentState::Failed);
    #[rustfmt::skip]
    let table = [
        // hold    attempts  final_status  recall  state    ruling
        (open,     0,        None,    None,   running, GiveBack),
        (open,     0,        dead,    None,   running, GiveBack),
        (open,     1,        None,    None,   running, shut),
        (open,     1,        success, None,   running, shut),
        (open,     1,        success, no,     running, shut),
        (open,     1,        None,    no,     running, shut),
        (open,     1,        dead,    None,   running, GiveBack),
        (open,     1,        success, yes,    running, GiveBack),
        (None,     0,        None,    None,   running, Fence),
        (None,     0,        dead,    None,   running, Fence),
        (None,     1,        None,    None,   running, shut),
        (None,     0,        None,    None,   over,    ReleaseRuling::Ended(FinalState::Failed)),
        (released, 1,        dead,    None,   over,    Already),
        (released, 1,        success, yes,    over,    Already),
        (settled,  1,        success, None,   over,    spent),
        (settled,  1,        success, yes,    over,    spent),
    ];
    for (n, (hold, attempts, final_status, recall, state, ruling)) in table.into_iter().enumerate() {
        let facts = Facts { hold, attempts, final_status, recall, state, ..held() };
        assert_eq!(rules::release(&facts), ruling, "row {n}");
    }
}

/// A restored database may have lost its record of an attempt: once the switch has said SUCCESS of what
/// seems unsent, only its answer to our cancel releases (R30b).
#[test]
fn a_success_of_what_seems_unsent_closes_the_short_way() {
    let believed = Facts { attempts: 0, ..held() };
    let doubted = Facts { reported_without_attempt: true, ..believed.clone() };
    assert!(rules::never_sent(&believed) && !rules::never_sent(&doubted));
    assert_eq!(rules::release(&believed), ReleaseRuling::GiveBack);
    assert_eq!(rules::release(&doubted), ReleaseRuling::Refused(ReleaseRefusal::MayStillSettle));
    let open = Facts { hold: Some(HoldStatus::Open), ..doubted.clone() };
    let sent = rules::attempt(&open, &run("a"), &whole());
    assert_eq!(
        sent,
        AttemptRuling::NotSent(NotSent::ReportedWithoutAttempt),
        "not on top of what may be there"
    );
    let dead = Facts { final_status: Some(FinalStatus::Void), ..doubted };
    assert_eq!(rules::release(&dead), ReleaseRuling::GiveBack);
}

/// Over every combination of facts: money that may have left is never given back, what is given
/// back is never debited, and no attempt goes out beside either.
#[test]
fn the_one_door_over_every_combination_of_facts() {
    let holds = [None, Some(HoldStatus::Open), Some(HoldStatus::Settled), Some(HoldStatus::Released)];
    let verdicts = [None, Some(FinalStatus::Settled), Some(FinalStatus::Void)];
    let recalls = [None, Some(RecallRecord::Recalled), Some(RecallRecord::Refused)];
    let mut seen = 0;
    for hold in holds {
        for final_status in verdicts {
            for recall in recalls {
                for attempts in [0, 1, 2] {
                    for (turned_round, asked, differs, refused) in
                        (0..16).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0, bits & 8 > 0))
                    {
                        let facts = Facts {
                            hold,
                            final_status,
                            recall,
                            attempts,
                            cause: turned_round.then_some(Cause::SlaExpired),
                            cancel_requested: asked,
                            confirmation_mismatch: differs,
                            debit_refused: refused.then(|| "frozen".into()),
                            ..held()
                        };
                        let gives_back = rules::release(&facts) == ReleaseRuling::GiveBack;
                        let debits = rules::debit(&facts) == DebitRuling::Debit;
                        let sends =
                            matches!(rules::attempt(&facts, &run("a"), &whole()), AttemptRuling::Send(_));
                        let safe = attempts == 0
                            || final_status == Some(FinalStatus::Void)
                            || recall == Some(RecallRecord::Recalled);
                        assert!(!gives_back || (hold == Some(HoldStatus::Open) && safe), "{facts:?}");
                        assert!(
                            !debits
                                || (hold == Some(HoldStatus::Open)
                                    && final_status == Some(FinalStatus::Settled))
                        );
                        assert!(!debits || !refused, "a refusal stands: {facts:?}");
                        assert!(
                            !sends || (hold == Some(HoldStatus::Open) && final_status.is_none()),
                            "{facts:?}"
                        );
                        assert!(!sends || !(turned_round || asked), "fenced: {facts:?}");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert_eq!(seen, 4 * 3 * 3 * 3 * 16);
}

/// What a SUCCESS means: the comparison first by switch, then whether anything was sent.
#[test]
fn what_a_success_means() {
    use FinalStatusRuling::{Contradicts, Differs, First, NoAttempt, Same};
    let expected = Expected::from(&payment(0));
    let facts = |attempts, final_status| Facts { attempts, final_status, ..held() };
    let (settled, dead) = (Some(FinalStatus::Settled), Some(FinalStatus::Void));
    let same = report;
    let switch = || payment_protocol::report::SettledReport {
        switch: SwitchName::new("southern").unwrap(),
        ..report()
    };
    let reference =
        || payment_protocol::report::SettledReport { reference: "tx_2:submit".into(), ..report() };
    let amount = || payment_protocol::report::SettledReport { amount_minor: 999, ..report() };
    let currency = || payment_protocol::report::SettledReport { currency: "USD".into(), ..report() };
    #[rustfmt::skip]
    let table = [
        // report      attempts  final_status   ruling
        (same(),       1,        None,     First),
        (same(),       1,        settled,  Same),
        (same(),       1,        dead,     Contradicts),
        (same(),       0,        None,     NoAttempt),
        (same(),       0,        dead,     NoAttempt),
        (switch(),     1,        None,     Differs(Difference::Switch)),
        (switch(),     0,        None,     Differs(Difference::Switch)),
        (switch(),     1,        dead,     Differs(Difference::Switch)),
        (reference(),  1,        None,     Differs(Difference::Reference)),
        (amount(),     1,        None,     Differs(Difference::Amount)),
        (amount(),     1,        settled,  Differs(Difference::Amount)),
        (amount(),     0,        None,     NoAttempt),
        (currency(),   1,        None,     Differs(Difference::Currency)),
    ];
    for (n, (said, attempts, final_status, ruling)) in table.into_iter().enumerate() {
        assert_eq!(
            rules::settled_report(&facts(attempts, final_status), &expected, &said),
            ruling,
            "row {n}"
        );
    }
    for (final_status, ruling) in [(None, First), (dead, Same), (settled, Contradicts)] {
        assert_eq!(rules::void_report(&facts(1, final_status)), ruling);
    }
}

#[test]
fn the_first_cause_stands() {
    let turned = Facts { cause: Some(Cause::SlaExpired), ..sent() };
    assert_eq!(rules::first_cause(&turned, &Cause::CustomerCancel), Cause::SlaExpired);
    assert_eq!(rules::first_cause(&sent(), &Cause::CustomerCancel), Cause::CustomerCancel);
}

#[test]
fn a_reference_is_forgotten_when_its_retention_has_passed() {
    for (age, retention_expired) in
        [(None, false), (Some(0), false), (Some(RETENTION_MS - 1), false), (Some(RETENTION_MS), true)]
    {
        assert_eq!(rules::retention_expired(age, &whole()), retention_expired, "{age:?}");
    }
    let for_ever = SwitchProfile { retention_s: u64::MAX, ..whole() };
    assert!(!rules::retention_expired(Some(RETENTION_MS), &for_ever));
}
