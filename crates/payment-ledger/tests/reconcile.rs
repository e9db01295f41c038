//! Reconciliation in the database: each kind of drift, planted once among payments that are well, is named, and nothing else is.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use std::collections::BTreeMap;

use payment_ledger::audit::reconcile::ReconciliationRunId;
use payment_ledger::audit::reconcile::drift::{Drift, Tolerance};
use payment_ledger::audit::reconcile::findings::{Finding, FindingOutcome};
use payment_ledger::audit::reconcile::payments::Sources;
use payment_protocol::ids::{PaymentId, SwitchName};
use payment_protocol::keys;
use payment_protocol::report::{LineStatus, StatementLine};
use sqlx::PgPool;
use support::{AMOUNT_MINOR, Bank, SWITCH, Sample, Stage, success};

/// Nothing is merely under way, but a cancel is given an hour.
const IMPATIENT: Tolerance = Tolerance { grace_s: 0, cancelling_s: 3_600 };

fn switch() -> SwitchName {
    SwitchName::new(SWITCH).unwrap()
}

/// A line of the statement about a payment.
fn line(p: &Sample, transfer: &str, status: LineStatus) -> StatementLine {
    StatementLine {
        cursor: format!("{transfer}-{status:?}"),
        transfer_id: transfer.into(),
        reference: Some(keys::submit(&p.tx).to_string()),
        status,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
        finished_at: jiff::Timestamp::now(),
    }
}

impl Bank {
    async fn lines(&self, lines: &[StatementLine]) -> u64 {
        self.ledger.store_lines(&switch(), lines).await.unwrap()
    }

    /// One sweep in batches of three.
    async fn reconcile(&self, running: &[String]) -> (ReconciliationRunId, Vec<Finding>) {
        let sweep = self.ledger.begin_reconciliation_run().await.unwrap();
        self.ledger.record_running_workflows(sweep, running).await.unwrap();
        let sources = Sources { statements: vec![switch()], workflows: Some(sweep) };
        let mut findings = Vec::new();
        let mut after: Option<PaymentId> = None;
        loop {
            let batch = self.ledger.payments_after(after.as_ref(), 3).await.unwrap();
            let Some(last) = batch.last() else { break };
            after = Some(last.clone());
            for compared in &self.ledger.compare(&sources, &batch).await.unwrap() {
                findings.extend(compared.findings(IMPATIENT));
            }
        }
        let mut after = Some(0);
        while let Some(place) = after {
            let page = self.ledger.unmatched_statement_lines(place, 3).await.unwrap();
            findings.extend(page.findings);
            after = page.next;
        }
        let (mut callback, mut workflow) = (None, None);
        loop {
            let page = self.ledger.unmatched_callbacks(callback.as_ref(), IMPATIENT, 3).await.unwrap();
            findings.extend(page.findings);
            callback = page.next;
            if callback.is_none() {
                break;
            }
        }
        loop {
            let page = self.ledger.unmatched_workflows(sweep, workflow.as_ref(), IMPATIENT, 3).await.unwrap();
            findings.extend(page.findings);
            workflow = page.next;
            if workflow.is_none() {
                return (sweep, findings);
            }
        }
    }
}

