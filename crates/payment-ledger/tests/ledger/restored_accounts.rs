//! `steps::restore` and `claims`: without a confirmation in time the customer's account is restored by an advance of the bank (Regulation
//! (EU) 260/2012 Art. 5a(5)), and the bank bears what follows. Every test ends with an audit in plain SQL.

use std::time::Duration;

use crate::support::{
    AMOUNT_MINOR, Bank, FUNDS_MINOR, OTHER_SWITCH, SWITCH, Sample, Stage, eur, event, profile, success,
    tenant,
};
use futures::future::join_all;
use iso_currency::Currency;
use payment_ledger::admission::limits::{LimitBounds, LimitScope};
use payment_ledger::claims;
use payment_ledger::operator::decisions::{DecideError, DecisionRefusedError};
use payment_ledger::reads::statement::AccountStatementQuery;
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_ledger::steps::restore::{OverdueRestores, RestoreOutcome, RestoreRound};
use payment_protocol::SwitchProfile;
use payment_protocol::action::{Action, Correction};
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::ids::SwitchName;
use payment_protocol::port::DebitOutcome;
use payment_protocol::profile::LateSettlement;
use payment_protocol::rules::{AttemptRuling, NotSent};
use postgres_kit::Pool;
use sqlx::PgPool;

/// A payment at a switch whose profile restores the customer at once, advanced to `stage`.
async fn payment_at(bank: &Bank, stage: Stage, key: &str) -> Sample {
    bank.order_at(stage, order(bank, key)).await
}

fn order(bank: &Bank, key: &str) -> NewPayment {
    let profile = SwitchProfile { restore_customer_after_ms: Some(0), ..profile() };
    NewPayment { profile, ..bank.order(key) }
}

async fn restore(bank: &Bank, p: &Sample) -> RestoreOutcome {
    bank.ledger.restore(&p.id).await.unwrap()
}

/// A payment whose customer's account is restored after one attempt.
async fn restored(bank: &Bank, key: &str) -> Sample {
    let p = payment_at(bank, Stage::Sent, key).await;
    assert_eq!(restore(bank, &p).await, RestoreOutcome::Advanced);
    p
}

/// The payment's entries, as `kind debit>credit`, in the order of their posting.
async fn entries(bank: &Bank, p: &Sample) -> Vec<String> {
    let names = |account: &str| {
        format!(
            "CASE WHEN {account} LIKE 'internal:%' THEN split_part({account}, ':', 2) ELSE 'customer' END"
        )
    };
    let (debit, credit) = (names("debit_account"), names("credit_account"));
    bank.words(&format!(
        "SELECT kind || ' ' || {debit} || '>' || {credit} FROM journal WHERE payment_id = '{}' ORDER BY entry_id",
        p.id
    ))
    .await
}

/// Available and ledger balance of the payment's account.
async fn balances(bank: &Bank, p: &Sample) -> (i64, i64) {
    let account = bank.ledger.account(&tenant(), &p.account).await.unwrap().unwrap();
    (account.available_minor, account.ledger_minor())
}

