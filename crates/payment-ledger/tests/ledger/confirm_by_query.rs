//! `confirm_by_query`: a callback alone moves no money; what it says is asked of the switch first.

use crate::support::{
    AMOUNT_MINOR, Bank, FUNDS_MINOR, Sample, Stage, failure, profile, report, returned, success,
};
use payment_ledger::switch::callbacks::{Callback, StoreCallbackOutcome};
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::facts::FinalStatus;
use payment_protocol::port::{DebitOutcome, NeedsOperatorOutcome, SubmitProgress};
use payment_protocol::profile::ConfirmByQuery;
use payment_protocol::reject::RejectMeaning;
use payment_protocol::rules::FinalStatusRuling;
use sqlx::PgPool;

const ACCOUNT_CLOSED: &str = "AC04";

/// A payment that was sent, at a switch whose callbacks must be confirmed as `confirm_by_query` says.
async fn sent(bank: &Bank, confirm_by_query: ConfirmByQuery, key: &str) -> Sample {
    let mut order = bank.order(key);
    order.profile = SwitchProfile {
        confirm_by_query,
        reject_is_final: true,
        burns_reference: true,
        reject_codes: [(ACCOUNT_CLOSED.into(), RejectMeaning::Dead)].into(),
        ..profile()
    };
    bank.order_at(Stage::Sent, order).await
}

async fn store(bank: &Bank, callback: &Callback) -> bool {
    match bank.ledger.store_callback(callback).await.unwrap() {
        StoreCallbackOutcome::New(message) => message.is_some(),
        other => panic!("{other:?}"),
    }
}

async fn final_status(bank: &Bank, p: &Sample) -> String {
    let query = format!(
        "SELECT coalesce(final_status || ' by ' || final_status_source, 'none') FROM payments WHERE payment_id = '{}'",
        p.id
    );
    bank.words(&query).await.concat()
}

async fn exceptions(bank: &Bank, p: &Sample) -> Vec<String> {
    bank.words(&format!("SELECT kind FROM exceptions WHERE payment_id = '{}' ORDER BY exception_id", p.id))
        .await
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i3_a_success_by_callback_is_debited_only_with_the_switchs_answer_to_a_query(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Always, "k").await;
    assert!(store(&bank, &success(&p, "e-1")).await, "the workflow is notified");
    assert_eq!(final_status(&bank, &p).await, "none");
    assert!(bank.ledger.before_debit(&p.id).await.unwrap().1, "the switch must be queried");
    assert_eq!(bank.debit(&p).await, DebitOutcome::NotConfirmed);
    assert_eq!(bank.hold(&p).await, "open");

    for _ in 0..2 {
        let debited = bank.ledger.debit_confirmed(&p.id, &report(&p)).await.unwrap();
        assert_eq!(debited, DebitOutcome::Done);
    }
    assert_eq!(final_status(&bank, &p).await, "settled by query");
    assert!(!bank.ledger.before_debit(&p.id).await.unwrap().1, "nothing is left to ask");
    let states = bank
        .words(&format!(
            "SELECT state FROM timeline WHERE payment_id = '{}' ORDER BY entry_id DESC LIMIT 2",
            p.id
        ))
        .await;
    assert_eq!(states, ["settled", "confirmed"]);
    assert_eq!(
        (bank.hold(&p).await.as_str(), bank.available(&p).await),
        ("debited", FUNDS_MINOR - AMOUNT_MINOR)
    );
    assert_eq!(exceptions(&bank, &p).await, [""; 0]);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i3_an_answer_that_differs_from_the_payment_debits_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Always, "k").await;
    store(&bank, &success(&p, "e-1")).await;
    let mut other = report(&p);
    other.amount_minor += 1;
    assert_eq!(bank.ledger.debit_confirmed(&p.id, &other).await.unwrap(), DebitOutcome::Differs);
    assert_eq!((final_status(&bank, &p).await.as_str(), bank.hold(&p).await.as_str()), ("none", "open"));
    assert_eq!(exceptions(&bank, &p).await, ["confirmation_mismatch"]);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i3_an_untrue_success_is_an_exception_once_the_switch_denies_it(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Always, "k").await;
    store(&bank, &success(&p, "e-1")).await;
    // That the switch does not know the transfer contradicts its callback: operators decide, and not the clock.
    assert!(
        bank.ledger
            .begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled)
            .await
            .unwrap()
            .accepted
    );
    for absent in [
        VoidReason::Tombstoned,
        VoidReason::DeadlinePassed,
        VoidReason::NotInClosedStatement,
        // The switch may have cancelled a reference that it no longer knows.
        VoidReason::CancelledUnsaid,
    ] {
        assert_eq!(bank.ledger.record_void(&p.id, absent).await.unwrap(), FinalStatusRuling::NoAttempt);
    }
    assert_eq!(bank.ledger.record_void(&p.id, VoidReason::Rejected).await.unwrap(), FinalStatusRuling::First);
    assert_eq!(exceptions(&bank, &p).await, ["contradictory_final_status"]);
    bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
    assert_eq!((bank.hold(&p).await.as_str(), bank.available(&p).await), ("released", FUNDS_MINOR));
    bank.audit().await;
}

