//! `audit::reconcile`: each kind of drift, seeded once among payments without drift, is found, and nothing else.

use std::collections::BTreeMap;

use crate::support::{AMOUNT_MINOR, Bank, SWITCH, Sample, Stage, event, success};
use payment_ledger::audit::reconcile::ReconciliationRunId;
use payment_ledger::audit::reconcile::findings::{Finding, FindingOutcome};
use payment_ledger::audit::reconcile::payments::Sources;
use payment_ledger::audit::reconcile::window::ReconciliationWindow;
use payment_ledger::switch::final_status::FinalStatusSource;
use payment_protocol::action::Correction;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::ids::{PaymentId, ReturnId, SwitchName};
use payment_protocol::keys;
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::report::{LineStatus, StatementLine};
use sqlx::PgPool;

/// Tolerance of the tests: no grace period, and an hour for a cancel.
const TOLERANCE: Tolerance = Tolerance { grace_s: 0, cancelling_s: 3_600 };

fn switch() -> SwitchName {
    SwitchName::new(SWITCH).unwrap()
}

/// A statement line for a payment.
fn line(p: &Sample, transfer: &str, status: LineStatus) -> StatementLine {
    StatementLine {
        cursor: format!("{transfer}-{status:?}"),
        transfer_id: transfer.into(),
        reference: Some(keys::submit(&p.tx).to_string()),
        status,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
        return_id: None,
        finished_at: jiff::Timestamp::now(),
    }
}

impl Bank {
    /// Stores statement lines; returns the number of new ones.
    async fn lines(&self, lines: &[StatementLine]) -> u64 {
        self.ledger.store_lines(&switch(), lines).await.unwrap()
    }

    /// What the findings about the running workflows of a run say.
    async fn unmatched_details(&self, run: ReconciliationRunId) -> Vec<String> {
        let page = self.ledger.unmatched_workflows(run, None, TOLERANCE, 100).await.unwrap();
        page.findings.into_iter().map(|finding| finding.detail).collect()
    }

    /// The payments that a run without a window compares, in batches.
    async fn all_payments(&self, batch: i64) -> Vec<PaymentId> {
        let mut all: Vec<PaymentId> = Vec::new();
        loop {
            let page = self.ledger.payments_after(all.last(), batch).await.unwrap();
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        all
    }

    /// The payments that a run with a window compares, by its three parts in batches.
    async fn payments_of_window(
        &self,
        run: ReconciliationRunId,
        window: &ReconciliationWindow,
        batch: i64,
    ) -> [Vec<PaymentId>; 3] {
        let [mut entries, mut listed, mut lines] = [const { Vec::new() }; 3];
        let mut after = window.after_entry_id;
        loop {
            let page = self.ledger.payments_of_entries(run, window, after, batch).await.unwrap();
            entries.extend(page.payments);
            let Some(next) = page.next else { break };
            after = next;
        }
        loop {
            let page = self.ledger.listed_payments(run, listed.last(), batch).await.unwrap();
            if page.is_empty() {
                break;
            }
            listed.extend(page);
        }
        let mut after = window.after_line_id;
        loop {
            let page = self.ledger.payments_of_lines(run, window, after, batch).await.unwrap();
            lines.extend(page.payments);
            let Some(next) = page.next else { break };
            after = next;
        }
        [entries, listed, lines]
    }

    /// One reconciliation run in batches of three.
    async fn reconcile(
        &self,
        running: &[String],
        window_s: Option<i64>,
    ) -> (ReconciliationRunId, Vec<Finding>) {
        let (run, window) = self.ledger.begin_reconciliation_run(window_s).await.unwrap();
        self.ledger.record_running_workflows(run, running).await.unwrap();
        let sources = Sources { statements: vec![switch()], workflows: Some(run) };
        let mut findings = Vec::new();
        let compared = match &window {
            Some(window) => self.payments_of_window(run, window, 3).await.concat(),
            None => self.all_payments(3).await,
        };
        for batch in compared.chunks(3) {
            for compared in &self.ledger.compare(&sources, batch).await.unwrap() {
                findings.extend(compared.findings(TOLERANCE));
            }
        }
        let mut after = Some(0);
        while let Some(line_id) = after {
            let page = self.ledger.unmatched_statement_lines(line_id, 3).await.unwrap();
            findings.extend(page.findings);
            after = page.next;
        }
        let (mut callback, mut workflow) = (None, None);
        loop {
            let page = self.ledger.unmatched_callbacks(callback.as_ref(), TOLERANCE, 3).await.unwrap();
            findings.extend(page.findings);
            callback = page.next;
            if callback.is_none() {
                break;
            }
        }
        loop {
            let page = self.ledger.unmatched_workflows(run, workflow.as_ref(), TOLERANCE, 3).await.unwrap();
            findings.extend(page.findings);
            workflow = page.next;
            if workflow.is_none() {
                return (run, findings);
            }
        }
    }
}

/// What a test of the reconciliation seeded: the workflows that run, and the expected findings by origin.
#[derive(Default)]
struct Seeded {
    running: Vec<String>,
    expected: BTreeMap<String, Drift>,
}

impl Seeded {
    fn expect(&mut self, p: &Sample, drift: Drift) {
        self.expected.insert(p.id.to_string(), drift);
    }

