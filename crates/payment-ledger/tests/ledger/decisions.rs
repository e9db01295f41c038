//! `operator::decisions`: proposals, confirmations by a second operator and withdrawals, their refusals in order of precedence,
//! and the audit trail that the database protects.

use crate::support::{Bank, Sample, Stage, success, tenant};
use futures::future::join_all;
use payment_ledger::operator::decisions::{
    ConfirmOutcome, DecideError, DecisionRefusedError, DecisionStatus,
};
use payment_protocol::PaymentState;
use payment_protocol::action::OperatorAction;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, Decision};
use payment_protocol::ids::{ClientId, DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use payment_protocol::port::SubmitProgress;
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

fn refused<T: std::fmt::Debug>(outcome: Result<T, DecideError>) -> DecisionRefusedError {
    match outcome {
        Err(DecideError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

fn decision_id(id: &str) -> DecisionId {
    DecisionId::new(id).unwrap()
}

/// A payment whose cancel was inconclusive.
async fn undecided(bank: &Bank, key: &str) -> Sample {
    let p = bank.payment_at(Stage::Cancelling, key).await;
    bank.needs_operator(&p, OperatorReason::NotFoundIsInconclusive).await;
    p
}

async fn messages(bank: &Bank) -> Vec<InboxMessage> {
    bank.sql("UPDATE inbox SET next_delivery_at = now() - interval '1 second'").await;
    bank.ledger.claim_undelivered(100, 1_000).await.unwrap()
}

/// Every reason for refusing a proposal, also with all later reasons in the order of precedence.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_decision_proposal_is_refused_for_the_first_reason_in_precedence(pool: PgPool) {
    use Action::{Debit, Release, RetryCancel};
    let bank = Bank::new(pool);
    let nowhere = PaymentId::derive(&tenant(), &ClientId::new("shop").unwrap(), "nowhere");
    let ended = bank.payment_at(Stage::Released, "ended").await;
    let moving = bank.payment_at(Stage::Cancelling, "moving").await;
    let recalled = bank.payment_at(Stage::RecallRefused, "recalled").await;
    bank.needs_operator(&recalled, OperatorReason::RecallRefused).await;
    let unstartable = bank.payment_at(Stage::Accepted, "unstartable").await;
    bank.needs_operator(&unstartable, OperatorReason::WorkflowStartRefused).await;
    let taken = undecided(&bank, "taken").await;
    let open = bank.propose(&taken, Release).await;
    let not_allowed = |action, reason| DecisionRefusedError::ActionNotAllowed { action, reason };
    #[rustfmt::skip]
    let table = [
        // payment          action    by      reason  evidence      refused
        (&nowhere,          Debit,   "",     "",     None,         DecisionRefusedError::MissingOperator),
        (&nowhere,          Debit,   " \t",  "why",  None,         DecisionRefusedError::MissingOperator),
        (&nowhere,          Debit,   "Ann",  "  ",   None,         DecisionRefusedError::MissingReason),
        (&nowhere,          Debit,   "Ann",  "why",  None,         DecisionRefusedError::UnknownPayment(nowhere.clone())),
        (&ended.id,         Debit,   "Ann",  "why",  None,         DecisionRefusedError::Ended(FinalState::TimedOut)),
        (&moving.id,        Debit,   "Ann",  "why",  None,         DecisionRefusedError::NotWaiting(PaymentState::Cancelling)),
        (&recalled.id,      Release,  "Ann",  "why",  None,         not_allowed(Release, OperatorReason::RecallRefused)),
        (&recalled.id,      RetryCancel, "Ann",  "why",  None,         not_allowed(RetryCancel, OperatorReason::RecallRefused)),
        (&unstartable.id,   Debit,   "Ann",  "why",  None,         not_allowed(Debit, OperatorReason::WorkflowStartRefused)),
        (&taken.id,         Debit,   "Ann",  "why",  None,         DecisionRefusedError::MissingEvidence(Debit)),
        (&taken.id,         Release,  "Ann",  "why",  Some(" "),    DecisionRefusedError::MissingEvidence(Release)),
        (&taken.id,         Debit,   "Ann",  "why",  Some("fax"),  DecisionRefusedError::AnotherDecisionOpen(open.clone())),
        (&taken.id,         RetryCancel, "Ann",  "why",  None,         DecisionRefusedError::AnotherDecisionOpen(open.clone())),
        (&taken.id,         Release,  "Bob",  "undecided", Some("letter 7"), DecisionRefusedError::AnotherDecisionOpen(open.clone())),
    ];
    for (n, (payment, action, by, reason, evidence, expected)) in table.into_iter().enumerate() {
        let outcome = bank.ledger.propose(payment, action, by, reason, evidence).await;
        assert_eq!(refused(outcome), expected, "row {n}");
    }
    assert_eq!(bank.number("SELECT count(*) FROM decisions").await, 1, "a refused proposal was recorded");
    for (reason, allowed) in [
        (OperatorReason::NoCancelOrQuery, "allowed actions: debit, release"),
        (OperatorReason::WorkflowStartRefused, "none, because the service continues the payment by itself"),
    ] {
        let refusal = not_allowed(Debit, reason).to_string();
        assert!(refusal.ends_with(allowed), "{refusal}");
    }
    bank.audit().await;
}

/// Every reason for refusing a confirmation or a withdrawal, also with all later reasons in the order of precedence.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_decision_confirmation_is_refused_for_the_first_reason(pool: PgPool) {
    let bank = Bank::new(pool);
    let proposal = async |key: &str| {
        let p = undecided(&bank, key).await;
        let decision_id = bank.propose(&p, Action::Release).await;
        (p, decision_id)
    };
    let (_, withdrawn) = proposal("withdrawn").await;
    bank.ledger.withdraw(&withdrawn, "Ann", "a mistake").await.unwrap();
    let (_, confirmed) = proposal("confirmed").await;
    bank.ledger.confirm(&confirmed, "Bob", "I agree").await.unwrap();
    let (_, proposed) = proposal("proposed").await;
    let (ended, closed_by_end) = proposal("ended").await;
    bank.ledger.record_void(&ended.id, payment_protocol::cancel::VoidReason::Cancelled).await.unwrap();
    bank.ledger.release(&ended.id, &Cause::SlaExpired).await.unwrap();
    let (changed, no_longer_allowed) = proposal("changed").await;
    bank.needs_operator(&changed, OperatorReason::RecallUnsupported).await;
    #[rustfmt::skip]
    let table = [
        // decision           by         reason   refused
        (&decision_id("dec_none"),    "",        "",      DecisionRefusedError::MissingOperator),
        (&decision_id("dec_none"),    "Bob",     " ",     DecisionRefusedError::MissingReason),
        (&decision_id("dec_none"),    "Bob",     "yes",   DecisionRefusedError::UnknownDecision(decision_id("dec_none"))),
        (&withdrawn,          "Ann",     "yes",   DecisionRefusedError::Closed(DecisionStatus::Withdrawn)),
        (&closed_by_end,               "Ann",     "yes",   DecisionRefusedError::Closed(DecisionStatus::Withdrawn)),
        (&confirmed,          "Ann",     "yes",   DecisionRefusedError::AlreadyConfirmed("Bob".into())),
        (&confirmed,          "Carol",   "yes",   DecisionRefusedError::AlreadyConfirmed("Bob".into())),
        (&proposed,           "Ann",     "yes",   DecisionRefusedError::SameOperator("Ann".into())),
        (&proposed,           " aNN\n",  "yes",   DecisionRefusedError::SameOperator("Ann".into())),
        (&no_longer_allowed,       "Bob",     "yes",   DecisionRefusedError::ActionNotAllowed { action: Action::Release, reason: OperatorReason::RecallUnsupported }),
    ];
    for (n, (decision_id, by, reason, expected)) in table.into_iter().enumerate() {
        assert_eq!(refused(bank.ledger.confirm(decision_id, by, reason).await), expected, "row {n}");
    }
    #[rustfmt::skip]
    let table = [
        (&decision_id("dec_none"),    "",        "",      DecisionRefusedError::MissingOperator),
        (&decision_id("dec_none"),    "Bob",     " ",     DecisionRefusedError::MissingReason),
        (&decision_id("dec_none"),    "Bob",     "no",    DecisionRefusedError::UnknownDecision(decision_id("dec_none"))),
        (&confirmed,          "Bob",     "no",    DecisionRefusedError::AlreadyApplying),
    ];
    for (n, (decision_id, by, reason, expected)) in table.into_iter().enumerate() {
        assert_eq!(
            refused(bank.ledger.withdraw(decision_id, by, reason).await),
            expected,
            "withdraw, row {n}"
        );
    }
    bank.audit().await;
}

/// An action that moves money waits for a second operator; the confirmation stores the message for the workflow.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_operator_action_that_moves_money_needs_two_operators(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = undecided(&bank, "k").await;
    let proposed = bank.ledger.propose(&p.id, Action::Debit, " Ann ", "paid", Some("fax 3")).await.unwrap();
    assert_eq!(proposed.message, None);
    assert_eq!(messages(&bank).await, [], "a proposal was delivered");
    let repeated = bank.ledger.propose(&p.id, Action::Debit, "ann", "paid", Some("fax 3 ")).await.unwrap();
    assert_eq!(repeated, proposed, "a repeated proposal differs from the first one");

    let confirmed = bank.ledger.confirm(&proposed.decision_id, "Bob", "seen it").await.unwrap();
    let ConfirmOutcome::ToApply(message) = &confirmed else {
        panic!("expected a message, got {confirmed:?}")
    };
    let decision = Decision { decision_id: proposed.decision_id.clone(), action: Action::Debit };
    assert_eq!((&message.kind, message.ended), (&InboxMessageKind::Decision(decision), false));
    assert_eq!((&message.payment_id, message.workflow_id.as_str()), (&p.id, p.id.as_str()));
    assert_eq!(
        messages(&bank).await,
        std::slice::from_ref(message),
        "expected the same message for the background worker"
    );
    assert_eq!(bank.ledger.confirm(&proposed.decision_id, "BOB", "again").await.unwrap(), confirmed);

    let recorded = bank.ledger.decisions(&p.id).await.unwrap().pop().unwrap();
    assert_eq!(
        (recorded.action, recorded.status),
        (OperatorAction::OpenPayment(Action::Debit), DecisionStatus::Confirmed)
    );
    assert_eq!((recorded.proposed_by.as_str(), recorded.confirmed_by.as_deref()), ("Ann", Some("Bob")));
    assert_eq!((recorded.reason.as_str(), recorded.confirm_reason.as_deref()), ("paid", Some("seen it")));
    assert_eq!(recorded.evidence.as_deref(), Some("fax 3"));
    bank.audit().await;
}

/// A retried cancel moves no money: one operator suffices, and the message is stored at once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_decision_retry_cancel_needs_one_operator(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = undecided(&bank, "k").await;
    let proposed =
        bank.ledger.propose(&p.id, Action::RetryCancel, "Ann", "they are back", None).await.unwrap();
    assert_eq!(messages(&bank).await, [proposed.message.clone().unwrap()]);
    let repeated =
        bank.ledger.propose(&p.id, Action::RetryCancel, "Ann", "they are back", None).await.unwrap();
    assert_eq!(repeated, proposed);
    bank.audit().await;
}

