//! What two people decided about a payment that stands: refused next to what the switch said, otherwise the end, the
//! money and the close of the decision in one.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use futures::future::join_all;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::DecisionId;
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::rules::{
    DebitByDecisionRuling as DebitRuling, DecisionRefusal, ReleaseByDecisionRuling as ReleaseRuling,
};
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Sample, Stage, event, failure, success};

const HELD: i64 = FUNDS_MINOR - AMOUNT_MINOR;

/// The postings of a payment's decisions.
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

/// A payment at a stage that two people decided about, while it stood for a reason that allows it.
async fn decided(bank: &Bank, stage: Stage, key: &str, action: Action) -> (Sample, DecisionId) {
    let p = bank.payment_at(stage, key).await;
    bank.stand(&p, OperatorReason::ConfirmationMismatch).await;
    let decision_id = bank.decide(&p, action).await;
    (p, decision_id)
}

/// A debit by decision at each stage, twice: who bears it, and what is left.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn at_each_stage_a_decision_debits_once(pool: PgPool) {
    use DebitRuling::{Charge, Refused};
    use DecisionRefusal::{RecallUnderWay, Recalled, SwitchSaysVoid};
    let bank = Bank::new(pool);
    let claimed = "late_debit claims escrow";
    #[rustfmt::skip]
    let table = [
        // stage                account     ruling                     hold        available    posted
        (Stage::Cancelling,     "active",   Charge,                    "debited",  HELD,        vec!["debit holding escrow"]),
        (Stage::Differing,      "active",   Charge,                    "debited",  HELD,        vec!["debit holding escrow"]),
        (Stage::RecallRefused,  "active",   Charge,                    "debited",  HELD,        vec!["debit holding escrow"]),
        (Stage::RecallRefused,  "frozen",   Charge,                    "released", FUNDS_MINOR, vec!["release holding source", claimed]),
        (Stage::Cancelling,     "closed",   Charge,                    "released", FUNDS_MINOR, vec!["release holding source", claimed]),
        (Stage::Fenced,         "active",   Charge,                    "none",     HELD,        vec!["late_debit source escrow"]),
        (Stage::Accepted,       "active",   Charge,                    "none",     HELD,        vec!["late_debit source escrow"]),
        (Stage::Fenced,         "frozen",   Charge,                    "none",     FUNDS_MINOR, vec![claimed]),
        (Stage::Fenced,         "empty",    Charge,                    "none",     0,           vec![claimed]),
        (Stage::Fenced,         "foreign",  Charge,                    "none",     FUNDS_MINOR, vec![claimed]),
        (Stage::Void,           "active",   Refused(SwitchSaysVoid),   "open",     HELD,        vec![]),
        (Stage::Recalled,       "active",   Refused(Recalled),         "open",     HELD,        vec![]),
        (Stage::Barred,         "active",   Refused(RecallUnderWay),   "open",     HELD,        vec![]),
    ];
    for (n, (stage, account, ruling, hold, available, expected)) in table.into_iter().enumerate() {
        let (p, decision_id) = decided(&bank, stage, &format!("row {n}"), Action::Debit).await;
        let what = match account {
            "empty" => {
                let rest = bank.order(&format!("rest {n}"));
                let rest = payment_ledger::steps::accept::NewPayment {
                    source_account: p.account.clone(),
                    money: support::eur(FUNDS_MINOR),
                    ..rest
                };
                let rest = bank.take(&rest).await;
                assert_eq!(bank.reserve(&rest).await, ReserveOutcome::Held);
                "status = 'active'"
            }
            "foreign" => "tenant_id = 'other'",
            "frozen" => "status = 'frozen'",
            "closed" => "status = 'closed'",
            _ => "status = 'active'",
        };
        bank.sql(&format!("UPDATE accounts SET {what} WHERE account_id = '{}'", p.account)).await;
        for _ in 0..2 {
            let ruled = bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap();
            assert_eq!(ruled, ruling, "row {n}");
        }
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
        let claims = expected.contains(&claimed);
        let kinds = bank.exceptions(&p).await;
        assert_eq!(kinds.contains(&"debited_to_claims".to_owned()), claims, "row {n}: {kinds:?}");
        bank.audit().await;
    }
    assert_eq!(bank.internal("claims").await, -5 * AMOUNT_MINOR);
}