/// R36, S0.15: twelve kinds, one of each.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_each_seeded_drift_is_found_and_nothing_else(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut running = Vec::new();
    let mut expected: BTreeMap<String, Drift> = BTreeMap::new();
    let settled = LineStatus::Settled;

    // What is well, or under way.
    for (key, stage) in [
        ("accepted", Stage::Accepted),
        ("reserved", Stage::Reserved),
        ("sent", Stage::Sent),
        ("cancelling", Stage::Cancelling),
        ("confirmed", Stage::Confirmed),
        ("rejected", Stage::Rejected),
        ("unreserved", Stage::ReleasedUnreserved),
    ] {
        running.push(bank.payment_at(stage, key).await.id.to_string());
    }
    // Of those two have ended; their workflows have too.
    running.truncate(5);
    let well = bank.payment_at(Stage::Settled, "well").await;
    let undone = bank.payment_at(Stage::Released, "undone").await;
    let recalled = bank.payment_at(Stage::Recalled, "recalled").await;
    running.push(recalled.id.to_string());
    bank.lines(&[
        line(&well, "t-well", settled),
        line(&undone, "t-undone", LineStatus::Cancelled),
        line(&recalled, "t-recalled", settled),
        line(&recalled, "t-recalled", LineStatus::Recalled),
    ])
    .await;

    let mut plant = |p: &Sample, drift| expected.insert(p.id.to_string(), drift);
    let p = bank.payment_at(Stage::Sent, "missing hold").await;
    running.push(p.id.to_string());
    plant(&p, Drift::MissingHold);
    bank.damage(format!("DELETE FROM holds WHERE payment_id = '{}'", p.id)).await;

    let p = bank.payment_at(Stage::Released, "orphan hold").await;
    plant(&p, Drift::OrphanHold);
    bank.damage(format!("UPDATE holds SET status = 'open', closed_at = NULL WHERE payment_id = '{}'", p.id))
        .await;

    let p = bank.payment_at(Stage::Sent, "settled not debited").await;
    running.push(p.id.to_string());
    plant(&p, Drift::SettledNotDebited);
    bank.lines(&[line(&p, "t-left", settled)]).await;

    let p = bank.payment_at(Stage::Settled, "debited not settled").await;
    plant(&p, Drift::DebitedNotSettled);

    let p = bank.payment_at(Stage::Released, "released yet settled").await;
    plant(&p, Drift::ReleasedButSettled);
    bank.lines(&[line(&p, "t-after-all", settled)]).await;

    let p = bank.payment_at(Stage::Settled, "other amount").await;
    plant(&p, Drift::AmountMismatch);
    bank.lines(&[StatementLine { amount_minor: AMOUNT_MINOR + 1, ..line(&p, "t-more", settled) }]).await;

    let p = bank.payment_at(Stage::Settled, "settled twice").await;
    plant(&p, Drift::SettledTwice);
    bank.lines(&[line(&p, "t-once", settled), line(&p, "t-again", settled)]).await;

    let p = bank.payment_at(Stage::Reserved, "no workflow").await;
    plant(&p, Drift::PaymentWithoutWorkflow);

    let p = bank.payment_at(Stage::Cancelling, "stuck").await;
    running.push(p.id.to_string());
    plant(&p, Drift::StuckCancelling);
    bank.damage(format!(
        "UPDATE payments SET cancelling_since = now() - interval '61 min' WHERE payment_id = '{}'",
        p.id
    ))
    .await;

    // What belongs to no payment.
    let nobody =
        StatementLine { reference: Some("tx_nobody:submit".into()), ..line(&well, "t-nobody", settled) };
    bank.lines(&[
        nobody,
        StatementLine { reference: None, ..line(&well, "t-nameless", LineStatus::Rejected) },
    ])
    .await;
    expected.insert("northern:t-nobody".into(), Drift::TransferWithoutPayment);
    let mut foreign = success(&well, "evt-foreign");
    foreign.reference = "tx_unheard_of:submit".into();
    bank.ledger.store_callback(&foreign).await.unwrap();
    expected.insert("northern:evt-foreign".into(), Drift::UnmatchedCallback);
    running.extend(["pay_nobody".into(), format!("{}:resume:1", well.id)]);
    expected.insert("pay_nobody".into(), Drift::WorkflowWithoutPayment);
    expected.insert(format!("{}:resume:1", well.id), Drift::WorkflowWithoutPayment);
    // Confirmed is settled at the switch and not debited: its statement has not come so far.

    // The books are read a moment after the statement, as in a sweep.
    bank.lines(&[]).await;
    let (sweep, findings) = bank.reconcile(&running).await;
    let found: BTreeMap<String, Drift> =
        findings.iter().map(|finding| (finding.origin.clone(), finding.drift)).collect();
    assert_eq!(found, expected);
    assert_eq!(findings.len(), expected.len(), "one each: {findings:?}");

    // An exception each, once; what was met when the word came in keeps its exception.
    let before = bank.number("SELECT count(*) FROM exceptions").await;
    let known = bank.ledger.open_findings(&findings).await.unwrap();
    let opened = known.iter().filter(|known| matches!(known, FindingOutcome::Opened(_))).count();
    assert_eq!(opened, findings.len() - 1, "the unknown callback had one: {known:?}");
    assert_eq!(bank.number("SELECT count(*) FROM exceptions").await, before + i64::try_from(opened).unwrap());
    let again = bank.ledger.open_findings(&findings).await.unwrap();
    assert!(again.iter().all(|known| matches!(known, FindingOutcome::AlreadyOpen(_))), "{again:?}");

    // What a person has closed is not opened again.
    let Some(FindingOutcome::AlreadyOpen(id)) = again.first() else { panic!("{again:?}") };
    bank.ledger.close_exception(*id, "ann", "looked at").await.unwrap();
    let after = bank.ledger.open_findings(&findings[..1]).await.unwrap();
    assert_eq!(after, [FindingOutcome::AlreadyClosed(*id)]);
    // What is wrong otherwise since then is another matter.
    let otherwise = Finding { detail: "it differs by more".into(), ..findings[0].clone() };
    let after = bank.ledger.open_findings(std::slice::from_ref(&otherwise)).await.unwrap();
    assert!(matches!(after[..], [FindingOutcome::Opened(other)] if other != *id), "{after:?}");

    // A sweep leaves no list of workflows behind.
    bank.ledger.finish_reconciliation_run(sweep, &serde_json::json!({})).await.unwrap();
    assert_eq!(bank.number("SELECT count(*) FROM running_workflows").await, 0);
}

/// A line is stored once however often its page is read, and its place is kept.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn statement_lines_are_stored_once_and_the_cursor_advances(pool: PgPool) {
    let bank = Bank::new(pool);
    assert_eq!(bank.ledger.statement_cursor(&switch()).await.unwrap(), None);
    bank.lines(&[]).await;
    assert_eq!(bank.ledger.statement_cursor(&switch()).await.unwrap(), None);
    let p = bank.payment_at(Stage::Settled, "k").await;
    let page = [line(&p, "t-1", LineStatus::Settled), line(&p, "t-1", LineStatus::Recalled)];
    assert_eq!(bank.lines(&page).await, 2);
    assert_eq!(bank.lines(&page).await, 0, "read again");
    bank.lines(&[]).await;
    let place = bank.ledger.statement_cursor(&switch()).await.unwrap();
    assert_eq!(place.as_deref(), Some("t-1-Recalled"));
    for change in ["UPDATE statement_lines SET amount_minor = 1", "DELETE FROM statement_lines"] {
        assert!(sqlx::raw_sql(change).execute(&bank.pool).await.is_err(), "{change}");
    }
}
