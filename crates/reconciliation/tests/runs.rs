//! A run that is interrupted after any batch and continued gives the report of an uninterrupted run, and one that meets a payment that it
//! cannot read compares the others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]
#![expect(clippy::disallowed_methods, reason = "the test accepts payments as the payments-api does")]

use std::sync::Mutex;

use axum::extract::{Query, State};
use axum::{Json, Router};
use iso_currency::Currency;
use payment_ledger::Ledger;
use payment_ledger::steps::accept::{AcceptOutcome, NewPayment, accept};
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::ids::{AccountId, ClientId, EventId, PaymentId, RunId, SwitchName, TenantId};
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::money::Money;
use payment_protocol::port::ReserveOutcome;
use reconciliation::{Reconciler, ReconciliationError, ReconciliationProgress, ReconciliationReport};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use switch_client::CheckedSwitches;
use switch_client::config::{SecretsOf, Switches};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use workflow_api::{PaymentWorkflows, TemporalOptions};

const TOLERANCE: Tolerance = Tolerance { grace_s: 0, cancelling_s: 3_600 };
const PAYMENTS: usize = 5;
const LINES: usize = 5;
const CALLBACKS: usize = 3;

/// Position in the statement.
#[derive(Deserialize)]
struct After {
    after: Option<usize>,
}

/// A statement of `lines` transfers that nobody submitted, in pages of two.
async fn statement(State(lines): State<usize>, Query(position): Query<After>) -> Json<Value> {
    let first = position.after.unwrap_or(0) + 1;
    let last = (first + 1).min(lines);
    let entries: Vec<_> = (first..=last)
        .map(|n| {
            json!({"cursor": n.to_string(), "transfer_id": format!("t{n}"), "reference": format!("tx_nobody{n}:submit"),
                   "status": "SETTLED", "amount_minor": 500, "currency": "EUR", "finished_at": "2026-01-01T00:00:00Z"})
        })
        .collect();
    let next = (last < lines).then(|| last.to_string());
    Json(json!({"entries": entries, "next": next}))
}

/// The configuration of a switch whose statement a local server serves.
async fn switch_with_statement() -> CheckedSwitches {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().route("/v1/statement", axum::routing::get(statement)).with_state(LINES);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let profile = json!({"strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
        "tombstones": true, "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true, "can_recall": true, "has_callback": true,
        "has_statement": true, "sla_ms": 60_000});
    let secrets = ["whsec_ZGVtby1vbmx5LXNlY3JldC1kby1ub3QtdXNlLWl0ISE="];
    let options = json!({"northern": {"base_url": url, "api_token": "t", "callback_secrets": secrets,
        "routes": ["DE"], "profile": profile}});
    serde_json::from_value::<Switches>(options).unwrap().check(SecretsOf::Requests).unwrap()
}

/// A ledger with damaged payments and with callbacks of no payment, its switch, and no Temporal.
struct Bank {
    pool: PgPool,
    ledger: Ledger,
    reconciler: Reconciler,
}

impl Bank {
    async fn new(pool: PgPool) -> Self {
        let ledger = Ledger::new(pool.clone());
        let switches = switch_with_statement().await;
        for n in 0..PAYMENTS {
            let (_, _, profile) = switches.iter().next().unwrap();
            reserve_payment(&pool, &ledger, profile.clone(), &format!("k{n}")).await;
        }
        for n in 0..CALLBACKS {
            ledger.store_callback(&foreign_callback(n)).await.unwrap();
        }
        let temporal = TemporalOptions { address: "http://127.0.0.1:1".into(), ..TemporalOptions::default() };
        let reconciler = Reconciler::new(
            ledger.clone(),
            switches.iter().map(|(_, options, profile)| (options, profile)),
            PaymentWorkflows::new(temporal, "test"),
        );
        let bank = Self { pool, ledger, reconciler: reconciler.unwrap().with_batch(2) };
        // Two payments without the hold that they need.
        bank.damage("DELETE FROM holds WHERE payment_id IN (SELECT payment_id FROM payments ORDER BY payment_id DESC LIMIT 2)")
            .await;
        bank
    }

