//! Breadth-first search through every state, so that the first violation found ends a shortest sequence.
//!
//! No state is visited twice. Two states are the same if everything is equal: the books, the switch, the requests
//! in transit, and for each piece of running code its history, which determines its position and its local
//! variables. States are compared by a hash of 128 bits; with 10^8 states the probability that any two collide is
//! below 10^-21.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;

use crate::coverage;
use crate::invariants::{self, Violation};
use crate::model::Model;
use crate::moves::{Move, moves};
use crate::replay::Progress;
use crate::state::{State, WorkflowState};
use crate::words;
use crate::workflow::PortCall;

/// How many states [`describe_dead_end`] visits.
const DEAD_END_STATES_MAX: usize = 100_000;

/// The result of one search.
#[derive(Debug)]
pub struct SearchResult {
    /// States visited.
    pub states: u64,
    /// Number of transitions between states that the search followed.
    pub paths: u64,
    /// The violation with the shortest sequence; `None` if every invariant holds.
    pub violation: Option<(Violation, Sequence)>,
    /// Whether the search stopped at the limit of states, and proves nothing about the rest.
    pub cut_off: bool,
    /// How often each outcome was reached.
    pub outcomes: HashMap<String, u64>,
}

/// A sequence of moves: the position of each move in the list of moves of its state. The first number says which
/// first state is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence(pub Vec<u16>);

impl std::fmt::Display for Sequence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words: Vec<String> = self.0.iter().map(u16::to_string).collect();
        f.write_str(&words.join("."))
    }
}

impl std::str::FromStr for Sequence {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split('.').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

struct Node {
    parent: u32,
    taken: u16,
}

/// A search under way.
struct Search<'m> {
    model: &'m Model,
    known: HashMap<u128, u32, FixedState>,
    nodes: Vec<Node>,
    /// Benign moves: from, to.
    benign: Vec<(u32, u32)>,
    finished: Vec<u32>,
    result: SearchResult,
}

/// Walks everything from `first_states`, at most `states_max` states.
#[must_use]
pub fn search(model: &Model, first_states: &[State], states_max: usize) -> SearchResult {
    let mut search = Search {
        model,
        known: HashMap::default(),
        nodes: Vec::new(),
        benign: Vec::new(),
        finished: Vec::new(),
        result: SearchResult {
            states: 0,
            paths: 0,
            violation: None,
            cut_off: false,
            outcomes: HashMap::new(),
        },
    };
    let mut layer: Vec<(u32, State)> = Vec::new();
    for (n, first) in first_states.iter().enumerate() {
        let at = index(search.nodes.len());
        search.known.insert(fingerprint(first), at);
        search.nodes.push(Node { parent: u32::MAX, taken: u16::try_from(n).unwrap_or(u16::MAX) });
        layer.push((at, first.clone()));
    }
    while !layer.is_empty() {
        let mut next_layer = Vec::new();
        for (at, state) in layer {
            search.visit(at, &state, &mut next_layer);
            search.result.cut_off = search.result.violation.is_none() && search.nodes.len() > states_max;
            if search.result.violation.is_some() || search.result.cut_off {
                search.result.states = search.nodes.len() as u64;
                return search.result;
            }
        }
        layer = next_layer;
    }
    search.result.states = search.nodes.len() as u64;
    if let Some(stuck) = dead_end(search.nodes.len(), &search.benign, &search.finished) {
        search.result.violation = Some((invariants::NO_DEAD_END, sequence(&search.nodes, stuck)));
    }
    search.result
}

impl Search<'_> {
    /// Walks every move from one state, and adds the new states to `next_layer`. Stops at a violation.
    fn visit(&mut self, at: u32, state: &State, next_layer: &mut Vec<(u32, State)>) {
        if let Some(name) = coverage::outcome(state) {
            *self.result.outcomes.entry(name).or_default() += 1;
        }
        if is_finished(self.model, state) || is_bounded(self.model, state) {
            self.finished.push(at);
        }
        for (taken, Move { next, benign, .. }) in moves(self.model, state, false).into_iter().enumerate() {
            self.result.paths += 1;
            let new = index(self.nodes.len());
            let to = *self.known.entry(fingerprint(&next)).or_insert(new);
            if benign {
                self.benign.push((at, to));
            }
            let violation = invariants::violated(self.model, state, &next);
            if to == new || violation.is_some() {
                self.nodes.push(Node { parent: at, taken: u16::try_from(taken).unwrap_or(u16::MAX) });
            }
            if let Some(violation) = violation {
                let last = index(self.nodes.len() - 1);
                self.result.violation = Some((violation, sequence(&self.nodes, last)));
                return;
            }
            if to == new {
                next_layer.push((new, next));
            }
        }
    }
}

