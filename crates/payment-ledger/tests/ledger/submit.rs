//! `steps::submit`: which attempts are allowed, what each sends, and what fences them.

use crate::support::{AMOUNT_MINOR, Bank, SWITCH_NOW_MS, Sample, Stage, at, eur, first_run, run};
use futures::future::{join, join_all};
use jiff::{SignedDuration, Timestamp};
use payment_protocol::cause::Cause;
use payment_protocol::port::SubmitProgress;
use payment_protocol::reject::Reject;
use payment_protocol::rules::AttemptRuling::{self, NotSent as No, Send, Settled};
use payment_protocol::rules::NotSent;
use payment_protocol::submit::SendAnswer;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// The ruling on an attempt at each stage, for the run that reserved and for another run.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_submit_attempt_is_allowed_or_fenced_at_each_payment_stage(pool: PgPool) {
    let bank = Bank::new(pool);
    let another = No(NotSent::AnotherRun);
    let no_hold = No(NotSent::NoOpenHold);
    #[rustfmt::skip]
    let table = [
        // stage                     the same run              another run
        (Stage::Accepted,            another,                  another),
        (Stage::Fenced,              another,                  another),
        (Stage::Rejected,            no_hold,                  another),
        (Stage::Reserved,            Send(1),                  another),
        (Stage::Sent,                Send(2),                  another),
        (Stage::Differing,           Send(2),                  another),
        (Stage::Cancelling,          No(NotSent::CancelStarted), another),
        (Stage::Confirmed,           Settled,                  Settled),
        (Stage::Void,                No(NotSent::CancelStarted), another),
        (Stage::DebitRefused,              Settled,                  Settled),
        (Stage::Settled,             Settled,                  Settled),
        (Stage::Released,            no_hold,                  another),
        (Stage::ReleasedUnreserved,  another,                  another),
    ];
    for (stage, same, other) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let attempts = bank.column(&p, "attempts").await.unwrap();
        let (ruling, transfer) =
            bank.ledger.record_attempt(&p.id, &run("another"), at(SWITCH_NOW_MS), false, None).await.unwrap();
        assert_eq!((ruling, transfer), (other, None), "{stage:?}");
        assert_eq!(
            bank.column(&p, "attempts").await.unwrap(),
            attempts,
            "{stage:?}: a fenced attempt was recorded"
        );
        let (ruling, transfer) =
            bank.ledger.record_attempt(&p.id, &first_run(), at(SWITCH_NOW_MS), false, None).await.unwrap();
        assert_eq!(ruling, same, "{stage:?}");
        assert_eq!(transfer.is_some(), matches!(same, Send(_)), "{stage:?}");
    }
    bank.audit().await;
}

/// Every attempt sends identical bytes, since a switch that deduplicates may compare the bodies. The deadline is fixed before the
/// first attempt.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn every_submit_attempt_sends_the_same_transfer(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    assert_eq!(bank.ledger.recorded_transfer(&p.id).await.unwrap(), None);
    // With nanoseconds, which the database does not store.
    let switch_time = Timestamp::new(1_700_000_000, 123_456_789).unwrap();
    let (ruling, first) =
        bank.ledger.record_attempt(&p.id, &first_run(), switch_time, false, None).await.unwrap();
    assert_eq!(ruling, Send(1));
    let first = first.unwrap();
    assert_eq!(bank.ledger.recorded_transfer(&p.id).await.unwrap().as_ref(), Some(&first));
    assert_eq!(first.name.on_wire(), format!("{}:submit", p.tx));
    assert_eq!((first.money, first.destination_account.as_str()), (eur(AMOUNT_MINOR), "DE-far-away"));
    assert_eq!(first.end_to_end_id.as_deref(), Some("invoice k"));
    let distance = first.deadline.duration_since(switch_time);
    assert!((distance - SignedDuration::from_secs(60)).abs() < SignedDuration::from_millis(1), "{distance}");
    for n in 2..=4 {
        let later = switch_time + SignedDuration::from_secs(i64::from(n) * 1_000);
        let (ruling, transfer) =
            bank.ledger.record_attempt(&p.id, &first_run(), later, false, None).await.unwrap();
        assert_eq!(ruling, Send(n));
        assert_eq!(transfer.unwrap(), first, "attempt {n}");
    }
    let begun =
        bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::NotScheduled).await.unwrap();
    assert_eq!((begun.never_sent, begun.deadline_ms), (false, Some(first.deadline.as_millisecond())));
    bank.audit().await;
}

