//! The playground: a visitor drops faults onto the instants of one payment, and watches the account with and without idempotency keys.
//!
//! | file | question |
//! |---|---|
//! | [`schedule`] | what goes wrong, and when? |
//! | [`lessons`] | which schedules teach something? |
//! | [`run`] | what does a run show? |
//! | [`simulation`] | what happens in the explorer's world? |
//! | `real` | what happens on the real processes? |
//! | [`bugs`] | how does a seeded bug show? |
//! | `traces` | what did the real processes do for one payment? |
//! | [`server`], `live`, `page` | how does the visitor see it? |

pub mod bugs;
pub mod lessons;
#[cfg(feature = "real")]
mod live;
#[cfg(feature = "real")]
pub mod real;
pub mod run;
pub mod schedule;
pub mod server;
pub mod simulation;
#[cfg(feature = "real")]
pub mod traces;