/// A late cancel attempt does not change needs_operator; and a payment that a recovery run shows as cancelling still accepts
/// decisions.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_cancel_attempt_does_not_prevent_an_operator_decision(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = undecided(&bank, "k").await;
    bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::NotScheduled).await.unwrap();
    assert_eq!(bank.state(&p).await, "needs_operator");
    bank.sql(&format!("UPDATE payments SET state = 'cancelling' WHERE payment_id = '{}'", p.id)).await;
    let decision_id = bank.propose(&p, Action::Release).await;
    let confirmed = bank.ledger.confirm(&decision_id, "Bob", "I agree").await.unwrap();
    assert!(matches!(confirmed, ConfirmOutcome::ToApply(_)));
    bank.audit().await;
}

/// After a withdrawal another proposal is accepted; the withdrawal is recorded with name and reason.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_withdrawn_decision_proposal_allows_another_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = undecided(&bank, "k").await;
    let first = bank.propose(&p, Action::Debit).await;
    for _ in 0..2 {
        bank.ledger.withdraw(&first, "Carol", "the wrong one").await.unwrap();
    }
    let second = bank.propose(&p, Action::Release).await;
    assert_ne!(first, second);
    let recorded: Vec<_> =
        bank.ledger.decisions(&p.id).await.unwrap().into_iter().map(|d| (d.status, d.detail)).collect();
    let withdrawn = Some("withdrawn by Carol: the wrong one".into());
    assert_eq!(recorded, [(DecisionStatus::Withdrawn, withdrawn), (DecisionStatus::Proposed, None)]);
    bank.audit().await;
}

