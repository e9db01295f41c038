//! The rules as truth tables, and their invariants over every combination of facts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use payment_protocol::SwitchProfile;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::facts::{Facts, FinalStatus, HoldStatus, RecallRecord, ReserveRecord};
use payment_protocol::ids::{RunId, SwitchName};
use payment_protocol::port::SubmitProgress;
use payment_protocol::profile::LateSettlement;
use payment_protocol::reject::{Reject, RejectMeaning};
use payment_protocol::report::{Difference, ExpectedTransfer, SettledReport};
use payment_protocol::rules::{
    self, AskRuling, AttemptRuling, DebitRuling, FinalStatusRuling, NotSent, ReleaseRefusal, ReleaseRuling,
    ReserveRuling, RestoreRuling,
};
use payment_protocol::state::{FinalState, PaymentState};
use support::{RETENTION_MS, full_profile, payment, report};

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// Reserved by run `a`; nothing was sent.
fn held() -> Facts {
    Facts {
        state: PaymentState::Reserved,
        run_id: Some(run("a")),
        reserve: Some(ReserveRecord::Held),
        hold: Some(HoldStatus::Open),
        ..Facts::accepted()
    }
}

/// Held, with one recorded attempt.
fn sent() -> Facts {
    Facts { attempts: 1, first_attempt_age_ms: Some(5_000), ..held() }
}

#[test]
fn a_reserve_leaves_its_run_its_record_and_an_open_hold() {
    assert_eq!(Facts::accepted().held(&run("a")), held());
}

#[test]
fn a_reserve_is_tried_unless_done_cancelled_late_ended_or_of_another_run() {
    use ReserveRuling::{AnotherRun, Ended, Recorded, Refuse, Try};
    let fresh = Facts::accepted;
    let refused = |refusal| Facts { reserve: Some(ReserveRecord::Refused(refusal)), ..fresh() };
    let ended = |state| Facts { state, ..held() };
    let no_funds = ReserveRefusal::InsufficientFunds;
    #[rustfmt::skip]
    let table = [
        // facts                                                                          run  too_late  ruling
        (fresh(),                                                                         "a", false,    Try),
        (fresh(),                                                                         "a", true,     Refuse(ReserveRefusal::StartedTooLate)),
        (Facts { cancel_requested: true, ..fresh() },                                     "a", false,    Refuse(ReserveRefusal::CustomerCancel)),
        (Facts { cancel_requested: true, ..fresh() },                                     "a", true,     Refuse(ReserveRefusal::CustomerCancel)),
        // A compensated payment ends for the recorded cause.
        (Facts { cause: Some(Cause::ReserveUnknown), ..fresh() },                         "a", false,    AnotherRun),
        (Facts { cause: Some(Cause::ReserveUnknown), cancel_requested: true, ..fresh() }, "a", true,     AnotherRun),
        // Where attempts may be missing, the payment is recovered: neither started from the beginning nor refused.
        (Facts { attempts_uncertain: true, ..fresh() },                                   "a", false,    AnotherRun),
        (Facts { attempts_uncertain: true, cancel_requested: true, ..fresh() },           "a", true,     AnotherRun),
        (Facts { run_id: Some(run("a")), ..fresh() },                                     "a", false,    Try),
        (Facts { run_id: Some(run("a")), ..fresh() },                                     "b", false,    AnotherRun),
        (held(),                                                                          "a", false,    Recorded(ReserveRecord::Held)),
        (held(),                                                                          "a", true,     Recorded(ReserveRecord::Held)),
        (Facts { cancel_requested: true, ..held() },                                      "a", false,    Recorded(ReserveRecord::Held)),
        (held(),                                                                          "b", false,    AnotherRun),
        (ended(PaymentState::Settled),                                                    "a", false,    Ended(FinalState::Settled)),
        (ended(PaymentState::TimedOut),                                                   "b", false,    Ended(FinalState::TimedOut)),
        // A recorded refusal is the answer to every later reserve of every run.
        (refused(no_funds),                                                               "a", false,    Recorded(ReserveRecord::Refused(no_funds))),
        (refused(no_funds),                                                               "b", true,     Recorded(ReserveRecord::Refused(no_funds))),
        (Facts { state: PaymentState::Rejected, ..refused(no_funds) },                    "a", false,    Recorded(ReserveRecord::Refused(no_funds))),
        (Facts { cancel_requested: true, ..refused(ReserveRefusal::Fenced) },             "a", true,     Recorded(ReserveRecord::Refused(ReserveRefusal::Fenced))),
    ];
    for (n, (facts, run_id, too_late, ruling)) in table.into_iter().enumerate() {
        assert_eq!(rules::reserve(&facts, &run(run_id), too_late), ruling, "row {n}");
    }
}

