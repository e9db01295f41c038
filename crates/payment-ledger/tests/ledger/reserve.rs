//! `steps::reserve`: refusals in their order of precedence, recorded and repeated; one hold per payment; no reserve after a fence,
//! for another run, or after the end.

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage, account_id, eur, first_run, run};
use futures::future::join_all;
use iso_currency::Currency;
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::steps::release::ReleaseStepOutcome;
use payment_protocol::cause::{Cause, ReserveRefusal};
use payment_protocol::ids::TenantId;
use payment_protocol::port::{FenceOutcome, ReserveOutcome, SubmitProgress};
use payment_protocol::state::FinalState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// Conditions that refuse a reserve, in their order of precedence, with the refusal and the final state.
const CONDITIONS: [(&str, ReserveRefusal, &str); 6] = [
    ("customer's cancel", ReserveRefusal::CustomerCancel, "cancelled"),
    ("started too late", ReserveRefusal::StartedTooLate, "rejected"),
    ("unknown account", ReserveRefusal::UnknownAccount, "rejected"),
    ("wrong currency", ReserveRefusal::WrongCurrency, "rejected"),
    ("frozen account", ReserveRefusal::FrozenAccount, "rejected"),
    ("insufficient funds", ReserveRefusal::InsufficientFunds, "rejected"),
];

/// Each row has its own condition and all later ones: the first one determines the refusal.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_reserve_is_refused_for_the_first_reason_in_precedence(pool: PgPool) {
    let bank = Bank::new(pool);
    for (first, (condition, refusal, end)) in CONDITIONS.into_iter().enumerate() {
        let order = bank.order(&format!("row-{first}"));
        let currency = if first <= 3 { Currency::USD } else { Currency::EUR };
        if first != 2 {
            bank.ledger.open_account(&order.tenant, &order.source_account, currency).await.unwrap();
        }
        let p = bank.accept(&order).await;
        if first <= 4 && first != 2 {
            bank.freeze(&p).await;
        }
        if first <= 1 {
            bank.sql(&format!(
                "UPDATE payments SET valid_until = now() - interval '1 ms' WHERE payment_id = '{}'",
                p.id
            ))
            .await;
        }
        if first == 0 {
            bank.customer_cancel(&p).await;
        }
        assert_eq!(bank.reserve(&p).await, ReserveOutcome::Refused(refusal), "{condition}");
        assert_eq!(
            (bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()),
            (end, "none"),
            "{condition}"
        );
        let recorded = bank.operation(&format!("{}:reserve", p.id)).await;
        assert_eq!(recorded, [format!("refused {refusal}")], "{condition}");
        bank.audit().await;
    }
}

/// S1.3: a refusal changes no balance, is recorded, and is repeated after its reason is gone.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s1_3_a_reserve_refusal_is_repeated_after_its_reason_has_gone(pool: PgPool) {
    let bank = Bank::new(pool);

    let poor = bank.order("poor");
    bank.open(poor.source_account.as_str(), AMOUNT_MINOR - 1).await;
    let poor = bank.accept(&poor).await;
    assert_eq!(bank.reserve(&poor).await, ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds));
    assert_eq!(bank.available(&poor).await, AMOUNT_MINOR - 1);
    assert!(bank.ledger.fund(&poor.account, eur(1), "the missing cent").await.unwrap());

    let frozen = bank.payment_at(Stage::Rejected, "frozen").await;
    assert_eq!(bank.available(&frozen).await, FUNDS_MINOR);

    let unknown = bank.accept(&bank.order("unknown")).await;
    assert_eq!(bank.reserve(&unknown).await, ReserveOutcome::Refused(ReserveRefusal::UnknownAccount));
    bank.open(unknown.account.as_str(), FUNDS_MINOR).await;

    for (p, refusal) in [
        (&poor, ReserveRefusal::InsufficientFunds),
        (&frozen, ReserveRefusal::FrozenAccount),
        (&unknown, ReserveRefusal::UnknownAccount),
    ] {
        let before = bank.available(p).await;
        assert_eq!(bank.reserve(p).await, ReserveOutcome::Refused(refusal));
        let other_run = bank.ledger.reserve(&bank.payment(p).await, &run("another")).await.unwrap();
        assert_eq!(other_run, ReserveOutcome::Refused(refusal), "another run");
        assert_eq!((bank.available(p).await, bank.hold(p).await.as_str()), (before, "none"));
    }
    bank.audit().await;
}