/// Sixteen concurrent proposals and sixteen concurrent confirmations are one decision with one message.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_decision_proposals_and_confirmations_are_one_decision(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let p = undecided(&bank, "k").await;
    let ids = join_all((0..16).map(|_| bank.propose(&p, Action::Release))).await;
    assert!(ids.iter().all(|id| *id == ids[0]));
    let names = ["Bob", "Carol"];
    let confirmed = join_all((0..16).map(|n| bank.ledger.confirm(&ids[0], names[n % 2], "I agree"))).await;
    let first = bank.ledger.decision(&ids[0]).await.unwrap().unwrap().confirmed_by.unwrap();
    for (n, confirmed) in confirmed.into_iter().enumerate() {
        match confirmed {
            Ok(ConfirmOutcome::ToApply(_)) => assert_eq!(names[n % 2], first),
            refused => assert!(matches!(
                refused,
                Err(DecideError::Refused(DecisionRefusedError::AlreadyConfirmed(name))) if name == first
            )),
        }
    }
    assert_eq!(messages(&bank).await.len(), 1);
    bank.audit().await;
    bank.close().await;
}

/// The end of the payment closes its open decisions in the same transaction.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_end_of_a_payment_closes_its_open_decisions(pool: PgPool) {
    let bank = Bank::new(pool);
    let proposed = undecided(&bank, "proposed").await;
    bank.propose(&proposed, Action::Release).await;
    let confirmed = undecided(&bank, "confirmed").await;
    let decision_id = bank.decide(&confirmed, Action::Release).await;
    for p in [&proposed, &confirmed] {
        bank.ledger.store_callback(&success(p, &crate::support::event(p, "s"))).await.unwrap();
        bank.debit(p).await;
    }
    let sql =
        "SELECT concat_ws(' ', status, outcome ->> 'Ended', detail) FROM decisions ORDER BY proposed_at";
    let detail = "the payment ended first: settled";
    assert_eq!(bank.words(sql).await, [format!("withdrawn {detail}"), format!("refused settled {detail}")]);
    let outcome = bank.ledger.decision_outcome(&decision_id).await.unwrap();
    assert_eq!(outcome, Some(payment_protocol::decision::DecisionOutcome::Ended(FinalState::Settled)));
    bank.audit().await;
}