#[test]
fn only_a_payment_that_was_never_sent_is_refused_before_its_reserve() {
    let (late, invalid) = (ReserveRefusal::StartedTooLate, ReserveRefusal::Invalid);
    let fresh = Facts::accepted;
    let uncertain = Facts { attempts_uncertain: true, ..fresh() };
    for (facts, refusal, may_refuse) in [
        (fresh(), late, true),
        (uncertain.clone(), late, false),
        (uncertain, invalid, true),
        (Facts { attempts: 1, ..fresh() }, late, false),
        (Facts { attempts: 1, ..fresh() }, invalid, false),
        (held(), late, false),
        (Facts { state: PaymentState::Rejected, ..fresh() }, late, false),
    ] {
        assert_eq!(rules::may_refuse_unreserved(&facts, refusal), may_refuse, "{facts:?} {refusal}");
    }
}

#[test]
fn a_submit_attempt_needs_its_own_run_an_open_hold_and_no_fence() {
    use AttemptRuling::{NotSent as No, Send, Settled};
    let full = full_profile();
    let no_deduplication = SwitchProfile { deduplicates: false, ..full_profile() };
    let aged = |ms| Facts { first_attempt_age_ms: Some(ms), ..sent() };
    let hold = |hold| Facts { hold, ..sent() };
    #[rustfmt::skip]
    let table = [
        // facts                                                       run  profile            ruling
        (held(),                                                       "a", &full,             Send(1)),
        (sent(),                                                       "a", &full,             Send(2)),
        (Facts { attempts: 7, ..sent() },                              "a", &full,             Send(8)),
        (held(),                                                       "b", &full,             No(NotSent::AnotherRun)),
        (Facts::accepted(),                                            "a", &full,             No(NotSent::AnotherRun)),
        (hold(None),                                                   "a", &full,             No(NotSent::NoOpenHold)),
        (hold(Some(HoldStatus::Released)),                             "a", &full,             No(NotSent::NoOpenHold)),
        (hold(Some(HoldStatus::Debited)),                              "a", &full,             No(NotSent::NoOpenHold)),
        (Facts { cause: Some(Cause::SlaExpired), ..sent() },           "a", &full,             No(NotSent::CancelStarted)),
        (Facts { final_status: Some(FinalStatus::Void), ..sent() },    "a", &full,             No(NotSent::Rejected)),
        (Facts { cancel_requested: true, ..held() },                   "a", &full,             No(NotSent::CustomerCancel)),
        (held(),                                                       "a", &no_deduplication, Send(1)),
        (sent(),                                                       "a", &no_deduplication, No(NotSent::SecondAttemptForbidden)),
        (aged(RETENTION_MS - 1),                                       "a", &full,             Send(2)),
        (aged(RETENTION_MS),                                           "a", &full,             No(NotSent::SwitchRetentionExpired)),
        // The switch reported settled: no run sends.
        (Facts { final_status: Some(FinalStatus::Settled), ..sent() }, "a", &full,             Settled),
        (Facts { final_status: Some(FinalStatus::Settled), ..sent() }, "b", &full,             Settled),
    ];
    for (n, (facts, run_id, profile, ruling)) in table.into_iter().enumerate() {
        assert_eq!(rules::attempt(&facts, &run(run_id), profile, false), ruling, "row {n}");
    }
}

