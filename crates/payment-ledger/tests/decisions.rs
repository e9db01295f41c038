//! Who decided what, and why: proposals, confirmations by another person, withdrawals. Each refusal in order of
//! precedence, and an audit trail that the database keeps.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod support;

use futures::future::join_all;
use payment_ledger::operator::decisions::{
    ConfirmOutcome, DecideError, DecisionRefusedError, DecisionStatus, OperatorAction,
};
use payment_protocol::PaymentState;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, Decision};
use payment_protocol::ids::{ClientId, DecisionId, PaymentId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use support::{Bank, Sample, Stage, success, tenant};

fn refused<T: std::fmt::Debug>(outcome: Result<T, DecideError>) -> DecisionRefusedError {
    match outcome {
        Err(DecideError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

fn dec(id: &str) -> DecisionId {
    DecisionId::new(id).unwrap()
}

/// A payment whose cancel found nothing that proves anything.
async fn standing(bank: &Bank, key: &str) -> Sample {
    let p = bank.payment_at(Stage::Cancelling, key).await;
    bank.needs_operator(&p, OperatorReason::NotFoundIsInconclusive).await;
    p
}

async fn messages(bank: &Bank) -> Vec<InboxMessage> {
    bank.sql("UPDATE inbox SET next_delivery_at = now() - interval '1 second'").await;
    bank.ledger.claim_undelivered(100, 1_000).await.unwrap()
}

/// A proposal's refusals, each in presence of all that come after it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_proposal_is_refused_for_the_first_reason(pool: PgPool) {
    use Action::{Debit, Release, RetryCancel};
    use DecisionRefusedError as No;
    let bank = Bank::new(pool);
    let nowhere = PaymentId::derive(&tenant(), &ClientId::new("shop").unwrap(), "nowhere");
    let ended = bank.payment_at(Stage::Released, "ended").await;
    let moving = bank.payment_at(Stage::Cancelling, "moving").await;
    let recalled = bank.payment_at(Stage::RecallRefused, "recalled").await;
    bank.needs_operator(&recalled, OperatorReason::RecallRefused).await;
    let unstartable = bank.payment_at(Stage::Accepted, "unstartable").await;
    bank.needs_operator(&unstartable, OperatorReason::WorkflowStartRefused).await;
    let taken = standing(&bank, "taken").await;
    let open = bank.propose(&taken, Release).await;
    let not_allowed = |action, reason| No::ActionNotAllowed { action, reason };
    #[rustfmt::skip]
    let table = [
        // payment          action    by      reason  evidence      refused
        (&nowhere,          Debit,   "",     "",     None,         No::MissingOperator),
        (&nowhere,          Debit,   " \t",  "why",  None,         No::MissingOperator),
        (&nowhere,          Debit,   "Ann",  "  ",   None,         No::MissingReason),
        (&nowhere,          Debit,   "Ann",  "why",  None,         No::UnknownPayment(nowhere.clone())),
        (&ended.id,         Debit,   "Ann",  "why",  None,         No::Ended(FinalState::TimedOut)),
        (&moving.id,        Debit,   "Ann",  "why",  None,         No::NotWaiting(PaymentState::Cancelling)),
        (&recalled.id,      Release,  "Ann",  "why",  None,         not_allowed(Release, OperatorReason::RecallRefused)),
        (&recalled.id,      RetryCancel, "Ann",  "why",  None,         not_allowed(RetryCancel, OperatorReason::RecallRefused)),
        (&unstartable.id,   Debit,   "Ann",  "why",  None,         not_allowed(Debit, OperatorReason::WorkflowStartRefused)),
        (&taken.id,         Debit,   "Ann",  "why",  None,         No::MissingEvidence(Debit)),
        (&taken.id,         Release,  "Ann",  "why",  Some(" "),    No::MissingEvidence(Release)),
        (&taken.id,         Debit,   "Ann",  "why",  Some("fax"),  No::AnotherDecisionOpen(open.clone())),
        (&taken.id,         RetryCancel, "Ann",  "why",  None,         No::AnotherDecisionOpen(open.clone())),
        (&taken.id,         Release,  "Bob",  "it stands", Some("letter 7"), No::AnotherDecisionOpen(open.clone())),
    ];
    for (n, (payment, action, by, reason, evidence, expected)) in table.into_iter().enumerate() {
        let outcome = bank.ledger.propose(payment, action, by, reason, evidence).await;
        assert_eq!(refused(outcome), expected, "row {n}");
    }
    assert_eq!(bank.number("SELECT count(*) FROM decisions").await, 1, "nothing is written by a refusal");
    bank.audit().await;
}

/// A confirmation's refusals, each in presence of all that come after it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_confirmation_is_refused_for_the_first_reason(pool: PgPool) {
    use DecisionRefusedError as No;
    let bank = Bank::new(pool);
    let p = async |key: &str| {
        let p = standing(&bank, key).await;
        let decision_id = bank.propose(&p, Action::Release).await;
        (p, decision_id)
    };
    let (_, withdrawn) = p("withdrawn").await;
    bank.ledger.withdraw(&withdrawn, "Ann", "a mistake").await.unwrap();
    let (_, confirmed) = p("confirmed").await;
    bank.ledger.confirm(&confirmed, "Bob", "I agree").await.unwrap();
    let (_, proposed) = p("proposed").await;
    let (ended, over) = p("ended").await;
    bank.ledger.record_void(&ended.id, payment_protocol::cancel::VoidReason::Cancelled).await.unwrap();
    bank.ledger.release(&ended.id, &Cause::SlaExpired).await.unwrap();
    let (changed, not_for_that) = p("changed").await;
    bank.needs_operator(&changed, OperatorReason::RecallUnsupported).await;
    #[rustfmt::skip]
    let table = [
        // decision           by         reason   refused
        (&dec("dec_none"),    "",        "",      No::MissingOperator),
        (&dec("dec_none"),    "Bob",     " ",     No::MissingReason),
        (&dec("dec_none"),    "Bob",     "yes",   No::UnknownDecision(dec("dec_none"))),
        (&withdrawn,          "Ann",     "yes",   No::Closed(DecisionStatus::Withdrawn)),
        (&over,               "Ann",     "yes",   No::Closed(DecisionStatus::Withdrawn)),
        (&confirmed,          "Ann",     "yes",   No::AlreadyConfirmed("Bob".into())),
        (&confirmed,          "Carol",   "yes",   No::AlreadyConfirmed("Bob".into())),
        (&proposed,           "Ann",     "yes",   No::SameOperator("Ann".into())),
        (&proposed,           " aNN\n",  "yes",   No::SameOperator("Ann".into())),
        (&not_for_that,       "Bob",     "yes",   No::ActionNotAllowed { action: Action::Release, reason: OperatorReason::RecallUnsupported }),
    ];
    for (n, (decision_id, by, reason, expected)) in table.into_iter().enumerate() {
        assert_eq!(refused(bank.ledger.confirm(decision_id, by, reason).await), expected, "row {n}");
    }
    #[rustfmt::skip]
    let table = [
        (&dec("dec_none"),    "",        "",      No::MissingOperator),
        (&dec("dec_none"),    "Bob",     " ",     No::MissingReason),
        (&dec("dec_none"),    "Bob",     "no",    No::UnknownDecision(dec("dec_none"))),
        (&confirmed,          "Bob",     "no",    No::AlreadyApplying),
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

/// What moves money waits for another person; then it is put before the workflow, in the same transaction.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_action_that_moves_money_needs_two_operators(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = standing(&bank, "k").await;
    let proposed = bank.ledger.propose(&p.id, Action::Debit, " Ann ", "paid", Some("fax 3")).await.unwrap();
    assert_eq!(proposed.message, None);
    assert_eq!(messages(&bank).await, [], "nobody is told of a proposal");
    let again = bank.ledger.propose(&p.id, Action::Debit, "ann", "paid", Some("fax 3 ")).await.unwrap();
    assert_eq!(again, proposed, "the same proposal is the first one");

    let confirmed = bank.ledger.confirm(&proposed.decision_id, "Bob", "seen it").await.unwrap();
    let ConfirmOutcome::ToApply(message) = &confirmed else { panic!("{confirmed:?}") };
    let decision = Decision { decision_id: proposed.decision_id.clone(), action: Action::Debit };
    assert_eq!((&message.kind, message.ended), (&InboxMessageKind::Decision(decision), false));
    assert_eq!((&message.payment_id, message.workflow_id.as_str()), (&p.id, p.id.as_str()));
    assert_eq!(messages(&bank).await, std::slice::from_ref(message), "the relay delivers it otherwise");
    assert_eq!(bank.ledger.confirm(&proposed.decision_id, "BOB", "again").await.unwrap(), confirmed);

    let on_record = bank.ledger.decisions(&p.id).await.unwrap().pop().unwrap();
    assert_eq!(
        (on_record.action, on_record.status),
        (OperatorAction::OpenPayment(Action::Debit), DecisionStatus::Confirmed)
    );
    assert_eq!((on_record.proposed_by.as_str(), on_record.confirmed_by.as_deref()), ("Ann", Some("Bob")));
    assert_eq!((on_record.reason.as_str(), on_record.confirm_reason.as_deref()), ("paid", Some("seen it")));
    assert_eq!(on_record.evidence.as_deref(), Some("fax 3"));
    bank.audit().await;
}

/// Asking again moves no money: one person decides, and the workflow is told at once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn retry_cancel_needs_one_operator(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = standing(&bank, "k").await;
    let proposed =
        bank.ledger.propose(&p.id, Action::RetryCancel, "Ann", "they are back", None).await.unwrap();
    assert_eq!(messages(&bank).await, [proposed.message.clone().unwrap()]);
    let again = bank.ledger.propose(&p.id, Action::RetryCancel, "Ann", "they are back", None).await.unwrap();
    assert_eq!(again, proposed);
    bank.audit().await;
}

/// An asking that was given up, and comes late, leaves a payment standing; and where a resume shows one as
/// cancelling, people decide all the same.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_cancel_does_not_prevent_a_decision(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = standing(&bank, "k").await;
    bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired).await.unwrap();
    assert_eq!(bank.state(&p).await, "needs_operator");
    bank.sql(&format!("UPDATE payments SET state = 'cancelling' WHERE payment_id = '{}'", p.id)).await;
    let decision_id = bank.propose(&p, Action::Release).await;
    let confirmed = bank.ledger.confirm(&decision_id, "Bob", "I agree").await.unwrap();
    assert!(matches!(confirmed, ConfirmOutcome::ToApply(_)));
    bank.audit().await;
}

