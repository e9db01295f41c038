//! `operator::decisions::apply`: a confirmed decision is refused if it contradicts the final status; otherwise the final state,
//! the journal entries and the outcome of the decision are recorded in one transaction.

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Sample, Stage, event, failure, success};
use futures::future::join_all;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::{DebitOutcome, ReserveOutcome, SubmitProgress};
use payment_protocol::rules::{
    DebitByDecisionRuling as DebitRuling, DecisionRefusal, ReleaseByDecisionRuling as ReleaseRuling,
};
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const HELD: i64 = FUNDS_MINOR - AMOUNT_MINOR;

/// The payment's entries after the reserve, with generic account names.
async fn posted(bank: &Bank, p: &Sample) -> Vec<String> {
    bank.words(&format!(
        "SELECT concat_ws(' ', kind, debit_account, credit_account) FROM journal
         WHERE payment_id = '{}' AND kind <> 'reserve' ORDER BY entry_id",
        p.id
    ))
    .await
    .into_iter()
    .map(|line| line.replace(p.account.as_str(), "source").replace("internal:", "").replace(":EUR", ""))
    .collect()
}

/// A payment at a stage with a confirmed decision, while its operator reason allows the action.
async fn payment_with_decision(bank: &Bank, stage: Stage, key: &str, action: Action) -> (Sample, DecisionId) {
    let p = bank.payment_at(stage, key).await;
    bank.needs_operator(&p, OperatorReason::ConfirmationMismatch).await;
    let decision_id = bank.decide(&p, action).await;
    (p, decision_id)
}

/// A debit by decision at each stage, applied twice: the debited account, the hold and the balance.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_debit_decision_is_applied_once_at_each_payment_stage(pool: PgPool) {
    use DebitRuling::{Charge, Refused};
    use DecisionRefusal::{RecallUnderWay, Returned, SwitchSaysVoid};
    let bank = Bank::new(pool);
    let from_claims = "late_debit claims escrow";
    #[rustfmt::skip]
    let table = [
        // stage                account     ruling                     hold        available    posted
        (Stage::Cancelling,     "active",   Charge,                    "debited",  HELD,        vec!["debit holding escrow"]),
        (Stage::Differing,      "active",   Charge,                    "debited",  HELD,        vec!["debit holding escrow"]),
        (Stage::RecallRefused,  "active",   Charge,                    "debited",  HELD,        vec!["debit holding escrow"]),
        (Stage::RecallRefused,  "frozen",   Charge,                    "released", FUNDS_MINOR, vec!["release holding source", from_claims]),
        (Stage::Cancelling,     "closed",   Charge,                    "released", FUNDS_MINOR, vec!["release holding source", from_claims]),
        (Stage::Fenced,         "active",   Charge,                    "none",     HELD,        vec!["late_debit source escrow"]),
        (Stage::Accepted,       "active",   Charge,                    "none",     HELD,        vec!["late_debit source escrow"]),
        (Stage::Fenced,         "frozen",   Charge,                    "none",     FUNDS_MINOR, vec![from_claims]),
        (Stage::Fenced,         "empty",    Charge,                    "none",     0,           vec![from_claims]),
        (Stage::Fenced,         "foreign",  Charge,                    "none",     FUNDS_MINOR, vec![from_claims]),
        (Stage::Fenced,         "dollars",  Charge,                    "none",     FUNDS_MINOR, vec![from_claims]),
        (Stage::Void,           "active",   Refused(SwitchSaysVoid),   "open",     HELD,        vec![]),
        (Stage::Recalled,       "active",   Refused(Returned),         "open",     HELD,        vec![]),
        (Stage::DebitRefused,         "active",   Refused(RecallUnderWay),   "open",     HELD,        vec![]),
    ];
    for (n, (stage, account, ruling, hold, available, expected)) in table.into_iter().enumerate() {
        let (p, decision_id) = payment_with_decision(&bank, stage, &format!("row {n}"), Action::Debit).await;
        let change = match account {
            "empty" => {
                let rest = bank.order(&format!("rest {n}"));
                let rest = payment_ledger::steps::accept::NewPayment {
                    source_account: p.account.clone(),
                    money: crate::support::eur(FUNDS_MINOR),
                    ..rest
                };
                let rest = bank.accept(&rest).await;
                assert_eq!(bank.reserve(&rest).await, ReserveOutcome::Held);
                "status = 'active'"
            }
            "foreign" => "tenant_id = 'other'",
            "dollars" => "currency = 'USD'",
            "frozen" => "status = 'frozen'",
            "closed" => "status = 'closed'",
            _ => "status = 'active'",
        };
        bank.sql(&format!("UPDATE accounts SET {change} WHERE account_id = '{}'", p.account)).await;
        for _ in 0..2 {
            let ruled = bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap();
            assert_eq!(ruled, ruling, "row {n}");
        }
        bank.sql(&format!("UPDATE accounts SET currency = 'EUR' WHERE account_id = '{}'", p.account)).await;
        assert_eq!(posted(&bank, &p).await, expected, "row {n}");
        assert_eq!((bank.hold(&p).await.as_str(), bank.available(&p).await), (hold, available), "row {n}");
        let outcome = bank.ledger.decision_outcome(&decision_id).await.unwrap();
        if ruling == Charge {
            assert_eq!(bank.state(&p).await, "settled", "row {n}");
            assert_eq!(bank.column(&p, "final_status").await.as_deref(), Some("settled"), "row {n}");
            assert_eq!(outcome, Some(DecisionOutcome::Settled), "row {n}");
        } else {
            assert_eq!((bank.state(&p).await.as_str(), outcome), ("needs_operator", None), "row {n}");
        }
        let is_claimed = expected.contains(&from_claims);
        let kinds = bank.exceptions(&p).await;
        assert_eq!(kinds.contains(&"debited_to_claims".to_owned()), is_claimed, "row {n}: {kinds:?}");
        bank.audit().await;
    }
    assert_eq!(bank.internal("claims").await, -6 * AMOUNT_MINOR);
}