#[test]
fn a_debit_needs_an_open_hold_a_settled_status_and_no_recorded_refusal() {
    use DebitRuling::{Already, Debit, Differs, NoHold, NotConfirmed, Refused, Returned};
    let settled = Some(FinalStatus::Settled);
    let back = Some(FinalStatus::Returned);
    let void = Some(FinalStatus::Void);
    let (open, debited, released) =
        (Some(HoldStatus::Open), Some(HoldStatus::Debited), Some(HoldStatus::Released));
    #[rustfmt::skip]
    let table = [
        // hold    final_status  differs  refused  ruling
        (open,     settled,      false,   false,   Debit),
        (open,     settled,      true,    false,   Debit),
        (open,     settled,      false,   true,    Refused("frozen".into())),
        (open,     settled,      true,    true,    Refused("frozen".into())),
        (open,     None,         false,   false,   NotConfirmed),
        (open,     None,         true,    false,   Differs),
        (open,     void,         false,   false,   NotConfirmed),
        (open,     void,         true,    false,   NotConfirmed),
        (open,     back,         false,   false,   Returned),
        (open,     back,         true,    true,    Returned),
        (None,     back,         false,   false,   Returned),
        (debited,  back,         false,   false,   Already),
        (debited,  settled,      false,   false,   Already),
        (debited,  settled,      true,    false,   Already),
        (released, void,         false,   false,   NotConfirmed),
        (released, settled,      false,   true,    NotConfirmed),
        (None,     None,         false,   false,   NotConfirmed),
        (None,     None,         true,    false,   Differs),
        // The money left, and the database lost the reserve.
        (None,     settled,      false,   false,   NoHold),
    ];
    for (n, (hold, final_status, confirmation_mismatch, refused, ruling)) in table.into_iter().enumerate() {
        let debit_refused = refused.then(|| "frozen".into());
        let facts = Facts { hold, final_status, confirmation_mismatch, debit_refused, ..sent() };
        assert_eq!(rules::debit(&facts), ruling, "row {n}");
    }
}

#[test]
fn a_release_needs_an_open_hold_and_an_unsent_void_or_recalled_transfer() {
    use ReleaseRuling::{Already, Fence, Release};
    let may_still_settle = ReleaseRuling::Refused(ReleaseRefusal::MayStillSettle);
    let hold_debited = ReleaseRuling::Refused(ReleaseRefusal::HoldDebited);
    let (open, settled, released) =
        (Some(HoldStatus::Open), Some(HoldStatus::Debited), Some(HoldStatus::Released));
    let (success, void) = (Some(FinalStatus::Settled), Some(FinalStatus::Void));
    let returned = Some(FinalStatus::Returned);
    let refused = Some(RecallRecord::Refused);
    let (cancelling, failed) = (PaymentState::Cancelling, PaymentState::Failed);
    #[rustfmt::skip]
    let table = [
        // hold    attempts  final_status  recall    state       ruling
        (open,     0,        None,         None,     cancelling, Release),
        (open,     0,        void,         None,     cancelling, Release),
        (open,     1,        None,         None,     cancelling, may_still_settle),
        (open,     1,        success,      None,     cancelling, may_still_settle),
        (open,     1,        success,      refused,  cancelling, may_still_settle),
        (open,     1,        None,         refused,  cancelling, may_still_settle),
        (open,     1,        void,         None,     cancelling, Release),
        (open,     1,        returned,     None,     cancelling, Release),
        (open,     1,        returned,     refused,  cancelling, Release),
        (None,     0,        None,         None,     cancelling, Fence),
        (None,     0,        void,         None,     cancelling, Fence),
        (None,     1,        None,         None,     cancelling, may_still_settle),
        (None,     0,        None,         None,     failed,     ReleaseRuling::Ended(FinalState::Failed)),
        (released, 1,        void,         None,     failed,     Already),
        (released, 1,        returned,     None,     failed,     Already),
        (settled,  1,        success,      None,     failed,     hold_debited),
        (settled,  1,        returned,     None,     failed,     hold_debited),
    ];
    for (n, (hold, attempts, final_status, recall, state, ruling)) in table.into_iter().enumerate() {
        let facts = Facts { hold, attempts, final_status, recall, state, ..held() };
        assert_eq!(rules::release(&facts), ruling, "row {n}");
    }
}

