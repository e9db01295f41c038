//! `switch::recalls`: where a recall is answered days later, a debit that the account bars charges the bank and ends the payment, and the
//! recall goes on. No answer moves money: what comes back is a return. Every test ends with an audit in plain SQL.

use crate::support::{
    AMOUNT_MINOR, Bank, FUNDS_MINOR, SWITCH, Sample, Stage, event, profile, report, return_part,
};
use futures::future::join_all;
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::switch::callbacks::StoreCallbackOutcome;
use payment_ledger::switch::recalls::{RecallView, SwitchRecalls};
use payment_protocol::SwitchProfile;
use payment_protocol::action::Correction;
use payment_protocol::cause::Cause;
use payment_protocol::ids::{EventId, SwitchName};
use payment_protocol::port::DebitOutcome;
use payment_protocol::recall::{RecallAnswer, RecallReport, RecallStatus};
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use uuid::Uuid;

fn slow_recalls() -> SwitchProfile {
    SwitchProfile { can_recall: true, recall_answer_within_s: 1_000, ..profile() }
}

fn event_id(p: &Sample, id: &str) -> EventId {
    EventId::new(event(p, id)).unwrap()
}

fn switch() -> SwitchName {
    SwitchName::new(SWITCH).unwrap()
}

/// A settled payment that is charged to the bank, because its account was frozen before the debit.
async fn charged_to_the_bank(bank: &Bank, key: &str, profile: SwitchProfile) -> Sample {
    let order = NewPayment { profile, ..bank.order(key) };
    let p = bank.order_at(Stage::Confirmed, order).await;
    bank.freeze(&p).await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    p
}

async fn recall(bank: &Bank, p: &Sample) -> RecallView {
    bank.ledger.explain(&p.id, 100).await.unwrap().unwrap().recall.unwrap()
}

async fn begin(bank: &Bank, p: &Sample) -> bool {
    begin_as(bank, p, Uuid::new_v4()).await
}

async fn begin_as(bank: &Bank, p: &Sample, token: Uuid) -> bool {
    bank.ledger.begin_recall_after_end(&p.id, token).await.unwrap().is_some()
}

/// The time of the next attempt has come, if there is to be one.
async fn let_time_pass(bank: &Bank, p: &Sample) {
    let come = "UPDATE recalls SET next_attempt_at = now() WHERE next_attempt_at IS NOT NULL";
    bank.sql(&format!("{come} AND payment_id = '{}'", p.id)).await;
}

async fn answered_by_callback(bank: &Bank, p: &Sample, id: &str, answer: RecallAnswer) {
    let report = RecallReport {
        reference: report(p).reference,
        answer,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
    };
    let stored = bank.ledger.store_recall_answer(&switch(), &event_id(p, id), &report, id.as_bytes()).await;
    assert_eq!(stored.unwrap(), StoreCallbackOutcome::New(None));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_a_barred_debit_charges_the_bank_and_requests_a_recall_that_takes_days(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = charged_to_the_bank(&bank, "k", slow_recalls()).await;
    assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), ("settled", "released"));
    assert_eq!(bank.available(&p).await, FUNDS_MINOR, "the customer pays nothing");
    assert_eq!((bank.internal("claims").await, bank.internal("escrow").await), (-AMOUNT_MINOR, AMOUNT_MINOR));
    assert_eq!(bank.exceptions(&p).await, ["debited_to_claims"]);
    assert_eq!(recall(&bank, &p).await.status, RecallStatus::Due);
    let event = "SELECT body ->> 'late_settlement' FROM outbox WHERE kind = 'transfer_sent'";
    assert_eq!(bank.words(event).await, ["bank"], "no notification claims a debit");
    // Once, whatever the account's status is then; and nothing is released afterwards.
    bank.unfreeze(&p).await;
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    let released = bank.ledger.release(&p.id, &Cause::Returned).await.unwrap();
    assert_eq!(released, ReleaseStepOutcome::Ended(FinalState::Settled));
    assert_eq!(bank.internal("claims").await, -AMOUNT_MINOR);
    // An account that may be debited is debited, and no recall requested.
    let order = NewPayment { profile: slow_recalls(), ..bank.order("active") };
    let active = bank.order_at(Stage::Confirmed, order).await;
    assert_eq!(bank.debit(&active).await, DebitOutcome::Done);
    assert_eq!(bank.ledger.explain(&active.id, 100).await.unwrap().unwrap().recall, None);
    // A switch that answers at once keeps the hold open for the recall.
    let order =
        NewPayment { profile: SwitchProfile { can_recall: true, ..profile() }, ..bank.order("quick") };
    let quick = bank.order_at(Stage::Confirmed, order).await;
    bank.freeze(&quick).await;
    assert!(matches!(bank.debit(&quick).await, DebitOutcome::Refused { .. }));
    bank.audit().await;
}

