//! `steps::start`: claiming accepted payments, idle payments, and recovery of lost runs.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::{AMOUNT_MINOR, Bank, OTHER_SWITCH, Stage, at, eur, profile};
use futures::future::{join, join_all};
use futures::poll;
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::start::{START_REJECTIONS_MAX, StartablePayment};
use payment_protocol::Payment;
use payment_protocol::cause::Cause;
use payment_protocol::ids::SwitchName;
use payment_protocol::port::SubmitProgress;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const LEASE_MS: i64 = 60_000;
const IDLE_MS: i64 = 60_000;
/// Time limit for a mark that no other writes.
const WITHIN: Duration = Duration::from_secs(30);
/// In-flight limit above the payments of any test.
const MAX_IN_FLIGHT: i64 = 1_000;

fn ids(started: &[StartablePayment]) -> Vec<String> {
    started.iter().map(|s| s.payment.payment_id.to_string()).collect()
}

/// Moves leases, last updates and last liveness checks of all payments into the past.
async fn age_all(bank: &Bank, interval: &str) {
    bank.sql(&format!(
        "UPDATE payments SET updated_at = updated_at - interval '{interval}',
                             start_lease_until = start_lease_until - interval '{interval}',
                             liveness_checked_at = liveness_checked_at - interval '{interval}'"
    ))
    .await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_claimed_payment_is_the_complete_workflow_input(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    let claimed = bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
    let payment = Payment {
        payment_id: p.id.clone(),
        tx_id: p.tx,
        money: eur(AMOUNT_MINOR),
        source_account: p.account,
        profile: profile(),
        resume: 0,
    };
    let workflow_id = p.id.to_string();
    assert_eq!(
        claimed,
        [StartablePayment {
            payment,
            workflow_id,
            trace_parent: None,
            cancel_requested: false,
            too_late: false
        }]
    );
}

/// The order is by time of acceptance, not by position in the table.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn accepted_payments_are_claimed_oldest_first(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut oldest_first = vec![];
    for age in 0..60 {
        let order = NewPayment { accepted_at: at(1_700_000_000_000 - age), ..bank.order(&format!("k{age}")) };
        oldest_first.insert(0, bank.accept(&order).await.id.to_string());
    }
    bank.sql("ANALYZE payments").await;
    let mut claimed = vec![];
    for _ in 0..3 {
        let batch = ids(&bank.ledger.claim_accepted(20, LEASE_MS, MAX_IN_FLIGHT).await.unwrap());
        assert_eq!(batch.len(), 20);
        claimed.extend(batch);
    }
    assert_eq!(claimed, oldest_first);
    assert_eq!(bank.ledger.claim_accepted(20, LEASE_MS, MAX_IN_FLIGHT).await.unwrap(), []);
}

/// A leased payment is not claimed again until the lease has expired or the start is marked.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_with_an_expired_start_lease_is_claimed_again(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    assert_eq!(
        ids(&bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap()),
        [p.id.to_string()]
    );
    assert_eq!(
        bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap(),
        [],
        "a leased payment was claimed"
    );
    age_all(&bank, "61 s").await;
    assert_eq!(
        ids(&bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap()),
        [p.id.to_string()]
    );
    age_all(&bank, "61 s").await;
    bank.ledger.mark_started(&p.id).await.unwrap();
    assert_eq!(bank.state(&p).await, "started");
    assert_eq!(
        bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap(),
        [],
        "a started payment was claimed"
    );
}

/// Eight concurrent starters claim each payment once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_workflow_starters_claim_each_payment_once(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 8).await;
    for n in 0..80 {
        bank.accept(&bank.order(&format!("k{n}"))).await;
    }
    let mut claimed = vec![];
    // More rounds than necessary, since a claim skips rows that another one has locked.
    for _ in 0..8 {
        let round = join_all((0..8).map(|_| bank.ledger.claim_accepted(7, LEASE_MS, MAX_IN_FLIGHT))).await;
        claimed.extend(round.into_iter().flat_map(|batch| ids(&batch.unwrap())));
    }
    assert_eq!((claimed.len(), claimed.iter().collect::<BTreeSet<_>>().len()), (80, 80));
    bank.close().await;
}

/// R23: a row that cannot be deserialized does not block the others.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r23_an_unreadable_payment_does_not_block_workflow_starts(pool: PgPool) {
    let bank = Bank::new(pool);
    let unreadable = bank.payment_at(Stage::Accepted, "unreadable").await;
    let p = bank.payment_at(Stage::Accepted, "sound").await;
    let mut profile = serde_json::to_value(profile()).unwrap();
    profile["strategy"] = "of a later release".into();
    let hash = bank.store_profile(&profile).await;
    bank.sql(&format!("UPDATE payments SET profile_hash = {hash} WHERE payment_id = '{}'", unreadable.id))
        .await;
    assert_eq!(
        ids(&bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap()),
        [p.id.to_string()]
    );
}