/// A restored database may have lost its record of an attempt: after a SUCCESS without a recorded attempt, only
/// the switch's answer to our cancel releases (R30b).
#[test]
fn a_success_without_an_attempt_forbids_a_release_without_a_cancel() {
    let unsent = Facts { attempts: 0, ..held() };
    let reported = Facts { reported_without_attempt: true, ..unsent.clone() };
    assert!(rules::never_sent(&unsent) && !rules::never_sent(&reported));
    assert_eq!(rules::release(&unsent), ReleaseRuling::Release);
    assert_eq!(rules::release(&reported), ReleaseRuling::Refused(ReleaseRefusal::MayStillSettle));
    let open = Facts { hold: Some(HoldStatus::Open), ..reported.clone() };
    let sent = rules::attempt(&open, &run("a"), &full_profile(), false);
    assert_eq!(
        sent,
        AttemptRuling::NotSent(NotSent::ReportedWithoutAttempt),
        "an attempt must not be sent in addition to a reported transfer"
    );
    let void = Facts { final_status: Some(FinalStatus::Void), ..reported };
    assert_eq!(rules::release(&void), ReleaseRuling::Release);
}

/// A payment without a recorded attempt has no age, and what depends on the age would wait for ever, unless the payment is marked.
#[test]
fn i16_a_reported_transfer_without_an_attempt_marks_the_payment() {
    let kept_return = Facts { has_unbooked_return: true, ..held() };
    let reported = Facts { reported_without_attempt: true, ..held() };
    let decided = Facts { final_status: Some(FinalStatus::Void), ..reported.clone() };
    let recorded = Facts { reported_without_attempt: true, ..sent() };
    for (name, facts, submit, expected) in [
        ("nothing is known", held(), SubmitProgress::NotScheduled, false),
        ("a submit was scheduled", held(), SubmitProgress::Scheduled, true),
        ("the switch accepted the transfer", held(), SubmitProgress::Accepted, true),
        ("the switch reported the transfer", reported, SubmitProgress::NotScheduled, true),
        ("money of it came back", kept_return, SubmitProgress::NotScheduled, true),
        ("the switch decided", decided, SubmitProgress::Scheduled, false),
        ("an attempt is recorded", recorded, SubmitProgress::Scheduled, false),
    ] {
        assert_eq!(rules::may_lack_attempts(&facts, submit), expected, "{name}");
    }
}

/// The workflow remembers an acceptance whose commit the database lost; before the switch's final answer the payment is marked.
#[test]
fn i14_a_lost_acceptance_is_known_to_the_workflow() {
    let decided = Facts { final_status: Some(FinalStatus::Void), ..sent() };
    for (name, facts, recorded, submit, expected) in [
        ("lost", sent(), false, SubmitProgress::Accepted, true),
        ("lost with its attempt", held(), false, SubmitProgress::Accepted, true),
        ("recorded", sent(), true, SubmitProgress::Accepted, false),
        ("no answer came", sent(), false, SubmitProgress::Scheduled, false),
        ("the switch decided", decided, false, SubmitProgress::Accepted, false),
    ] {
        assert_eq!(rules::lacks_acceptance(&facts, recorded, submit), expected, "{name}");
    }
}

/// Every combination of facts that a rule of money reads.
fn all_facts() -> Vec<Facts> {
    let holds = [None, Some(HoldStatus::Open), Some(HoldStatus::Debited), Some(HoldStatus::Released)];
    let final_statuses =
        [None, Some(FinalStatus::Settled), Some(FinalStatus::Void), Some(FinalStatus::Returned)];
    let recalls = [None, Some(RecallRecord::Recalled), Some(RecallRecord::Refused)];
    let mut all = Vec::new();
    for hold in holds {
        for final_status in final_statuses {
            for recall in recalls {
                for attempts in [0, 1, 2] {
                    for bits in 0..16 {
                        all.push(Facts {
                            hold,
                            final_status,
                            recall,
                            attempts,
                            cause: (bits & 1 > 0).then_some(Cause::SlaExpired),
                            cancel_requested: bits & 2 > 0,
                            confirmation_mismatch: bits & 4 > 0,
                            debit_refused: (bits & 8 > 0).then(|| "frozen".into()),
                            ..held()
                        });
                    }
                }
            }
        }
    }
    assert_eq!(all.len(), 4 * 4 * 3 * 3 * 16);
    all
}

