//! A commit that was confirmed and lost, by a failover to a standby or a restored backup: what the record no longer shows is not
//! taken for what never happened.

use crate::support::{
    AMOUNT_MINOR, Bank, SWITCH_NOW_MS, Sample, Stage, at, event, report, returned, run, success,
};
use jiff::Timestamp;
use payment_ledger::steps::cancel::FirstAttempt;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::SwitchProfile;
use payment_protocol::action::Correction;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::Action;
use payment_protocol::port::{DebitOutcome, FenceOutcome, ReserveOutcome, SubmitProgress};
use payment_protocol::profile::Strategy;
use payment_protocol::rules::{
    AskRuling, AttemptRuling, DebitByDecisionRuling, FinalStatusRuling, NotSent, ReleaseRefusal,
};
use payment_protocol::submit::SendAnswer;
use sqlx::PgPool;

/// Marks a payment as `payctl restore-check` does.
async fn mark(bank: &Bank, p: &Sample) {
    bank.sql(&format!("UPDATE payments SET attempts_uncertain = true WHERE payment_id = '{}'", p.id)).await;
}

/// A payment that was sent, as a failover would leave it that lost the commit of the attempt.
async fn payment_without_its_attempt(bank: &Bank, key: &str) -> Sample {
    let p = bank.payment_at(Stage::Sent, key).await;
    bank.damage(format!("DELETE FROM submissions WHERE payment_id = '{}'", p.id)).await;
    bank.damage(format!(
        "UPDATE payments SET attempts = 0, first_attempt_at = NULL, submit_deadline = NULL WHERE payment_id = '{}'",
        p.id
    ))
    .await;
    p
}

/// The workflow scheduled a submit: nothing is released without the switch's answer, although no attempt is recorded.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_lost_attempt_is_not_taken_for_a_transfer_that_was_never_sent(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    let begun =
        bank.ledger.begin_cancel(&p.id, &Cause::CustomerCancel, SubmitProgress::Scheduled).await.unwrap();
    assert!(!begun.never_sent, "{begun:?}");
    let ruling = bank.ledger.record_void(&p.id, VoidReason::NeverSent).await.unwrap();
    assert_eq!(ruling, FinalStatusRuling::NoAttempt);
    let released = bank.ledger.release(&p.id, &Cause::CustomerCancel).await.unwrap();
    assert_eq!(released, ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle));
    // The switch settled it, and says so when asked: the payment ends right without a person.
    let ruling = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Cancel).await.unwrap();
    assert_eq!(ruling, FinalStatusRuling::First);
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    assert_eq!(bank.state(&p).await, "settled");
}

/// Without a submit of the workflow, nothing can have been sent: the hold is released at once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_whose_workflow_scheduled_no_submit_was_never_sent(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    let begun =
        bank.ledger.begin_cancel(&p.id, &Cause::CustomerCancel, SubmitProgress::NotScheduled).await.unwrap();
    assert!(begun.never_sent, "{begun:?}");
    assert_eq!(
        bank.ledger.record_void(&p.id, VoidReason::NeverSent).await.unwrap(),
        FinalStatusRuling::First
    );
}

/// A callback that nobody expects does not stand for a lost attempt; an answer to our question does.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_callback_alone_does_not_replace_a_lost_attempt(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "settled"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"]);
    assert_eq!(bank.column(&p, "final_status").await, None);
    let ruling = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
    assert_eq!(ruling, FinalStatusRuling::First);
}

/// A return that found no attempt outweighs an answer that says settled, which was under way when the return came: nothing is debited,
/// and the switch is asked again.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_answer_older_than_the_return_of_a_lost_attempt_debits_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    for by_callback in [true, false] {
        let p = payment_without_its_attempt(&bank, &format!("{by_callback}")).await;
        if by_callback {
            bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
            bank.ledger.store_callback(&returned(&p, &event(&p, "returned"))).await.unwrap();
        } else {
            let ruling =
                bank.ledger.record_returned(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
            assert_eq!(ruling, FinalStatusRuling::NoAttempt);
        }
        bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, None, at(SWITCH_NOW_MS)).await.unwrap();
        let ruling = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(ruling, FinalStatusRuling::NoAttempt, "by callback: {by_callback}");
        assert_eq!(bank.debit(&p).await, DebitOutcome::NotConfirmed);
        let ruling = bank.ledger.record_returned(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(ruling, FinalStatusRuling::First);
        assert_eq!(bank.debit(&p).await, DebitOutcome::Returned);
    }
}

