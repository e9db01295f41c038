//! One payment at a time on each rail (docs/rails/README.md): the shipped profile against a mock switch of that rail's shape. The rail's times
//! are made shorter, its rules are not. After each test the bank's ledger is compared with the switch's transfers.

mod ids;
mod kinds;
mod queries;
mod recalls;
mod rejects;
mod repeats;
mod restores;
mod returns;
mod statements;
mod two_switches;
