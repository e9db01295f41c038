//! What operators look at: lists across tenants, what does not move, one payment explained, and the gauges of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use iso_currency::Currency;
use payment_ledger::admission::kill_switches::KillSwitchTarget;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::audit::reconcile::drift::Drift;
use payment_ledger::operator::decisions::DecisionStatus;
use payment_ledger::reads::measure::RestrictionCounts;
use payment_ledger::reads::queues::OperatorPaymentFilter;
use payment_ledger::steps::accept::NewPayment;
use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::{ClientId, PaymentId, SwitchName, TenantId};
use sqlx::PgPool;
use support::{Bank, OTHER_SWITCH, SWITCH, Stage, account_id, event, success, tenant};

/// Lets the payment's times lie `seconds` further back.
async fn age(bank: &Bank, p: &support::Sample, seconds: i64) {
    bank.sql(&format!(
        "UPDATE payments SET accepted_at = accepted_at - interval '{seconds} s', updated_at = updated_at - interval '{seconds} s',
                needs_operator_since = needs_operator_since - interval '{seconds} s',
                cancelling_since = cancelling_since - interval '{seconds} s'
         WHERE payment_id = '{}'",
        p.id
    ))
    .await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn list_returns_all_tenants_newest_first(pool: PgPool) {
    let bank = Bank::new(pool);
    let ours = bank.payment_at(Stage::Settled, "ours").await;
    age(&bank, &ours, 300).await;
    let mut order = bank.order("theirs");
    order.tenant = TenantId::new("other").unwrap();
    order.profile.switch = SwitchName::new(OTHER_SWITCH).unwrap();
    let theirs = bank.accept(&order).await;
    age(&bank, &theirs, 200).await;
    let newest = bank.payment_at(Stage::Sent, "newest").await;
    let all = OperatorPaymentFilter { limit: 10, ..OperatorPaymentFilter::default() };
    let switch = |name| Some(SwitchName::new(name).unwrap());
    #[rustfmt::skip]
    let table = [
        (all.clone(),                                                          vec![&newest, &theirs, &ours]),
        (OperatorPaymentFilter { limit: 2, ..all.clone() },                               vec![&newest, &theirs]),
        (OperatorPaymentFilter { after: Some(newest.id.clone()), ..all.clone() },         vec![&theirs, &ours]),
        (OperatorPaymentFilter { state: Some(PaymentState::Settled), ..all.clone() },     vec![&ours]),
        (OperatorPaymentFilter { older_than_s: Some(150), ..all.clone() },                vec![&theirs, &ours]),
        (OperatorPaymentFilter { older_than_s: Some(250), ..all.clone() },                vec![&ours]),
        (OperatorPaymentFilter { switch: switch(OTHER_SWITCH), ..all.clone() },           vec![&theirs]),
        (OperatorPaymentFilter { switch: switch(SWITCH), ..all.clone() },                 vec![&newest, &ours]),
    ];
    for (filter, expected) in table {
        let listed = bank.ledger.list(&filter).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|view| view.payment_id.as_str()).collect();
        assert_eq!(listed, expected.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), "{filter:?}");
    }
}

/// What stands, is being cancelled or is idle, oldest first, with what may be decided and what already is.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn stuck_payments_are_listed_with_their_allowed_actions(pool: PgPool) {
    let bank = Bank::new(pool);
    let standing = bank.payment_at(Stage::Cancelling, "standing").await;
    bank.needs_operator(&standing, OperatorReason::NotFoundIsInconclusive).await;
    let decision_id = bank.propose(&standing, Action::Release).await;
    age(&bank, &standing, 3_000).await;
    // It moves again and comes back: it has stood since it first did.
    bank.ledger.begin_cancel(&standing.id, &payment_protocol::Cause::SlaExpired).await.unwrap();
    bank.needs_operator(&standing, OperatorReason::NotFoundIsInconclusive).await;
    let cancelling = bank.payment_at(Stage::Cancelling, "cancelling").await;
    age(&bank, &cancelling, 2_000).await;
    let idle = bank.payment_at(Stage::Sent, "idle").await;
    age(&bank, &idle, 1_000).await;
    bank.payment_at(Stage::Sent, "moving").await;
    let settled = bank.payment_at(Stage::Settled, "settled").await;
    age(&bank, &settled, 5_000).await;

    let stuck = bank.ledger.stuck(500, 10).await.unwrap();
    let ids: Vec<_> = stuck.iter().map(|stuck| stuck.payment.payment_id.as_str()).collect();
    assert_eq!(ids, [standing.id.as_str(), cancelling.id.as_str(), idle.id.as_str()]);
    let ages: Vec<_> = stuck.iter().map(|stuck| stuck.age_s / 1_000).collect();
    assert_eq!(ages, [3, 2, 1]);
    let first = &stuck[0];
    assert_eq!(first.tenant_id, "acme");
    assert_eq!(first.payment.operator_reason.as_deref(), Some("not_found_is_inconclusive"));
    assert_eq!(first.payment.allowed_actions, [Action::RetryCancel, Action::Debit, Action::Release]);
    let pending = first.pending.as_ref().unwrap();
    assert_eq!((&pending.decision_id, pending.status), (&decision_id, DecisionStatus::Proposed));
    assert!(stuck[1..].iter().all(|s| s.pending.is_none() && s.payment.allowed_actions.is_empty()));
    assert_eq!(bank.ledger.stuck(500, 1).await.unwrap().len(), 1);
    assert_eq!(bank.ledger.stuck(2_500, 10).await.unwrap().len(), 1);
}