/// A release by decision at each stage, twice: the cause that names the end, and what is left.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn at_each_stage_a_decision_releases_once(pool: PgPool) {
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
        (Stage::Recalled,      Release,                     &decision,         "failed",         "released", Some("settled")),
        (Stage::Fenced,        Release,                     &decision,         "failed",         "none",     Some("void")),
        (Stage::Accepted,      Release,                     &decision,         "failed",         "none",     Some("void")),
        (Stage::Barred,        Refused(SwitchSaysSettled),  &decision,         "needs_operator", "open",     Some("settled")),
        (Stage::RecallRefused, Refused(SwitchSaysSettled),  &decision,         "needs_operator", "open",     Some("settled")),
    ];
    for (n, (stage, ruling, cause, state, hold, final_status)) in table.into_iter().enumerate() {
        let (p, decision_id) = decided(&bank, stage, &format!("row {n}"), Action::Release).await;
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
                "row {n}: a late reserve is refused"
            );
        }
        bank.audit().await;
    }
}

/// Asking the switch first has moved the payment to cancelling: what was decided is carried out all the same.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_was_decided_goes_on_from_cancelling(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, release) = decided(&bank, Stage::Differing, "release", Action::Release).await;
    bank.ledger.begin_cancel(&p.id, &Cause::Interrupted).await.unwrap();
    let (ruling, cause) = bank.ledger.release_by_decision(&p.id, &release).await.unwrap();
    assert_eq!((ruling, cause), (ReleaseRuling::Release, Cause::Interrupted));

    let (p, settle) = decided(&bank, Stage::Differing, "debit", Action::Debit).await;
    bank.ledger.begin_cancel(&p.id, &Cause::Interrupted).await.unwrap();
    let ruling = bank.ledger.debit_by_decision(&p.id, &settle).await.unwrap();
    assert_eq!((ruling, bank.state(&p).await.as_str()), (DebitRuling::Charge, "settled"));
    bank.audit().await;
}

/// Whoever brings an id: money moves only by a decision that is on record as confirmed, of this payment and this action.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn only_what_two_people_confirmed_is_carried_out(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, release) = decided(&bank, Stage::Differing, "p", Action::Release).await;
    let (q, settle) = decided(&bank, Stage::Differing, "q", Action::Debit).await;
    let (r, closed) = decided(&bank, Stage::Differing, "r", Action::Debit).await;
    let no = DecisionOutcome::Refused { detail: "the switch has not decided yet".into() };
    bank.ledger.close_decision(&closed, &no, "the switch has not decided yet").await.unwrap();
    let s = bank.payment_at(Stage::Differing, "s").await;
    bank.stand(&s, OperatorReason::ConfirmationMismatch).await;
    let proposed = bank.propose(&s, Action::Debit).await;
    let nothing = DecisionId::new("dec_none").unwrap();
    let not_confirmed = DecisionRefusal::NotConfirmed;
    for (n, (payment, decision_id)) in
        [(&p, &release), (&p, &settle), (&r, &closed), (&s, &proposed), (&q, &nothing)]
            .into_iter()
            .enumerate()
    {
        let ruling = bank.ledger.debit_by_decision(&payment.id, decision_id).await.unwrap();
        assert_eq!(ruling, DebitRuling::Refused(not_confirmed), "row {n}");
    }
    for (n, (payment, decision_id)) in [(&q, &settle), (&q, &release), (&p, &nothing)].into_iter().enumerate()
    {
        let (ruling, _) = bank.ledger.release_by_decision(&payment.id, decision_id).await.unwrap();
        assert_eq!(ruling, ReleaseRuling::Refused(not_confirmed), "row {n}");
    }
    // What waits for a second person is not closed by whoever carries its id around.
    bank.ledger.close_decision(&proposed, &no, "not confirmed").await.unwrap();
    assert_eq!(bank.ledger.decision_outcome(&proposed).await.unwrap(), None);
    assert_eq!(bank.number("SELECT count(*) FROM journal WHERE kind NOT IN ('fund', 'reserve')").await, 0);
    bank.audit().await;
}

/// A decision has keys of its own: the refusal recorded under the step's key does not answer for it, and the step's late
/// repeat does not move anything after it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_12_a_decisions_key_is_not_the_steps(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::RecallRefused, "k").await;
    bank.stand(&p, OperatorReason::RecallRefused).await;
    let decision_id = bank.decide(&p, Action::Debit).await;
    let step = format!("{}:debit", p.tx);
    assert_eq!(bank.operation(&step).await, ["refused frozen_account"]);
    assert_eq!(bank.ledger.debit_by_decision(&p.id, &decision_id).await.unwrap(), DebitRuling::Charge);
    assert_eq!(bank.operation(&format!("{step}:{decision_id}")).await, ["done"]);
    assert_eq!(bank.operation(&step).await, ["refused frozen_account"]);
    assert_eq!(bank.debit(&p).await, DebitOutcome::Done);
    bank.audit().await;
}