/// A withdrawn proposal makes room for another; who withdrew it, and why, is on record.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_withdrawn_proposal_allows_another_one(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = standing(&bank, "k").await;
    let first = bank.propose(&p, Action::Debit).await;
    for _ in 0..2 {
        bank.ledger.withdraw(&first, "Carol", "the wrong one").await.unwrap();
    }
    let second = bank.propose(&p, Action::Release).await;
    assert_ne!(first, second);
    let told: Vec<_> =
        bank.ledger.decisions(&p.id).await.unwrap().into_iter().map(|d| (d.status, d.detail)).collect();
    let withdrawn = Some("withdrawn by Carol: the wrong one".into());
    assert_eq!(told, [(DecisionStatus::Withdrawn, withdrawn), (DecisionStatus::Proposed, None)]);
    bank.audit().await;
}

/// Sixteen proposals and sixteen confirmations at once are one decision, told once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_proposals_and_confirmations_are_one_decision(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let p = standing(&bank, "k").await;
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

/// What moved the payment was quicker: open decisions are closed with its end, in its transaction.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_end_of_a_payment_closes_its_open_decisions(pool: PgPool) {
    let bank = Bank::new(pool);
    let proposed = standing(&bank, "proposed").await;
    bank.propose(&proposed, Action::Release).await;
    let confirmed = standing(&bank, "confirmed").await;
    let decision_id = bank.decide(&confirmed, Action::Release).await;
    for p in [&proposed, &confirmed] {
        bank.ledger.store_callback(&success(p, &support::event(p, "s"))).await.unwrap();
        bank.debit(p).await;
    }
    let sql =
        "SELECT concat_ws(' ', status, outcome ->> 'Ended', detail) FROM decisions ORDER BY proposed_at";
    let told = "the payment ended first: settled";
    assert_eq!(bank.words(sql).await, [format!("withdrawn {told}"), format!("refused settled {told}")]);
    let outcome = bank.ledger.decision_outcome(&decision_id).await.unwrap();
    assert_eq!(outcome, Some(payment_protocol::decision::DecisionOutcome::Ended(FinalState::Settled)));
    bank.audit().await;
}