/// Operators debit although a return that found no attempt is on record, or debit late before such a return comes: an exception asks
/// them to credit the money back.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_return_without_an_attempt_of_a_payment_that_operators_debit_asks_for_a_credit(pool: PgPool) {
    let bank = Bank::new(pool);
    for action in [Action::Debit, Action::Release] {
        let p = payment_without_its_attempt(&bank, action.as_str()).await;
        let callback = returned(&p, &event(&p, "returned"));
        bank.needs_operator(&p, OperatorReason::NoCancelOrQuery).await;
        let decision = bank.decide(&p, action).await;
        if action == Action::Debit {
            bank.ledger.store_callback(&callback).await.unwrap();
            let ruling = bank.ledger.debit_by_decision(&p.id, &decision).await.unwrap();
            assert_eq!(ruling, DebitByDecisionRuling::Charge);
            // The switch confirms the return: the exception is the same.
            let ruling = bank.ledger.record_returned(&p.id, &report(&p), FinalStatusSource::Query).await;
            assert_eq!(ruling.unwrap(), FinalStatusRuling::First);
        } else {
            bank.ledger.release_by_decision(&p.id, &decision).await.unwrap();
            bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
            bank.correct(&p, Correction::LateDebit).await.unwrap();
            bank.ledger.store_callback(&callback).await.unwrap();
        }
        assert_eq!(
            bank.exceptions(&p).await,
            ["settled_without_attempt", "returned_after_debit"],
            "{action}"
        );
        let debited = bank.available(&p).await;
        bank.correct(&p, Correction::ReturnCredit).await.unwrap();
        assert_eq!(bank.available(&p).await, debited + AMOUNT_MINOR, "{action}");
    }
    bank.audit().await;
}

/// The answer that settled a payment stands for its lost attempt in every record of the transfer.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_transfer_of_a_settled_payment_whose_attempt_was_lost_is_expected(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
    assert_eq!(bank.ledger.record_transfer_found(&p.id).await.unwrap(), None);
    assert_eq!(bank.exceptions(&p).await, Vec::<String>::new());
}

/// The answer to us that settled the payment stands for its lost attempt: a later return is a return, and not a report of a stranger.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_return_after_the_debit_of_a_lost_attempt_is_recorded(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.ledger.store_callback(&returned(&p, &event(&p, "returned"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["returned_after_debit"]);
    assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("returned"));
}

/// A rail answers a query only some time after the transfer. Without a recorded attempt that time begins with the acceptance, as soon as
/// the switch has reported a transfer; otherwise the payment would wait for it for ever.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i16_a_transfer_that_was_only_reported_has_an_age(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    bank.ledger.store_callback(&success(&p, &event(&p, "settled"))).await.unwrap();
    assert_eq!(bank.ledger.first_attempt(&p.id).await.unwrap().age_ms, None);
    let begun =
        bank.ledger.begin_cancel(&p.id, &Cause::ReserveUnknown, SubmitProgress::NotScheduled).await.unwrap();
    assert!(!begun.never_sent, "{begun:?}");
    assert!(bank.ledger.first_attempt(&p.id).await.unwrap().age_ms.is_some());
}

/// The answer to an attempt whose record is gone writes the record again, and operators are notified, once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_answer_without_its_attempt_restores_the_record(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    for _ in 0..2 {
        let deadline = at(SWITCH_NOW_MS + 60_000);
        bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, Some("t-1"), deadline).await.unwrap();
    }
    assert_eq!(bank.exceptions(&p).await, ["attempt_record_lost"]);
    assert_eq!(bank.column(&p, "attempts::text").await.as_deref(), Some("1"));
    assert_eq!(bank.state(&p).await, "submitted");
    let begun = bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    assert_eq!((begun.never_sent, begun.accepted), (false, true));
    assert_eq!(begun.deadline_ms, Some(SWITCH_NOW_MS + 60_000));
}

/// With the attempt, the database may have lost the reserve: the payment is recovered, and neither started again nor refused.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_with_a_restored_attempt_is_not_refused_unasked(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, None, at(SWITCH_NOW_MS)).await.unwrap();
    bank.customer_cancel(&p).await;
    for refusal in [ReserveRefusal::CustomerCancel, ReserveRefusal::Invalid] {
        bank.ledger.refuse_unreserved(&p.id, refusal).await.unwrap();
        assert_eq!(bank.state(&p).await, "accepted", "{refusal:?}");
    }
    assert_eq!(bank.reserve(&p).await, ReserveOutcome::AnotherRun);
    bank.ledger.store_callback(&success(&p, &event(&p, "settled"))).await.unwrap();
    assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"));
}