/// Another tenant's account and internal accounts are unknown as source.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_reserve_refuses_another_tenants_or_an_internal_source_account(pool: PgPool) {
    let bank = Bank::new(pool);
    let other_tenant = TenantId::new("other").unwrap();
    bank.ledger.open_account(&other_tenant, &account_id("theirs"), Currency::EUR).await.unwrap();
    bank.ledger.fund(&account_id("theirs"), eur(FUNDS_MINOR), "theirs").await.unwrap();
    // So that escrow has a balance.
    bank.payment_at(Stage::Settled, "earlier").await;

    for source in ["theirs", "internal:escrow:EUR", "internal:holding:EUR", "internal:funding:EUR"] {
        let order = NewPayment { source_account: account_id(source), ..bank.order(source) };
        let p = bank.accept(&order).await;
        assert_eq!(
            bank.reserve(&p).await,
            ReserveOutcome::Refused(ReserveRefusal::UnknownAccount),
            "{source}"
        );
    }
    let internal = TenantId::new("internal").unwrap();
    let order = NewPayment {
        tenant: internal,
        source_account: account_id("internal:escrow:EUR"),
        ..bank.order("internal")
    };
    let p = bank.accept(&order).await;
    assert_eq!(bank.reserve(&p).await, ReserveOutcome::Refused(ReserveRefusal::UnknownAccount));
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_whole_balance_can_be_reserved_and_no_more(pool: PgPool) {
    let bank = Bank::new(pool);
    let account = bank.open("purse", 2 * AMOUNT_MINOR).await;
    let mut outcomes = vec![];
    for key in ["a", "b", "c"] {
        let order = NewPayment { source_account: account.clone(), ..bank.order(key) };
        let p = bank.accept(&order).await;
        outcomes.push(bank.reserve(&p).await);
    }
    let refused = ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds);
    assert_eq!(outcomes, [ReserveOutcome::Held, ReserveOutcome::Held, refused]);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_repeated_reserve_holds_the_amount_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    for _ in 0..3 {
        assert_eq!(bank.reserve(&p).await, ReserveOutcome::Held);
    }
    assert_eq!(bank.available(&p).await, FUNDS_MINOR - AMOUNT_MINOR);
    assert_eq!((bank.state(&p).await.as_str(), bank.hold(&p).await.as_str()), ("reserved", "open"));
    assert_eq!(bank.column(&p, "run_id").await.as_deref(), Some(first_run().as_str()));
    bank.audit().await;
}

/// The outcome of a late reserve at each stage, for the run that reserved and for another run.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_late_reserve_changes_nothing_at_each_payment_stage(pool: PgPool) {
    use ReserveOutcome::{AnotherRun, Ended, Held, Refused};
    let bank = Bank::new(pool);
    let fenced = || Refused(ReserveRefusal::Fenced);
    let frozen = || Refused(ReserveRefusal::FrozenAccount);
    #[rustfmt::skip]
    let table = [
        // stage                      the same run          another run           available
        (Stage::Fenced,             fenced(),             fenced(),             FUNDS_MINOR),
        (Stage::Reserved,           Held,                 AnotherRun,           FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::Sent,               Held,                 AnotherRun,           FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::Cancelling,         Held,                 AnotherRun,           FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::Confirmed,          Held,                 AnotherRun,           FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::Void,               Held,                 AnotherRun,           FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::DebitRefused,             Held,                 AnotherRun,           FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::Settled,            Ended(FinalState::Settled),  Ended(FinalState::Settled),  FUNDS_MINOR - AMOUNT_MINOR),
        (Stage::Released,           Ended(FinalState::TimedOut), Ended(FinalState::TimedOut), FUNDS_MINOR),
        (Stage::ReleasedUnreserved, fenced(),             fenced(),             FUNDS_MINOR),
        (Stage::Rejected,           frozen(),             frozen(),             FUNDS_MINOR),
    ];
    for (stage, same, another, available) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let before = (bank.state(&p).await, bank.hold(&p).await);
        assert_eq!(
            bank.ledger.reserve(&bank.payment(&p).await, &run("another")).await.unwrap(),
            another,
            "{stage:?}"
        );
        assert_eq!(bank.reserve(&p).await, same, "{stage:?}");
        assert_eq!((bank.state(&p).await, bank.hold(&p).await), before, "{stage:?}");
        assert_eq!(bank.available(&p).await, available, "{stage:?}");
    }
    bank.audit().await;
}

