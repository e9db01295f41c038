//! Does each kind of switch pay once, whatever its strategy (S0.11, S1.5, S1.8), and do people's
//! decisions move what no answer can? One file per question; each test names the requirement it shows.
//! After each, the bank's ledger and the switch's book are compared.

mod at_most_once;
mod crashed;
mod decided;
mod locked;
mod people;
mod polled;
mod shapes;
mod write_ahead;