/// A confirmed decision that the run it was told to has not carried out is told again when the payment next comes to
/// stand: that run may be gone.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_decision_is_delivered_again_after_a_lost_run(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = standing(&bank, "k").await;
    let decision_id = bank.decide(&p, Action::Release).await;
    let told = messages(&bank).await.remove(0);
    bank.ledger.mark_delivered(told.inbox_id).await.unwrap();
    assert_eq!(messages(&bank).await, []);
    bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
    bank.ledger.begin_cancel(&p.id, &Cause::Interrupted).await.unwrap();
    bank.needs_operator(&p, OperatorReason::NotFoundIsInconclusive).await;
    let again = messages(&bank).await.remove(0);
    assert_eq!((again.inbox_id, &again.kind), (told.inbox_id, &told.kind));
    assert_eq!(again.workflow_id, format!("{}:resume:1", p.id));
    bank.ledger.mark_delivered(again.inbox_id).await.unwrap();

    bank.ledger.release_by_decision(&p.id, &decision_id).await.unwrap();
    let left: Vec<_> = messages(&bank).await.into_iter().map(|message| message.kind).collect();
    assert_eq!(
        left,
        [InboxMessageKind::FinalStatusRecorded],
        "what was carried out is told no more; the end is"
    );
    bank.audit().await;
}

