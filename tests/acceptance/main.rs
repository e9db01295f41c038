//! Does a payment go its way, and each failure its own? One file per question; each test names the
//! requirement it shows. After each, the bank's ledger and the switch's book are compared.

mod cancelled;
mod confirmed;
mod crashed;
mod path_a;
mod path_b;
mod path_c;
mod submitted_twice;
mod temporal_down;
mod watched;