#[test]
fn money_that_may_have_left_is_never_released() {
    for facts in all_facts() {
        let owes_nothing = matches!(facts.final_status, Some(FinalStatus::Void | FinalStatus::Returned));
        if rules::release(&facts) == ReleaseRuling::Release {
            assert!(facts.hold == Some(HoldStatus::Open), "{facts:?}");
            assert!(facts.attempts == 0 || owes_nothing, "{facts:?}");
        }
    }
}

#[test]
fn only_an_open_hold_of_a_settled_transfer_is_debited() {
    for facts in all_facts() {
        if rules::debit(&facts) == DebitRuling::Debit {
            assert!(facts.hold == Some(HoldStatus::Open), "{facts:?}");
            assert!(facts.final_status == Some(FinalStatus::Settled), "{facts:?}");
            assert!(facts.debit_refused.is_none(), "a recorded refusal was ignored: {facts:?}");
        }
    }
}

#[test]
fn no_submit_attempt_is_sent_after_a_cancel_or_a_final_status() {
    for facts in all_facts() {
        if let AttemptRuling::Send(_) = rules::attempt(&facts, &run("a"), &full_profile(), false) {
            assert!(facts.hold == Some(HoldStatus::Open) && facts.final_status.is_none(), "{facts:?}");
            assert!(facts.cause.is_none() && !facts.cancel_requested, "the fence was ignored: {facts:?}");
        }
    }
}

/// A SUCCESS is compared by switch first; then by whether an attempt is recorded.
#[test]
fn a_success_is_compared_by_switch_then_attempt_then_order_fields() {
    use FinalStatusRuling::{Contradicts, Differs, First, NoAttempt, Same};
    let expected = ExpectedTransfer::from(&payment(0));
    let facts = |attempts, final_status| Facts { attempts, final_status, ..held() };
    let (settled, void) = (Some(FinalStatus::Settled), Some(FinalStatus::Void));
    let same = report;
    let switch = || SettledReport { switch: SwitchName::new("southern").unwrap(), ..report() };
    let reference = || SettledReport { reference: "tx_2:submit".into(), ..report() };
    let amount = || SettledReport { amount_minor: 999, ..report() };
    let currency = || SettledReport { currency: "USD".into(), ..report() };
    #[rustfmt::skip]
    let table = [
        // report     attempts  final_status  ruling
        (same(),      1,        None,         First),
        (same(),      1,        settled,      Same),
        (same(),      1,        void,         Contradicts),
        (same(),      0,        None,         NoAttempt),
        (same(),      0,        void,         NoAttempt),
        (switch(),    1,        None,         Differs(Difference::Switch)),
        (switch(),    0,        None,         Differs(Difference::Switch)),
        (switch(),    1,        void,         Differs(Difference::Switch)),
        (reference(), 1,        None,         Differs(Difference::Reference)),
        (amount(),    1,        None,         Differs(Difference::Amount)),
        (amount(),    1,        settled,      Differs(Difference::Amount)),
        (amount(),    0,        None,         NoAttempt),
        (currency(),  1,        None,         Differs(Difference::Currency)),
    ];
    for (n, (report, attempts, final_status, ruling)) in table.into_iter().enumerate() {
        assert_eq!(
            rules::settled_report(&facts(attempts, final_status), &expected, &report, true),
            ruling,
            "row {n}"
        );
    }
    // An earlier report found no attempt, which the database had lost: only the switch's answer to us is believed then.
    let reported = |final_status| Facts { reported_without_attempt: true, ..facts(1, final_status) };
    for (final_status, answers_us, ruling) in
        [(None, false, NoAttempt), (None, true, First), (settled, false, Same), (void, false, Contradicts)]
    {
        let ruled = rules::settled_report(&reported(final_status), &expected, &report(), answers_us);
        assert_eq!(ruled, ruling, "{final_status:?} {answers_us}");
    }
    assert_eq!(rules::returned_report(&reported(None), &expected, &report(), false), First);
    // The earlier report was of a return: an answer that says settled may have been under way when it came.
    let returned_first = |attempts, final_status| Facts {
        returned_without_attempt: true,
        attempts,
        attempts_uncertain: true,
        ..reported(final_status)
    };
    for attempts in [0, 1] {
        for answers_us in [false, true] {
            let facts = returned_first(attempts, None);
            assert_eq!(rules::settled_report(&facts, &expected, &report(), answers_us), NoAttempt);
        }
        assert_eq!(
            rules::returned_report(&returned_first(attempts, None), &expected, &report(), true),
            First
        );
        assert_eq!(
            rules::settled_report(&returned_first(attempts, settled), &expected, &report(), true),
            Same
        );
    }
    // An answer to us was recorded: what is reported afterwards is of this transfer, although its attempt has no record.
    let answered = Facts { attempts_uncertain: true, ..facts(0, settled) };
    assert_eq!(rules::returned_report(&answered, &expected, &report(), false), First);
    assert_eq!(rules::settled_report(&answered, &expected, &report(), false), Same);
    // A refused payment whose lost attempt is recorded again: the money left, and the payment stays ended.
    let refused = Facts { state: PaymentState::Rejected, ..facts(1, None) };
    assert_eq!(rules::settled_report(&refused, &expected, &report(), true), Contradicts);
    assert_eq!(rules::returned_report(&refused, &expected, &report(), true), First);
    for (final_status, ruling) in [(None, First), (void, Same), (settled, Contradicts)] {
        assert_eq!(rules::void_report(&facts(1, final_status)), ruling);
    }
}