/// R8: after compensation has begun without a hold, no reserve succeeds, neither by a reset run nor by a late attempt. The payment
/// ends with the cause of the compensation, whatever other condition applies by then.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r8_a_reserve_after_compensation_began_changes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    for condition in ["none", "cancelled", "frozen"] {
        let p = bank.payment_at(Stage::Accepted, condition).await;
        bank.ledger.begin_cancel(&p.id, &Cause::ReserveUnknown, SubmitProgress::NotScheduled).await.unwrap();
        match condition {
            "cancelled" => drop(bank.customer_cancel(&p).await),
            "frozen" => bank.freeze(&p).await,
            _ => {}
        }
        let before =
            (bank.state(&p).await, bank.words("SELECT detail FROM timeline ORDER BY entry_id").await);
        for run in [first_run(), run("another"), first_run()] {
            assert_eq!(
                bank.ledger.reserve(&bank.payment(&p).await, &run).await.unwrap(),
                ReserveOutcome::AnotherRun,
                "{condition}"
            );
        }
        let after = (bank.state(&p).await, bank.words("SELECT detail FROM timeline ORDER BY entry_id").await);
        assert_eq!(after, before, "{condition}");
        assert_eq!(bank.operation(&format!("{}:reserve", p.id)).await, [""; 0], "{condition}");
        assert_eq!(bank.column(&p, "run_id").await, None, "{condition}");
        assert_eq!((bank.available(&p).await, bank.hold(&p).await.as_str()), (FUNDS_MINOR, "none"));

        // The recovery workflow: fence, and release without an attempt.
        let fenced = bank.ledger.fence_reserve(&bank.payment(&p).await).await.unwrap();
        assert_eq!(fenced, FenceOutcome::Open(Some(Cause::ReserveUnknown)), "{condition}");
        let released = bank.ledger.release(&p.id, &Cause::Interrupted).await.unwrap();
        assert_eq!(released, ReleaseStepOutcome::Done(Cause::ReserveUnknown), "{condition}");
        assert_eq!(bank.state(&p).await, "failed", "{condition}");
        assert_eq!(bank.available(&p).await, FUNDS_MINOR, "{condition}");
    }
    bank.audit().await;
}

/// A cancel or a passed `valid_until` refuses a new reserve, not a repeated one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_reserve_repeated_after_a_cancel_or_valid_until_returns_its_hold(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Reserved, "k").await;
    bank.customer_cancel(&p).await;
    bank.sql("UPDATE payments SET valid_until = now() - interval '1 day'").await;
    assert_eq!(bank.reserve(&p).await, ReserveOutcome::Held);
    bank.audit().await;
}