/// A switch without deduplication receives one attempt, whatever its outcome is.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_switch_without_deduplication_gets_only_one_submit_attempt(pool: PgPool) {
    let bank = Bank::new(pool);
    let answers = [
        None,
        Some(SendAnswer::Accepted),
        Some(SendAnswer::Refused { reject: Reject::uncoded("limit") }),
        Some(SendAnswer::Unknown { detail: "timeout".into() }),
    ];
    for (n, answer) in answers.into_iter().enumerate() {
        let mut order = bank.order(&format!("k{n}"));
        order.profile.deduplicates = false;
        let p = bank.order_at(Stage::Sent, order).await;
        if let Some(answer) = answer {
            bank.ledger.record_answer(&p.id, 1, &answer, None, at(SWITCH_NOW_MS)).await.unwrap();
        }
        for _ in 0..2 {
            assert_eq!(bank.attempt(&p).await, No(NotSent::SecondAttemptForbidden));
        }
    }
    bank.audit().await;
}

/// Each reason that fences the next attempt.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_next_submit_attempt_is_fenced_for_each_reason(pool: PgPool) {
    let bank = Bank::new(pool);

    let cancelled = bank.payment_at(Stage::Sent, "customer cancel").await;
    bank.customer_cancel(&cancelled).await;
    assert_eq!(bank.attempt(&cancelled).await, No(NotSent::CustomerCancel));

    let cancelling = bank.payment_at(Stage::Reserved, "cancelling").await;
    bank.ledger
        .begin_cancel(&cancelling.id, &Cause::Interrupted, SubmitProgress::NotScheduled)
        .await
        .unwrap();
    assert_eq!(bank.attempt(&cancelling).await, No(NotSent::CancelStarted));

    let released = bank.payment_at(Stage::Reserved, "released").await;
    bank.ledger.release(&released.id, &Cause::Interrupted).await.unwrap();
    assert_eq!(bank.attempt(&released).await, No(NotSent::NoOpenHold));
    bank.audit().await;
}

/// The switch's retention counts from the first attempt, by the database's clock.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn no_submit_attempt_is_allowed_after_the_switchs_retention(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // age of the first attempt         next attempt
        ("86400 s",                         No(NotSent::SwitchRetentionExpired)),
        ("86390 s",                         Send(2)),
        ("2 days",                          No(NotSent::SwitchRetentionExpired)),
        // A negative age after a clock change counts as zero.
        ("-1 hour",                         Send(2)),
    ];
    for (age, ruling) in table {
        let p = bank.payment_at(Stage::Sent, &format!("{age:?}").replace('"', "")).await;
        let sql = format!(
            "UPDATE payments SET first_attempt_at = now() - interval '{age}' WHERE payment_id = '{}'",
            p.id
        );
        bank.sql(&sql).await;
        let age_ms = bank.ledger.first_attempt(&p.id).await.unwrap().age_ms.unwrap();
        assert_eq!(age_ms >= 86_400_000, matches!(ruling, No(_)), "{age}");
        assert_eq!(bank.attempt(&p).await, ruling, "{age}");
    }
    let unsent = bank.payment_at(Stage::Reserved, "unsent").await;
    assert_eq!(bank.ledger.first_attempt(&unsent.id).await.unwrap().age_ms, None);
    bank.audit().await;
}