async fn settle_late(bank: &Bank, p: &Sample) {
    bank.ledger.store_callback(&success(p, &event(p, "late"))).await.unwrap();
    assert_eq!(bank.debit(p).await, DebitOutcome::Done);
    assert_eq!(bank.debit(p).await, DebitOutcome::Done, "a repeat debits again");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_i29_an_unconfirmed_customers_account_is_restored_as_if_nothing_had_been_reserved(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.avoid_midnight().await;
    let scope = LimitScope::Tenant(tenant());
    let bounds = LimitBounds { per_day_count: Some(5), per_day_minor: Some(5_000), per_payment_minor: None };
    bank.set_limit(&scope, Currency::EUR, bounds, "a test").await;
    let p = payment_at(&bank, Stage::Sent, "k").await;
    assert_eq!(balances(&bank, &p).await, (FUNDS_MINOR - AMOUNT_MINOR, FUNDS_MINOR));
    let used = "SELECT used_minor || ' in ' || used_count FROM limit_days";
    assert_eq!(bank.words(used).await, ["1000 in 1"]);

    assert_eq!(restore(&bank, &p).await, RestoreOutcome::Advanced);
    assert_eq!(balances(&bank, &p).await, (FUNDS_MINOR, FUNDS_MINOR));
    assert_eq!(bank.words(used).await, ["0 in 0"]);
    assert_eq!(entries(&bank, &p).await, ["reserve customer>holding", "advance claims>customer"]);
    assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), ("cancelling", "open"));
    // The statement shows both entries with one value date.
    let day = AccountStatementQuery { from: jiff::Timestamp::UNIX_EPOCH, to: None, after: None, limit: 10 };
    let statement = bank.ledger.statement(p.account.as_str(), None, &day).await.unwrap().unwrap();
    let dates: Vec<_> = statement.lines.iter().map(|line| (line.kind.as_str(), line.value_date)).collect();
    assert_eq!([dates[1].0, dates[2].0], ["reserve", "advance"]);
    assert_eq!(dates[1].1, dates[2].1);
    assert_eq!((statement.closing.available_minor, statement.closing.held_minor), (FUNDS_MINOR, 0));
    assert_eq!(bank.column(&p, "final_status").await, None, "an advance says nothing to the switch");
    let cause = bank.column(&p, "cause ->> 'code'").await;
    assert_eq!(cause.as_deref(), Some("sla_expired"));
    // I25: no further attempt goes out.
    assert_eq!(bank.attempt(&p).await, AttemptRuling::NotSent(NotSent::CancelStarted));
    // Once.
    assert_eq!(restore(&bank, &p).await, RestoreOutcome::NotDue);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_an_account_is_restored_only_when_it_is_due_and_only_without_a_confirmation(pool: PgPool) {
    let bank = Bank::new(pool);
    let later = SwitchProfile { restore_customer_after_ms: Some(3_600_000), ..profile() };
    let early = NewPayment { profile: later, ..bank.order("early") };
    let early = bank.order_at(Stage::Sent, early).await;
    let never = bank.payment_at(Stage::Sent, "never").await;
    let mut not_due = vec![early, never];
    for stage in [
        Stage::Accepted,
        Stage::Fenced,
        Stage::Confirmed,
        Stage::DebitRefused,
        Stage::RecallRefused,
        Stage::Settled,
        Stage::Released,
        Stage::Rejected,
    ] {
        not_due.push(payment_at(&bank, stage, &format!("{stage:?}")).await);
    }
    for p in &not_due {
        let before = (bank.state(p).await, balances(&bank, p).await);
        assert_eq!(restore(&bank, p).await, RestoreOutcome::NotDue, "{}", p.account);
        assert_eq!((bank.state(p).await, balances(&bank, p).await), before, "{}", p.account);
    }
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound::default());
    for stage in [Stage::Reserved, Stage::Sent, Stage::Cancelling, Stage::Differing] {
        let p = payment_at(&bank, stage, &format!("due {stage:?}")).await;
        assert_eq!(restore(&bank, &p).await, RestoreOutcome::Advanced, "{stage:?}");
    }
    // A payment that needs an operator stays in the operators' queue.
    let waiting = payment_at(&bank, Stage::Sent, "waiting").await;
    bank.needs_operator(&waiting, OperatorReason::QueriesSpent).await;
    assert_eq!(restore(&bank, &waiting).await, RestoreOutcome::Advanced);
    assert_eq!(bank.state(&waiting).await, "needs_operator");
    bank.audit().await;
}