/// A release by decision at each stage, applied twice: the cause, the final state, the hold and the balance.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_release_decision_is_applied_once_at_each_payment_stage(pool: PgPool) {
    use DecisionRefusal::SwitchSaysSettled;
    use ReleaseRuling::{Refused, Release};
    let bank = Bank::new(pool);
    let decision = Cause::ReleasedByDecision;
    #[rustfmt::skip]
    let table = [
        // stage               ruling                       cause              state after       hold        final_status
        (Stage::Cancelling,    Release,                     &Cause::SlaExpired, "timed_out",      "released", Some("void")),
        (Stage::Differing,     Release,                     &decision,         "failed",         "released", Some("void")),
        (Stage::Void,          Release,                     &Cause::SlaExpired, "timed_out",      "released", Some("void")),
        (Stage::Recalled,      Release,                     &decision,         "failed",         "released", Some("returned")),
        (Stage::Fenced,        Release,                     &decision,         "failed",         "none",     Some("void")),
        (Stage::Accepted,      Release,                     &decision,         "failed",         "none",     Some("void")),
        (Stage::DebitRefused,        Refused(SwitchSaysSettled),  &decision,         "needs_operator", "open",     Some("settled")),
        (Stage::RecallRefused, Refused(SwitchSaysSettled),  &decision,         "needs_operator", "open",     Some("settled")),
    ];
    for (n, (stage, ruling, cause, state, hold, final_status)) in table.into_iter().enumerate() {
        let (p, decision_id) =
            payment_with_decision(&bank, stage, &format!("row {n}"), Action::Release).await;
        for _ in 0..2 {
            let ruled = bank.ledger.release_by_decision(&p.id, &decision_id).await.unwrap();
            assert_eq!(ruled, (ruling, cause.clone()), "row {n}");
        }
        assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), (state, hold), "row {n}");
        assert_eq!(bank.column(&p, "final_status").await.as_deref(), final_status, "row {n}");
        let outcome = bank.ledger.decision_outcome(&decision_id).await.unwrap();
        assert_eq!(outcome, (ruling == Release).then(|| DecisionOutcome::Released(cause.clone())), "row {n}");
        if ruling == Release {
            assert_eq!(bank.available(&p).await, FUNDS_MINOR, "row {n}");
            assert!(
                !matches!(bank.reserve(&p).await, ReserveOutcome::Held),
                "row {n}: a late reserve succeeded"
            );
        }
        bank.audit().await;
    }
}

/// The cancel before applying the decision has changed the state to cancelling, which does not prevent the decision.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_operator_decision_is_applied_while_the_payment_is_cancelling(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, release) = payment_with_decision(&bank, Stage::Differing, "release", Action::Release).await;
    bank.ledger.begin_cancel(&p.id, &Cause::Interrupted, SubmitProgress::NotScheduled).await.unwrap();
    let (ruling, cause) = bank.ledger.release_by_decision(&p.id, &release).await.unwrap();
    assert_eq!((ruling, cause), (ReleaseRuling::Release, Cause::Interrupted));

    let (p, debit) = payment_with_decision(&bank, Stage::Differing, "debit", Action::Debit).await;
    bank.ledger.begin_cancel(&p.id, &Cause::Interrupted, SubmitProgress::NotScheduled).await.unwrap();
    let ruling = bank.ledger.debit_by_decision(&p.id, &debit).await.unwrap();
    assert_eq!((ruling, bank.state(&p).await.as_str()), (DebitRuling::Charge, "settled"));
    bank.audit().await;
}

