//! Everything that can happen next.
//!
//! | file | moves |
//! |---|---|
//! | `environment.rs` | the switch by itself, the clock, callbacks, the customer, the account, operators |
//! | `engine.rs` | Temporal and the starter: starts, signals, terminations, resets |
//! | `older.rs` | a run that goes on beside the present one |
//! | `others.rs` | other payers to the same account, at a switch without references |
//! | `payment.rs` | the workflow's present call and its attempts |
//! | `delayed.rs` | zombies and requests in transit |
//! | `answers` | one call of an attempt to ledger or switch |
//! | `read_back.rs` | a call at a switch without references that finds another transfer, or several |
//! | `observation.rs` | what the next calls observe, so that events that no call observes can wait |
//! | `collector.rs` | the list of moves |
//!
//! A move is *benign* if nothing goes wrong in it. From every state, benign moves alone must lead to an end.

mod answers;
mod collector;
mod delayed;
mod engine;
mod environment;
mod observation;
mod older;
mod others;
mod payment;
mod read_back;

use collector::MoveList;
use observation::Observation;

use crate::model::Model;
use crate::state::State;

pub use collector::Move;

/// Every move from `state`, always in the same order; with descriptions if `describe` is set.
#[must_use]
pub fn moves(model: &Model, state: &State, describe: bool) -> Vec<Move> {
    let observation = Observation::of(model, state);
    let mut list = MoveList::new(model, state, observation, describe);
    payment::add(&mut list);
    older::add(&mut list);
    delayed::add(&mut list);
    engine::add(&mut list);
    environment::add(&mut list);
    others::add(&mut list);
    list.into_moves()
}