/// The transfer is void, and the workflow that would release cannot run: the ledger releases by itself.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_a_void_transfer_is_released_when_the_restore_is_due(pool: PgPool) {
    let bank = Bank::new(pool);
    let void = payment_at(&bank, Stage::Void, "void").await;
    assert_eq!(restore(&bank, &void).await, RestoreOutcome::Released);
    assert_eq!(bank.state(&void).await, "timed_out");
    let rejected = payment_at(&bank, Stage::Sent, "rejected").await;
    bank.ledger.record_void(&rejected.id, VoidReason::Rejected).await.unwrap();
    assert_eq!(restore(&bank, &rejected).await, RestoreOutcome::CompensationBegun);
    assert_eq!(restore(&bank, &rejected).await, RestoreOutcome::Released);
    assert_eq!(bank.state(&rejected).await, "failed");
    for p in [&void, &rejected] {
        assert_eq!(balances(&bank, p).await, (FUNDS_MINOR, FUNDS_MINOR));
        assert_eq!(entries(&bank, p).await, ["reserve customer>holding", "release holding>customer"]);
    }
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_concurrent_rounds_restore_each_account_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let mut payments = Vec::new();
    for n in 0..40 {
        payments.push(payment_at(&bank, Stage::Sent, &format!("p{n}")).await);
    }
    let overdue = bank.ledger.overdue_restores().await.unwrap();
    assert_eq!(overdue.count, 40);
    let rounds = join_all((0..4).map(|_| bank.ledger.restore_all_due(Duration::ZERO))).await;
    let restored: usize = rounds.into_iter().map(|round| round.unwrap().restored).sum();
    assert_eq!(restored, 40);
    assert_eq!(bank.ledger.overdue_restores().await.unwrap().count, 0);
    assert_eq!(bank.number("SELECT count(*) FROM journal WHERE kind = 'advance'").await, 40);
    // A round that waits for what is overdue finds nothing so soon.
    let p = payment_at(&bank, Stage::Sent, "soon").await;
    let hour = Duration::from_secs(3_600);
    assert_eq!(bank.ledger.restore_all_due(hour).await.unwrap(), RestoreRound::default());
    assert_eq!(bank.column(&p, "restored_at").await, None);
    bank.audit().await;
}

/// A payment whose restore fails holds up no other.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_a_restore_that_fails_holds_up_no_other(pool: PgPool) {
    let bank = Bank::new(pool);
    let broken = payment_at(&bank, Stage::Sent, "broken").await;
    let sound = payment_at(&bank, Stage::Sent, "sound").await;
    bank.damage(format!("UPDATE holds SET amount_minor = 1 WHERE payment_id = '{}'", broken.id)).await;
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound { restored: 1, failed: 1 });
    assert_eq!(balances(&bank, &sound).await, (FUNDS_MINOR, FUNDS_MINOR));
    assert_eq!(bank.available(&broken).await, FUNDS_MINOR - AMOUNT_MINOR);
}