/// A fence records a refusal only if no outcome of the reserve is recorded.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_reserve_is_fenced_only_if_no_outcome_of_it_is_recorded(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // stage                    outcome of the fence                 recorded
        (Stage::Accepted,           FenceOutcome::Open(None),                   "refused fenced"),
        (Stage::Fenced,             FenceOutcome::Open(None),                   "refused fenced"),
        (Stage::Reserved,           FenceOutcome::Open(None),                   "done"),
        (Stage::Cancelling,         FenceOutcome::Open(Some(Cause::SlaExpired)), "done"),
        (Stage::Void,               FenceOutcome::Open(Some(Cause::SlaExpired)), "done"),
        (Stage::Confirmed,          FenceOutcome::Open(None),                   "done"),
        (Stage::Settled,            FenceOutcome::Ended(FinalState::Settled),          "done"),
        (Stage::Released,           FenceOutcome::Ended(FinalState::TimedOut),         "done"),
        (Stage::ReleasedUnreserved, FenceOutcome::Ended(FinalState::Failed),           "refused fenced"),
        (Stage::Rejected,           FenceOutcome::Ended(FinalState::Rejected),         "refused frozen_account"),
    ];
    for (stage, outcome, recorded) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        let state = bank.state(&p).await;
        for _ in 0..2 {
            assert_eq!(
                bank.ledger.fence_reserve(&bank.payment(&p).await).await.unwrap(),
                outcome,
                "{stage:?}"
            );
        }
        assert_eq!(bank.operation(&format!("{}:reserve", p.id)).await, [recorded], "{stage:?}");
        assert_eq!(bank.state(&p).await, state, "{stage:?}");
    }
    bank.audit().await;
}

/// As a refused debit: only a refusal of the row itself is final, and nothing is written.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r6_a_fence_that_the_database_refuses_is_final_and_writes_nothing(pool: PgPool) {
    let bank = Bank::new(pool);
    for (sqlstate, is_final) in [("23514", true), ("22003", true), ("40001", false)] {
        let p = bank.payment_at(Stage::Accepted, sqlstate).await;
        bank.refuse_rows("operations", "NEW.reason = 'fenced'", sqlstate).await;
        let workflow_input = bank.payment(&p).await;
        let error = bank.ledger.fence_reserve(&workflow_input).await.unwrap_err();
        assert_eq!(error.is_final(), is_final, "{sqlstate}: {error:?}");
        assert_eq!(bank.operation(&format!("{}:reserve", p.id)).await, [""; 0], "{sqlstate}");
        bank.allow_rows("operations").await;
        let fenced = bank.ledger.fence_reserve(&workflow_input).await.unwrap();
        assert_eq!(fenced, FenceOutcome::Open(None), "{sqlstate}");
    }
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_invalid_payment_is_rejected_only_before_its_reserve(pool: PgPool) {
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        (Stage::Accepted, "rejected"),
        (Stage::Reserved, "reserved"),
        (Stage::Sent,     "reserved"),
        (Stage::Settled,  "settled"),
        (Stage::Released, "timed_out"),
    ];
    for (stage, after) in table {
        let p = bank.payment_at(stage, &format!("{stage:?}")).await;
        for _ in 0..2 {
            bank.ledger.reject(&bank.payment(&p).await).await.unwrap();
        }
        assert_eq!(bank.state(&p).await, after, "{stage:?}");
    }
    bank.audit().await;
}

/// Of sixteen concurrent runs exactly one reserves.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn of_concurrent_workflow_runs_one_reserves(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 16).await;
    for round in 0..10 {
        let p = bank.payment_at(Stage::Accepted, &format!("round-{round}")).await;
        let runs: Vec<_> = (0..16).map(|n| run(&format!("run-{n}"))).collect();
        let payment = bank.payment(&p).await;
        let outcomes = join_all(runs.iter().map(|run| bank.ledger.reserve(&payment, run))).await;
        let count =
            |expected: ReserveOutcome| outcomes.iter().filter(|o| *o.as_ref().unwrap() == expected).count();
        assert_eq!((count(ReserveOutcome::Held), count(ReserveOutcome::AnotherRun)), (1, 15));
        assert_eq!(bank.available(&p).await, FUNDS_MINOR - AMOUNT_MINOR);
    }
    bank.audit().await;
    bank.close().await;
}