/// The record is restored after the end: a SUCCESS is stored and asks operators, instead of being refused by the database.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_for_an_attempt_restored_after_the_end_is_stored(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Rejected, "k").await;
    bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, None, at(SWITCH_NOW_MS)).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "settled"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["attempt_record_lost", "late_confirmation"]);
    assert_eq!(bank.state(&p).await, "rejected");
}

/// An attempt without a record has no deadline: the latest that it can have is recorded once, and kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_deadline_of_a_lost_attempt_is_bounded_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    let (first, later) = (at(SWITCH_NOW_MS), at(SWITCH_NOW_MS + 5_000));
    for bound in [first, later] {
        assert_eq!(bank.ledger.bound_deadline(&p.id, bound).await.unwrap(), first);
    }
}

/// The age counts from the acceptance where attempts may be missing, and never from a clock that was set back.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_attempt_never_looks_younger_than_it_is(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    assert_eq!(bank.ledger.first_attempt(&p.id).await.unwrap().age_ms, None);
    bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
    bank.sql(&format!(
        "UPDATE payments SET accepted_at = clock_timestamp() - interval '1 hour' WHERE payment_id = '{}'",
        p.id
    ))
    .await;
    let first = bank.ledger.first_attempt(&p.id).await.unwrap();
    assert!(first.age_ms.is_some_and(|age_ms| age_ms >= 3_600_000), "{first:?}");

    // An hour has passed on the switch's clock; the database's was set back to the time of the attempt.
    let set_back = FirstAttempt { age_ms: Some(0), deadline: Some(at(60_000)) };
    assert_eq!(set_back.older_age_ms(Some(at(3_600_000)), 60_000), Some(3_600_000));
    // The switch's clock was set back.
    let older = FirstAttempt { age_ms: Some(7_200_000), deadline: Some(at(60_000)) };
    assert_eq!(older.older_age_ms(Some(at(0)), 60_000), Some(7_200_000));
    assert_eq!(older.older_age_ms(None, 60_000), Some(7_200_000));
    let unsent = FirstAttempt { age_ms: None, deadline: None };
    assert_eq!(unsent.older_age_ms(Some(Timestamp::now()), 60_000), None);
}

/// A switch without queries is sent the submit again, and executes it a second time once it has forgotten the first one: a database clock
/// that was set back does not prolong the time for it. Nor does the switch's clock make a query due earlier.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_repeated_submit_ends_with_the_older_of_two_clocks(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut order = bank.order("k");
    let repeats = SwitchProfile { query_is_repeat: true, ..order.profile };
    order.profile = SwitchProfile { first_ask_after_ms: 60_000, ..repeats };
    let retention_ms = i64::try_from(order.profile.retention_s * 1_000).unwrap();
    let p = bank.order_at(Stage::Sent, order).await;
    let ask = async |switch_now| bank.ledger.begin_query(&p.id, switch_now).await.unwrap();
    for switch_now in [None, Some(at(SWITCH_NOW_MS)), Some(at(SWITCH_NOW_MS + retention_ms - 1))] {
        assert!(matches!(ask(switch_now).await, AskRuling::TooEarly { .. }), "{switch_now:?}");
    }
    assert_eq!(ask(Some(at(SWITCH_NOW_MS + retention_ms))).await, AskRuling::Spent);
    bank.sql("UPDATE payments SET first_attempt_at = first_attempt_at - interval '61 seconds'").await;
    assert_eq!(ask(Some(at(SWITCH_NOW_MS))).await, AskRuling::Ask);
    bank.sql("UPDATE payments SET first_attempt_at = first_attempt_at - interval '10 years'").await;
    assert_eq!(ask(Some(at(SWITCH_NOW_MS))).await, AskRuling::Spent);
}

/// A switch that accepted the transfer and says now that it never had it contradicts itself: nothing is released by itself.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_accepted_transfer_is_not_void_because_the_switch_forgot_it(pool: PgPool) {
    let bank = Bank::new(pool);
    for reason in [VoidReason::Tombstoned, VoidReason::DeadlinePassed] {
        let p = bank.payment_at(Stage::Sent, &format!("{reason:?}")).await;
        bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, None, at(SWITCH_NOW_MS)).await.unwrap();
        let begun =
            bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
        assert!(begun.accepted, "{reason:?}");
        assert_eq!(
            bank.ledger.record_void(&p.id, reason).await.unwrap(),
            FinalStatusRuling::NoAttempt,
            "{reason:?}"
        );
        bank.ledger.needs_operator(&p.id, OperatorReason::AcceptedThenUnknown).await.unwrap();
        assert_eq!(bank.exceptions(&p).await, ["accepted_then_unknown"], "{reason:?}");
        // The switch's own cancel of a transfer that it knows is believed.
        assert_eq!(
            bank.ledger.record_void(&p.id, VoidReason::Cancelled).await.unwrap(),
            FinalStatusRuling::First
        );
    }
}

