//! The system as a whole. This library is empty; each folder beside it is one kind of test:
//!
//! | room | question |
//! |---|---|
//! | `acceptance/` | does a payment go its way, and each failure its own (requirements S0.1 to S0.17)? |
//! | `strategies/` | does each kind of switch pay once (S0.11, S1.5, S1.8), and do people's decisions move what no answer can? |
//! | `faults/` | what holds when callbacks, cancels and operators come at every wrong moment, clocks are wrong, starts are repeated, disks are full (R17 to R22, R30, R31, R35), and when relay, broker or notifier die, also in the midst of telling a tenant's own system (R23, R32)? |
//! | `http/` | does the API hold against what its own document lets one think of (R24)? |
//! | `replay/` | does today's workflow go on with yesterday's payments (R27)? |
//!
//! `requirements.md` and `faults.md` say which test shows which row; `rows.rs` checks that those tests are there.
