//! Breadth first through every state, so that the first violation found is the end of a shortest sequence.
//!
//! A state is never visited twice. What makes two states the same is everything: the books, the switch, the
//! wire, and for each piece of running code the answers it has had, which fix where it stands and its locals.
//! States are told apart by a hash of 128 bits; with 10^8 states the chance that any two collide is below 10^-21.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;

use crate::invariants::{self, Violation};
use crate::model::Model;
use crate::moves::{Move, moves};
use crate::run::Step;
use crate::script::Came;
use crate::state::{Run, State};

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// States visited.
    pub states: u64,
    /// Ways from state to state that were walked.
    pub paths: u64,
    /// The violation with the shortest sequence, if there is one.
    pub violation: Option<(Violation, Sequence)>,
    /// The walk was cut off at this many states, and proves nothing about the rest.
    pub cut_off: bool,
    /// How often each end, and each reason to stand before a person, was reached.
    pub ends: HashMap<String, u64>,
}

/// A sequence of moves: which of the moves there are is taken, from the first state on. The first number says
/// whether the account has funds.
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

/// Walks everything from `beginnings`, at most `states_max` states.
#[must_use]
pub fn search(model: &Model, beginnings: &[State], states_max: usize) -> Found {
    let mut found = Found { states: 0, paths: 0, violation: None, cut_off: false, ends: HashMap::new() };
    let mut known: HashMap<u128, u32, FixedState> = HashMap::default();
    let mut nodes: Vec<Node> = Vec::new();
    let mut benign: Vec<(u32, u32)> = Vec::new();
    let mut finished: Vec<u32> = Vec::new();
    let mut layer: Vec<(u32, State)> = Vec::new();
    for (n, beginning) in beginnings.iter().enumerate() {
        let at = index(nodes.len());
        known.insert(fingerprint(beginning), at);
        nodes.push(Node { parent: u32::MAX, taken: u16::try_from(n).unwrap_or(u16::MAX) });
        layer.push((at, beginning.clone()));
    }
    while !layer.is_empty() && found.violation.is_none() {
        let mut next_layer = Vec::new();
        for (at, state) in layer {
            note_end(&mut found.ends, &state);
            if is_finished(&state) || is_bounded(model, &state) {
                finished.push(at);
            }
            for (taken, Move { next, benign: well, .. }) in
                moves(model, &state, false).into_iter().enumerate()
            {
                found.paths += 1;
                let new = index(nodes.len());
                let to = *known.entry(fingerprint(&next)).or_insert(new);
                if well {
                    benign.push((at, to));
                }
                let broken = invariants::broken(model, &state, &next);
                if to == new || broken.is_some() {
                    nodes.push(Node { parent: at, taken: u16::try_from(taken).unwrap_or(u16::MAX) });
                }
                if let Some(violation) = broken {
                    let last = index(nodes.len() - 1);
                    found.violation = Some((violation, sequence(&nodes, last)));
                    found.states = nodes.len() as u64;
                    return found;
                }
                if to == new {
                    next_layer.push((new, next));
                }
            }
            if nodes.len() > states_max {
                found.cut_off = true;
                found.states = nodes.len() as u64;
                return found;
            }
        }
        layer = next_layer;
    }
    found.states = nodes.len() as u64;
    if let Some(stuck) = dead_end(nodes.len(), &benign, &finished) {
        found.violation = Some((invariants::NO_DEAD_END, sequence(&nodes, stuck)));
    }
    found
}

/// Whether nothing is left to do: the payment has ended, and so has its workflow.
fn is_finished(state: &State) -> bool {
    state.bank.ended() && !matches!(state.run, Run::Live(_) | Run::NotStarted)
}

/// Whether people could go on deciding, and only this exploration's bound keeps them from it.
fn is_bounded(model: &Model, state: &State) -> bool {
    let Run::Live(live) = &state.run else { return false };
    let stands = matches!(&*model.run_at(live.resume, &live.past), Came::Asks(Step::WaitUntilEvent));
    let answered = state.bank.decision.as_ref().is_none_or(|decision| decision.came.is_some());
    stands && state.bank.may_stand() && state.left.decisions == 0 && answered
}

fn note_end(ends: &mut HashMap<String, u64>, state: &State) {
    if let Some(name) = crate::tally::end(state) {
        *ends.entry(name).or_default() += 1;
    }
}

/// The first state from which no benign way leads to a finished one. First means nearest to the beginning:
/// states are numbered in the order in which they were found.
fn dead_end(states: usize, benign: &[(u32, u32)], finished: &[u32]) -> Option<u32> {
    // Ways backwards, gathered by where they lead: counting sort keeps this in two flat rows.
    let mut starts = vec![0_u32; states + 1];
    for (_, to) in benign {
        starts[*to as usize + 1] += 1;
    }
    for at in 0..states {
        starts[at + 1] += starts[at];
    }
    let mut place = starts.clone();
    let mut back = vec![0_u32; benign.len()];
    for (from, to) in benign {
        back[place[*to as usize] as usize] = *from;
        place[*to as usize] += 1;
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

/// The moves of a sequence in words, and where they lead. The numbers of moves are those of this model after
/// its [`search`], which has named the places.
#[must_use]
pub fn tell(model: &Model, beginnings: &[State], sequence: &Sequence) -> Option<Vec<String>> {
    let (first, rest) = sequence.0.split_first()?;
    let mut state = beginnings.get(usize::from(*first))?.clone();
    let mut told = vec![format!("accepted; the account has the funds: {}", state.bank.funds)];
    for taken in rest {
        let next = moves(model, &state, true).into_iter().nth(usize::from(*taken))?;
        told.push(next.told);
        state = next.next;
    }
    let (bank, switch) = (&state.bank, &state.switch);
    told.push(format!("bank: {}, hold {:?}, {:?}", bank.state, bank.hold, bank.journal));
    told.push(format!("switch: {switch:?}"));
    Some(told)
}
