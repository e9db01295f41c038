//! `reads::measure`: the values of the ledger's gauges.

use crate::support::{Bank, SWITCH, Stage, account_id, profile, tenant};
use iso_currency::Currency;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::reads::measure::RestrictionCounts;
use payment_ledger::steps::accept::NewPayment;
use payment_protocol::cause::OperatorReason;
use payment_protocol::drift::Drift;
use payment_protocol::{PaymentState, SwitchProfile};
use sqlx::PgPool;

/// Every kind and reason is returned, also those with a count of zero.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn exceptions_and_payments_that_need_operators_are_measured(pool: PgPool) {
    let bank = Bank::new(pool);
    for (n, reason) in [
        OperatorReason::NoCancelOrQuery,
        OperatorReason::NoCancelOrQuery,
        OperatorReason::ConfirmationMismatch,
    ]
    .into_iter()
    .enumerate()
    {
        let p = bank.payment_at(Stage::Differing, &format!("row {n}")).await;
        bank.needs_operator(&p, reason).await;
        bank.age(&p, 100 * (i64::try_from(n).unwrap() + 1)).await;
    }
    let ended = bank.payment_at(Stage::Settled, "ended").await;
    bank.ledger.store_callback(&crate::support::failure(&ended, "f")).await.unwrap();
    bank.ledger.close_exception(bank.open_exception(&ended).await, "Ann", "seen").await.unwrap();

    let kinds = bank.ledger.open_exceptions_by_kind().await.unwrap();
    let known: Vec<_> = kinds.iter().map(|kind| (kind.kind, kind.count)).collect();
    assert!(kinds.iter().all(|kind| kind.count > 0 || kind.oldest_s == 0), "{kinds:?}");
    #[rustfmt::skip]
    let opened_by_callbacks = [
        ("late_confirmation", 0), ("contradictory_final_status", 0), ("returned_after_debit", 0), ("return_differs", 0), ("confirmation_mismatch", 3), ("settled_without_attempt", 0), ("attempt_record_lost", 0), ("workflow_input_differs", 0), ("accepted_then_unknown", 0), ("callback_for_unknown_payment", 0),
        ("callback_from_other_switch", 0), ("callback_event_id_reused", 0), ("debited_to_claims", 0), ("opened_by_operator", 0),
    ];
    let opened_by_reconciliation = Drift::ALL.iter().map(|drift| (drift.as_str(), 0));
    assert_eq!(known, opened_by_callbacks.into_iter().chain(opened_by_reconciliation).collect::<Vec<_>>());
    assert_eq!(bank.ledger.open_exceptions().await.unwrap(), 3);
    let by_reason = bank.ledger.needs_operator_by_reason().await.unwrap();
    assert_eq!(by_reason.len(), OperatorReason::ALL.len());
    let non_empty: Vec<_> = by_reason
        .iter()
        .filter(|row| row.count > 0)
        .map(|row| (row.reason, row.count, row.oldest_s / 100))
        .collect();
    assert_eq!(
        non_empty,
        [(OperatorReason::ConfirmationMismatch, 1, 3), (OperatorReason::NoCancelOrQuery, 2, 2)]
    );
    let alerted = bank.ledger.alerts_by_kind().await.unwrap();
    let alerted: Vec<_> = alerted.iter().map(|alerted| (alerted.kind.as_str(), alerted.count)).collect();
    let empty =
        [("compensation_failed", 0), ("debit_failed", 0), ("cancel_undecided", 0), ("recall_undecided", 0)];
    assert_eq!(alerted, [&[("needs_operator", 3)], &empty[..]].concat());
    let by_state: Vec<_> = bank.ledger.open_by_state().await.unwrap();
    let needs_operator = by_state.iter().find(|open| open.state == PaymentState::NeedsOperator).unwrap();
    assert_eq!((needs_operator.count, needs_operator.idle_s / 100), (3, 3));
}