/// The switch accepted the transfer, the commit of its answer is lost, and the switch fails over to a copy without the transfer: Temporal
/// alone knows of the acceptance, and that the switch does not know the transfer proves nothing.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i14_an_acceptance_that_only_the_workflow_knows_marks_the_payment(pool: PgPool) {
    let bank = Bank::new(pool);
    for (key, lost_with_its_attempt) in [("answer", false), ("attempt", true)] {
        let p = if lost_with_its_attempt {
            payment_without_its_attempt(&bank, key).await
        } else {
            bank.payment_at(Stage::Sent, key).await
        };
        let begin = async |submit| bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, submit).await.unwrap();
        assert!(!begin(SubmitProgress::Scheduled).await.accepted, "{key}");
        assert!(begin(SubmitProgress::Accepted).await.accepted, "{key}");
        for reason in [VoidReason::Tombstoned, VoidReason::DeadlinePassed] {
            let ruling = bank.ledger.record_void(&p.id, reason).await.unwrap();
            assert_eq!(ruling, FinalStatusRuling::NoAttempt, "{key}, {reason:?}");
        }
        let released = bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
        assert_eq!(released, ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle), "{key}");
        let shown = "SELECT count(*) FROM timeline WHERE payment_id = $1 AND detail LIKE '%as the payment''s workflow knows%'";
        let shown: i64 = sqlx::query_scalar(shown).bind(p.id.as_str()).fetch_one(&bank.pool).await.unwrap();
        assert_eq!(shown, 1, "{key}");
        // A recovery workflow, which knows nothing of the submit, finds it on record.
        assert!(begin(SubmitProgress::Scheduled).await.accepted, "{key}");
        let ruling = bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
        assert_eq!(ruling, FinalStatusRuling::First, "{key}");
        assert_eq!(bank.debit(&p).await, DebitOutcome::Done, "{key}");
    }
}

/// A workflow that completed without an error had settled its payment. The commits that said so are lost, and the switch has the transfer
/// whatever it says.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i14_a_payment_whose_workflow_settled_it_was_accepted_by_the_switch(pool: PgPool) {
    let bank = Bank::new(pool);
    for settled in [false, true] {
        let p = bank.payment_at(Stage::Sent, &format!("{settled}")).await;
        bank.ledger.mark_ended_workflow(&p.id, p.id.as_str(), settled).await.unwrap();
        let begun =
            bank.ledger.begin_cancel(&p.id, &Cause::Interrupted, SubmitProgress::Scheduled).await.unwrap();
        assert_eq!(begun.accepted, settled);
    }
}

/// A workflow that ended by itself had ended its payment: a row that is open, and shows nothing, has lost commits.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_whose_workflow_ended_by_itself_is_not_started_from_the_beginning(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    bank.ledger.mark_ended_workflow(&p.id, "another workflow", false).await.unwrap();
    let another = bank.payment_at(Stage::Accepted, "another").await;
    bank.ledger.mark_ended_workflow(&another.id, another.id.as_str(), false).await.unwrap();
    for (p, resume) in [(&p, 0), (&another, 1)] {
        let resumed = bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
        assert_eq!(resumed.payment.resume, resume, "{:?}", p.id);
    }
}

/// The database lost the reserve of a payment, whose workflow has submitted since and is gone. Neither a recovery workflow nor a
/// second start reserves and submits again, and nothing is released before the switch was asked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_marked_payment_with_a_lost_workflow_is_recovered(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    mark(&bank, &p).await;
    let resumed = bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
    assert_eq!(resumed.payment.resume, 1, "started from the beginning");
    assert_eq!(
        bank.ledger.reserve(&bank.payment(&p).await, &run("second")).await.unwrap(),
        ReserveOutcome::AnotherRun
    );
    assert_eq!(bank.hold(&p).await, "none");

    assert_eq!(bank.ledger.fence_reserve(&bank.payment(&p).await).await.unwrap(), FenceOutcome::Open(None));
    let begun =
        bank.ledger.begin_cancel(&p.id, &Cause::Interrupted, SubmitProgress::Scheduled).await.unwrap();
    assert!(!begun.never_sent, "{begun:?}");
    let released = bank.ledger.release(&p.id, &Cause::Interrupted).await.unwrap();
    assert_eq!(released, ReleaseStepOutcome::Refused(ReleaseRefusal::MayStillSettle));
    // The switch settled it: the money left, and nothing is held that could be debited.
    bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Cancel).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::NoHold);
}

