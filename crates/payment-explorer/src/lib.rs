//! Walks the payment protocol's own code through every order of events.
//!
//! The code of `payment-protocol` is run against a simulated bank, switch and network. At every point where
//! something may happen, everything that may happen is tried: each answer of the switch, a crash, a late
//! arrival, a callback, a person's decision, the end of the workflow. In every state the invariants are
//! checked, and from every state the payment must still be able to end.
//!
//! | file | question |
//! |---|---|
//! | [`profiles`] | which switches are there? |
//! | [`bank`], [`switch`], [`state`] | what is known at one moment? |
//! | [`script`], [`run`], [`attempt`] | where does the code stand, and what does it ask? |
//! | [`place`] | which histories lead to the same place? |
//! | [`moves`] | what may happen next? |
//! | [`invariants`] | what must hold? |
//! | [`search`] | which states are there, and which sequence is the shortest? |
//! | [`tally`] | which ends and branches were met? |
//! | [`tiers`] | how far is each profile walked? |
//!
//! # What is assumed
//! - A step of our ledger is one transaction; [`bank`] writes what `payment-ledger` writes (a test of the
//!   ledger's compares them).
//! - What the switch says of a transfer is true, but for words that contradict its own earlier ones, and for
//!   FAILURE, which is never believed. A matching SUCCESS after an attempt is its commitment.
//! - The switch's clocks differ by less than `max_skew`. A switch that honours no deadline gets nothing that was
//!   paused for longer than its retention (the warning under which such a profile is accepted).
//! - People tell the truth where nothing but their evidence counts, and do not settle while a recall is on its
//!   way; where the switch can answer, they may be wrong.
//! - In one sequence there are at most so many faults, decisions and taking-ups as [`model::Bounds`] says.

pub mod attempt;
pub mod bank;
pub mod invariants;
pub mod model;
pub mod moves;
pub mod place;
pub mod profiles;
pub mod run;
pub mod script;
pub mod search;
pub mod state;
pub mod switch;
pub mod tally;
pub mod tiers;
