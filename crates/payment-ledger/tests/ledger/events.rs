//! `events`: each event is written in the transaction it reports, once, and in the published form.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Sample, Stage};
use jsonschema::Validator;
use outbox::Event;
use payment_ledger::events::notifications::{NewNotification, notify};
use payment_ledger::events::{EventKind, TransferEvent, VERSION};
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::action::Correction;
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::ids::PaymentId;
use payment_protocol::port::{ReserveOutcome, SubmitProgress};
use payment_protocol::rules::Bearer;
use payment_protocol::{PaymentState, SwitchProfile};
use postgres_kit::Pool;
use serde_json::Value;
use sqlx::PgPool;

fn catalogue() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("events")
}

fn document(name: &str) -> Value {
    let path = catalogue().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn schema(kind: EventKind) -> Validator {
    let document = document(&format!("{kind}.v{VERSION}.schema.json"));
    jsonschema::options().should_validate_formats(true).build(&document).unwrap()
}

fn example(kind: EventKind) -> Value {
    document(&format!("{kind}.v{VERSION}.example.json"))
}

/// The events of a payment, as messages.
async fn events_of(bank: &Bank, p: &Sample) -> Vec<Event> {
    let rows: Vec<(String, String, i32, String, i64, i64, Value)> = sqlx::query_as(
        "SELECT event_id, kind, version, subject_key, sequence, extract(epoch FROM appended_at)::bigint, body
         FROM outbox WHERE subject_key = $1 ORDER BY sequence",
    )
    .bind(p.id.as_str())
    .fetch_all(&bank.pool)
    .await
    .unwrap();
    let read = |(event_id, kind, version, key, sequence, at_s, body)| Event {
        event_id,
        kind,
        version,
        key,
        sequence,
        appended_at: jiff::Timestamp::from_second(at_s).unwrap(),
        body,
    };
    rows.into_iter().map(read).collect()
}

async fn kinds(bank: &Bank, p: &Sample) -> Vec<String> {
    events_of(bank, p).await.into_iter().map(|event| event.kind).collect()
}

/// Payments with every kind of event, each with its expected events.
async fn payments_with_events(bank: &Bank) -> Vec<(Sample, &'static [EventKind])> {
    use EventKind::*;
    let mut payments: Vec<(Sample, &'static [EventKind])> = Vec::new();
    let stages: [(Stage, &'static [EventKind]); 8] = [
        (Stage::Accepted, &[]),
        (Stage::Rejected, &[TransferRejected]),
        (Stage::Sent, &[TransferPending]),
        (Stage::Confirmed, &[TransferPending]),
        (Stage::Settled, &[TransferPending, TransferSent]),
        (Stage::Void, &[TransferPending]),
        (Stage::Released, &[TransferPending, TransferTimedOut]),
        (Stage::ReleasedUnreserved, &[TransferFailed]),
    ];
    for (stage, expected) in stages {
        payments.push((bank.payment_at(stage, &format!("{stage:?}")).await, expected));
    }

    let cancelled = bank.payment_at(Stage::Accepted, "cancelled").await;
    bank.ledger.refuse_unreserved(&cancelled.id, ReserveRefusal::CustomerCancel).await.unwrap();
    payments.push((cancelled, &[TransferCancelled]));

    // It needs an operator for two reasons, which is one event.
    let undecided = bank.payment_at(Stage::Differing, "undecided").await;
    for reason in [OperatorReason::ConfirmationMismatch, OperatorReason::SwitchRetentionExpired] {
        bank.ledger.needs_operator(&undecided.id, reason).await.unwrap();
    }
    payments.push((undecided, &[TransferPending, TransferNeedsOperator]));

    // Cancelled after a refused submit, and released.
    let failed = bank.payment_at(Stage::Sent, "failed").await;
    let cause = Cause::SubmitRefused { reason: "no such account".into() };
    bank.ledger.begin_cancel(&failed.id, &cause, SubmitProgress::NotScheduled).await.unwrap();
    bank.ledger.record_void(&failed.id, payment_protocol::cancel::VoidReason::Rejected).await.unwrap();
    bank.ledger.release(&failed.id, &Cause::SlaExpired).await.unwrap();
    payments.push((failed, &[TransferPending, TransferFailed]));

    // Returned in two parts.
    let returned = bank.payment_at(Stage::Settled, "returned").await;
    for (n, minor) in [("1", 400), ("2", 600)] {
        crate::support::return_part(bank, &returned, n, minor).await;
    }
    payments.push((returned, &[TransferPending, TransferSent, TransferReturned, TransferReturned]));

    // Executed after it had failed, and returned: two corrections.
    let corrected = bank.payment_at(Stage::Released, "corrected").await;
    for (event, amount_minor, correction) in [
        ("left", AMOUNT_MINOR, Correction::LateDebit),
        ("differs", AMOUNT_MINOR + 1, Correction::ReturnCredit),
    ] {
        let success = crate::support::success(&corrected, &crate::support::event(&corrected, event));
        bank.ledger.store_callback(&Callback { amount_minor, ..success }).await.unwrap();
        bank.correct(&corrected, correction).await.unwrap();
    }
    let expected = &[TransferPending, TransferTimedOut, TransferCharged, TransferReturned];
    payments.push((corrected, expected));

    // Restored by an advance, and executed late: paid by the customer, and by the bank.
    for (key, frozen, payer) in [("collected", false, Bearer::Customer), ("claimed", true, Bearer::Bank)] {
        let profile = SwitchProfile { restore_customer_after_ms: Some(0), ..crate::support::profile() };
        let order = NewPayment { profile, ..bank.order(key) };
        let late = bank.order_at(Stage::Sent, order).await;
        bank.ledger.restore(&late.id).await.unwrap();
        bank.ledger
            .store_callback(&crate::support::success(&late, &crate::support::event(&late, "late")))
            .await
            .unwrap();
        if frozen {
            bank.freeze(&late).await;
        }
        bank.debit(&late).await;
        let sent = events_of(bank, &late).await.pop().unwrap();
        assert_eq!(sent.body["late_settlement"], payer.as_str());
        payments.push((late, &[TransferPending, TransferRestored, TransferSent]));
    }
    payments
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_5_each_payment_event_is_written_once_and_matches_its_schema(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut seen = BTreeSet::new();
    for (p, expected) in payments_with_events(&bank).await {
        let events = events_of(&bank, &p).await;
        let written: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        let expected: Vec<&str> = expected.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(written, expected, "{}", p.id);
        for (n, event) in (1..).zip(&events) {
            assert_eq!((event.sequence, event.key.as_str()), (n, p.id.as_str()));
            let message = serde_json::to_value(event).unwrap();
            let kind = EventKind::parse(&event.kind).unwrap();
            if let Err(error) = schema(kind).validate(&message) {
                panic!("{message:#}\nviolates its schema: {error}");
            }
            let transfer: TransferEvent = serde_json::from_value(event.body.clone()).unwrap();
            assert_eq!((transfer.amount_minor, transfer.amount.as_str()), (AMOUNT_MINOR, "10.00"));
            seen.insert(event.kind.clone());
        }
    }
    let all: BTreeSet<String> = EventKind::ALL.iter().map(|kind| kind.to_string()).collect();
    assert_eq!(seen, all, "some kinds have no event in this test");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_5_a_ledger_step_whose_event_cannot_be_written_is_rolled_back(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Accepted, "without event").await;
    bank.sql("ALTER TABLE outbox RENAME TO outbox_gone").await;
    assert!(bank.ledger.reserve(&bank.payment(&p).await, &crate::support::first_run()).await.is_err());
    assert_eq!((bank.available(&p).await, bank.hold(&p).await.as_str()), (FUNDS_MINOR, "none"));
    bank.sql("ALTER TABLE outbox_gone RENAME TO outbox").await;
    for _ in 0..3 {
        assert_eq!(bank.reserve(&p).await, ReserveOutcome::Held);
    }
    assert_eq!(kinds(&bank, &p).await, ["transfer_pending"]);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s3_6_notifications_recorded_together_belong_to_their_payments_in_order(pool: PgPool) {
    let bank = Bank::new(pool);
    let first = bank.payment_at(Stage::Accepted, "notified twice").await;
    let second = bank.payment_at(Stage::Accepted, "notified once").await;
    let new = |id: &PaymentId, kind: EventKind, text: &str| NewNotification {
        payment_id: id.clone(),
        event_id: "event",
        kind,
        message: text.to_owned(),
    };
    let notifications = [
        new(&first.id, EventKind::TransferPending, "held"),
        new(&second.id, EventKind::TransferRejected, "not charged"),
        new(&first.id, EventKind::TransferSent, "debited"),
    ];
    notify(&mut Pool::from(bank.pool.clone()).acquire().await.unwrap(), &notifications).await.unwrap();
    let notified = async |p: &Sample| {
        let rows = bank.ledger.notifications(&p.id, 10).await.unwrap();
        rows.into_iter().map(|row| (row.kind, row.message)).collect::<Vec<_>>()
    };
    let row = |kind: &str, text: &str| (kind.to_owned(), text.to_owned());
    assert_eq!(notified(&first).await, [row("transfer_pending", "held"), row("transfer_sent", "debited")]);
    assert_eq!(notified(&second).await, [row("transfer_rejected", "not charged")]);
    // One without a payment refuses all.
    let nobody = PaymentId::new("pay_of_nobody").unwrap();
    let notifications =
        [new(&second.id, EventKind::TransferSent, "twice"), new(&nobody, EventKind::TransferSent, "x")];
    let refused = notify(&mut Pool::from(bank.pool.clone()).acquire().await.unwrap(), &notifications)
        .await
        .unwrap_err();
    assert!(refused.is_final(), "{refused}");
    assert_eq!(notified(&second).await.len(), 1);
}

#[test]
fn s3_5_every_event_kind_has_a_schema_an_example_and_a_catalogue_entry() {
    let readme = std::fs::read_to_string(catalogue().join("README.md")).unwrap();
    let mut expected = BTreeSet::from(["README.md".to_owned()]);
    for kind in EventKind::ALL {
        for form in ["schema", "example"] {
            expected.insert(format!("{kind}.v{VERSION}.{form}.json"));
        }
        assert!(
            readme.contains(&format!("| [`{kind}`]({kind}.v{VERSION}.schema.json)")),
            "{kind} has no catalogue entry"
        );
        for other in EventKind::ALL {
            let is_valid = schema(*kind).is_valid(&example(*other));
            assert_eq!(is_valid, kind == other, "the example of {other} against the schema of {kind}");
        }
        let event: Event = serde_json::from_value(example(*kind)).unwrap();
        let body: TransferEvent = serde_json::from_value(event.body.clone()).unwrap();
        assert_eq!(serde_json::to_value(body).unwrap(), event.body, "the example of {kind} lacks fields");
    }
    let existing: BTreeSet<String> = std::fs::read_dir(catalogue())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(existing, expected);
}

#[test]
fn s3_5_every_final_payment_state_has_an_event_kind() {
    for state in PaymentState::ALL {
        let has_event = EventKind::for_state(*state).is_some();
        assert!(has_event || state.end().is_none(), "the final state {state} has no event");
    }
}