    /// Payments without drift, ended or in progress; returns the settled one.
    async fn sound_payments(&mut self, bank: &Bank) -> Sample {
        for (key, stage) in [
            ("accepted", Stage::Accepted),
            ("reserved", Stage::Reserved),
            ("sent", Stage::Sent),
            ("cancelling", Stage::Cancelling),
            ("confirmed", Stage::Confirmed),
        ] {
            self.running.push(bank.payment_at(stage, key).await.id.to_string());
        }
        for (key, stage) in [("rejected", Stage::Rejected), ("unreserved", Stage::ReleasedUnreserved)] {
            bank.payment_at(stage, key).await;
        }
        let sound = bank.payment_at(Stage::Settled, "sound").await;
        let released = bank.payment_at(Stage::Released, "released").await;
        let recalled = bank.payment_at(Stage::Recalled, "recalled").await;
        self.running.push(recalled.id.to_string());
        bank.lines(&[
            line(&sound, "t-sound", LineStatus::Settled),
            line(&released, "t-released", LineStatus::Cancelled),
            line(&recalled, "t-recalled", LineStatus::Settled),
            line(&recalled, "t-recalled", LineStatus::Returned),
        ])
        .await;
        sound
    }

    /// Drift between the ledger's own records, or between ledger and workflows.
    async fn ledger_drift(&mut self, bank: &Bank) {
        let p = bank.payment_at(Stage::Sent, "missing hold").await;
        self.running.push(p.id.to_string());
        self.expect(&p, Drift::MissingHold);
        bank.damage(format!("DELETE FROM holds WHERE payment_id = '{}'", p.id)).await;

        let p = bank.payment_at(Stage::Released, "orphan hold").await;
        self.expect(&p, Drift::OrphanHold);
        bank.damage(format!(
            "UPDATE holds SET status = 'open', closed_at = NULL WHERE payment_id = '{}'",
            p.id
        ))
        .await;

        let p = bank.payment_at(Stage::Reserved, "no workflow").await;
        self.expect(&p, Drift::PaymentWithoutWorkflow);

        let p = bank.payment_at(Stage::Cancelling, "stuck").await;
        self.running.push(p.id.to_string());
        self.expect(&p, Drift::StuckCancelling);
        bank.damage(format!(
            "UPDATE payments SET cancelling_since = now() - interval '61 min' WHERE payment_id = '{}'",
            p.id
        ))
        .await;
    }

