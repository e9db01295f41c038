//! Each submit strategy debits once (S0.11, S1.5, S1.8), and operator decisions end payments that no answer of the switch can
//! end. Test names begin with the number of the requirement. After each test the bank's ledger is compared with the switch's
//! transfers.

mod account_lock;
mod all_strategies;
mod at_most_once;
mod operator_decisions;
mod operators;
mod polling;
mod switch_kinds;
mod write_ahead;