/// A confirmed decision that was delivered but not applied is delivered again when the payment next needs an operator, since
/// the run that received it may be lost.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_operator_decision_is_delivered_again_after_a_lost_workflow_run(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = undecided(&bank, "k").await;
    let decision_id = bank.decide(&p, Action::Release).await;
    let delivered = messages(&bank).await.remove(0);
    bank.ledger.mark_delivered(delivered.inbox_id).await.unwrap();
    assert_eq!(messages(&bank).await, []);
    bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
    bank.ledger.begin_cancel(&p.id, &Cause::Interrupted, SubmitProgress::NotScheduled).await.unwrap();
    bank.needs_operator(&p, OperatorReason::NotFoundIsInconclusive).await;
    let again = messages(&bank).await.remove(0);
    assert_eq!((again.inbox_id, &again.kind), (delivered.inbox_id, &delivered.kind));
    assert_eq!(again.workflow_id, format!("{}:resume:1", p.id));
    bank.ledger.mark_delivered(again.inbox_id).await.unwrap();

    bank.ledger.release_by_decision(&p.id, &decision_id).await.unwrap();
    let left: Vec<_> = messages(&bank).await.into_iter().map(|message| message.kind).collect();
    assert_eq!(left, [InboxMessageKind::FinalStatusRecorded], "expected the end and no applied decision");
    bank.audit().await;
}