    /// Drift between the ledger and the statement.
    async fn statement_drift(&mut self, bank: &Bank) {
        let settled = LineStatus::Settled;
        let p = bank.payment_at(Stage::Sent, "settled not debited").await;
        self.running.push(p.id.to_string());
        self.expect(&p, Drift::SettledNotDebited);
        bank.lines(&[line(&p, "t-left", settled)]).await;

        let p = bank.payment_at(Stage::Settled, "debited not settled").await;
        self.expect(&p, Drift::DebitedNotSettled);

        let p = bank.payment_at(Stage::Released, "released but settled").await;
        self.expect(&p, Drift::ReleasedButSettled);
        bank.lines(&[line(&p, "t-after-all", settled)]).await;

        let p = bank.payment_at(Stage::Settled, "other amount").await;
        self.expect(&p, Drift::AmountMismatch);
        bank.lines(&[StatementLine { amount_minor: AMOUNT_MINOR + 1, ..line(&p, "t-more", settled) }]).await;

        let p = bank.payment_at(Stage::Settled, "settled twice").await;
        self.expect(&p, Drift::SettledTwice);
        bank.lines(&[line(&p, "t-once", settled), line(&p, "t-again", settled)]).await;
    }

    /// Statement lines, a callback and workflows without a payment. A rejected line without reference is no drift.
    async fn unmatched(&mut self, bank: &Bank, sound: &Sample) {
        let settled = LineStatus::Settled;
        bank.lines(&[
            StatementLine { reference: Some("tx_nobody:submit".into()), ..line(sound, "t-nobody", settled) },
            StatementLine { reference: None, ..line(sound, "t-nameless", LineStatus::Rejected) },
        ])
        .await;
        self.expected.insert("northern:t-nobody:tx_nobody:submit".into(), Drift::TransferWithoutPayment);
        let mut foreign = success(sound, "evt-foreign");
        foreign.reference = "tx_unheard_of:submit".into();
        bank.ledger.store_callback(&foreign).await.unwrap();
        self.expected.insert("northern:evt-foreign".into(), Drift::UnmatchedCallback);
        for workflow_id in ["pay_nobody".into(), format!("{}:resume:1", sound.id)] {
            self.running.push(workflow_id.clone());
            self.expected.insert(workflow_id, Drift::WorkflowWithoutPayment);
        }
    }
}

/// R36, S0.15: one drift of each of the twelve kinds.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_reconciliation_finds_each_seeded_drift_and_nothing_else(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut seeded = Seeded::default();
    let sound = seeded.sound_payments(&bank).await;
    seeded.ledger_drift(&bank).await;
    seeded.statement_drift(&bank).await;
    seeded.unmatched(&bank, &sound).await;

    // An empty page moves the time of the last statement read behind all payments, as in a real run.
    bank.lines(&[]).await;
    let (_, of_window) = bank.reconcile(&seeded.running, Some(3_600)).await;
    let (run, findings) = bank.reconcile(&seeded.running, None).await;
    for findings in [&of_window, &findings] {
        let found: BTreeMap<String, Drift> =
            findings.iter().map(|finding| (finding.origin.clone(), finding.drift)).collect();
        assert_eq!(found, seeded.expected);
        assert_eq!(findings.len(), seeded.expected.len(), "expected one finding each: {findings:?}");
    }

    check_exceptions(&bank, &findings).await;
    let of_ended = bank.ledger.begin_reconciliation_run(None).await.unwrap().0;
    bank.ledger.record_running_workflows(of_ended, &[sound.id.to_string()]).await.unwrap();
    let details = bank.unmatched_details(of_ended).await;
    assert_eq!(details, [format!("workflow {0} is running, but payment {0} has ended: settled", sound.id)]);
    bank.ledger.delete_running_workflows(of_ended).await.unwrap();
    assert_eq!(bank.unmatched_details(of_ended).await, [""; 0]);

    bank.ledger.finish_reconciliation_run(run, &serde_json::json!({})).await.unwrap();
    let left = "SELECT count(*) FROM running_workflows WHERE reconciliation_id = (SELECT max(reconciliation_id) FROM reconciliation_runs)";
    assert_eq!(bank.number(left).await, 0);
}