/// Money moves only by a decision that is recorded as confirmed, for this payment and this action.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn only_a_confirmed_operator_decision_of_the_payment_is_applied(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, release) = payment_with_decision(&bank, Stage::Differing, "p", Action::Release).await;
    let (q, debit) = payment_with_decision(&bank, Stage::Differing, "q", Action::Debit).await;
    let (r, closed) = payment_with_decision(&bank, Stage::Differing, "r", Action::Debit).await;
    let refused = DecisionOutcome::Refused { detail: "the switch has not decided yet".into() };
    bank.ledger.close_decision(&closed, &refused, "the switch has not decided yet").await.unwrap();
    let s = bank.payment_at(Stage::Differing, "s").await;
    bank.needs_operator(&s, OperatorReason::ConfirmationMismatch).await;
    let proposed = bank.propose(&s, Action::Debit).await;
    let unknown = DecisionId::new("dec_none").unwrap();
    let not_confirmed = DecisionRefusal::NotConfirmed;
    for (n, (payment, decision_id)) in
        [(&p, &release), (&p, &debit), (&r, &closed), (&s, &proposed), (&q, &unknown)].into_iter().enumerate()
    {
        let ruling = bank.ledger.debit_by_decision(&payment.id, decision_id).await.unwrap();
        assert_eq!(ruling, DebitRuling::Refused(not_confirmed), "row {n}");
    }
    for (n, (payment, decision_id)) in [(&q, &debit), (&q, &release), (&p, &unknown)].into_iter().enumerate()
    {
        let (ruling, _) = bank.ledger.release_by_decision(&payment.id, decision_id).await.unwrap();
        assert_eq!(ruling, ReleaseRuling::Refused(not_confirmed), "row {n}");
    }
    // A proposed decision cannot be closed before its confirmation.
    bank.ledger.close_decision(&proposed, &refused, "not confirmed").await.unwrap();
    assert_eq!(bank.ledger.decision_outcome(&proposed).await.unwrap(), None);
    assert_eq!(bank.number("SELECT count(*) FROM journal WHERE kind NOT IN ('fund', 'reserve')").await, 0);
    bank.audit().await;
}

/// A decision has its own operation key: the refusal under the step's key does not affect it, and a late repeat of the step
/// moves nothing.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_12_an_operator_decision_has_its_own_operation_key(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::RecallRefused, "k").await;
    bank.needs_operator(&p, OperatorReason::RecallRefused).await;
    let decision_id = bank.decide(&p, Action::Debit).await;
    let step = format!("{}:debit", p.tx);
    assert_eq!(bank.operation(&step).await, ["refused frozen_account"]);
    assert_eq!(bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap(), DebitRuling::Charge);
    assert_eq!(bank.operation(&format!("{step}:{decision_id}")).await, ["done"]);
    assert_eq!(bank.operation(&step).await, ["refused frozen_account"]);
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.audit().await;
}