/// Payments of one account are restored together, and each alone where the database refuses one of them.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_a_restore_that_the_database_refuses_holds_up_no_other_of_its_account(pool: PgPool) {
    let bank = Bank::new(pool);
    let broken = payment_at(&bank, Stage::Sent, "broken").await;
    let sound = NewPayment { source_account: broken.account.clone(), ..order(&bank, "sound") };
    let sound = bank.accept(&sound).await;
    bank.advance(&sound, Stage::Sent).await;
    let refuse = format!(
        "ALTER TABLE journal ADD CONSTRAINT refused CHECK (kind <> 'advance' OR payment_id <> '{}')",
        broken.id
    );
    bank.sql(&refuse).await;
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound { restored: 1, failed: 1 });
    assert_eq!(bank.column(&broken, "restored_at").await, None);
    assert!(bank.column(&sound, "restored_at").await.is_some());
    bank.sql("ALTER TABLE journal DROP CONSTRAINT refused").await;
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound { restored: 1, failed: 0 });
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i26_a_release_after_an_advance_pays_the_claim_and_not_the_customer(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = restored(&bank, "k").await;
    bank.ledger.record_void(&p.id, VoidReason::DeadlinePassed).await.unwrap();
    for _ in 0..2 {
        let released = bank.ledger.release(&p.id, &Cause::SlaExpired).await.unwrap();
        assert_eq!(released, ReleaseStepOutcome::Done(Cause::SlaExpired));
    }
    assert_eq!(balances(&bank, &p).await, (FUNDS_MINOR, FUNDS_MINOR));
    assert_eq!(entries(&bank, &p).await[1..], ["advance claims>customer", "release holding>claims"]);
    assert_eq!((bank.internal("claims").await, bank.state(&p).await.as_str()), (0, "timed_out"));
    // The same by decision.
    let decided = restored(&bank, "decided").await;
    bank.needs_operator(&decided, OperatorReason::QueriesSpent).await;
    let decision = bank.decide(&decided, Action::Release).await;
    bank.ledger.release_by_decision(&decided.id, &decision).await.unwrap();
    assert_eq!(bank.internal("claims").await, 0);
    assert_eq!(balances(&bank, &decided).await, (FUNDS_MINOR, FUNDS_MINOR));
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i27_a_late_settlement_collects_from_the_customer_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let claimed = async |switch: &str| {
        let mut connection = Pool::from(bank.pool.clone()).acquire().await.unwrap();
        let switch = SwitchName::new(switch).unwrap();
        claims::open_minor(&mut connection, &switch, Currency::EUR).await.unwrap()
    };
    let p = restored(&bank, "k").await;
    assert_eq!((claimed(SWITCH).await, claimed(OTHER_SWITCH).await), (AMOUNT_MINOR, 0));
    settle_late(&bank, &p).await;
    assert_eq!(claimed(SWITCH).await, 0);
    assert_eq!(balances(&bank, &p).await, (FUNDS_MINOR - AMOUNT_MINOR, FUNDS_MINOR - AMOUNT_MINOR));
    let expected = ["advance claims>customer", "debit holding>escrow", "collect customer>claims"];
    assert_eq!(entries(&bank, &p).await[1..], expected);
    assert_eq!((bank.internal("claims").await, bank.state(&p).await.as_str()), (0, "settled"));
    assert_eq!(bank.exceptions(&p).await, [""; 0]);
    // The same by decision.
    let decided = restored(&bank, "decided").await;
    bank.needs_operator(&decided, OperatorReason::QueriesSpent).await;
    let decision = bank.decide(&decided, Action::Debit).await;
    bank.ledger.debit_by_decision(&decided.id, &decision).await.unwrap();
    assert_eq!(entries(&bank, &decided).await[1..], expected);
    bank.audit().await;
    let lines =
        format!("SELECT detail FROM timeline WHERE payment_id = '{}' AND detail LIKE '%collected%'", p.id);
    let collected = format!(
        "transfer sent, late: {} collected from the customer, whose account had been restored",
        eur(AMOUNT_MINOR)
    );
    assert_eq!(bank.words(&lines).await, [collected]);
}