/// A finding offers an operator the actions that the payment accepts now: a decision only while it needs an operator, for a reason that
/// allows it, and a correction only after the end.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_finding_offers_only_what_the_payment_accepts(pool: PgPool) {
    let bank = Bank::new(pool);
    let lost = bank.payment_at(Stage::Reserved, "no workflow").await;
    let waiting = bank.payment_at(Stage::Cancelling, "lost undecided").await;
    bank.needs_operator(&waiting, OperatorReason::QueriesSpent).await;
    let unconfirmable = bank.payment_at(Stage::Cancelling, "lost no cancel").await;
    bank.needs_operator(&unconfirmable, OperatorReason::NoCancelOrQuery).await;
    let stuck = bank.payment_at(Stage::Cancelling, "stuck").await;
    bank.age(&stuck, 3_601).await;
    let open = bank.payment_at(Stage::Sent, "settled open").await;
    let released = bank.payment_at(Stage::Released, "settled released").await;
    bank.lines(&[
        line(&open, "t-open", LineStatus::Settled),
        line(&released, "t-released", LineStatus::Settled),
    ])
    .await;
    let running = [&stuck, &open].map(|p| p.id.to_string());
    let (_, findings) = bank.reconcile(&running, None).await;
    let offered: BTreeMap<(String, Drift), String> = findings
        .iter()
        .map(|finding| {
            let words: Vec<_> = finding.allowed.iter().map(|action| action.as_str()).collect();
            ((finding.origin.clone(), finding.drift), words.join(" "))
        })
        .collect();
    let of = |p: &Sample, drift: Drift, words: &str| ((p.id.to_string(), drift), words.to_owned());
    let expected = [
        of(&lost, Drift::PaymentWithoutWorkflow, "close"),
        of(&waiting, Drift::PaymentWithoutWorkflow, "retry_cancel debit release close"),
        of(&unconfirmable, Drift::PaymentWithoutWorkflow, "debit release close"),
        of(&stuck, Drift::StuckCancelling, "close"),
        of(&open, Drift::SettledNotDebited, "close"),
        of(&released, Drift::ReleasedButSettled, "late_debit close"),
    ];
    assert_eq!(offered, BTreeMap::from(expected));
    let detail = findings.iter().find(|finding| finding.drift == Drift::ReleasedButSettled).unwrap();
    assert!(detail.detail.starts_with("10.00 EUR by northern; "), "{detail:?}");
    assert!(detail.detail.ends_with("; at the switch: t-released: 10.00 EUR settled"), "{detail:?}");
}