/// The customer's view too says since when it stands, and no more once it moves.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_view_shows_since_when_an_operator_is_needed(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Cancelling, "k").await;
    let view = async || bank.ledger.payment(&tenant(), &p.id).await.unwrap().unwrap();
    assert_eq!((view().await.needs_operator_since, view().await.allowed_actions), (None, vec![]));
    bank.needs_operator(&p, OperatorReason::NoCancelOrQuery).await;
    assert!(view().await.needs_operator_since.is_some());
    assert_eq!(view().await.allowed_actions, OperatorReason::NoCancelOrQuery.allowed());
    bank.ledger.store_callback(&success(&p, &event(&p, "s"))).await.unwrap();
    assert_eq!((view().await.needs_operator_since, view().await.allowed_actions), (None, vec![]));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn explain_returns_every_record_of_the_payment(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::RecallRefused, "k").await;
    bank.payment_at(Stage::Settled, "another").await;
    bank.needs_operator(&p, OperatorReason::RecallRefused).await;
    let decision_id = bank.decide(&p, Action::Debit).await;
    bank.freeze(&p).await;
    bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap();
    let e = bank.ledger.explain(&p.id, 100).await.unwrap().unwrap();
    assert_eq!((e.payment.tenant_id.as_str(), e.payment.client_id.as_str()), ("acme", "shop"));
    assert_eq!((e.payment.view.state, e.payment.attempts), (PaymentState::Settled, 1));
    assert_eq!(e.payment.final_status_source.as_deref(), Some("callback"));
    assert_eq!(e.payment.profile.switch.as_str(), SWITCH);
    assert_eq!(e.submissions.len(), 1);
    let (tx, id) = (&p.tx, &p.id);
    let keys: Vec<_> = e.operations.iter().map(|o| format!("{} {}", o.operation_key, o.outcome)).collect();
    let mut expected = vec![
        format!("{id}:reserve done"),
        format!("{tx}:debit refused"),
        format!("{tx}:recall refused"),
        format!("{tx}:comp-reserve:{decision_id} done"),
        format!("{tx}:debit:{decision_id} done"),
    ];
    expected[3..].sort();
    assert_eq!(keys, expected);
    let kinds: Vec<_> = e.journal.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["reserve", "release", "late_debit"]);
    assert_eq!(e.hold.unwrap().status, "released");
    assert_eq!(e.callbacks.iter().map(|c| c.status.as_str()).collect::<Vec<_>>(), ["SUCCESS"]);
    let inbox: Vec<_> = e.inbox.iter().map(|i| i.kind.as_str()).collect();
    assert_eq!(inbox, ["callback", "decision", "final_status"]);
    assert_eq!(e.decisions.iter().map(|d| d.status).collect::<Vec<_>>(), [DecisionStatus::Done]);
    assert_eq!(e.exceptions.iter().map(|x| x.kind.as_str()).collect::<Vec<_>>(), ["debited_to_claims"]);
    assert_eq!(e.alerts.iter().map(|a| a.kind.as_str()).collect::<Vec<_>>(), ["needs_operator"]);
    assert_eq!(e.timeline.first().map(|line| line.state.as_str()), Some("accepted"));
    assert_eq!(e.timeline.last().map(|line| line.state.as_str()), Some("settled"));
    assert_eq!(bank.ledger.explain(&p.id, 2).await.unwrap().unwrap().timeline.len(), 2);

    let nowhere = PaymentId::derive(&tenant(), &ClientId::new("shop").unwrap(), "nowhere");
    assert_eq!(bank.ledger.explain(&nowhere, 10).await.unwrap(), None);
}