/// The database itself keeps the audit trail.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_protects_the_audit_trail_of_decisions(pool: PgPool) {
    const CHECK: &str = "23514";
    const RESTRICT: &str = "23001";
    let bank = Bank::new(pool);
    let p = standing(&bank, "k").await;
    let withdrawn = bank.propose(&p, Action::Debit).await;
    bank.ledger.withdraw(&withdrawn, "Ann", "a mistake").await.unwrap();
    let open = bank.propose(&p, Action::Debit).await;
    let q = standing(&bank, "q").await;
    let confirmed = bank.decide(&q, Action::Release).await;
    let set = |id: &DecisionId, what: &str| format!("UPDATE decisions SET {what} WHERE decision_id = '{id}'");
    let by = |who: &str| {
        format!("status = 'confirmed', confirmed_by = '{who}', confirmed_at = now(), confirm_reason = 'yes'")
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
        (CHECK,    "decisions_four_eyes",         set(&open, &by(" ANN "))),
        (CHECK,    "decisions_operator_given",                   set(&open, &by(" "))),
        (CHECK,    "decisions_done_after_confirmation", set(&open, "status = 'done', closed_at = now()")),
        (CHECK,    "decisions_closed_has_a_time",        set(&open, "status = 'withdrawn'")),
        (CHECK,    "decisions_evidence_given",               insert("action", "'debit'")),
        (CHECK,    "decisions_about_an_exception",      insert("action", "'late_debit'")),
        (CHECK,    "decisions_action_known",            insert("action", "'steal'")),
        ("23505",  "decisions_one_open",                insert("action", "'retry_cancel'")),
    ];
    for (code, told, sql) in table {
        let refused = bank.refused(&sql).await;
        assert!(refused.0 == code && refused.1.contains(told), "{sql}: {refused:?}");
    }
    bank.audit().await;
}