/// A start that is too late, or cancelled by the customer, is refused without a question to the switch, but not for a marked
/// payment: its workflow is started, and recovers it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_marked_payment_is_not_refused_before_its_start(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    bank.customer_cancel(&p).await;
    bank.sql("UPDATE payments SET valid_until = clock_timestamp() - interval '1 second'").await;
    mark(&bank, &p).await;
    let claimed = bank.ledger.claim_accepted(1, 60_000, 10).await.unwrap();
    assert_eq!(
        claimed.iter().map(|c| (c.cancel_requested, c.too_late)).collect::<Vec<_>>(),
        [(false, false)]
    );
    for refusal in [ReserveRefusal::CustomerCancel, ReserveRefusal::StartedTooLate] {
        bank.ledger.refuse_unreserved(&p.id, refusal).await.unwrap();
        assert_eq!(bank.state(&p).await, "accepted", "{refusal:?}");
    }
    // That the payment is invalid follows from the payment itself: nothing of it was ever sent.
    bank.ledger.reject(&bank.payment(&p).await).await.unwrap();
    assert_eq!(bank.state(&p).await, "rejected");
}

/// A lost attempt may be as old as the acceptance: the switch deduplicates an attempt only while it still knows the first one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_marked_payment_is_not_sent_after_the_switch_retention(pool: PgPool) {
    let bank = Bank::new(pool);
    let old = "UPDATE payments SET accepted_at = clock_timestamp() - interval '10 years'";
    let p = bank.payment_at(Stage::Reserved, "k").await;
    bank.sql(old).await;
    mark(&bank, &p).await;
    assert_eq!(bank.attempt(&p).await, AttemptRuling::NotSent(NotSent::SwitchRetentionExpired));
    let unmarked = bank.payment_at(Stage::Reserved, "unmarked").await;
    bank.sql(old).await;
    assert_eq!(bank.attempt(&unmarked).await, AttemptRuling::Send(1));
}

/// At a switch without references, the lost attempt of a marked payment could be read back as another payment's.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_marked_payment_keeps_its_destination_account_busy(pool: PgPool) {
    let bank = Bank::new(pool);
    let order = |key: &str| {
        let mut order = bank.order(key);
        order.profile.strategy = Strategy::Validate;
        order
    };
    let marked = bank.order_at(Stage::Reserved, order("marked")).await;
    let other = bank.order_at(Stage::Reserved, order("other")).await;
    mark(&bank, &marked).await;
    assert_eq!(bank.attempt(&other).await, AttemptRuling::NotSent(NotSent::AccountBusy));
}

/// The switch reports a return while the attempt's record is lost; then the record is written again. A SUCCESS that arrives late is
/// older than the return: it is not believed, and the switch's answer to our cancel decides.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_success_after_a_report_without_an_attempt_is_not_debited(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_without_its_attempt(&bank, "k").await;
    bank.ledger.store_callback(&returned(&p, &event(&p, "returned"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"]);
    bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, None, at(SWITCH_NOW_MS)).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::NotConfirmed);

    bank.ledger.record_returned(&p.id, &report(&p), FinalStatusSource::Cancel).await.unwrap();
    assert_eq!(bank.debit(&p).await, DebitOutcome::Returned);
}

/// Nothing is sent without a marker: a lookup could not find the transfer again.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_marker_is_recorded_once_and_not_without_its_attempt(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    for marker in ["7", "9"] {
        assert!(bank.ledger.record_marker(&p.id, 1, marker).await.unwrap());
    }
    let recorded: Option<String> = sqlx::query_scalar("SELECT marker FROM submissions WHERE payment_id = $1")
        .bind(p.id.as_str())
        .fetch_one(&bank.pool)
        .await
        .unwrap();
    assert_eq!(recorded.as_deref(), Some("7"));
    let lost = payment_without_its_attempt(&bank, "lost").await;
    assert!(!bank.ledger.record_marker(&lost.id, 1, "7").await.unwrap());
}
