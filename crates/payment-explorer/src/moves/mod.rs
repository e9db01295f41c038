//! Everything that may happen next.
//!
//! | file | who moves |
//! |---|---|
//! | [`outside`] | the switch by itself, the clock, callbacks, the customer, the account, people |
//! | [`engine`] | the workflow engine: starts, signals, terminations, resets |
//! | [`payment`] | the payment's present step, its attempts and their zombies |
//! | [`doors`] | one question of an attempt to ledger or switch |
//! | [`attention`] | what would be looked at next, so that what nobody looks at may wait |
//!
//! A move is *benign* where nothing goes wrong. From every state benign moves alone must lead to an end.

mod attention;
mod doors;
mod engine;
mod outside;
mod payment;

use crate::model::Model;
use crate::state::State;
use attention::Attention;

/// One way on.
#[derive(Clone, Debug)]
pub struct Move {
    /// Where it leads.
    pub next: State,
    /// Whether nothing goes wrong in it.
    pub benign: bool,
    /// What happens, for people; empty unless asked for.
    pub told: String,
}

/// The moves from one state, while they are collected.
struct Moves<'m> {
    model: &'m Model,
    from: &'m State,
    attention: Attention,
    list: Vec<Move>,
    telling: bool,
}

impl Moves<'_> {
    fn push(&mut self, mut next: State, benign: bool, told: impl FnOnce() -> String) {
        next.wake_who_may_stand(self.from);
        next.tidy();
        if next != *self.from {
            let told = if self.telling { told() } else { String::new() };
            self.list.push(Move { next, benign, told });
        }
    }

    /// A move in which nothing goes wrong.
    fn well(&mut self, change: impl FnOnce(&mut State), told: impl FnOnce() -> String) {
        let mut next = self.from.clone();
        change(&mut next);
        self.push(next, true, told);
    }

    /// A move that need not happen and costs nothing.
    fn may(&mut self, change: impl FnOnce(&mut State), told: impl FnOnce() -> String) {
        let mut next = self.from.clone();
        change(&mut next);
        self.push(next, false, told);
    }

    /// A move that costs one wrong word of the switch.
    fn word(&mut self, change: impl FnOnce(&mut State), told: impl FnOnce() -> String) {
        if let Some(words) = self.from.left.words.checked_sub(1) {
            let mut next = self.from.clone();
            next.left.words = words;
            change(&mut next);
            self.push(next, false, told);
        }
    }

    /// A move that costs one fault.
    fn fault(&mut self, change: impl FnOnce(&mut State), told: impl FnOnce() -> String) {
        if let Some(faults) = self.from.left.faults.checked_sub(1) {
            let mut next = self.from.clone();
            next.left.faults = faults;
            change(&mut next);
            self.push(next, false, told);
        }
    }
}

/// Every way on from `state`, always in the same order. With `telling`, in words too.
#[must_use]
pub fn moves(model: &Model, state: &State, telling: bool) -> Vec<Move> {
    let attention = Attention::of(model, state);
    let mut moves = Moves { model, from: state, attention, list: Vec::new(), telling };
    payment::moves(&mut moves);
    engine::moves(&mut moves);
    outside::moves(&mut moves);
    moves.list
}