/// A claimed payment carries whether a cancel is requested and whether its deadline has passed.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_start_claim_reports_a_cancel_request_and_a_passed_deadline(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // key       cancelled  too late
        ("neither",  false,     false),
        ("cancel",   true,      false),
        ("late",     false,     true),
        ("both",     true,      true),
    ];
    for (key, cancelled, late) in table {
        let p = bank.payment_at(Stage::Accepted, key).await;
        if cancelled {
            bank.customer_cancel(&p).await;
        }
        if late {
            bank.sql(&format!("UPDATE payments SET valid_until = now() WHERE payment_id = '{}'", p.id)).await;
        }
        let claimed = bank.ledger.claim_accepted(1, LEASE_MS, MAX_IN_FLIGHT).await.unwrap();
        assert_eq!((claimed[0].cancel_requested, claimed[0].too_late), (cancelled, late), "{key}");
    }
}

/// After five starts that Temporal refused the payment needs an operator, with one alert.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_needs_an_operator_after_five_refused_workflow_starts(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "k").await;
    for n in 1..=START_REJECTIONS_MAX + 1 {
        bank.ledger.record_start_rejection(&p.id).await.unwrap();
        let state = if n < START_REJECTIONS_MAX { "accepted" } else { "needs_operator" };
        assert_eq!(bank.state(&p).await, state, "refusal {n}");
    }
    assert_eq!(bank.column(&p, "operator_reason").await.as_deref(), Some("start_refused"));
    assert_eq!(
        bank.words("SELECT kind || ' ' || detail FROM alerts").await,
        ["needs_operator start_refused"]
    );
    assert_eq!(bank.ledger.claim_accepted(10, LEASE_MS, MAX_IN_FLIGHT).await.unwrap(), []);
}

/// Marking a start never reverts the state.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_mark_of_the_workflow_start_changes_no_payment_state(pool: PgPool) {
    let bank = Bank::new(pool);
    for stage in [Stage::Reserved, Stage::Cancelling, Stage::Confirmed, Stage::Settled, Stage::Rejected] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let before = bank.state(&p).await;
        bank.ledger.mark_started(&p.id).await.unwrap();
        assert_eq!(bank.state(&p).await, before, "{stage:?}");
    }
}

/// Open payments without a recent update are claimed; accepted and ended ones are not.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn open_payments_without_updates_are_claimed_as_idle(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut expected = BTreeSet::new();
    for stage in [
        Stage::Accepted,
        Stage::Reserved,
        Stage::Cancelling,
        Stage::Confirmed,
        Stage::Void,
        Stage::DebitRefused,
        Stage::Settled,
        Stage::Released,
        Stage::Rejected,
    ] {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        if !matches!(stage, Stage::Accepted | Stage::Settled | Stage::Released | Stage::Rejected) {
            expected.insert(p.id);
        }
    }
    assert_eq!(
        bank.ledger.claim_idle(20, IDLE_MS).await.unwrap(),
        [],
        "a recently updated payment was claimed"
    );
    age_all(&bank, "61 s").await;
    let idle = bank.ledger.claim_idle(20, IDLE_MS).await.unwrap();
    assert_eq!(idle.iter().map(|i| i.payment_id.clone()).collect::<BTreeSet<_>>(), expected);
    assert!(idle.iter().all(|i| i.workflow_id == i.payment_id.as_str()));
    assert_eq!(bank.ledger.claim_idle(20, IDLE_MS).await.unwrap(), [], "a claimed payment was claimed again");
    age_all(&bank, "61 s").await;
    assert_eq!(
        bank.ledger.claim_idle(20, IDLE_MS).await.unwrap().len(),
        expected.len(),
        "expected the payments again after the idle time"
    );
}

/// Of concurrent resumes of a lost run one succeeds, with the next number.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn of_concurrent_resumes_of_a_lost_workflow_one_succeeds(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 8).await;
    let p = bank.payment_at(Stage::Sent, "k").await;
    let mut lost = p.id.to_string();
    for n in 1..=5_u32 {
        let results = join_all((0..8).map(|_| bank.ledger.resume(&p.id, &lost))).await;
        let resumed: Vec<_> = results.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(resumed.len(), 1, "resume {n}");
        assert_eq!(
            (resumed[0].payment.resume, resumed[0].workflow_id.clone()),
            (n, format!("{}:resume:{n}", p.id))
        );
        assert_eq!(bank.ledger.resume(&p.id, &lost).await.unwrap(), None, "an older run was resumed");
        lost.clone_from(&resumed[0].workflow_id);
        assert_eq!(
            bank.column(&p, "workflow_id").await.unwrap(),
            lost,
            "the current workflow is not recorded"
        );
    }
    bank.close().await;
}