/// A run with a window compares each payment once that is open, or of which the journal or a statement has something new: whatever the
/// size of its batches, and nothing else.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_run_with_a_window_compares_what_is_open_or_has_changed(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut old = Vec::new();
    for (key, stage) in [
        ("unchanged", Stage::Settled),
        ("refused", Stage::Rejected),
        ("reported again", Stage::Settled),
        ("corrected", Stage::Released),
        ("open", Stage::Reserved),
        ("to be debited", Stage::Confirmed),
        ("not reserved", Stage::Accepted),
        ("numbered before", Stage::Settled),
    ] {
        old.push(bank.payment_at(stage, key).await);
    }
    // Its entries were numbered before the window begins, and committed after it.
    let numbered_before = old.pop().unwrap();
    bank.lines(&[line(&old[0], "t-unchanged", LineStatus::Settled)]).await;
    bank.damage(
        "UPDATE journal SET posted_at = posted_at - interval '2 days';
         UPDATE statement_lines SET read_at = read_at - interval '2 days';
         UPDATE payments SET ended_at = ended_at - interval '2 days'"
            .to_owned(),
    )
    .await;
    let a_moment_before = format!(
        "UPDATE journal SET posted_at = now() - interval '1 day 30 seconds' WHERE payment_id = '{}'",
        numbered_before.id
    );
    bank.damage(a_moment_before).await;
    bank.ledger.store_callback(&success(&old[3], &event(&old[3], "late"))).await.unwrap();
    bank.correct(&old[3], Correction::LateDebit).await.unwrap();
    assert_eq!(bank.debit(&old[5]).await, DebitOutcome::Done);
    let new = bank.payment_at(Stage::Settled, "new").await;
    bank.lines(&[
        line(&old[2], "t-again", LineStatus::Settled),
        line(&old[2], "t-again", LineStatus::Returned),
        line(&old[2], "t-twice", LineStatus::Settled),
        line(&new, "t-new", LineStatus::Settled),
    ])
    .await;

    let (run, window) = bank.ledger.begin_reconciliation_run(Some(86_400)).await.unwrap();
    let window = window.unwrap();
    // What is reserved after the list is for the next run, unless it was listed as open.
    assert_eq!(bank.reserve(&old[6]).await, ReserveOutcome::Held);
    bank.payment_at(Stage::Settled, "after the list").await;
    let sorted = |payments: [&Sample; 3]| {
        let mut ids = payments.map(|p| p.id.clone());
        ids.sort_unstable();
        ids
    };
    let mut listed = [&old[3], &old[4], &old[6]].map(|p| p.id.clone());
    listed.sort_unstable();
    for batch in [1, 2, 100] {
        let [mut entries, list, lines] = bank.payments_of_window(run, &window, batch).await;
        entries.sort_unstable();
        assert_eq!(entries, sorted([&numbered_before, &old[5], &new]), "batches of {batch}");
        assert_eq!(list, listed, "batches of {batch}");
        assert_eq!(lines, [old[2].id.clone()], "batches of {batch}");
    }
    // As if its reserve had not been committed when the run listed what was open.
    bank.sql(&format!("INSERT INTO reconciled_payments VALUES ({}, '{}')", run.0, new.id)).await;
    let [entries, list, _] = bank.payments_of_window(run, &window, 2).await;
    assert_eq!((entries.len(), entries.contains(&new.id), list.len()), (2, false, 4));

    // Another attempt of the run may still need its list when one has ended it.
    bank.ledger.finish_reconciliation_run(run, &serde_json::json!({"attempt": 1})).await.unwrap();
    bank.ledger.finish_reconciliation_run(run, &serde_json::json!({"attempt": 2})).await.unwrap();
    let report = bank.ledger.reconciliation_report(run).await.unwrap();
    assert_eq!(report, Some(serde_json::json!({"attempt": 1})));
    for (aged, left) in [("0 hours", 4), ("4 hours", 0)] {
        bank.damage(format!("UPDATE reconciliation_runs SET finished_at = finished_at - interval '{aged}'"))
            .await;
        bank.ledger.delete_old_reconciliation_lists().await.unwrap();
        assert_eq!(bank.number("SELECT count(*) FROM reconciled_payments").await, left, "{aged}");
    }
}

/// The statement's return of an ended payment without an attempt is one exception, and none again once operators have closed it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_listed_return_without_an_attempt_is_one_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Rejected, "k").await;
    bank.lines(&[line(&p, "t", LineStatus::Settled), line(&p, "t", LineStatus::Returned)]).await;
    for unrecorded in [1, 0, 0] {
        let returns = bank.ledger.unrecorded_returns(std::slice::from_ref(&p.id)).await.unwrap();
        assert_eq!(returns.len(), unrecorded);
        for (id, report) in returns {
            bank.ledger.record_returned(&id, &report, FinalStatusSource::Statement).await.unwrap();
            bank.ledger.close_exception(bank.open_exception(&p).await, "Ann", "by letter").await.unwrap();
        }
    }
    assert_eq!(bank.exceptions(&p).await, ["settled_without_attempt"]);
}

