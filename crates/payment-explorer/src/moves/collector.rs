//! The list of moves from one state.

use super::observation::Observation;
use super::older;
use crate::model::Model;
use crate::state::State;

/// One move.
#[derive(Clone, Debug)]
pub struct Move {
    /// The state after the move.
    pub next: State,
    /// Whether nothing goes wrong in the move.
    pub benign: bool,
    /// Description of the move for a reader; empty unless requested.
    pub description: String,
}

/// The moves from one state, while they are collected.
pub(super) struct MoveList<'m> {
    pub(super) model: &'m Model,
    pub(super) from: &'m State,
    pub(super) observation: Observation,
    moves: Vec<Move>,
    describe: bool,
    /// Whether the runs of `from` are swapped (see `older.rs`).
    swapped: bool,
}

impl<'m> MoveList<'m> {
    pub(super) fn new(model: &'m Model, from: &'m State, observation: Observation, describe: bool) -> Self {
        Self { model, from, observation, moves: Vec::new(), describe, swapped: false }
    }

    /// An empty list of moves from the state with its runs swapped.
    pub(super) fn swapped<'s>(&self, from: &'s State) -> MoveList<'s>
    where
        'm: 's,
    {
        let list = MoveList::new(self.model, from, self.observation, self.describe);
        MoveList { swapped: true, ..list }
    }

    pub(super) fn into_moves(self) -> Vec<Move> {
        self.moves
    }

    /// Adds a move unless it changes nothing.
    pub(super) fn push(&mut self, mut next: State, benign: bool, description: impl FnOnce() -> String) {
        next.signal_final_status(self.from);
        if !self.swapped {
            older::forget_agreeing(&mut next);
        }
        next.normalise();
        if next != *self.from {
            let description = if self.describe { description() } else { String::new() };
            self.moves.push(Move { next, benign, description });
        }
    }

    /// A move in which nothing goes wrong.
    pub(super) fn benign(&mut self, change: impl FnOnce(&mut State), description: impl FnOnce() -> String) {
        let mut next = self.from.clone();
        change(&mut next);
        self.push(next, true, description);
    }

    /// A move that need not happen and costs nothing.
    pub(super) fn optional(&mut self, change: impl FnOnce(&mut State), description: impl FnOnce() -> String) {
        let mut next = self.from.clone();
        change(&mut next);
        self.push(next, false, description);
    }

    /// A move that costs one fault of the switch.
    pub(super) fn switch_fault(
        &mut self,
        change: impl FnOnce(&mut State),
        description: impl FnOnce() -> String,
    ) {
        if let Some(switch_faults) = self.from.budget.switch_faults.checked_sub(1) {
            let mut next = self.from.clone();
            next.budget.switch_faults = switch_faults;
            change(&mut next);
            self.push(next, false, description);
        }
    }

    /// A move that costs one run beside the present one.
    pub(super) fn second_run(
        &mut self,
        change: impl FnOnce(&mut State),
        description: impl FnOnce() -> String,
    ) {
        if let Some(second_runs) = self.from.budget.second_runs.checked_sub(1) {
            let mut next = self.from.clone();
            next.budget.second_runs = second_runs;
            change(&mut next);
            self.push(next, false, description);
        }
    }

    /// A move that costs one fault.
    pub(super) fn fault(&mut self, change: impl FnOnce(&mut State), description: impl FnOnce() -> String) {
        if let Some(faults) = self.from.budget.faults.checked_sub(1) {
            let mut next = self.from.clone();
            next.budget.faults = faults;
            change(&mut next);
            self.push(next, false, description);
        }
    }
}
