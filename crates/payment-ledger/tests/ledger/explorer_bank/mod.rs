//! The simulated bank of `payment-explorer` is this ledger: random operations of two payments from one account, on both. After each
//! round of operations both must have returned the same and have recorded the same. The operations of a round run at the same
//! time, and the ledger must do what the simulated banks do in one of the serial orders.
//!
//! | file | content |
//! |---|---|
//! | `op.rs` | the operations, and random rounds of them |
//! | `ledger_side.rs` | an operation on the ledger |
//! | `simulated_side.rs` | an operation on two simulated banks with one account |
//! | `recorded.rs` | what both have recorded, in the same notation |
//! | `steps.rs` | every step of the ledger is compared, or named with the reason why not |

mod ledger_side;
mod op;
mod recorded;
mod simulated_side;
mod steps;

use std::cell::Cell;

use crate::support::Bank;
use futures::future::join_all;
use payment_protocol::profile::Strategy as SwitchStrategy;
use proptest::prelude::BoxedStrategy;
use proptest::sample::select;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use self::ledger_side::LedgerSide;
use self::op::Round;
use self::simulated_side::SimulatedSide;

/// The strategies of switches between which the bank distinguishes: the second stands for a switch whose callbacks a query must confirm; a
/// payment at the third needs the account alone; the fourth stands for a rail that limits queries and whose rejects are final.
const STRATEGIES: [SwitchStrategy; 4] =
    [SwitchStrategy::Reference, SwitchStrategy::Query, SwitchStrategy::Validate, SwitchStrategy::AtMostOnce];

/// The setting of a case: funds of the account in amounts of a payment, and the strategy of the switch.
type Setting = (u8, SwitchStrategy);

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r38_the_explored_bank_is_this_ledger(options: PgPoolOptions, connect: PgConnectOptions) {
    walk(Bank::with_connections(options, connect, 4).await, || op::one_by_one(28)).await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r38_concurrent_steps_are_the_explored_banks_in_some_order(
    options: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let bank = Bank::with_connections(options, connect, 4).await;
    let settings = (0..=2).flat_map(|funds| STRATEGIES.map(|strategy| (funds, strategy)));
    let contested =
        settings.flat_map(|setting| op::contested().into_iter().map(move |rounds| (setting, rounds)));
    for (n, (setting, rounds)) in contested.enumerate() {
        if let Err(failure) = run_case(&bank, &format!("contested-{n}"), setting, rounds).await {
            panic!("{setting:?}: {failure}");
        }
    }
    walk(bank, || op::at_the_same_time(14)).await;
}

/// Walks random cases, with `TEST_LONG` ten times as many. `EXPLORER_BANK_SEED` repeats the operations of a failure.
async fn walk(bank: Bank, rounds: fn() -> BoxedStrategy<Vec<Round>>) {
    let cases = if std::env::var_os("TEST_LONG").is_some() { 640 } else { 64 };
    let seed =
        std::env::var("EXPLORER_BANK_SEED").ok().map_or_else(random_seed, |seed| seed.parse().unwrap());
    let runtime = tokio::runtime::Handle::current();
    let walked = tokio::task::spawn_blocking(move || {
        let case = Cell::new(0);
        let config = Config {
            cases,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(seed),
            max_shrink_iters: 100,
            ..Config::default()
        };
        let setting = (0..=2_u8, select(STRATEGIES.to_vec()));
        let failed = TestRunner::new(config).run(&(setting, rounds()), |(setting, rounds)| {
            case.set(case.get() + 1);
            runtime.block_on(run_case(&bank, &case.get().to_string(), setting, rounds))
        });
        runtime.block_on(bank.close());
        failed
    });
    match walked.await.unwrap() {
        Ok(()) => {}
        Err(TestError::Fail(reason, ((funds, strategy), rounds))) => {
            panic!("EXPLORER_BANK_SEED={seed}: {reason}\nfunds {funds}, {strategy:?}: {rounds:?}")
        }
        Err(aborted) => panic!("EXPLORER_BANK_SEED={seed}: {aborted}"),
    }
}

fn random_seed() -> u64 {
    u64::from(std::process::id()) ^ jiff::Timestamp::now().as_nanosecond().unsigned_abs() as u64
}

async fn run_case(
    bank: &Bank,
    case: &str,
    setting: Setting,
    rounds: Vec<Round>,
) -> Result<(), TestCaseError> {
    let mut ledger = LedgerSide::open(bank, case, setting).await;
    // More than one if the ledger may have taken the operations of a round in several orders.
    let mut banks = vec![SimulatedSide::new(&ledger, setting.0)];
    for (n, round) in rounds.iter().enumerate() {
        ledger.begin_round(n).await;
        let returned = join_all(round.iter().map(|(payment, op)| ledger.apply(*payment, op))).await;
        let actual = (returned, ledger.recorded().await);
        let mut simulated = Vec::new();
        let mut matching: Vec<SimulatedSide> = Vec::new();
        for (bank, order) in banks.iter().flat_map(|bank| orders(round.len()).map(move |order| (bank, order)))
        {
            let mut bank = bank.clone();
            let mut returned = vec![String::new(); round.len()];
            for at in order {
                let (payment, op) = &round[at];
                returned[at] = bank.apply(*payment, op, &ledger.known);
            }
            let result = (returned, bank.recorded());
            if result == actual && !matching.contains(&bank) {
                matching.push(bank);
            } else if result != actual && !simulated.contains(&result) {
                simulated.push(result);
            }
        }
        if matching.is_empty() {
            let message = format!("round {n} {round:?}:\nledger   {actual:#?}\nexplorer {simulated:#?}");
            return Err(TestCaseError::fail(message));
        }
        banks = matching;
    }
    Ok(())
}

/// All orders of the numbers below `len`.
fn orders(len: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut orders = vec![Vec::new()];
    for next in 0..len {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, next);
                    longer
                })
            })
            .collect();
    }
    orders.into_iter()
}