/// A cancel counts as idle from its begin; at a switch whose cancels may take longer than the tolerance of 15 minutes, that much later.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_cancel_is_idle_after_the_time_that_its_switch_takes(pool: PgPool) {
    let bank = Bank::new(pool);
    let idle = async || {
        let by_state = bank.ledger.open_by_state().await.unwrap();
        by_state.iter().find(|open| open.state == PaymentState::Cancelling).unwrap().idle_s
    };
    let patient = bank.payment_at(Stage::Cancelling, "cancels take two hours").await;
    bank.give_profile(&patient, &SwitchProfile { alert_after_ms: 7_200_000, ..profile() }).await;
    bank.age(&patient, 6_000).await;
    assert_eq!(idle().await, 0);
    bank.age(&patient, 1_500).await;
    assert_eq!((idle().await - 1_200) / 100, 0, "7,500 s, of which 6,300 s are ordinary");
    let ordinary = bank.payment_at(Stage::Cancelling, "cancels take two minutes").await;
    bank.age(&ordinary, 1_500).await;
    assert_eq!((idle().await - 1_500) / 100, 0);
}

/// Limits, kill switches, and the time since the last finished reconciliation run.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn limits_kill_switches_and_reconciliation_age_are_measured(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.avoid_midnight().await;
    assert_eq!(bank.ledger.restrictions().await.unwrap(), RestrictionCounts::default());
    let (account, tenant) = (bank.open("purse", 5_000).await, LimitScope::Tenant(tenant()));
    let account = LimitScope::Account(account);
    let euro = Currency::EUR;
    let day = |minor| LimitBounds { per_day_minor: Some(minor), ..LimitBounds::default() };
    bank.set_limit(&account, euro, day(1_000), "a test").await;
    bank.set_limit(&tenant, euro, day(1_001), "a test").await;
    bank.set_limit(&tenant, Currency::USD, day(0), "a test").await;
    let order = NewPayment { source_account: account_id("purse"), ..bank.order("k") };
    let p = bank.accept(&order).await;
    bank.reserve(&p).await;
    let stop = "INSERT INTO kill_switches (switch, activated_by, reason, activated_at)";
    bank.sql(&format!("{stop} VALUES ('{SWITCH}', 'ann', 'a test', now() - interval '200 s')")).await;
    let measured = bank.ledger.restrictions().await.unwrap();
    let expected = RestrictionCounts {
        switches_stopped: 1,
        stop_oldest_s: measured.stop_oldest_s,
        accounts_limited: 1,
        tenants_limited: 2,
        accounts_used_up: 1,
        tenants_used_up: 1,
        ..RestrictionCounts::default()
    };
    assert_eq!(measured, expected);
    assert_eq!(measured.stop_oldest_s / 100, 2);

    // Before the first run the age counts from the first payment.
    bank.age(&p, 700).await;
    assert_eq!(bank.ledger.last_reconciliation_run().await.unwrap().finished_s / 100, 7);
    let (run, _) = bank.ledger.begin_reconciliation_run(None).await.unwrap();
    assert_eq!(
        bank.ledger.last_reconciliation_run().await.unwrap().finished_s / 100,
        7,
        "an unfinished run reset the age"
    );
    bank.ledger
        .finish_reconciliation_run(run, &serde_json::json!({"not_compared": ["a", "b"]}))
        .await
        .unwrap();
    let last = bank.ledger.last_reconciliation_run().await.unwrap();
    assert_eq!((last.finished_s / 100, last.full_finished_s / 100, last.not_compared), (0, 0, 2));
    // A run with a window does not count as one over everything.
    bank.damage("UPDATE reconciliation_runs SET finished_at = finished_at - interval '300 s'".into()).await;
    let (run, _) = bank.ledger.begin_reconciliation_run(Some(60)).await.unwrap();
    bank.ledger.finish_reconciliation_run(run, &serde_json::json!({})).await.unwrap();
    let last = bank.ledger.last_reconciliation_run().await.unwrap();
    assert_eq!((last.finished_s / 100, last.full_finished_s / 100, last.not_compared), (0, 3, 0));
}