/// Constraints and triggers protect the audit trail.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_protects_the_audit_trail_of_decisions(pool: PgPool) {
    const CHECK: &str = "23514";
    const RESTRICT: &str = "23001";
    let bank = Bank::new(pool);
    let p = undecided(&bank, "k").await;
    let withdrawn = bank.propose(&p, Action::Debit).await;
    bank.ledger.withdraw(&withdrawn, "Ann", "a mistake").await.unwrap();
    let open = bank.propose(&p, Action::Debit).await;
    let q = undecided(&bank, "q").await;
    let confirmed = bank.decide(&q, Action::Release).await;
    let set =
        |id: &DecisionId, change: &str| format!("UPDATE decisions SET {change} WHERE decision_id = '{id}'");
    let confirmed_by = |name: &str| {
        format!("status = 'confirmed', confirmed_by = '{name}', confirmed_at = now(), confirm_reason = 'yes'")
    };
    let insert = |columns: &str, values: &str| {
        format!(
            "INSERT INTO decisions (decision_id, payment_id, reason, proposed_by, {columns})
             VALUES ('dec_x', '{}', 'why', 'Ann', {values})",
            p.id
        )
    };
    #[rustfmt::skip]
    let table = [
        (RESTRICT, "is closed",                         set(&withdrawn, "status = 'proposed', closed_at = NULL")),
        (RESTRICT, "the proposal of decision",                        set(&open, "reason = 'another'")),
        (RESTRICT, "the proposal of decision",                        set(&open, "proposed_by = 'Bob'")),
        (RESTRICT, "the proposal of decision",                        set(&open, "action = 'release'")),
        (RESTRICT, "the proposal of decision",                        set(&open, "evidence = NULL")),
        (RESTRICT, "the confirmation of decision",                      set(&confirmed, "confirmed_by = 'Carol'")),
        (RESTRICT, "DELETE refused",                    "DELETE FROM decisions".into()),
        ("0A000",  "",                                  "TRUNCATE decisions".into()),
        (RESTRICT, "TRUNCATE refused",                  "TRUNCATE decisions CASCADE".into()),
        (CHECK,    "decisions_four_eyes",         set(&open, &confirmed_by(" ANN "))),
        (CHECK,    "decisions_operator_given",                   set(&open, &confirmed_by(" "))),
        (CHECK,    "decisions_done_after_confirmation", set(&open, "status = 'done', closed_at = now()")),
        (CHECK,    "decisions_closed_has_a_time",        set(&open, "status = 'withdrawn'")),
        (CHECK,    "decisions_evidence_given",               insert("action", "'debit'")),
        (CHECK,    "decisions_about_an_exception",      insert("action", "'late_debit'")),
        (CHECK,    "decisions_action_known",            insert("action", "'steal'")),
        ("23505",  "decisions_one_open",                insert("action", "'retry_cancel'")),
    ];
    for (code, reason, sql) in table {
        let refused = bank.refused(&sql).await;
        assert!(refused.0 == code && refused.1.contains(reason), "{sql}: {refused:?}");
    }
    bank.audit().await;
}
