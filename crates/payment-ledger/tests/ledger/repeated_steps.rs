//! Every step that an activity of a payment runs may run again after its effect, because its report was lost.

use std::collections::BTreeMap;

use futures::future::join_all;

use crate::support::{
    Bank, SWITCH_NOW_MS, Sample, Stage, at, event, failure, first_run, report, return_report, returned,
    success,
};
use payment_ledger::Ledger;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_ledger::switch::inbox::CancelRequestOutcome;
use payment_protocol::action::Correction;
use payment_protocol::alert::AlertKind;
use payment_protocol::cancel::{CancelContext, VoidReason};
use payment_protocol::cause::{Cause, OperatorReason, ReserveRefusal};
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::{DecisionId, EventId};
use payment_protocol::port::SubmitProgress;
use payment_protocol::submit::SendAnswer;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Concurrent copies of each step.
const COPIES: usize = 16;

/// The steps of the activities and of the callbacks, the stage of the payment before each, and the tables that a repeat may change.
const STEPS: &[(&str, Stage, &[&str])] = &[
    ("reserve", Stage::Accepted, &[]),
    ("refuse_unreserved", Stage::Accepted, &[]),
    ("reject", Stage::Accepted, &[]),
    ("fence_reserve", Stage::Accepted, &[]),
    ("mark_started", Stage::Accepted, &[]),
    // A second attempt is one more that may reach the switch, and is counted.
    ("record_attempt", Stage::Reserved, &["payments", "submissions"]),
    ("record_answer", Stage::Sent, &[]),
    ("record_transfer_id", Stage::Sent, &[]),
    ("record_transfer_found", Stage::Sent, &[]),
    ("begin_cancel", Stage::Sent, &[]),
    ("record_settled", Stage::Cancelling, &[]),
    ("record_returned", Stage::Sent, &[]),
    ("record_void", Stage::Cancelling, &[]),
    ("release", Stage::Void, &[]),
    ("release_unreserved", Stage::Fenced, &[]),
    ("debit", Stage::Confirmed, &[]),
    // The record of the refused debit is lost.
    ("begin_recall", Stage::Confirmed, &[]),
    ("record_recall", Stage::DebitRefused, &[]),
    ("needs_operator", Stage::Cancelling, &[]),
    ("alert", Stage::Cancelling, &[]),
    ("propose", Stage::Cancelling, &[]),
    ("confirm", Stage::Cancelling, &[]),
    ("withdraw", Stage::Cancelling, &[]),
    ("close_decision", Stage::Cancelling, &[]),
    ("debit_by_decision", Stage::Cancelling, &[]),
    ("release_by_decision", Stage::Cancelling, &[]),
    ("propose_correction", Stage::Released, &[]),
    ("confirm_correction", Stage::Released, &[]),
    ("close_exception", Stage::Released, &[]),
    ("store_callback", Stage::Sent, &[]),
    ("store_failure", Stage::Sent, &[]),
    ("store_late_callback", Stage::Released, &[]),
    ("store_return", Stage::Settled, &[]),
    ("store_whole_return", Stage::Settled, &[]),
    ("mark_ended_workflow", Stage::Sent, &[]),
    ("customer_cancel", Stage::Reserved, &[]),
];

/// What a step needs beside the stage, and what it is given: the same for each run.
async fn prepare(step: &str, bank: &Bank, p: &Sample) -> Option<DecisionId> {
    let needs_operator = || bank.needs_operator(p, OperatorReason::ConfirmationMismatch);
    match step {
        "propose" => needs_operator().await,
        "confirm" | "withdraw" => {
            needs_operator().await;
            return Some(bank.propose(p, Action::Debit).await);
        }
        "close_decision" => {
            needs_operator().await;
            return Some(bank.decide(p, Action::RetryCancel).await);
        }
        "debit_by_decision" => {
            needs_operator().await;
            return Some(bank.decide(p, Action::Debit).await);
        }
        "release_by_decision" => {
            needs_operator().await;
            return Some(bank.decide(p, Action::Release).await);
        }
        "propose_correction" | "confirm_correction" | "close_exception" => {
            bank.ledger.store_callback(&success(p, &event(p, "late"))).await.unwrap();
        }
        _ => {}
    }
    if step == "confirm_correction" {
        let exception = bank.open_exception(p).await;
        let proposed = bank
            .ledger
            .propose_correction(exception, Correction::LateDebit, "Ann", "found", Some("letter 9"))
            .await;
        return Some(proposed.unwrap().decision_id);
    }
    None
}