    /// Runs SQL without the triggers that protect the ledger.
    async fn damage(&self, statements: &str) {
        let sql = format!("BEGIN; SET LOCAL session_replication_role = replica; {statements}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await.unwrap();
    }

    /// Removes everything that runs have stored.
    async fn forget_runs(&self) {
        self.damage(
            "DELETE FROM exceptions; DELETE FROM statement_lines; DELETE FROM statement_cursors;
             DELETE FROM running_workflows; DELETE FROM reconciled_payments; DELETE FROM reconciliation_runs",
        )
        .await;
    }

    /// The progress after each of the first `batch` batches of a run that is dropped after them, and its report if it ended
    /// before.
    async fn interrupted(
        &self,
        window_s: Option<i64>,
        batch: usize,
    ) -> (Vec<String>, Option<ReconciliationReport>) {
        let (recorded, reached) = (Mutex::new(Vec::new()), Notify::new());
        let progress = |progress: &ReconciliationProgress| {
            let mut recorded = recorded.lock().unwrap();
            if recorded.len() < batch {
                // As a heartbeat carries it.
                recorded.push(serde_json::to_string(progress).unwrap());
            }
            if recorded.len() == batch {
                reached.notify_one();
            }
        };
        // The run goes on until it next waits, so some work after the batch may be done.
        let report = tokio::select! {
            biased;
            () = reached.notified() => None,
            report = self.reconciler.run(TOLERANCE, window_s, &progress) => Some(report.unwrap()),
        };
        (recorded.into_inner().unwrap(), report)
    }

    async fn resume(&self, heartbeat: &str) -> ReconciliationReport {
        let progress: ReconciliationProgress = serde_json::from_str(heartbeat).unwrap();
        let run_id = progress.run_id();
        let report = self.reconciler.resume(progress, &|_| ()).await.unwrap();
        assert_eq!(report.reconciliation_id, run_id.0, "another run");
        report
    }

    async fn exceptions(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM exceptions").fetch_one(&self.pool).await.unwrap()
    }
}

/// A reserved payment through the switch of `profile`.
async fn reserve_payment(
    pool: &PgPool,
    ledger: &Ledger,
    profile: payment_protocol::SwitchProfile,
    key: &str,
) {
    let (tenant, client) = (TenantId::new("acme").unwrap(), ClientId::new("shop").unwrap());
    let account = AccountId::new(format!("from-{key}")).unwrap();
    let money = |minor| Money::from_minor(minor, Currency::EUR).unwrap();
    ledger.open_account(&tenant, &account, Currency::EUR).await.unwrap();
    assert!(ledger.fund(&account, money(10_000), &format!("fund:{key}")).await.unwrap());
    let order = NewPayment {
        payment_id: PaymentId::derive(&tenant, &client, key),
        tenant,
        client,
        source_account: account,
        destination_account: AccountId::new("DE-far-away").unwrap(),
        end_to_end_id: None,
        money: money(1_000),
        profile,
        request_hash: vec![7],
        response_body: b"{}".to_vec(),
        accepted_at: jiff::Timestamp::now(),
        trace_parent: None,
    };
    let mut tx = Ledger::new(pool.clone()).pool().begin().await.unwrap();
    assert_eq!(accept(&mut tx, std::slice::from_ref(&order)).await.unwrap(), [AcceptOutcome::New]);
    tx.commit().await.unwrap();
    let run = RunId::new("run-1").unwrap();
    assert_eq!(
        ledger.reserve(&ledger.accepted_payment(&order.payment_id).await.unwrap(), &run).await.unwrap(),
        ReserveOutcome::Held
    );
}

/// A callback for a reference that no payment has.
fn foreign_callback(n: usize) -> Callback {
    Callback {
        switch: SwitchName::new("northern").unwrap(),
        event_id: EventId::new(format!("evt-{n}")).unwrap(),
        reference: format!("tx_unheard_of{n}:submit"),
        status: CallbackStatus::Success,
        amount_minor: 1_000,
        currency: "EUR".into(),
        reason: None,
        reason_code: None,
        posting: None,
        body: b"{}".to_vec(),
    }
}

/// The report without the ids and the time that differ between any two runs.
fn comparable(report: &ReconciliationReport) -> Value {
    let mut value = serde_json::to_value(report).unwrap();
    for field in ["reconciliation_id", "window_began_at"] {
        value.as_object_mut().unwrap().remove(field);
    }
    for finding in value["findings"].as_array_mut().unwrap() {
        finding.as_object_mut().unwrap().remove("exception_id");
    }
    value
}

/// S1.6: for every batch, with a window and without; from its progress, and from the progress before it, as heartbeats lag behind the
/// work.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s1_6_a_resumed_run_reports_the_same_as_an_uninterrupted_one(pool: PgPool) {
    let bank = Bank::new(pool).await;
    for window_s in [None, Some(3_600)] {
        bank.forget_runs().await;
        let (recorded, report) = bank.interrupted(window_s, usize::MAX).await;
        let uninterrupted = report.unwrap();
        let (batches, exceptions) = (recorded.len(), bank.exceptions().await);
        assert_eq!(uninterrupted.payments, PAYMENTS as u64);
        assert_eq!((uninterrupted.lines, uninterrupted.new_lines), (LINES as u64, LINES as u64));
        assert_eq!(uninterrupted.drift[&Drift::MissingHold], 2, "{uninterrupted:?}");
        assert_eq!(uninterrupted.drift[&Drift::TransferWithoutPayment], LINES as u64, "{uninterrupted:?}");
        assert!(batches > 10, "expected several batches of each kind, got {batches}");

        for batch in 1..=batches {
            for lag in [0, 1] {
                let row = format!("window {window_s:?}, batch {batch}, lag {lag}");
                bank.forget_runs().await;
                let (recorded, _) = bank.interrupted(window_s, batch).await;
                assert_eq!(recorded.len(), batch);
                let heartbeat = &recorded[(batch - 1).saturating_sub(lag)];
                let resumed = bank.resume(heartbeat).await;
                assert_eq!(comparable(&resumed), comparable(&uninterrupted), "{row}");
                assert_eq!(bank.exceptions().await, exceptions, "{row}");
                assert_eq!(bank.ledger.last_reconciliation_run().await.unwrap().not_compared, 1);
            }
        }
    }
}