/// A listed return that differs from its payment is one exception too, and hides no return of the payment's amount that is listed later.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_listed_return_of_another_amount_is_recorded_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    let ids = std::slice::from_ref(&p.id);
    let returned = line(&p, "t", LineStatus::Returned);
    let other = StatementLine { amount_minor: AMOUNT_MINOR - 1, ..line(&p, "u", LineStatus::Returned) };
    let after = [
        (vec![other], "confirmation_mismatch"),
        (vec![line(&p, "t", LineStatus::Settled), returned], "confirmation_mismatch"),
    ];
    for (lines, exception) in after {
        bank.lines(&lines).await;
        let returns = bank.ledger.unrecorded_returns(ids).await.unwrap();
        assert_eq!(returns.len(), 1, "{lines:?}");
        bank.ledger.record_returned(&p.id, &returns[0].1, FinalStatusSource::Statement).await.unwrap();
        assert_eq!(bank.ledger.unrecorded_returns(ids).await.unwrap(), [], "{lines:?}");
        assert_eq!(bank.exceptions(&p).await, [exception]);
    }
    assert!(bank.ledger.lists_return(&p.id).await.unwrap());
    assert_eq!(bank.number("SELECT count(*) FROM payments WHERE final_status = 'returned'").await, 1);
}

/// A return of a payment without an attempt is recorded once an attempt may be missing from the record.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_a_listed_return_is_recorded_once_its_attempt_may_be_lost(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    let ids = std::slice::from_ref(&p.id);
    bank.lines(&[line(&p, "t", LineStatus::Settled), line(&p, "t", LineStatus::Returned)]).await;
    for final_status in [None, Some("returned")] {
        let returns = bank.ledger.unrecorded_returns(ids).await.unwrap();
        bank.ledger.record_returned(&p.id, &returns[0].1, FinalStatusSource::Statement).await.unwrap();
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), final_status);
        assert_eq!(bank.ledger.unrecorded_returns(ids).await.unwrap(), []);
        bank.ledger.mark_ended_workflow(&p.id, p.id.as_str(), false).await.unwrap();
    }
}

/// Each finding opens one exception, once. A closed one stays closed unless the finding changes.
async fn check_exceptions(bank: &Bank, findings: &[Finding]) {
    let before = bank.number("SELECT count(*) FROM exceptions").await;
    let known = bank.ledger.open_findings(findings).await.unwrap();
    let opened = known.iter().filter(|known| matches!(known, FindingOutcome::Opened(_))).count();
    assert_eq!(opened, findings.len() - 1, "the unmatched callback already had an exception: {known:?}");
    assert_eq!(bank.number("SELECT count(*) FROM exceptions").await, before + i64::try_from(opened).unwrap());
    let repeated = bank.ledger.open_findings(findings).await.unwrap();
    assert!(repeated.iter().all(|known| matches!(known, FindingOutcome::AlreadyOpen(_))), "{repeated:?}");

    let Some(FindingOutcome::AlreadyOpen(id)) = repeated.first() else {
        panic!("expected an open exception: {repeated:?}")
    };
    bank.ledger.close_exception(*id, "ann", "checked").await.unwrap();
    let after_close = bank.ledger.open_findings(&findings[..1]).await.unwrap();
    assert_eq!(after_close, [FindingOutcome::AlreadyClosed(*id)]);
    let changed = Finding { detail: "the difference is larger".into(), ..findings[0].clone() };
    let after_change = bank.ledger.open_findings(std::slice::from_ref(&changed)).await.unwrap();
    assert!(matches!(after_change[..], [FindingOutcome::Opened(other)] if other != *id), "{after_change:?}");
}