/// The first answer is recorded, and changes the state to submitted only if it is accepted.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_submit_answer_is_recorded_once_and_never_reverts_the_state(pool: PgPool) {
    let bank = Bank::new(pool);
    let accepted = SendAnswer::Accepted;
    let refused = SendAnswer::Refused { reject: Reject::uncoded("limit") };
    let unknown = SendAnswer::Unknown { detail: "timeout".into() };
    #[rustfmt::skip]
    let table = [
        // stage              answer      state after   recorded
        (Stage::Sent,         &accepted,  "submitted",  "accepted"),
        (Stage::Sent,         &refused,   "reserved",   "refused limit"),
        (Stage::Sent,         &unknown,   "reserved",   "unknown timeout"),
        (Stage::Cancelling,   &accepted,  "cancelling", "accepted"),
        (Stage::Confirmed,    &accepted,  "confirmed",  "accepted"),
        (Stage::Settled,      &accepted,  "settled",    "accepted"),
        (Stage::Released,     &accepted,  "timed_out",  "accepted"),
    ];
    for (n, (stage, answer, state, recorded)) in table.into_iter().enumerate() {
        let p = bank.payment_at(stage, &format!("row {n}")).await;
        bank.ledger.record_answer(&p.id, 1, answer, None, at(SWITCH_NOW_MS)).await.unwrap();
        bank.ledger
            .record_answer(
                &p.id,
                1,
                &SendAnswer::Unknown { detail: "a late repeat".into() },
                None,
                at(SWITCH_NOW_MS),
            )
            .await
            .unwrap();
        assert_eq!(bank.state(&p).await, state, "row {n}");
        let sql =
            format!("SELECT concat_ws(' ', outcome, detail) FROM submissions WHERE payment_id = '{}'", p.id);
        assert_eq!(bank.words(&sql).await, [recorded], "row {n}");
    }
    let found = bank.payment_at(Stage::Sent, "found").await;
    bank.ledger.record_transfer_found(&found.id).await.unwrap();
    assert_eq!(bank.state(&found).await, "submitted");
    bank.audit().await;
}

/// R23: JSON strings may contain NUL, text columns may not.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_nul_characters_in_the_switchs_answer_are_stored(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let reason = || "limit\0".to_owned();
    bank.ledger
        .record_answer(
            &p.id,
            1,
            &SendAnswer::Refused { reject: Reject::uncoded(reason()) },
            None,
            at(SWITCH_NOW_MS),
        )
        .await
        .unwrap();
    bank.ledger
        .begin_cancel(&p.id, &Cause::SubmitRefused { reason: reason() }, SubmitProgress::NotScheduled)
        .await
        .unwrap();
    assert_eq!(bank.state(&p).await, "cancelling");
    bank.audit().await;
}

/// R3: concurrent attempts are numbered without gaps; without deduplication only one is allowed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r3_concurrent_submit_attempts_are_numbered_without_gaps(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let sent = |rulings: &[AttemptRuling]| {
        let mut sent: Vec<u32> =
            rulings.iter().filter_map(|r| if let Send(n) = r { Some(*n) } else { None }).collect();
        sent.sort_unstable();
        sent
    };
    let concurrently = async |p: &Sample| join_all((0..16).map(|_| bank.attempt(p))).await;

    let p = bank.payment_at(Stage::Reserved, "deduplicates").await;
    assert_eq!(sent(&concurrently(&p).await), (1..=16).collect::<Vec<_>>());

    let mut order = bank.order("does not deduplicate");
    order.profile.deduplicates = false;
    let p = bank.order_at(Stage::Reserved, order).await;
    assert_eq!(sent(&concurrently(&p).await), [1]);
    bank.audit().await;
    bank.close().await;
}

/// A cancel concurrent with an attempt: the attempt is fenced, or recorded so that the cancel knows it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_submit_attempt_concurrent_with_a_cancel_is_fenced_or_recorded(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 4).await;
    for round in 0..40 {
        let p = bank.payment_at(Stage::Reserved, &format!("round {round}")).await;
        let (ruling, begun) = join(
            bank.attempt(&p),
            bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::NotScheduled),
        )
        .await;
        let begun = begun.unwrap();
        match ruling {
            Send(1) => assert!(!begun.never_sent),
            No(NotSent::CancelStarted) => assert!(begun.never_sent),
            other => panic!("{other:?}"),
        }
        assert_eq!(
            bank.attempt(&p).await,
            No(NotSent::CancelStarted),
            "an attempt was allowed after the cancel"
        );
    }
    bank.audit().await;
    bank.close().await;
}