/// The number of the resume at each stage: 0 (from the beginning) if nothing is recorded, 1 otherwise; `None` after the end.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_lost_workflow_run_is_resumed_at_each_open_payment_stage(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage                    number of the resume
        (Stage::Accepted,           Some(0)),
        (Stage::Fenced,             Some(1)),
        (Stage::Reserved,           Some(1)),
        (Stage::Sent,               Some(1)),
        (Stage::Cancelling,         Some(1)),
        (Stage::Confirmed,          Some(1)),
        (Stage::Void,               Some(1)),
        (Stage::DebitRefused,             Some(1)),
        (Stage::Settled,            None),
        (Stage::Released,           None),
        (Stage::ReleasedUnreserved, None),
        (Stage::Rejected,           None),
    ];
    for (stage, resume) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let resumed = bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap();
        assert_eq!(resumed.map(|s| s.payment.resume), resume, "{stage:?}");
    }
    let compensating = bank.payment_at(Stage::Accepted, "compensating").await;
    bank.ledger
        .begin_cancel(&compensating.id, &Cause::Interrupted, SubmitProgress::NotScheduled)
        .await
        .unwrap();
    let resumed = bank.ledger.resume(&compensating.id, compensating.id.as_str()).await.unwrap();
    assert_eq!(resumed.unwrap().payment.resume, 1, "a cause is recorded");
    bank.audit().await;
}

/// The in-flight limit counts payments from their start until the switch has accepted them, and for a moment after their confirmation,
/// per switch.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_switch_at_its_in_flight_limit_blocks_no_starts_for_other_switches(pool: PgPool) {
    let bank = Bank::new(pool);
    let elsewhere = |key: &str| {
        let mut order = bank.order(key);
        order.profile.switch = SwitchName::new(OTHER_SWITCH).unwrap();
        order
    };
    let claim_with_limit_one = async || ids(&bank.ledger.claim_accepted(10, LEASE_MS, 1).await.unwrap());
    let p = bank.payment_at(Stage::Accepted, "first").await;
    assert_eq!(claim_with_limit_one().await, [p.id.to_string()]);

    bank.ledger.mark_started(&p.id).await.unwrap();
    let waits = bank.payment_at(Stage::Accepted, "waits").await;
    let other = bank.order_at(Stage::Accepted, elsewhere("other")).await;
    assert_eq!(claim_with_limit_one().await, [other.id.to_string()], "started");
    bank.advance(&p, Stage::Sent).await;
    assert_eq!(claim_with_limit_one().await, [""; 0], "reserved");
    bank.ledger.record_transfer_found(&p.id).await.unwrap();
    assert_eq!(claim_with_limit_one().await, [waits.id.to_string()], "accepted by the switch");

    let later = bank.payment_at(Stage::Accepted, "later").await;
    bank.advance(&p, Stage::Confirmed).await;
    let claim_with_limit_two = async || ids(&bank.ledger.claim_accepted(10, LEASE_MS, 2).await.unwrap());
    assert_eq!(claim_with_limit_two().await, [""; 0], "one confirmed, one leased");
    sqlx::query("UPDATE payments SET updated_at = updated_at - interval '1 minute' WHERE payment_id = $1")
        .bind(p.id.as_str())
        .execute(&bank.pool)
        .await
        .unwrap();
    assert_eq!(claim_with_limit_two().await, [later.id.to_string()], "confirmed a minute ago");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_wake_up_notification_reaches_the_workflow_starter(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut listener = sqlx::postgres::PgListener::connect_with(&bank.pool).await.unwrap();
    listener.listen(payment_ledger::steps::start::START_CHANNEL).await.unwrap();
    bank.ledger.wake_starters().await.unwrap();
    let received = tokio::time::timeout(std::time::Duration::from_secs(20), listener.recv()).await;
    assert_eq!(received.unwrap().unwrap().channel(), payment_ledger::steps::start::START_CHANNEL);
}

/// Clones of the ledger share the statement of their marks.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn marks_of_one_moment_are_one_transaction(pool: PgPool) {
    let bank = Bank::new(pool);
    let (a, b) = (bank.payment_at(Stage::Accepted, "a").await, bank.payment_at(Stage::Accepted, "b").await);
    let (ledger, other) = (bank.ledger.clone(), bank.ledger.clone());
    let (first, second) = join(ledger.mark_started(&a.id), other.mark_started(&b.id)).await;
    for marked in [first, second] {
        marked.unwrap();
    }
    assert_eq!([bank.state(&a).await, bank.state(&b).await], ["started", "started"]);
    assert_eq!(bank.number("SELECT count(DISTINCT xmin::text) FROM payments").await, 1);
}

/// Nobody waits for a mark whose writer has gone.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_mark_whose_first_caller_goes_away_is_written_by_the_others(pool: PgPool) {
    let bank = Bank::new(pool);
    let (a, b) = (bank.payment_at(Stage::Accepted, "a").await, bank.payment_at(Stage::Accepted, "b").await);
    let mut gathering = Box::pin(bank.ledger.mark_started(&a.id));
    assert!(poll!(&mut gathering).is_pending());
    let mut waiting = Box::pin(bank.ledger.mark_started(&b.id));
    assert!(poll!(&mut waiting).is_pending());
    drop(gathering);
    tokio::time::timeout(WITHIN, waiting).await.expect("the waiting caller writes its own mark").unwrap();
    assert_eq!([bank.state(&a).await, bank.state(&b).await], ["accepted", "started"]);
    // The next one is the first of its moment again.
    tokio::time::timeout(WITHIN, bank.ledger.mark_started(&a.id))
        .await
        .expect("a mark waits for nobody")
        .unwrap();
    assert_eq!(bank.state(&a).await, "started");
}