/// A worker is stopped within a run. Temporal gives the run to another one, which ends it and deletes the list of workflows: without the list
/// every open payment would look as if it had no workflow.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_attempt_that_goes_on_after_another_one_ended_the_run_opens_no_exception(pool: PgPool) {
    let bank = Bank::new(pool).await;
    let (heartbeat, reached) = (Mutex::new(None), Notify::new());
    let progress = |progress: &ReconciliationProgress| {
        heartbeat.lock().unwrap().get_or_insert_with(|| serde_json::to_string(progress).unwrap());
        reached.notify_one();
    };
    let mut stopped = std::pin::pin!(bank.reconciler.run(TOLERANCE, None, &progress));
    tokio::select! {
        biased;
        () = reached.notified() => {}
        ended = &mut stopped => panic!("the run has ended: {ended:?}"),
    }
    let heartbeat = heartbeat.lock().unwrap().clone().unwrap();
    assert!(bank.resume(&heartbeat).await.drift_count() > 0);
    // What is opened from here on, the stopped attempt opens.
    bank.damage("DELETE FROM exceptions").await;
    let ended = stopped.await;
    assert!(matches!(ended, Err(ReconciliationError::EndedByAnotherAttempt)), "{ended:?}");
    assert_eq!(bank.exceptions().await, 0);
}

/// A newer version may have written a row that this one cannot read.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_that_cannot_be_read_hides_no_other(pool: PgPool) {
    let bank = Bank::new(pool).await;
    bank.damage(
        "ALTER TABLE payments DROP CONSTRAINT payments_state_known;
         UPDATE payments SET state = 'a_later_state' WHERE payment_id = (SELECT min(payment_id) FROM payments)",
    )
    .await;
    let (_, report) = bank.interrupted(None, usize::MAX).await;
    let report = report.unwrap();
    assert_eq!(report.payments, PAYMENTS as u64 - 1, "{report:?}");
    assert_eq!(report.drift[&Drift::MissingHold], 2, "{report:?}");
    assert_eq!(report.lines, LINES as u64, "{report:?}");
    let named: Vec<_> = report.not_compared.iter().filter(|entry| entry.contains("a_later_state")).collect();
    assert_eq!(named.len(), 1, "{report:?}");
}