/// A SUCCESS that the switch says after people released is an exception, and moves nothing.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_success_after_a_release_by_decision_is_a_late_confirmation(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, release) = decided(&bank, Stage::Cancelling, "released", Action::Release).await;
    bank.ledger.release_by_decision(&p.id, &release).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["late_confirmation"]);
    assert_eq!((bank.state(&p).await.as_str(), bank.available(&p).await), ("timed_out", FUNDS_MINOR));

    // After people settled, SUCCESS is what they said and FAILURE is not.
    let (p, settle) = decided(&bank, Stage::Cancelling, "settled", Action::Debit).await;
    bank.ledger.debit_by_decision(&p.id, &settle).await.unwrap();
    bank.ledger.store_callback(&success(&p, &event(&p, "late"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, Vec::<String>::new());
    bank.ledger.store_callback(&failure(&p, &event(&p, "no"))).await.unwrap();
    assert_eq!(bank.exceptions(&p).await, ["contradictory_final_status"]);
    bank.audit().await;
}

/// What the workflow made of a decision is recorded once; the first word stands and is on the timeline.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_first_close_stands(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // came of it                                          status
        (DecisionOutcome::RetryCancel,                                 "done"),
        (DecisionOutcome::Verdict(FinalStatus::Settled),                "done"),
        (DecisionOutcome::Refused { detail: "no\0answer".into() },  "refused"),
        (DecisionOutcome::Ended(FinalState::Settled),                      "refused"),
    ];
    for (n, (came, status)) in table.into_iter().enumerate() {
        let (p, decision_id) = decided(&bank, Stage::Differing, &format!("row {n}"), Action::Debit).await;
        assert_eq!(bank.ledger.decision_outcome(&decision_id).await.unwrap(), None);
        bank.ledger.close_decision(&decision_id, &came, "in\0words").await.unwrap();
        bank.ledger.close_decision(&decision_id, &DecisionOutcome::Settled, "a late twin").await.unwrap();
        let on_record = bank.ledger.decision(&decision_id).await.unwrap().unwrap();
        assert_eq!(on_record.status.as_str(), status, "row {n}");
        assert_eq!(on_record.detail.as_deref(), Some("in\u{fffd}words"));
        let stored = bank.ledger.decision_outcome(&decision_id).await.unwrap().unwrap();
        assert_eq!(format!("{stored:?}").replace('\u{fffd}', "\\0"), format!("{came:?}"));
        let told = format!("%decision {decision_id}: was %applied: in%words");
        let lines = bank.number(&format!("SELECT count(*) FROM timeline WHERE detail LIKE '{told}'")).await;
        assert_eq!(lines, 1);
        bank.stand(&p, OperatorReason::ConfirmationMismatch).await;
        bank.propose(&p, Action::Debit).await;
    }
    bank.audit().await;
}

/// Sixteen carriers of one decision at once move money once and are told the same.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn many_at_once_are_one_effect(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::crowded(options, connect, 16).await;
    let (p, settle) = decided(&bank, Stage::Differing, "debit", Action::Debit).await;
    let told = join_all((0..16).map(|_| bank.ledger.debit_by_decision(&p.id, &settle))).await;
    assert!(told.into_iter().all(|ruling| ruling.unwrap() == DebitRuling::Charge));

    let (q, release) = decided(&bank, Stage::Differing, "release", Action::Release).await;
    let told = join_all((0..16).map(|_| bank.ledger.release_by_decision(&q.id, &release))).await;
    let once = (ReleaseRuling::Release, Cause::ReleasedByDecision);
    assert!(told.into_iter().all(|ruling| ruling.unwrap() == once));
    assert_eq!((bank.available(&p).await, bank.available(&q).await), (HELD, FUNDS_MINOR));
    bank.audit().await;
    bank.close().await;
}

/// A decision beside the switch's own answer: one of them ends the payment, and it is debited once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_decision_beside_a_success(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::crowded(options, connect, 8).await;
    for round in 0..20 {
        let (p, decision_id) =
            decided(&bank, Stage::Cancelling, &format!("round {round}"), Action::Debit).await;
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
