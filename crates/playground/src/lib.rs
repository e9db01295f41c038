//! The playground: a visitor drops faults onto the instants of one payment, and watches the account with and without idempotency keys.
//!
//! | file | question |
//! |---|---|
//! | [`schedule`] | what goes wrong, and when? |
//! | [`lessons`] | which schedules teach something? |
//! | [`run`] | what does a run show? |
//! | [`simulation`] | what happens in the explorer's world? |
//! | [`real`] | what happens on the real processes? |

pub mod lessons;
#[cfg(feature = "real")]
pub mod real;
pub mod run;
pub mod schedule;
pub mod simulation;