/// Runs a step, and returns its answer.
async fn run(step: &str, bank: &Bank, p: &Sample, decision: Option<&DecisionId>) -> String {
    let (ledger, id): (&Ledger, _) = (&bank.ledger, &p.id);
    let cause = Cause::SlaExpired;
    let decision = || decision.unwrap();
    match step {
        "reserve" => answer(bank.reserve(p).await),
        "refuse_unreserved" => done(ledger.refuse_unreserved(id, ReserveRefusal::InsufficientFunds).await),
        "reject" => {
            // Rejected is what the ledger has refused.
            ledger.refuse_unreserved(id, ReserveRefusal::InsufficientFunds).await.unwrap();
            done(ledger.reject(&bank.payment(p).await).await)
        }
        "fence_reserve" => answer(ledger.fence_reserve(&bank.payment(p).await).await.unwrap()),
        "mark_started" => done(ledger.mark_started(id).await),
        "record_attempt" => {
            let now = at(SWITCH_NOW_MS);
            answer(ledger.record_attempt(id, &first_run(), now, true, None).await.unwrap().1.is_some())
        }
        "record_answer" => {
            let (answered, deadline) = (SendAnswer::Accepted, at(SWITCH_NOW_MS + 60_000));
            done(ledger.record_answer(id, 1, &answered, Some("t-1"), deadline).await)
        }
        "record_transfer_id" => answer(ledger.record_transfer_id(id, "t-1").await.unwrap()),
        "record_transfer_found" => answer(ledger.record_transfer_found(id).await.unwrap()),
        "begin_cancel" => {
            let context = ledger.begin_cancel(id, &cause, SubmitProgress::NotScheduled).await.unwrap();
            answer(CancelContext { cancelling_ms: 0, ..context })
        }
        "record_settled" => {
            ledger.record_settled(id, &report(p), FinalStatusSource::Cancel).await.unwrap();
            bank.column(p, "final_status").await.unwrap()
        }
        "record_returned" => {
            ledger.record_returned(id, &report(p), FinalStatusSource::Query).await.unwrap();
            bank.column(p, "final_status").await.unwrap()
        }
        "record_void" => {
            ledger.record_void(id, VoidReason::Cancelled).await.unwrap();
            bank.column(p, "final_status").await.unwrap()
        }
        "release" => answer(ledger.release(id, &cause).await.unwrap()),
        "release_unreserved" => answer(ledger.release(id, &Cause::ReserveUnknown).await.unwrap()),
        "debit" => answer(bank.debit(p).await),
        "begin_recall" => answer(ledger.begin_recall(id).await.unwrap()),
        "record_recall" => {
            answer(ledger.record_recall(id, RecallRecord::Refused, "the payee keeps it").await.unwrap())
        }
        "needs_operator" => {
            answer(ledger.needs_operator(id, OperatorReason::ConfirmationMismatch).await.unwrap())
        }
        "alert" => {
            let kind = AlertKind::CompensationFailed;
            done(ledger.alert(id, kind, "the database refuses it").await)
        }
        "propose" => answer(bank.propose(p, Action::Debit).await),
        "confirm" => {
            ledger.confirm(decision(), "Bob", "I agree").await.unwrap();
            answer(ledger.decision(decision()).await.unwrap().unwrap().status)
        }
        "withdraw" => done(ledger.withdraw(decision(), "Ann", "not yet").await),
        "close_decision" => {
            done(ledger.close_decision(decision(), &DecisionOutcome::RetryCancel, "queried").await)
        }
        "debit_by_decision" => answer(ledger.debit_by_decision(id, decision()).await.unwrap()),
        "release_by_decision" => answer(ledger.release_by_decision(id, decision()).await.unwrap()),
        "propose_correction" => {
            let exception = bank.open_exception(p).await;
            let evidence = Some("letter 9");
            let proposed =
                ledger.propose_correction(exception, Correction::LateDebit, "Ann", "found", evidence).await;
            answer(proposed.unwrap().decision_id)
        }
        "confirm_correction" => {
            ledger.confirm(decision(), "Bob", "I agree").await.unwrap();
            answer(ledger.decision(decision()).await.unwrap().unwrap().status)
        }
        "close_exception" => {
            let exception = format!("SELECT max(exception_id) FROM exceptions WHERE payment_id = '{id}'");
            answer(ledger.close_exception(bank.number(&exception).await, "Ann", "by letter").await.unwrap())
        }
        "store_callback" | "store_late_callback" => {
            ledger.store_callback(&success(p, &event(p, "s"))).await.unwrap();
            bank.state(p).await
        }
        "store_failure" => {
            ledger.store_callback(&failure(p, &event(p, "f"))).await.unwrap();
            bank.state(p).await
        }
        "store_whole_return" => {
            ledger.store_callback(&returned(p, &event(p, "r"))).await.unwrap();
            bank.state(p).await
        }
        "store_return" => {
            let event = EventId::new(event(p, "part")).unwrap();
            ledger.store_return(&event, &return_report(p, "part", 400), b"a part").await.unwrap();
            bank.column(p, "returned_minor").await.unwrap()
        }
        "mark_ended_workflow" => done(ledger.mark_ended_workflow(id, id.as_str(), true).await),
        "customer_cancel" => match bank.customer_cancel(p).await {
            // The message is delivered by who wrote it; the others leave it to who delivers what is undelivered.
            CancelRequestOutcome::Requested(_) => "requested".into(),
            other => answer(other),
        },
        other => panic!("no step {other}"),
    }
}