/// Where a switch is believed by callback, its final reject is, too, about the payment's own amount.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_9_a_final_reject_by_callback_is_of_the_payments_own_amount(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Never, "k").await;
    let reject = |event: &str| Callback { reason_code: Some(ACCOUNT_CLOSED.into()), ..failure(&p, event) };
    let of_another_amount = Callback { amount_minor: AMOUNT_MINOR + 1, ..reject("e-1") };
    let in_another_currency = Callback { currency: "USD".into(), ..reject("e-2") };
    for other in [of_another_amount, in_another_currency] {
        store(&bank, &other).await;
        assert_eq!(final_status(&bank, &p).await, "none", "{other:?}");
    }
    store(&bank, &reject("e-3")).await;
    assert_eq!(final_status(&bank, &p).await, "void by reject");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i4_a_final_reject_or_a_return_by_callback_releases_nothing_by_itself(pool: PgPool) {
    let bank = Bank::new(pool);
    let rejected = sent(&bank, ConfirmByQuery::Always, "rejected").await;
    let reject = |p: &Sample| Callback {
        reason_code: Some(ACCOUNT_CLOSED.into()),
        ..failure(p, &format!("e-{}", p.id))
    };
    assert!(store(&bank, &reject(&rejected)).await, "the workflow is notified, and asks the switch");
    assert_eq!(final_status(&bank, &rejected).await, "none");

    let came_back = sent(&bank, ConfirmByQuery::Always, "came back").await;
    assert!(
        store(&bank, &returned(&came_back, "e-2")).await,
        "the workflow is notified, and asks the switch"
    );
    assert_eq!(final_status(&bank, &came_back).await, "none");
    assert_eq!(bank.debit(&came_back).await, DebitOutcome::NotConfirmed);
    let recorded =
        bank.ledger.record_returned(&came_back.id, &report(&came_back), FinalStatusSource::Query).await;
    assert_eq!(recorded.unwrap(), FinalStatusRuling::First);
    assert_eq!(bank.debit(&came_back).await, DebitOutcome::Returned);
    bank.ledger.release(&came_back.id, &Cause::Returned).await.unwrap();
    assert_eq!(
        (bank.hold(&came_back).await.as_str(), exceptions(&bank, &came_back).await.len()),
        ("released", 0)
    );

    // The settlement is recorded, and the debit refused: the hold is still open, and a callback does not release it.
    let settled = sent(&bank, ConfirmByQuery::Always, "settled").await;
    bank.ledger.record_settled(&settled.id, &report(&settled), FinalStatusSource::Query).await.unwrap();
    assert!(store(&bank, &returned(&settled, "e-3")).await, "the workflow is notified, and asks the switch");
    assert_eq!(final_status(&bank, &settled).await, "settled by query");
    assert_eq!(bank.debit(&settled).await, DebitOutcome::Done);
    assert_eq!(exceptions(&bank, &settled).await, ["returned_after_debit"]);

    let believed = sent(&bank, ConfirmByQuery::Never, "believed").await;
    store(&bank, &reject(&believed)).await;
    assert_eq!(final_status(&bank, &believed).await, "void by reject");
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn untrue_callbacks_do_not_keep_the_switchs_answer_from_the_payment(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Always, "k").await;
    let other_amount = |event: &str| Callback { amount_minor: AMOUNT_MINOR + 1, ..success(&p, event) };
    assert!(store(&bank, &other_amount("e-1")).await, "the workflow is notified, and asks the switch");
    assert!(store(&bank, &returned(&p, "e-2")).await, "so it is by the first return");
    // However many there are, the payment asks until the switch answers: the workflow's history does not grow with them.
    for event in ["e-3", "e-4"] {
        assert!(!store(&bank, &other_amount(event)).await);
        assert!(!store(&bank, &success(&p, &format!("{event}-true"))).await);
        assert!(!store(&bank, &returned(&p, &format!("{event}-returned"))).await);
    }
    assert_eq!(bank.debit(&p).await, DebitOutcome::NotConfirmed);
    assert_eq!(exceptions(&bank, &p).await, [""; 0], "the switch has not answered yet");

    assert_eq!(bank.ledger.debit_confirmed(&p.id, &report(&p)).await.unwrap(), DebitOutcome::Done);
    assert_eq!(bank.hold(&p).await, "debited");
    // However many callbacks the answer contradicts, the debit opens one exception for each kind.
    let mut kinds = exceptions(&bank, &p).await;
    kinds.sort();
    assert_eq!(kinds, ["confirmation_mismatch", "returned_after_debit"]);
    let details = format!(
        "SELECT detail FROM exceptions WHERE payment_id = '{}' AND kind = 'confirmation_mismatch'",
        p.id
    );
    assert!(bank.words(&details).await.concat().contains("in 3 events, first in e-1"));

    // So does an answer that the money left and came back.
    let came_back = sent(&bank, ConfirmByQuery::Always, "came back").await;
    store(&bank, &Callback { amount_minor: AMOUNT_MINOR + 1, ..success(&came_back, "r-1") }).await;
    let source = FinalStatusSource::Query;
    bank.ledger.record_returned(&came_back.id, &report(&came_back), source).await.unwrap();
    assert_eq!(exceptions(&bank, &came_back).await, ["confirmation_mismatch"]);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn one_failure_reaches_the_workflow_however_many_are_received(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Always, "k").await;
    assert!(store(&bank, &failure(&p, "e-1")).await, "the workflow is notified, and cancels");
    for event in ["e-2", "e-3"] {
        assert!(!store(&bank, &failure(&p, event)).await, "the cancel asks the switch until it decides");
    }
    bank.ledger.record_settled(&p.id, &report(&p), FinalStatusSource::Query).await.unwrap();
    assert!(store(&bank, &success(&p, "e-4")).await, "a reconciliation may have recorded the settlement");
    assert!(!store(&bank, &success(&p, "e-5")).await);
    assert_eq!(exceptions(&bank, &p).await, ["contradictory_final_status"]);

    // A callback repeats a final reject that is on record.
    let void = sent(&bank, ConfirmByQuery::Always, "void").await;
    let reject = |event: &str| Callback { reason_code: Some(ACCOUNT_CLOSED.into()), ..failure(&void, event) };
    assert!(store(&bank, &reject("v-1")).await);
    bank.ledger.record_void(&void.id, VoidReason::Rejected).await.unwrap();
    assert!(!store(&bank, &reject("v-2")).await);

    let believed = sent(&bank, ConfirmByQuery::Never, "believed").await;
    for event in ["e-6", "e-7"] {
        assert!(store(&bank, &failure(&believed, event)).await);
    }
}