/// The gauges name every kind and reason, also the empty ones.
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
        age(&bank, &p, 100 * (i64::try_from(n).unwrap() + 1)).await;
    }
    let ended = bank.payment_at(Stage::Settled, "ended").await;
    bank.ledger.store_callback(&support::failure(&ended, "f")).await.unwrap();
    bank.ledger.close_exception(bank.open_exception(&ended).await, "Ann", "seen").await.unwrap();

    let kinds = bank.ledger.open_exceptions_by_kind().await.unwrap();
    let known: Vec<_> = kinds.iter().map(|kind| (kind.kind, kind.count)).collect();
    assert!(kinds.iter().all(|kind| kind.count > 0 || kind.oldest_s == 0), "{kinds:?}");
    #[rustfmt::skip]
    let met_when_it_came_in = [
        ("late_confirmation", 0), ("contradictory_final_status", 0), ("confirmation_mismatch", 3), ("settled_without_attempt", 0), ("callback_for_unknown_payment", 0),
        ("callback_from_other_switch", 0), ("callback_event_id_reused", 0), ("debited_to_claims", 0),
    ];
    let found_by_a_sweep = Drift::ALL.iter().map(|drift| (drift.as_str(), 0));
    assert_eq!(known, met_when_it_came_in.into_iter().chain(found_by_a_sweep).collect::<Vec<_>>());
    assert_eq!(bank.ledger.open_exceptions().await.unwrap(), 3);
    let standing = bank.ledger.needs_operator_by_reason().await.unwrap();
    assert_eq!(standing.len(), OperatorReason::ALL.len());
    let some: Vec<_> = standing
        .iter()
        .filter(|standing| standing.count > 0)
        .map(|standing| (standing.reason, standing.count, standing.oldest_s / 100))
        .collect();
    assert_eq!(some, [(OperatorReason::ConfirmationMismatch, 1, 3), (OperatorReason::NoCancelOrQuery, 2, 2)]);
    let alerted = bank.ledger.alerts_by_kind().await.unwrap();
    let alerted: Vec<_> = alerted.iter().map(|alerted| (alerted.kind.as_str(), alerted.count)).collect();
    let none = [("compensation_failed", 0), ("cancel_undecided", 0), ("recall_undecided", 0)];
    assert_eq!(alerted, [&[("needs_operator", 3)], &none[..]].concat());
    let idle: Vec<_> = bank.ledger.open_by_state().await.unwrap();
    let standing = idle.iter().find(|open| open.state == PaymentState::NeedsOperator).unwrap();
    assert_eq!((standing.count, standing.idle_s / 100), (3, 3));
}

/// What people have restrained, and when the books were last compared.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn limits_kill_switches_and_reconciliation_age_are_measured(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.avoid_midnight().await;
    assert_eq!(bank.ledger.restrictions().await.unwrap(), RestrictionCounts::default());
    let (account, tenant) = (bank.open("purse", 5_000).await, LimitScope::Tenant(tenant()));
    let account = LimitScope::Account(account);
    let euro = Currency::EUR;
    let day = |minor| LimitBounds { per_day_minor: Some(minor), ..LimitBounds::default() };
    bank.ledger.set_limit(&account, euro, day(1_000), "ann", "a test").await.unwrap();
    bank.ledger.set_limit(&tenant, euro, day(1_001), "ann", "a test").await.unwrap();
    bank.ledger.set_limit(&tenant, Currency::USD, day(0), "ann", "a test").await.unwrap();
    let order = NewPayment { source_account: account_id("purse"), ..bank.order("k") };
    let p = bank.accept(&order).await;
    bank.reserve(&p).await;
    let target = KillSwitchTarget::Switch(SwitchName::new(SWITCH).unwrap());
    bank.ledger.activate_kill_switch(&target, "ann", "a test").await.unwrap();
    bank.damage("UPDATE kill_switches SET activated_at = activated_at - interval '200 s'".into()).await;
    let restrained = bank.ledger.restrictions().await.unwrap();
    let expected = RestrictionCounts {
        switches_stopped: 1,
        stop_oldest_s: restrained.stop_oldest_s,
        accounts_limited: 1,
        tenants_limited: 2,
        accounts_used_up: 1,
        tenants_used_up: 1,
        ..RestrictionCounts::default()
    };
    assert_eq!(restrained, expected);
    assert_eq!(restrained.stop_oldest_s / 100, 2);

    // No sweep yet: for as long as there have been payments.
    age(&bank, &p, 700).await;
    assert_eq!(bank.ledger.last_reconciliation_run().await.unwrap().finished_s / 100, 7);
    let sweep = bank.ledger.begin_reconciliation_run().await.unwrap();
    assert_eq!(
        bank.ledger.last_reconciliation_run().await.unwrap().finished_s / 100,
        7,
        "begun is not finished"
    );
    bank.ledger
        .finish_reconciliation_run(sweep, &serde_json::json!({"not_compared": ["a", "b"]}))
        .await
        .unwrap();
    let last = bank.ledger.last_reconciliation_run().await.unwrap();
    assert_eq!((last.finished_s / 100, last.not_compared), (0, 2));
}