/// Never into an overdraft, never from a barred account: the claim stands, visible, until operators collect it or give it up.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i27_i28_a_claim_that_cannot_be_collected_stands_as_an_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let frozen = restored(&bank, "frozen").await;
    bank.freeze(&frozen).await;
    let spent = restored(&bank, "spent").await;
    let elsewhere = NewPayment {
        source_account: spent.account.clone(),
        money: eur(FUNDS_MINOR),
        ..bank.order("elsewhere")
    };
    let elsewhere = bank.accept(&elsewhere).await;
    bank.advance(&elsewhere, Stage::Reserved).await;
    let by_operators = SwitchProfile {
        restore_customer_after_ms: Some(0),
        late_settlement: LateSettlement::Operators,
        ..profile()
    };
    let asked = NewPayment { profile: by_operators, ..bank.order("asked") };
    let asked = bank.order_at(Stage::Sent, asked).await;
    assert_eq!(restore(&bank, &asked).await, RestoreOutcome::Advanced);
    for p in [&frozen, &spent, &asked] {
        settle_late(&bank, p).await;
        assert_eq!(entries(&bank, p).await[1..], ["advance claims>customer", "debit holding>escrow"]);
        assert_eq!(
            (bank.state(p).await.as_str(), bank.exceptions(p).await),
            ("settled", vec!["debited_to_claims".to_owned()])
        );
    }
    assert_eq!(bank.internal("claims").await, -3 * AMOUNT_MINOR);
    let claims = bank.ledger.claims_by_switch().await.unwrap();
    assert_eq!((claims.len(), claims[0].count, claims[0].amount_minor), (1, 3, 3 * AMOUNT_MINOR));

    // While the account is frozen the claim cannot be collected; then it can, once.
    let exception = bank.open_exception(&frozen).await;
    let propose =
        || bank.ledger.propose_correction(exception, Correction::LateDebit, "Ann", "late", Some("camt.029"));
    let refused = propose().await.unwrap_err();
    let barred = DecisionRefusedError::NotCollectable("frozen_account".into());
    assert!(matches!(refused, DecideError::Refused(refused) if refused == barred));
    bank.unfreeze(&frozen).await;
    let proposed = propose().await.unwrap();
    bank.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
    assert_eq!(entries(&bank, &frozen).await.last().unwrap(), "collect customer>claims");
    assert_eq!(bank.available(&frozen).await, FUNDS_MINOR - AMOUNT_MINOR);
    // The claim on the other is given up.
    let exception = bank.open_exception(&spent).await;
    let proposed =
        bank.ledger.propose_correction(exception, Correction::WriteOff, "Ann", "gone", None).await.unwrap();
    bank.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await.unwrap();
    assert_eq!(
        (bank.internal("claims").await, bank.internal("losses").await),
        (-AMOUNT_MINOR, -AMOUNT_MINOR)
    );
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_moves_holds_claims_and_returned_amounts_by_entries_alone(pool: PgPool) {
    let bank = Bank::new(pool);
    let held = payment_at(&bank, Stage::Sent, "held").await;
    let borne = restored(&bank, "borne").await;
    let entry = |p: &Sample, kind: &str, debit: &str, credit: &str| {
        format!(
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('by hand {kind}', '{}', '{kind}', '{debit}', '{credit}', {AMOUNT_MINOR}, 'EUR')",
            p.id
        )
    };
    let (holding, claims) = ("internal:holding:EUR", "internal:claims:EUR");
    let (of_held, of_borne) = (held.account.as_str(), borne.account.as_str());
    for (statement, reason) in [
        (entry(&borne, "release", holding, of_borne), "no hold that matches"),
        (entry(&held, "release", holding, claims), "no open claim"),
        (entry(&held, "advance", claims, of_borne), "no open hold that matches"),
        (entry(&borne, "advance", claims, of_borne), "journal_one_advance"),
        (entry(&held, "collect", of_held, claims), "no open claim"),
        (entry(&held, "advance", of_held, claims), "journal_valid_accounts_for_kind"),
        (entry(&held, "collect", claims, of_held), "journal_valid_accounts_for_kind"),
        ("UPDATE claims SET closed_at = now()".into(), "a claim changes by journal entries"),
        ("DELETE FROM claims".into(), "a claim changes by journal entries"),
        ("UPDATE holds SET borne_by_bank_since = now()".into(), "a hold changes by journal entries"),
        ("UPDATE payments SET returned_minor = 0".into(), "what came back changes by journal entries"),
    ] {
        let refused = bank.refused(&statement).await;
        assert!(refused.1.contains(reason), "{statement}: {refused:?}");
    }
    bank.audit().await;
}

