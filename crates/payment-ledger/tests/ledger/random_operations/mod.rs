//! R10: random operations on a few payments, compared step by step with a small model. The model follows the design, not the
//! ledger's code or its rules.

mod model;
mod side_by_side;

use std::cell::Cell;

use crate::support::Bank;
use payment_protocol::cause::Cause;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::PgPool;

use self::side_by_side::SideBySide;

const OPERATIONS: usize = 200;
const CASES: u32 = 8;
const PAYMENTS: usize = 6;
const ACCOUNTS: usize = 2;
/// Opening balance, which suffices for two of the three payments of an account.
const OPENING_MINOR: i64 = 2_500;
const CAUSES: [Cause; 3] = [Cause::SlaExpired, Cause::CustomerCancel, Cause::Interrupted];

/// One operation; the numbers are indexes of payments, accounts, runs and causes.
#[derive(Clone, Copy, Debug)]
enum Op {
    Reserve(usize, usize),
    Fence(usize),
    Attempt(usize, usize),
    BeginCancel(usize, usize),
    CustomerCancel(usize),
    Success(usize),
    Returned(usize),
    OtherAmount(usize),
    Failure(usize),
    Void(usize),
    Debit(usize),
    Release(usize, usize),
    Recall(usize, bool),
    Freeze(usize, bool),
    Fund(usize),
    Seal(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let p = || 0..PAYMENTS;
    // Mostly the same run, so that payments reach late states.
    let run = || prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)];
    prop_oneof![
        5 => (p(), run()).prop_map(|(p, run)| Op::Reserve(p, run)),
        1 => p().prop_map(Op::Fence),
        5 => (p(), run()).prop_map(|(p, run)| Op::Attempt(p, run)),
        1 => (p(), 0..3_usize).prop_map(|(p, cause)| Op::BeginCancel(p, cause)),
        1 => p().prop_map(Op::CustomerCancel),
        2 => p().prop_map(Op::Success),
        1 => p().prop_map(Op::Returned),
        2 => p().prop_map(Op::OtherAmount),
        1 => p().prop_map(Op::Failure),
        1 => p().prop_map(Op::Void),
        4 => p().prop_map(Op::Debit),
        2 => (p(), 0..3_usize).prop_map(|(p, cause)| Op::Release(p, cause)),
        2 => (p(), any::<bool>()).prop_map(|(p, yes)| Op::Recall(p, yes)),
        2 => (0..ACCOUNTS, prop_oneof![2 => Just(false), 1 => Just(true)]).prop_map(|(a, frozen)| Op::Freeze(a, frozen)),
        1 => (0..ACCOUNTS).prop_map(Op::Fund),
        2 => (1..4_i64).prop_map(Op::Seal),
    ]
}

async fn run_case(bank: Bank, case: usize, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut both = SideBySide::open(bank, case).await;
    for op in ops {
        both.step += 1;
        let (actual, modelled) = both.apply(op).await;
        proptest::prop_assert_eq!(actual, modelled, "step {}: {:?}", both.step, op);
        let (actual, modelled) = both.state().await;
        proptest::prop_assert_eq!(actual, modelled, "after step {}: {:?}", both.step, op);
        both.bank.audit().await;
    }
    proptest::prop_assert_eq!(both.bank.ledger.verify(None).await.unwrap().findings, []);
    Ok(())
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_two_hundred_random_ledger_operations_match_the_model(pool: PgPool) {
    let runtime = tokio::runtime::Handle::current();
    let walk = move || {
        let config =
            Config { cases: CASES, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
        let case = Cell::new(0);
        TestRunner::new(config).run(&vec(op(), OPERATIONS), |ops| {
            case.set(case.get() + 1);
            runtime.block_on(run_case(Bank::new(pool.clone()), case.get(), ops))
        })
    };
    // The property runs outside the runtime that drives its connections.
    if let Err(failure) = tokio::task::spawn_blocking(walk).await.unwrap() {
        panic!("{failure}");
    }
}