#[test]
fn a_reason_for_a_void_transfer_is_believed_unless_the_record_contradicts_it() {
    use VoidReason::{
        Cancelled, CancelledUnsaid, DeadlinePassed, NeverSent, NotInClosedStatement, Rejected, Tombstoned,
    };
    let doubtful = Facts { confirmation_mismatch: true, ..sent() };
    for (facts, reason, accepted, is_believed) in [
        (held(), NeverSent, false, true),
        (held(), NeverSent, true, true),
        (sent(), NeverSent, false, false),
        (sent(), Tombstoned, false, true),
        (sent(), Tombstoned, true, false),
        (sent(), DeadlinePassed, false, true),
        (sent(), DeadlinePassed, true, false),
        (sent(), NotInClosedStatement, true, true),
        (doubtful.clone(), NotInClosedStatement, true, false),
        (sent(), CancelledUnsaid, true, true),
        (doubtful.clone(), CancelledUnsaid, true, false),
        (doubtful.clone(), Cancelled, true, true),
        (doubtful, Rejected, true, true),
    ] {
        assert_eq!(
            rules::void_is_believed(&facts, reason, accepted),
            is_believed,
            "{reason:?} {accepted} {facts:?}"
        );
    }
}

#[test]
fn a_cancel_begins_without_a_final_status_or_with_a_reject_before_any_cause() {
    let with = |final_status, cause: Option<Cause>| Facts { final_status, cause, ..sent() };
    let cause = || Some(Cause::CustomerCancel);
    for (facts, begins) in [
        (with(None, None), true),
        (with(None, cause()), true),
        (with(Some(FinalStatus::Void), None), true),
        (with(Some(FinalStatus::Void), cause()), false),
        (with(Some(FinalStatus::Settled), None), false),
        (with(Some(FinalStatus::Returned), None), false),
        (Facts { state: PaymentState::TimedOut, ..with(None, None) }, false),
        (Facts { state: PaymentState::Failed, ..with(Some(FinalStatus::Void), None) }, false),
    ] {
        assert_eq!(rules::begins_cancel(&facts), begins, "{facts:?}");
    }
}

#[test]
fn i24_an_open_hold_at_the_customers_cost_is_restored_unless_the_transfer_settled() {
    let compensated = |state| Facts { state, cause: Some(Cause::CustomerCancel), ..sent() };
    let rejected = Cause::FailureReported { reason: "the switch rejected the transfer for good".into() };
    let with = |final_status, facts: Facts| Facts { final_status: Some(final_status), ..facts };
    for (facts, ruling) in [
        (held(), RestoreRuling::Advance),
        (sent(), RestoreRuling::Advance),
        (Facts { restored: true, ..sent() }, RestoreRuling::NotDue),
        (Facts { hold: None, ..sent() }, RestoreRuling::NotDue),
        (Facts { hold: Some(HoldStatus::Released), ..sent() }, RestoreRuling::NotDue),
        (Facts { hold: Some(HoldStatus::Debited), ..sent() }, RestoreRuling::NotDue),
        (Facts { state: PaymentState::TimedOut, ..sent() }, RestoreRuling::NotDue),
        (Facts { debit_refused: Some("frozen".into()), ..sent() }, RestoreRuling::NotDue),
        (Facts { recall: Some(RecallRecord::RecallUnsupported), ..sent() }, RestoreRuling::NotDue),
        (with(FinalStatus::Settled, sent()), RestoreRuling::NotDue),
        (with(FinalStatus::Void, sent()), RestoreRuling::Compensate(rejected)),
        (with(FinalStatus::Returned, sent()), RestoreRuling::Compensate(Cause::Returned)),
        (
            with(FinalStatus::Void, compensated(PaymentState::Cancelling)),
            RestoreRuling::Release(Cause::CustomerCancel),
        ),
    ] {
        assert_eq!(rules::restore(&facts), ruling, "{facts:?}");
    }
}