/// A SUCCESS after a release by decision is an exception and moves no money.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_after_a_release_by_decision_is_a_late_confirmation(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, release) = payment_with_decision(&bank, Stage::Cancelling, "released", Action::Release).await;
    bank.ledger.release_by_decision(&p.id, &release).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["late_confirmation"]);
    assert_eq!((bank.state(&p).await.as_str(), bank.available(&p).await), ("timed_out", FUNDS_MINOR));

    // After a debit by decision, SUCCESS agrees with it and FAILURE contradicts it.
    let (p, debit) = payment_with_decision(&bank, Stage::Cancelling, "settled", Action::Debit).await;
    bank.ledger.debit_by_decision(&p.id, &debit).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, Vec::<String>::new());
    bank.ledger.store_callback(&failure(&p, &event(&p, "no"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    bank.audit().await;
}

/// The end of a payment closes its decisions. One that is open nevertheless, after damage to the data, is refused.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_confirmed_decision_about_an_ended_payment_is_refused(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, decision_id) = payment_with_decision(&bank, Stage::Differing, "k", Action::Debit).await;
    assert_eq!(bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap(), DebitRuling::Charge);
    let lost_close =
        "UPDATE decisions SET status = 'confirmed', outcome = NULL, detail = NULL, closed_at = NULL";
    bank.damage(lost_close.to_owned()).await;
    let ruling = bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap();
    assert_eq!(ruling, DebitRuling::Ended(FinalState::Settled));
    let recorded = bank.ledger.decision(&decision_id).await.unwrap().unwrap();
    assert_eq!(
        (recorded.status.as_str(), recorded.detail.as_deref()),
        ("refused", Some("the payment had ended"))
    );
    assert_eq!(posted(&bank, &p).await, ["debit holding escrow"]);
}

/// The outcome of a decision is recorded once, with an entry in the timeline; later outcomes are ignored.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_first_outcome_of_an_operator_decision_is_kept(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // outcome                                                  status     state
        (DecisionOutcome::RetryCancel,                              "done",    "cancelling"),
        (DecisionOutcome::FinalStatus(FinalStatus::Settled),        "done",    "needs_operator"),
        (DecisionOutcome::Refused { detail: "no\0answer".into() },  "refused", "needs_operator"),
        (DecisionOutcome::Ended(FinalState::Settled),               "refused", "needs_operator"),
    ];
    for (n, (outcome, status, state)) in table.into_iter().enumerate() {
        let (p, decision_id) =
            payment_with_decision(&bank, Stage::Differing, &format!("row {n}"), Action::Debit).await;
        assert_eq!(bank.ledger.decision_outcome(&decision_id).await.unwrap(), None);
        bank.ledger.close_decision(&decision_id, &outcome, "in\0words").await.unwrap();
        bank.ledger.close_decision(&decision_id, &DecisionOutcome::Settled, "a late repeat").await.unwrap();
        let recorded = bank.ledger.decision(&decision_id).await.unwrap().unwrap();
        assert_eq!(recorded.status.as_str(), status, "row {n}");
        assert_eq!(bank.state(&p).await, state, "row {n}");
        assert_eq!(recorded.detail.as_deref(), Some("in\u{fffd}words"));
        let stored = bank.ledger.decision_outcome(&decision_id).await.unwrap().unwrap();
        assert_eq!(format!("{stored:?}").replace('\u{fffd}', "\\0"), format!("{outcome:?}"));
        let pattern = format!("%decision {decision_id}: was %applied: in%words");
        let lines =
            bank.number(&format!("SELECT count(*) FROM timeline WHERE detail LIKE '{pattern}'")).await;
        assert_eq!(lines, 1);
        bank.needs_operator(&p, OperatorReason::ConfirmationMismatch).await;
        bank.propose(&p, Action::Debit).await;
    }
    bank.audit().await;
}

/// Sixteen concurrent applications of one decision move money once and return the same ruling.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_applications_of_an_operator_decision_have_one_effect(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let (p, debit) = payment_with_decision(&bank, Stage::Differing, "debit", Action::Debit).await;
    let rulings = join_all((0..16).map(|_| bank.ledger.debit_by_decision(&p.id, &debit))).await;
    assert!(rulings.into_iter().all(|ruling| ruling.unwrap() == DebitRuling::Charge));

    let (q, release) = payment_with_decision(&bank, Stage::Differing, "release", Action::Release).await;
    let rulings = join_all((0..16).map(|_| bank.ledger.release_by_decision(&q.id, &release))).await;
    let expected = (ReleaseRuling::Release, Cause::ReleasedByDecision);
    assert!(rulings.into_iter().all(|ruling| ruling.unwrap() == expected));
    assert_eq!((bank.available(&p).await, bank.available(&q).await), (HELD, FUNDS_MINOR));
    bank.audit().await;
    bank.close().await;
}

/// A decision concurrent with a SUCCESS: one of them ends the payment, with one debit.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_debit_decision_concurrent_with_a_success_callback_debits_once(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 8).await;
    for round in 0..20 {
        let (p, decision_id) =
            payment_with_decision(&bank, Stage::Cancelling, &format!("round {round}"), Action::Debit).await;
        let by_step = async {
            bank.ledger.store_callback(&success(&p, &event(&p, "s"))).await.unwrap();
            bank.debit(&p).await
        };
        let (_, ruling) =
            futures::future::join(by_step, bank.ledger.debit_by_decision(&p.id, &decision_id)).await;
        let ruling = ruling.unwrap();
        assert!(
            matches!(ruling, DebitRuling::Charge | DebitRuling::Ended(FinalState::Settled)),
            "{ruling:?}"
        );
        assert_eq!((bank.state(&p).await.as_str(), bank.available(&p).await), ("settled", HELD));
    }
    bank.audit().await;
    bank.close().await;
}