/// A transfer without a payment that the statement lists twice, on one page or on two, opens one exception and ends no run.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_transfer_that_is_listed_twice_opens_one_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let unknown = |n: i64, amount_minor| StatementLine {
        cursor: format!("{n}"),
        transfer_id: "lost".into(),
        reference: Some("tx_of_nobody:submit".into()),
        status: LineStatus::Settled,
        amount_minor,
        currency: "EUR".into(),
        return_id: None,
        finished_at: jiff::Timestamp::now(),
    };
    // The second line repeats the first one; the third has another amount.
    bank.lines(&[unknown(1, 500), unknown(2, 500), unknown(3, 600)]).await;
    let page = bank.ledger.unmatched_statement_lines(0, 10).await.unwrap();
    assert_eq!((page.findings.len(), page.scanned), (2, 3));
    let first = bank.ledger.open_findings(&page.findings).await.unwrap();
    let [FindingOutcome::Opened(id), again] = first[..] else {
        panic!("expected a new exception: {first:?}")
    };
    assert_eq!(again, FindingOutcome::AlreadyOpen(id));
    bank.lines(&[unknown(4, 500), unknown(5, 700)]).await;
    let rest = bank.ledger.unmatched_statement_lines(3, 10).await.unwrap();
    let second = bank.ledger.open_findings(&rest.findings).await.unwrap();
    assert_eq!(second, [FindingOutcome::AlreadyOpen(id)]);
    assert_eq!(bank.number("SELECT count(*) FROM exceptions").await, 1);
    // Closed with one detail, it is opened again by another one, once.
    bank.ledger.close_exception(id, "ann", "checked").await.unwrap();
    let changed = Finding { detail: "of another amount".into(), ..page.findings[0].clone() };
    let mixed = [page.findings[0].clone(), changed.clone(), changed];
    let third = bank.ledger.open_findings(&mixed).await.unwrap();
    let [closed, FindingOutcome::Opened(other), repeated] = third[..] else {
        panic!("expected one new exception: {third:?}")
    };
    assert_eq!((closed, repeated), (FindingOutcome::AlreadyClosed(id), FindingOutcome::AlreadyOpen(other)));
}

/// A part that came back and is listed twice is one part. A return of another transfer under the same id of the switch is not this transfer's.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_repeated_line_or_that_of_another_transfer_returns_nothing_more(pool: PgPool) {
    let bank = Bank::new(pool);
    let with_reference = bank.payment_at(Stage::Settled, "k").await;
    let without = bank.payment_at(Stage::Confirmed, "without").await;
    bank.ledger.record_transfer_id(&without.id, "t-2").await.unwrap();
    assert_eq!(bank.debit(&without).await, DebitOutcome::Done);
    let mut lines = Vec::new();
    for (p, transfer, reference) in [
        (&with_reference, "t-1", Some(keys::submit(&with_reference.tx).to_string())),
        (&without, "t-2", None),
    ] {
        let part = |n: i64| StatementLine {
            cursor: format!("{transfer}-{n}"),
            reference: reference.clone(),
            return_id: Some(ReturnId::new("r-1").unwrap()),
            amount_minor: AMOUNT_MINOR * 6 / 10,
            ..line(p, transfer, LineStatus::Returned)
        };
        let foreign = StatementLine {
            cursor: format!("{transfer}-foreign"),
            reference: Some("tx_of_nobody:submit".into()),
            ..line(p, transfer, LineStatus::Returned)
        };
        let settled =
            StatementLine { reference: reference.clone(), ..line(p, transfer, LineStatus::Settled) };
        lines.extend([settled, part(1), part(2), foreign]);
    }
    bank.lines(&lines).await;
    let sources = Sources { statements: vec![switch()], workflows: None };
    for p in [with_reference, without] {
        for compared in bank.ledger.compare(&sources, std::slice::from_ref(&p.id)).await.unwrap() {
            assert_eq!(compared.findings(TOLERANCE).collect::<Vec<_>>(), []);
        }
    }
}

/// The switch's id of a transfer names a payment only on a line without a reference: a switch may use an id again.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_settled_line_with_a_foreign_reference_matches_no_payment(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Sent, "k").await;
    bank.ledger.record_transfer_id(&p.id, "t-1").await.unwrap();
    let (run, window) = bank.ledger.begin_reconciliation_run(Some(0)).await.unwrap();
    let foreign = StatementLine {
        cursor: "1".into(),
        reference: Some("tx_of_nobody:submit".into()),
        ..line(&p, "t-1", LineStatus::Settled)
    };
    let unnamed = StatementLine { cursor: "2".into(), reference: None, ..foreign.clone() };
    bank.lines(std::slice::from_ref(&foreign)).await;
    let unmatched = bank.ledger.unmatched_statement_lines(0, 10).await.unwrap();
    assert_eq!(unmatched.findings.len(), 1, "{unmatched:?}");
    assert_eq!(unmatched.findings[0].drift, Drift::TransferWithoutPayment);
    let window =
        ReconciliationWindow { after_entry_id: i64::MAX, last_entry_id: i64::MAX, ..window.unwrap() };
    let of_lines = async || bank.ledger.payments_of_lines(run, &window, 0, 10).await.unwrap().payments;
    assert_eq!(of_lines().await, []);

    bank.lines(std::slice::from_ref(&unnamed)).await;
    let unmatched = bank.ledger.unmatched_statement_lines(0, 10).await.unwrap();
    assert_eq!(unmatched.findings.len(), 1, "the line without a reference is the payment's: {unmatched:?}");
    assert_eq!(of_lines().await, [p.id]);
}

