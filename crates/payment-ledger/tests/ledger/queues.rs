//! `reads::queues`, `reads::view` and `reads::explain`: lists across tenants, stuck payments, and all records of one payment.

use std::collections::BTreeSet;

use crate::support::{Bank, OTHER_SWITCH, SWITCH, Stage, event, success, tenant};
use payment_ledger::operator::decisions::DecisionStatus;
use payment_ledger::reads::queues::OperatorPaymentFilter;
use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use payment_protocol::ids::{ClientId, PaymentId, SwitchName, TenantId};
use payment_protocol::port::SubmitProgress;
use sqlx::PgPool;

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_ledger_lists_payments_of_all_tenants_newest_first(pool: PgPool) {
    let bank = Bank::new(pool);
    let ours = bank.payment_at(Stage::Settled, "ours").await;
    bank.age(&ours, 300).await;
    let mut order = bank.order("theirs");
    order.tenant = TenantId::new("other").unwrap();
    order.profile.switch = SwitchName::new(OTHER_SWITCH).unwrap();
    let theirs = bank.accept(&order).await;
    bank.age(&theirs, 200).await;
    let newest = bank.payment_at(Stage::Sent, "newest").await;
    let open = bank.ledger.switches_of_open_payments().await.unwrap();
    assert_eq!(open.iter().map(SwitchName::as_str).collect::<BTreeSet<_>>(), [SWITCH, OTHER_SWITCH].into());
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
        let listed: Vec<_> = listed.payments.iter().map(|view| view.payment_id.as_str()).collect();
        assert_eq!(listed, expected.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), "{filter:?}");
    }
    // A full page names the payment after which the next one begins; the last page names none.
    for filter in [
        OperatorPaymentFilter { limit: 1, ..all.clone() },
        OperatorPaymentFilter { limit: 1, switch: switch(SWITCH), ..all },
    ] {
        let (mut filter, mut pages) = (filter, Vec::new());
        loop {
            let page = bank.ledger.list(&filter).await.unwrap();
            pages.extend(page.payments.into_iter().map(|view| view.payment_id));
            let Some(next) = page.next else { break };
            filter.after = Some(next);
        }
        let expected =
            if filter.switch.is_some() { vec![&newest, &ours] } else { vec![&newest, &theirs, &ours] };
        assert_eq!(pages, expected.iter().map(|p| p.id.to_string()).collect::<Vec<_>>());
    }
}

/// Payments that need an operator, are cancelling or idle, oldest first, with allowed actions and the open decision.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_ledger_lists_stuck_payments_with_their_allowed_actions(pool: PgPool) {
    let bank = Bank::new(pool);
    let undecided = bank.payment_at(Stage::Cancelling, "undecided").await;
    bank.needs_operator(&undecided, OperatorReason::NotFoundIsInconclusive).await;
    let decision_id = bank.propose(&undecided, Action::Release).await;
    bank.age(&undecided, 3_000).await;
    // A cancel and a second need for an operator do not reset the time since the first.
    bank.ledger
        .begin_cancel(&undecided.id, &payment_protocol::Cause::SlaExpired, SubmitProgress::NotScheduled)
        .await
        .unwrap();
    bank.needs_operator(&undecided, OperatorReason::NotFoundIsInconclusive).await;
    let cancelling = bank.payment_at(Stage::Cancelling, "cancelling").await;
    bank.age(&cancelling, 2_000).await;
    let idle = bank.payment_at(Stage::Sent, "idle").await;
    bank.age(&idle, 1_000).await;
    bank.payment_at(Stage::Sent, "moving").await;
    let settled = bank.payment_at(Stage::Settled, "settled").await;
    bank.age(&settled, 5_000).await;

    let stuck = bank.ledger.stuck(500, 10).await.unwrap();
    let ids: Vec<_> = stuck.iter().map(|stuck| stuck.payment.payment_id.as_str()).collect();
    assert_eq!(ids, [undecided.id.as_str(), cancelling.id.as_str(), idle.id.as_str()]);
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

/// The customer's view shows since when an operator is needed, and no longer after the payment has moved.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_view_shows_since_when_it_needs_an_operator(pool: PgPool) {
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
async fn ledger_explain_returns_every_record_of_the_payment(pool: PgPool) {
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