/// Whether nothing remains to be done: the payment has ended, and so has its workflow; what a false decision moved is corrected.
fn is_finished(model: &Model, state: &State) -> bool {
    (!state.was_decided_falsely(model) || state.is_booked_right(model))
        && state.bank.ended()
        && !matches!(state.workflow, WorkflowState::Running(_) | WorkflowState::NotStarted)
}

/// Whether operators could decide again, and only this exploration's bound prevents it.
fn is_bounded(model: &Model, state: &State) -> bool {
    let WorkflowState::Running(running) = &state.workflow else { return false };
    let waits = matches!(
        &*model.workflow_at(running.resume, &running.history),
        Progress::Awaits(PortCall::WaitUntilEvent)
    );
    let none_open = state.bank.decision.as_ref().is_none_or(|decision| decision.outcome.is_some());
    waits && state.bank.may_await_operator() && state.budget.decisions == 0 && none_open
}

/// The first state from which no benign moves lead to a finished one; `None` if every state can finish. First means
/// nearest to the first states: states are numbered in the order in which they were found.
fn dead_end(states: usize, benign: &[(u32, u32)], finished: &[u32]) -> Option<u32> {
    // Moves backwards, grouped by their target: counting sort keeps them in two flat vectors.
    let mut starts = vec![0_u32; states + 1];
    for (_, to) in benign {
        starts[*to as usize + 1] += 1;
    }
    for at in 0..states {
        starts[at + 1] += starts[at];
    }
    let mut free = starts.clone();
    let mut back = vec![0_u32; benign.len()];
    for (from, to) in benign {
        back[free[*to as usize] as usize] = *from;
        free[*to as usize] += 1;
    }
    let mut can_end = vec![false; states];
    let mut open: Vec<u32> = finished.to_vec();
    for at in finished {
        can_end[*at as usize] = true;
    }
    while let Some(at) = open.pop() {
        for from in &back[starts[at as usize] as usize..starts[at as usize + 1] as usize] {
            if !can_end[*from as usize] {
                can_end[*from as usize] = true;
                open.push(*from);
            }
        }
    }
    can_end.iter().position(|ends| !ends).map(index)
}

/// Where a dead end leads: the moves to the farthest state that benign moves reach from it, and the benign moves there, in words. Valid
/// as [`describe`].
#[must_use]
pub fn describe_dead_end(model: &Model, first_states: &[State], dead_end: &Sequence) -> Option<Vec<String>> {
    let (state, _) = replay(model, first_states, dead_end)?;
    let benign =
        |state: &State| moves(model, state, true).into_iter().enumerate().filter(|(_, step)| step.benign);
    let mut known: HashSet<u128, FixedState> = HashSet::from_iter([fingerprint(&state)]);
    let mut open = VecDeque::from([(dead_end.clone(), state)]);
    let mut farthest = None;
    while let Some((sequence, state)) = open.pop_front() {
        for (taken, Move { next, .. }) in benign(&state) {
            if known.len() < DEAD_END_STATES_MAX && known.insert(fingerprint(&next)) {
                let mut longer = sequence.clone();
                longer.0.push(u16::try_from(taken).ok()?);
                open.push_back((longer, next));
            }
        }
        farthest = Some((sequence, state));
    }
    let (sequence, state) = farthest?;
    let mut lines = describe(model, first_states, &sequence)?.split_off(dead_end.0.len());
    lines.extend(benign(&state).map(|(_, step)| format!("possible there: {}", step.description)));
    Some(lines)
}

fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

fn sequence(nodes: &[Node], last: u32) -> Sequence {
    let mut taken = Vec::new();
    let mut at = last;
    while let Some(node) = nodes.get(at as usize) {
        taken.push(node.taken);
        at = node.parent;
    }
    taken.reverse();
    Sequence(taken)
}

fn fingerprint(state: &State) -> u128 {
    let half = |seed: u64| u128::from(FixedState::with_seed(seed).hash_one(state));
    (half(0x9e37_79b9_7f4a_7c15) << 64) | half(0xc2b2_ae3d_27d4_eb4f)
}

/// The moves of a sequence in words, and the last state; `None` if there is no such sequence. Valid only after
/// [`search`] with this model, because the search determines the canonical histories.
#[must_use]
pub fn describe(model: &Model, first_states: &[State], sequence: &Sequence) -> Option<Vec<String>> {
    let (state, mut lines) = replay(model, first_states, sequence)?;
    lines.extend(words::books(&state));
    Some(lines)
}

/// The state after a sequence, and its moves in words.
fn replay(model: &Model, first_states: &[State], sequence: &Sequence) -> Option<(State, Vec<String>)> {
    let (first, rest) = sequence.0.split_first()?;
    let mut state = first_states.get(usize::from(*first))?.clone();
    let mut lines = vec![format!("accepted; the account has the funds: {}", state.bank.funds)];
    for choice in rest {
        let next = moves(model, &state, true).into_iter().nth(usize::from(*choice))?;
        lines.push(next.description);
        state = next.next;
    }
    Some((state, lines))
}
