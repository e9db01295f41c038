//! Walks the payment protocol's own code through every order of events.
//!
//! The explorer runs the code of `payment-protocol` against a simulated bank, switch and network. At every
//! point where something can happen, the explorer tries everything that can happen: each answer of the switch, a
//! crash, a late arrival, a callback, an operator decision, the loss of the workflow. It checks the invariants
//! in every state, and from every state the payment must still be able to end.
//!
//! | file | question |
//! |---|---|
//! | [`profiles`] | which switches are there? |
//! | [`bank`], [`switch`], [`listing`], [`state`] | what is known at one moment? |
//! | [`replay`], [`workflow`], [`attempt`] | which call does the code await? |
//! | [`equivalence`] | which histories lead to the same code position? |
//! | [`moves`] | what can happen next? |
//! | [`invariants`] | what must hold? |
//! | [`search`] | which states are there, and which sequence is the shortest? |
//! | [`coverage`] | which outcomes and branches were reached? |
//! | [`tiers`] | how far is each profile walked? |
//! | `words` | what does a move say to a reader? |
//!
//! # Assumptions
//! - A step of our ledger is one transaction; [`bank`] writes what `payment-ledger` writes (a test of the ledger
//!   compares the two).
//! - The switch's reports about a transfer are true, except reports that contradict its own earlier ones, and
//!   except FAILURE, which the protocol never trusts. A matching SUCCESS after an attempt is binding.
//! - The switch's clocks differ by less than `max_skew`. A switch that does not honour deadlines receives no
//!   request that was delayed for longer than its retention (the warning under which such a profile is
//!   accepted).
//! - Operators report the truth when only their evidence counts, and do not decide a debit while a recall is in
//!   transit, except in the walks with decisions on false evidence; reconciliation then finds the truth after the end.
//! - At a switch without references a stranger's transfer of our amount is never the only candidate after our marker.
//! - A copy of the switch lags behind by less than the deadline and the skew, unless the acceptance is recorded.
//! - One sequence has at most as many faults, decisions and recoveries as [`model::WalkBounds`] allows. [`tiers`] names what no tier
//!   walks; the program prints the bounds of each walk.

pub mod attempt;
pub mod bank;
pub mod coverage;
pub mod equivalence;
pub mod invariants;
pub mod listing;
pub mod model;
pub mod moves;
pub mod profiles;
pub mod replay;
pub mod search;
pub mod state;
pub mod switch;
pub mod tiers;
mod words;
pub mod workflow;
