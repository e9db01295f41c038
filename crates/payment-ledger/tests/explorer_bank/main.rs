//! The simulated bank of `payment-explorer` matches this ledger: random operations on both. After each operation both must have
//! returned the same and have recorded the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed step fails the test")]

mod side_by_side;
#[path = "../support/mod.rs"]
mod support;

use std::cell::Cell;

use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::Action;
use payment_protocol::facts::RecallRecord;
use payment_protocol::submit::SendAnswer;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use sqlx::PgPool;
use support::Bank;

use crate::side_by_side::SideBySide;

const OPERATIONS: usize = 24;
const CASES: u32 = 160;

/// One operation of the ledger; the numbers are of runs.
#[derive(Clone, Debug)]
enum Op {
    Reserve(u8),
    Fence,
    Attempt(u8),
    Answer(SendAnswer),
    FoundAtSwitch,
    Reconcile,
    BeginCancel(Cause),
    CustomerCancel,
    Success,
    OtherAmount,
    Returned,
    Failure,
    QueriedSettled,
    Void(VoidReason),
    Debit,
    Release(Cause),
    Recall(RecallRecord),
    NeedsOperator(OperatorReason),
    Decide(Action),
    ApplyDecision,
    Freeze(bool),
}

fn op() -> impl Strategy<Value = Op> {
    let run = || prop_oneof![5 => Just(1_u8), 1 => Just(2_u8)];
    let cause = || prop_oneof![Just(Cause::SlaExpired), Just(Cause::CustomerCancel)];
    let reason = prop_oneof![
        Just(OperatorReason::SwitchRetentionExpired),
        Just(OperatorReason::NotFoundIsInconclusive),
        Just(OperatorReason::RecallUnsupported),
    ];
    let answer = prop_oneof![
        Just(SendAnswer::Accepted),
        Just(SendAnswer::Refused { reason: "no".into() }),
        Just(SendAnswer::Unknown { detail: "lost".into() }),
    ];
    let void = prop_oneof![
        Just(VoidReason::Cancelled),
        Just(VoidReason::Tombstoned),
        Just(VoidReason::DeadlinePassed),
        Just(VoidReason::NeverSent),
    ];
    let recall = prop_oneof![
        Just(RecallRecord::Recalled),
        Just(RecallRecord::Refused),
        Just(RecallRecord::RecallUnsupported),
    ];
    prop_oneof![
        6 => run().prop_map(Op::Reserve),
        1 => Just(Op::Fence),
        5 => run().prop_map(Op::Attempt),
        3 => answer.prop_map(Op::Answer),
        1 => Just(Op::FoundAtSwitch),
        1 => Just(Op::Reconcile),
        2 => cause().prop_map(Op::BeginCancel),
        1 => Just(Op::CustomerCancel),
        2 => Just(Op::Success),
        1 => Just(Op::OtherAmount),
        1 => Just(Op::Returned),
        2 => Just(Op::Failure),
        1 => Just(Op::QueriedSettled),
        2 => void.prop_map(Op::Void),
        4 => Just(Op::Debit),
        2 => cause().prop_map(Op::Release),
        2 => recall.prop_map(Op::Recall),
        4 => reason.prop_map(Op::NeedsOperator),
        4 => prop_oneof![Just(Action::Debit), Just(Action::Release)].prop_map(Op::Decide),
        4 => Just(Op::ApplyDecision),
        2 => any::<bool>().prop_map(Op::Freeze),
    ]
}

async fn run_case(ledger: Bank, case: usize, funds: bool, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let mut both = SideBySide::open(ledger, case, funds).await;
    for (n, op) in ops.iter().enumerate() {
        let (actual, simulated) = both.apply(op).await;
        if actual != simulated {
            let message = format!("operation {n} {op:?}: ledger {actual}, explorer {simulated}");
            return Err(TestCaseError::fail(message));
        }
        let (actual, simulated) = both.recorded().await;
        if actual != simulated {
            let message = format!("after operation {n} {op:?}:\nledger   {actual}\nexplorer {simulated}");
            return Err(TestCaseError::fail(message));
        }
    }
    Ok(())
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r38_the_explorers_model_of_the_bank_matches_the_ledger(pool: PgPool) {
    let runtime = tokio::runtime::Handle::current();
    let walk = move || {
        let case = Cell::new(0);
        let mut runner =
            TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
        runner.run(&(any::<bool>(), vec(op(), OPERATIONS)), |(funds, ops)| {
            case.set(case.get() + 1);
            runtime.block_on(run_case(Bank::new(pool.clone()), case.get(), funds, ops))
        })
    };
    if let Err(failure) = tokio::task::spawn_blocking(walk).await.unwrap() {
        panic!("{failure}");
    }
}