#[test]
fn i27_only_what_the_bank_has_advanced_is_collected_and_only_where_the_profile_says_so() {
    let profile = |late_settlement| SwitchProfile { late_settlement, ..full_profile() };
    let restored = |restored| Facts { restored, ..sent() };
    for other in [LateSettlement::Collect, LateSettlement::Operators] {
        assert!(!rules::collects(&restored(false), &profile(other)), "{other:?}");
    }
    assert!(rules::collects(&restored(true), &profile(LateSettlement::Collect)));
    assert!(!rules::collects(&restored(true), &profile(LateSettlement::Operators)));
}

#[test]
fn i19_a_state_may_become_its_successors_and_no_other() {
    for (state, next, may) in [
        (PaymentState::Cancelling, PaymentState::Settled, true),
        (PaymentState::Cancelling, PaymentState::Cancelling, false),
        (PaymentState::Reserved, PaymentState::Accepted, false),
        (PaymentState::Settled, PaymentState::Failed, false),
    ] {
        assert_eq!(state.may_become(next), may, "{state:?} {next:?}");
    }
}

#[test]
fn the_first_recorded_compensation_cause_is_kept() {
    let compensating = Facts { cause: Some(Cause::SlaExpired), ..sent() };
    assert_eq!(rules::first_cause(&compensating, &Cause::CustomerCancel), Cause::SlaExpired);
    assert_eq!(rules::first_cause(&sent(), &Cause::CustomerCancel), Cause::CustomerCancel);
}

#[test]
fn the_switchs_retention_counts_from_the_first_submit_attempt() {
    for (age, expired) in
        [(None, false), (Some(0), false), (Some(RETENTION_MS - 1), false), (Some(RETENTION_MS), true)]
    {
        assert_eq!(rules::retention_expired(age, &full_profile()), expired, "{age:?}");
    }
    let unlimited = SwitchProfile { retention_s: u64::MAX, ..full_profile() };
    assert!(!rules::retention_expired(Some(RETENTION_MS), &unlimited));
}

/// What a database may have lost is not taken for what never happened: neither "never sent", nor a first attempt.
#[test]
fn a_lost_commit_neither_allows_a_second_attempt_nor_proves_that_nothing_was_sent() {
    let open = Facts { hold: Some(HoldStatus::Open), attempts: 0, ..held() };
    let uncertain = Facts { attempts_uncertain: true, ..open.clone() };
    assert!(rules::never_sent(&open) && !rules::never_sent(&uncertain));
    let single = SwitchProfile { deduplicates: false, ..full_profile() };
    let second = AttemptRuling::NotSent(NotSent::SecondAttemptForbidden);
    #[rustfmt::skip]
    let table = [
        // facts       profile          tried_before  ruling
        (&open,        &single,         false,        AttemptRuling::Send(1)),
        (&open,        &single,         true,         second),
        (&uncertain,   &single,         false,        second),
        // The switch deduplicates: a second attempt has the first one's outcome.
        (&open,        &full_profile(), true,         AttemptRuling::Send(1)),
        (&uncertain,   &full_profile(), true,         AttemptRuling::Send(1)),
    ];
    for (n, (facts, profile, tried_before, ruling)) in table.into_iter().enumerate() {
        assert_eq!(rules::attempt(facts, &run("a"), profile, tried_before), ruling, "row {n}");
    }
}