/// A run reads the statement first and the payments later: a recalled transfer that came back meanwhile is drift only where the statement
/// does not list its return afterwards.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_recalled_payment_is_no_drift_before_the_statement_can_list_its_return(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Recalled, "recalled").await;
    let other = bank.payment_at(Stage::Settled, "other").await;
    bank.lines(&[line(&p, "t-1", LineStatus::Settled)]).await;
    let drift = async |grace_s: i64| {
        let sources = Sources { statements: vec![switch()], workflows: None };
        let compared = bank.ledger.compare(&sources, std::slice::from_ref(&p.id)).await.unwrap();
        let findings = compared[0].findings(Tolerance { grace_s, ..TOLERANCE });
        findings.map(|finding| finding.drift).collect::<Vec<_>>()
    };
    bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
    // An answer of less than a second is rounded.
    bank.damage(format!(
        "UPDATE payments SET ended_at = now() + interval '5 s' WHERE payment_id = '{}'",
        p.id
    ))
    .await;
    assert_eq!(drift(0).await, [], "the statement was read before the return");
    bank.damage(format!(
        "UPDATE payments SET ended_at = now() - interval '5 s' WHERE payment_id = '{}'",
        p.id
    ))
    .await;
    bank.lines(&[line(&other, "t-2", LineStatus::Settled)]).await;
    assert_eq!((drift(600).await, drift(0).await), (vec![], vec![Drift::SettledNotDebited]));
    bank.lines(&[line(&p, "t-1", LineStatus::Returned)]).await;
    assert_eq!(drift(0).await, []);
}

/// A line is stored once, also if its page is read repeatedly, and the cursor of the last line is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn switch_statement_lines_are_stored_once_and_the_cursor_advances(pool: PgPool) {
    let bank = Bank::new(pool);
    assert_eq!(bank.ledger.statement_cursor(&switch()).await.unwrap(), None);
    bank.lines(&[]).await;
    assert_eq!(bank.ledger.statement_cursor(&switch()).await.unwrap(), None);
    let p = bank.payment_at(Stage::Settled, "k").await;
    let page = [line(&p, "t-1", LineStatus::Settled), line(&p, "t-1", LineStatus::Returned)];
    assert_eq!(bank.lines(&page).await, 2);
    assert_eq!(bank.lines(&page).await, 0, "a repeated page stored lines again");
    bank.lines(&[]).await;
    let cursor = bank.ledger.statement_cursor(&switch()).await.unwrap();
    assert_eq!(cursor.as_deref(), Some("t-1-Returned"));
    // A reader that began earlier stores an earlier page: nothing is read again for it (S3.8).
    bank.lines(&page[..1]).await;
    let cursor = bank.ledger.statement_cursor(&switch()).await.unwrap();
    assert_eq!(cursor.as_deref(), Some("t-1-Returned"), "the cursor moved back");
    for change in ["UPDATE statement_lines SET amount_minor = 1", "DELETE FROM statement_lines"] {
        assert!(sqlx::raw_sql(change).execute(&bank.pool).await.is_err(), "{change}");
    }
}

/// A crash empties an unlogged table, while a run goes on with what it has listed before.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_crash_of_the_database_empties_no_table(pool: PgPool) {
    let unlogged = "SELECT relname::text FROM pg_class WHERE relpersistence = 'u'";
    assert_eq!(Bank::new(pool).words(unlogged).await, Vec::<String>::new());
}