/// What another transaction holds is left to the next round, and holds up no other account.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_a_locked_payment_or_account_holds_up_no_other_restore(pool: PgPool) {
    let bank = Bank::new(pool);
    let locked = payment_at(&bank, Stage::Sent, "locked").await;
    let of_locked_account = payment_at(&bank, Stage::Sent, "of a locked account").await;
    let other = payment_at(&bank, Stage::Sent, "other").await;
    let mut holder = bank.ledger.pool().begin().await.unwrap();
    sqlx::query("SELECT FROM payments WHERE payment_id = $1 FOR UPDATE")
        .bind(locked.id.as_str())
        .execute(&mut *holder)
        .await
        .unwrap();
    sqlx::query("SELECT FROM accounts WHERE account_id = $1 FOR UPDATE")
        .bind(of_locked_account.account.as_str())
        .execute(&mut *holder)
        .await
        .unwrap();
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound { restored: 1, failed: 0 });
    assert_eq!(balances(&bank, &other).await, (FUNDS_MINOR, FUNDS_MINOR));
    holder.rollback().await.unwrap();
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound { restored: 2, failed: 0 });
    bank.audit().await;
}

/// After a refused debit the money left, although the record of the SUCCESS is lost: nothing is to be restored.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_a_refused_debit_without_its_success_is_no_overdue_restore(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = payment_at(&bank, Stage::DebitRefused, "k").await;
    bank.sql("ALTER TABLE payments DISABLE TRIGGER USER").await;
    bank.sql("UPDATE payments SET final_status = NULL, final_status_source = NULL").await;
    bank.sql("ALTER TABLE payments ENABLE TRIGGER USER").await;
    assert_eq!(restore(&bank, &p).await, RestoreOutcome::NotDue);
    assert_eq!(bank.ledger.overdue_restores().await.unwrap(), OverdueRestores::default());
    assert_eq!(bank.ledger.restore_all_due(Duration::ZERO).await.unwrap(), RestoreRound::default());
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_an_account_that_is_restored_late_is_counted_for_an_hour(pool: PgPool) {
    let bank = Bank::new(pool);
    let counts = async || {
        let overdue = bank.ledger.overdue_restores().await.unwrap();
        (overdue.count, overdue.late)
    };
    let p = payment_at(&bank, Stage::Sent, "late").await;
    bank.sql("UPDATE payments SET restore_due_at = restore_due_at - interval '2 seconds'").await;
    assert_eq!(counts().await, (1, 0));
    assert_eq!(restore(&bank, &p).await, RestoreOutcome::Advanced);
    assert_eq!(counts().await, (0, 1));
    bank.sql("UPDATE payments SET restore_due_at = restored_at - interval '900 milliseconds'").await;
    assert_eq!(counts().await, (0, 0));
}

/// More payments of one account than one transaction restores; each counts towards no limit any more (I29).
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn i24_i29_many_payments_of_one_account_are_restored_together(pool: PgPool) {
    const PAYMENTS: usize = 40;
    let bank = Bank::new(pool);
    bank.avoid_midnight().await;
    let bounds = LimitBounds { per_day_count: Some(100), per_day_minor: None, per_payment_minor: None };
    bank.set_limit(&LimitScope::Tenant(tenant()), Currency::EUR, bounds, "a test").await;
    let account = bank.open("merchant", FUNDS_MINOR * PAYMENTS as i64).await;
    for n in 0..PAYMENTS {
        let order = NewPayment { source_account: account.clone(), ..order(&bank, &format!("k{n}")) };
        let p = bank.accept(&order).await;
        bank.advance(&p, Stage::Sent).await;
    }
    let used = "SELECT used_minor || ' in ' || used_count FROM limit_days";
    assert_eq!(bank.words(used).await, ["40000 in 40"]);
    let round = bank.ledger.restore_all_due(Duration::ZERO).await.unwrap();
    assert_eq!(round, RestoreRound { restored: PAYMENTS, failed: 0 });
    assert_eq!(bank.words(used).await, ["0 in 0"]);
    let shown = bank.ledger.account(&tenant(), &account).await.unwrap().unwrap();
    assert_eq!(shown.available_minor, FUNDS_MINOR * PAYMENTS as i64);
    assert_eq!(
        bank.number("SELECT count(*) FROM outbox WHERE kind = 'transfer_restored'").await,
        PAYMENTS as i64
    );
    bank.audit().await;
}