#[test]
fn queries_are_refused_before_their_time_beyond_their_number_and_after_their_window() {
    let limited = SwitchProfile {
        first_ask_after_ms: 9_000,
        ask_interval_ms: 500,
        asks_max: 3,
        ask_window_s: 60,
        ..full_profile()
    };
    let ruling = |profile: &SwitchProfile, asks, age_ms| {
        let facts = Facts { attempts: 1, asks, first_attempt_age_ms: Some(age_ms), ..Facts::accepted() };
        rules::ask(&facts, profile)
    };
    assert_eq!(ruling(&limited, 0, 8_999), AskRuling::TooEarly { wait_ms: 1 });
    assert_eq!(ruling(&limited, 2, 9_000), AskRuling::Ask);
    assert_eq!(ruling(&limited, 3, 9_000), AskRuling::Spent);
    assert_eq!(ruling(&limited, 0, 59_999), AskRuling::Ask);
    assert_eq!(ruling(&limited, 0, 60_000), AskRuling::Spent);
    let again = |last_ask_age_ms| {
        let facts = Facts { attempts: 1, asks: 1, first_attempt_age_ms: Some(20_000), ..Facts::accepted() };
        rules::ask(&Facts { last_ask_age_ms: Some(last_ask_age_ms), ..facts }, &limited)
    };
    assert_eq!(again(499), AskRuling::TooEarly { wait_ms: 1 });
    assert_eq!(again(500), AskRuling::Ask);
    let repeat = SwitchProfile { query_is_repeat: true, ..full_profile() };
    assert_eq!(ruling(&repeat, 9, RETENTION_MS - 1), AskRuling::Ask);
    assert_eq!(ruling(&repeat, 0, RETENTION_MS), AskRuling::Spent);
    // Without a recorded attempt a repeat would be a first submit.
    let lost = Facts { attempts_uncertain: true, first_attempt_age_ms: Some(1), ..Facts::accepted() };
    assert_eq!(rules::ask(&lost, &repeat), AskRuling::Spent);
    // Nothing is left to ask once an answer is recorded: a repeat would pay for a released hold.
    let attempted = Facts { attempts: 1, first_attempt_age_ms: Some(1), ..Facts::accepted() };
    let decided = Facts { final_status: Some(FinalStatus::Void), ..attempted.clone() };
    let ended = Facts { state: PaymentState::Failed, ..attempted };
    assert_eq!([rules::ask(&decided, &repeat), rules::ask(&ended, &repeat)], [AskRuling::Spent; 2]);
}

#[test]
fn only_a_final_reject_of_something_sent_is_the_final_status() {
    let believed = SwitchProfile {
        reject_is_final: true,
        burns_reference: true,
        reject_codes: [("AC04".into(), RejectMeaning::Dead)].into(),
        ..full_profile()
    };
    let dead = Reject { code: Some("AC04".into()), reason: String::new() };
    let sent = Facts { attempts: 1, ..Facts::accepted() };
    let settled = Facts { final_status: Some(FinalStatus::Settled), ..sent.clone() };
    let reject = rules::final_reject;
    assert_eq!(reject(&sent, &believed, &dead), Some(FinalStatusRuling::First));
    assert_eq!(reject(&settled, &believed, &dead), Some(FinalStatusRuling::Contradicts));
    assert_eq!(reject(&Facts::accepted(), &believed, &dead), None);
    assert_eq!(reject(&sent, &believed, &Reject::uncoded("closed")), None);
    assert_eq!(reject(&sent, &full_profile(), &dead), None);
    // A SUCCESS that could not be taken is on record: operators decide.
    for doubtful in [
        Facts { confirmation_mismatch: true, ..sent.clone() },
        Facts { reported_without_attempt: true, ..sent.clone() },
    ] {
        assert_eq!(reject(&doubtful, &believed, &dead), None);
        assert!(!rules::void_is_believed(&doubtful, VoidReason::NotInClosedStatement, false));
    }
    assert!(rules::void_is_believed(&sent, VoidReason::NotInClosedStatement, true));
    let rejected = Facts { final_status: Some(FinalStatus::Void), attempts: 1, ..held() };
    assert_eq!(
        rules::attempt(&rejected, &run("a"), &believed, false),
        AttemptRuling::NotSent(NotSent::Rejected)
    );
}