/// The answer of a step that says only that it is done.
fn done<E: std::fmt::Debug>(result: Result<(), E>) -> String {
    result.unwrap();
    String::new()
}

fn answer(answer: impl std::fmt::Debug) -> String {
    format!("{answer:?}")
}

/// The names of all tables.
const TABLES: &str = "SELECT relname::text FROM pg_class
                      WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND NOT relispartition";

/// Every table of the database, as text.
async fn dump(bank: &Bank) -> BTreeMap<String, String> {
    let mut dump = BTreeMap::new();
    for table in bank.words(TABLES).await {
        let rows = format!("SELECT coalesce(string_agg(t::text, '\n' ORDER BY t::text), '') FROM {table} t");
        let rows = bank.words(&rows).await.pop().unwrap();
        dump.insert(table, rows);
    }
    dump
}

/// R2: both runs give the same answer, and the second one changes nothing.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r2_every_step_of_a_payment_that_runs_twice_has_one_effect_and_one_answer(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut wrong = Vec::new();
    for (step, stage, counts) in STEPS {
        let p = bank.payment_at(*stage, &step.replace('_', "-")).await;
        let decision = prepare(step, &bank, &p).await;
        let before = dump(&bank).await;
        let first = run(step, &bank, &p, decision.as_ref()).await;
        let after = dump(&bank).await;
        if before == after {
            wrong.push(format!("{step} changes nothing"));
        }
        let second = run(step, &bank, &p, decision.as_ref()).await;
        let repeated = dump(&bank).await;
        let changed: Vec<_> =
            after.iter().filter(|(table, rows)| repeated[*table] != **rows).map(|(table, _)| table).collect();
        if first != second || changed != *counts {
            wrong.push(format!("{step}: {first}, then {second}; the repeat changed {changed:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bank.audit().await;
}

/// The number of rows of every table.
async fn count_rows(bank: &Bank) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for table in bank.words(TABLES).await {
        let count = bank.number(&format!("SELECT count(*) FROM {table}")).await;
        rows.insert(table, count);
    }
    rows
}

/// The rows that `work` adds to each table, and what it returns.
async fn added_rows<T>(bank: &Bank, work: impl Future<Output = T>) -> (BTreeMap<String, i64>, T) {
    let before = count_rows(bank).await;
    let result = work.await;
    let mut added = count_rows(bank).await;
    added.iter_mut().for_each(|(table, count)| *count -= before[table]);
    added.retain(|_, count| *count != 0);
    (added, result)
}

/// R3: all copies give one answer, and leave the rows that one copy leaves.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r3_sixteen_concurrent_copies_of_every_step_have_one_effect_and_one_answer(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 20).await;
    let mut wrong = Vec::new();
    for (step, stage, counts) in STEPS {
        let name = step.replace('_', "-");
        let [once, often] =
            [bank.payment_at(*stage, &name).await, bank.payment_at(*stage, &format!("{name}-16")).await];
        let decision = prepare(step, &bank, &once).await;
        let (expected, _) = added_rows(&bank, run(step, &bank, &once, decision.as_ref())).await;
        let decision = prepare(step, &bank, &often).await;
        let copies = join_all((0..COPIES).map(|_| run(step, &bank, &often, decision.as_ref())));
        let (added, answers) = added_rows(&bank, copies).await;
        // A step that counts its repeats leaves a row for each.
        if counts.is_empty() && (added != expected || answers.iter().any(|answer| *answer != answers[0])) {
            wrong.push(format!("{step}: {answers:?}, and added {added:?} in place of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    bank.audit().await;
    bank.close().await;
}