/// A recall that cannot be begun would keep the others from being sent.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_recall_that_cannot_be_begun_goes_behind_the_others(pool: PgPool) {
    let bank = Bank::new(pool);
    let first = charged_to_the_bank(&bank, "first", slow_recalls()).await;
    let second = charged_to_the_bank(&bank, "second", slow_recalls()).await;
    assert_eq!(bank.ledger.due_recalls(&switch(), 1).await.unwrap(), std::slice::from_ref(&first.id));
    bank.ledger.postpone_recall(&first.id).await.unwrap();
    assert_eq!(bank.ledger.due_recalls(&switch(), 1).await.unwrap(), std::slice::from_ref(&second.id));
    let_time_pass(&bank, &first).await;
    assert!(begin(&bank, &first).await, "it is only postponed");
}

/// It is not sent yet, and nobody else may send it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_recall_whose_commit_got_no_answer_is_begun_again_by_the_same_call(pool: PgPool) {
    let bank = Bank::new(pool);
    let once = SwitchProfile { recall_once: true, ..slow_recalls() };
    let p = charged_to_the_bank(&bank, "k", once).await;
    let (ours, another) = (Uuid::new_v4(), Uuid::new_v4());
    assert!(begin_as(&bank, &p, ours).await);
    assert!(!begin_as(&bank, &p, another).await, "another call may have sent it");
    assert!(begin_as(&bank, &p, ours).await);
    assert_eq!(recall(&bank, &p).await.attempts, 1, "one attempt was begun");
    answered_by_callback(&bank, &p, "refused", RecallAnswer::Refused { reason: "NOAS".into() }).await;
    assert!(!begin_as(&bank, &p, ours).await, "it is answered");
    // Where the rail takes a second, another call may have sent it meanwhile.
    let p = charged_to_the_bank(&bank, "again", slow_recalls()).await;
    assert!(begin_as(&bank, &p, ours).await);
    let_time_pass(&bank, &p).await;
    assert!(begin_as(&bank, &p, another).await);
    assert!(!begin_as(&bank, &p, ours).await, "another call may have sent it");
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_a_recall_is_sent_once_where_the_rail_takes_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let once = SwitchProfile { recall_once: true, ..slow_recalls() };
    let p = charged_to_the_bank(&bank, "k", once).await;
    assert_eq!(bank.ledger.due_recalls(&switch(), 10).await.unwrap(), std::slice::from_ref(&p.id));
    let begun = join_all((0..4).map(|_| begin(&bank, &p))).await;
    assert_eq!(begun.iter().filter(|begun| **begun).count(), 1, "{begun:?}");
    // It did not reach the switch: it is sent then.
    let unreachable = RecallAnswer::NotReceived { detail: "no connection to the switch".into() };
    bank.ledger.record_recall_answer(&p.id, &unreachable).await.unwrap();
    let_time_pass(&bank, &p).await;
    assert!(begin(&bank, &p).await);
    // Its answer is lost: it is not sent again, and its answer comes by callback.
    let lost = RecallAnswer::Unknown { detail: "no answer in time".into() };
    bank.ledger.record_recall_answer(&p.id, &lost).await.unwrap();
    let_time_pass(&bank, &p).await;
    assert!(bank.ledger.due_recalls(&switch(), 10).await.unwrap().is_empty());
    assert!(!begin(&bank, &p).await);
    answered_by_callback(&bank, &p, "promised", RecallAnswer::Promised).await;
    let promised = recall(&bank, &p).await;
    assert_eq!((promised.status, promised.attempts), (RecallStatus::Promised, 2));
    let lines = format!(
        "SELECT detail FROM timeline WHERE payment_id = '{}' AND detail LIKE '%answer to the recall%' ORDER BY entry_id",
        p.id
    );
    let lines = bank.words(&lines).await;
    assert_eq!(lines.last().map(String::as_str), Some("the switch's answer to the recall: promised"));
    assert_eq!(bank.internal("claims").await, -AMOUNT_MINOR, "a promise is no money");
    // What comes late hides no decision.
    bank.ledger.record_recall_answer(&p.id, &lost).await.unwrap();
    bank.ledger.record_recall_answer(&p.id, &RecallAnswer::Pending).await.unwrap();
    assert_eq!(recall(&bank, &p).await.detail, promised.detail);
    // In parts, as a return may come.
    return_part(&bank, &p, "a", 400).await;
    assert_eq!(recall(&bank, &p).await.status, RecallStatus::Promised);
    return_part(&bank, &p, "b", 600).await;
    assert_eq!(recall(&bank, &p).await.status, RecallStatus::Closed);
    assert_eq!((bank.internal("claims").await, bank.available(&p).await), (0, FUNDS_MINOR));
    assert_eq!(bank.state(&p).await, "settled");
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_a_recall_without_an_answer_is_repeated_until_the_receiving_banks_time_is_over(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = charged_to_the_bank(&bank, "k", slow_recalls()).await;
    for attempt in 1..=3 {
        assert!(begin(&bank, &p).await);
        assert!(!begin(&bank, &p).await, "attempt {attempt} is repeated at once");
        assert_eq!(recall(&bank, &p).await.attempts, attempt);
        let_time_pass(&bank, &p).await;
    }
    bank.sql("UPDATE recalls SET requested_at = requested_at - interval '1000 s'").await;
    assert!(begin(&bank, &p).await);
    assert!(bank.ledger.due_recalls(&switch(), 10).await.unwrap().is_empty(), "the last attempt");
    // Acknowledged: the switch has it.
    let q = charged_to_the_bank(&bank, "acknowledged", slow_recalls()).await;
    assert!(begin(&bank, &q).await);
    bank.ledger.record_recall_answer(&q.id, &RecallAnswer::Pending).await.unwrap();
    assert!(bank.ledger.due_recalls(&switch(), 10).await.unwrap().is_empty());
    let pending = recall(&bank, &q).await;
    assert_eq!(pending.status, RecallStatus::Pending);
    assert_eq!(pending.answer_due_at.duration_since(pending.requested_at).as_secs(), 1_000);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_10_operators_who_close_the_claim_end_its_recall(pool: PgPool) {
    let bank = Bank::new(pool);
    let collected = charged_to_the_bank(&bank, "collected", slow_recalls()).await;
    let written_off = charged_to_the_bank(&bank, "written off", slow_recalls()).await;
    bank.unfreeze(&collected).await;
    assert!(begin(&bank, &collected).await);
    let refused = RecallAnswer::Refused { reason: "no agreement of the payee".into() };
    bank.ledger.record_recall_answer(&collected.id, &refused).await.unwrap();
    assert_eq!(recall(&bank, &collected).await.status, RecallStatus::Refused);
    bank.correct(&collected, Correction::LateDebit).await.unwrap();
    let charged =
        "SELECT subject_key || ' ' || (body ->> 'charged_minor') FROM outbox WHERE kind = 'transfer_charged'";
    assert_eq!(bank.words(charged).await, [format!("{} {AMOUNT_MINOR}", collected.id)]);
    bank.correct(&written_off, Correction::WriteOff).await.unwrap();
    for p in [&collected, &written_off] {
        assert_eq!(recall(&bank, p).await.status, RecallStatus::Closed);
        assert!(!begin(&bank, p).await, "a recall is sent although nothing is owed to the bank");
    }
    // An answer after that changes nothing; money that comes back goes to who bore the loss.
    answered_by_callback(&bank, &written_off, "late", RecallAnswer::Promised).await;
    assert_eq!(recall(&bank, &written_off).await.status, RecallStatus::Closed);
    return_part(&bank, &written_off, "late", AMOUNT_MINOR).await;
    return_part(&bank, &collected, "late-too", AMOUNT_MINOR).await;
    assert_eq!((bank.internal("losses").await, bank.internal("claims").await), (0, 0));
    assert_eq!(bank.available(&collected).await, FUNDS_MINOR);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_answer_of_another_switch_or_to_no_recall_changes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = charged_to_the_bank(&bank, "k", slow_recalls()).await;
    let report = |p: &Sample| RecallReport {
        reference: report(p).reference,
        answer: RecallAnswer::Promised,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
    };
    let other = SwitchName::new("southern").unwrap();
    bank.ledger.store_recall_answer(&other, &event_id(&p, "other"), &report(&p), b"{}").await.unwrap();
    assert_eq!(recall(&bank, &p).await.status, RecallStatus::Due);
    let exceptions = bank.exceptions(&p).await;
    assert!(exceptions.contains(&"callback_from_other_switch".to_owned()), "{exceptions:?}");
    let debited = bank.payment_at(Stage::Settled, "debited").await;
    bank.ledger
        .store_recall_answer(&switch(), &event_id(&debited, "nobody"), &report(&debited), b"{}")
        .await
        .unwrap();
    assert!(bank.exceptions(&debited).await.is_empty());
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_overdue_recalls_are_measured_by_switch(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = charged_to_the_bank(&bank, "k", slow_recalls()).await;
    charged_to_the_bank(&bank, "other", slow_recalls()).await;
    let measured = async || bank.ledger.recalls_by_switch().await.unwrap();
    let expect = |unfinished, overdue, overdue_oldest_s| SwitchRecalls {
        switch: SWITCH.into(),
        unfinished,
        overdue,
        overdue_oldest_s,
    };
    assert_eq!(measured().await, [expect(2, 0, 0)]);
    bank.sql(&format!(
        "UPDATE recalls SET answer_due_at = now() - interval '100 s' WHERE payment_id = '{}'",
        p.id
    ))
    .await;
    let overdue = measured().await.remove(0);
    assert_eq!((overdue.unfinished, overdue.overdue), (2, 1));
    assert!(overdue.overdue_oldest_s >= 100, "{overdue:?}");
    return_part(&bank, &p, "back", AMOUNT_MINOR).await;
    assert_eq!(measured().await, [expect(1, 0, 0)]);
    bank.audit().await;
}