/// Were an untrue return believed after the end, the SUCCESS that follows would pass for older than the return.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_return_by_callback_after_an_unpaid_end_hides_no_later_success(pool: PgPool) {
    let bank = Bank::new(pool);
    for (confirm_by_query, kinds, status) in [
        (
            ConfirmByQuery::Always,
            ["contradictory_final_status", "late_confirmation"].as_slice(),
            "void by cancelled",
        ),
        (ConfirmByQuery::Never, &[], "returned by callback"),
    ] {
        let p = sent(&bank, confirm_by_query, &format!("{confirm_by_query:?}")).await;
        bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
        bank.ledger.record_void(&p.id, VoidReason::Cancelled).await.unwrap();
        bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
        assert!(!store(&bank, &returned(&p, &format!("{confirm_by_query:?}-1"))).await);
        assert!(!store(&bank, &success(&p, &format!("{confirm_by_query:?}-2"))).await);
        assert_eq!(
            (exceptions(&bank, &p).await, final_status(&bank, &p).await.as_str()),
            (kinds.iter().map(ToString::to_string).collect(), status)
        );
    }
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn operators_who_are_called_learn_of_a_callback_that_no_answer_confirms(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = sent(&bank, ConfirmByQuery::Always, "k").await;
    store(&bank, &success(&p, "e-1")).await;
    for _ in 0..2 {
        let called = bank.ledger.needs_operator(&p.id, OperatorReason::AcceptedThenUnknown).await.unwrap();
        assert_eq!(
            called,
            NeedsOperatorOutcome::FinalStatus(FinalStatus::Settled),
            "the debit asks the switch"
        );
    }
    assert_eq!(exceptions(&bank, &p).await, ["accepted_then_unknown", "contradictory_final_status"]);
    let lines = format!(
        "SELECT detail FROM timeline WHERE payment_id = '{}' AND detail LIKE '%does not confirm it yet'",
        p.id
    );
    assert_eq!(bank.words(&lines).await.len(), 0);
    assert_eq!(bank.debit(&p).await, DebitOutcome::NotConfirmed);
    assert_eq!(bank.words(&lines).await.len(), 1, "the timeline shows that the switch did not confirm it");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_that_awaits_its_debit_counts_against_the_in_flight_limit(pool: PgPool) {
    let bank = Bank::new(pool);
    let reported = sent(&bank, ConfirmByQuery::Always, "reported").await;
    bank.ledger.record_transfer_found(&reported.id).await.unwrap();
    let waiting = bank.payment_at(Stage::Accepted, "waiting").await;
    let claimed = async |lease_ms| {
        let claimed = bank.ledger.claim_accepted(10, lease_ms, 1).await.unwrap();
        claimed.iter().any(|startable| startable.payment.payment_id == waiting.id)
    };
    assert!(claimed(0).await, "a submitted payment waits for its confirmation, and holds up no start");
    assert!(store(&bank, &success(&reported, "e-1")).await);
    assert!(!claimed(0).await, "its debit comes first");
    bank.sql("UPDATE payments SET money_reported_at = money_reported_at - interval '1 minute'").await;
    assert!(claimed(0).await, "one that waits for the switch's answer holds up no start");
    bank.sql("UPDATE payments SET money_reported_at = money_reported_at + interval '1 minute'").await;
    assert_eq!(
        bank.ledger.debit_confirmed(&reported.id, &report(&reported)).await.unwrap(),
        DebitOutcome::Done
    );
    assert!(claimed(0).await);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_callback_is_believed_up_to_the_amount_that_the_profile_names(pool: PgPool) {
    let bank = Bank::new(pool);
    let amount = u64::try_from(AMOUNT_MINOR).unwrap();
    let small = sent(&bank, ConfirmByQuery::Above(amount), "small").await;
    store(&bank, &success(&small, "e-1")).await;
    assert_eq!(final_status(&bank, &small).await, "settled by callback");
    let large = sent(&bank, ConfirmByQuery::Above(amount - 1), "large").await;
    store(&bank, &success(&large, "e-2")).await;
    assert_eq!(final_status(&bank, &large).await, "none");
}
