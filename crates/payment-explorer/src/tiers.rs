//! How far each profile is walked, and what all walks together found.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use payment_protocol::SwitchProfile;
use payment_protocol::profile::Strategy;

use crate::invariants::Violation;
use crate::model::{Bounds, Model};
use crate::search::{self, Sequence};
use crate::state::{Left, State};
use crate::{profiles, tally};

/// One walk: a profile and how far.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The switch.
    pub profile: SwitchProfile,
    /// How far.
    pub bounds: Bounds,
    /// The walk is cut off after so many states, which is reported.
    pub states_max: usize,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// Walks that were made.
    pub walks: u64,
    /// States visited.
    pub states: u64,
    /// Steps from a state to a next that were walked.
    pub paths: u64,
    /// How often each end was reached.
    pub ends: BTreeMap<String, u64>,
    /// How many different exchanges met each branch.
    pub branches: BTreeMap<String, u64>,
    /// What does not hold.
    pub violations: Vec<Broken>,
    /// Walks that were cut off.
    pub cut_off: Vec<String>,
}

/// One violation, with the shortest sequence that leads to it.
#[derive(Debug)]
pub struct Broken {
    /// The walk it was found on.
    pub walk: Walk,
    /// What does not hold.
    pub violation: Violation,
    /// The moves, by number.
    pub sequence: Sequence,
    /// The moves in words, and the state they lead to.
    pub told: Option<Vec<String>>,
}

/// Profiles that stand for what switches are like; the others are walked less far.
const NOTABLE: &[&str] = &[
    "query:query+dedup+tombstone+deadline+cancel+recall+callback",
    "reference:dedup+tombstone+deadline+cancel+recall+callback",
    "write_ahead:query+deadline+cancel+callback",
    "at_most_once:cancel+callback",
    "at_most_once:statement",
    "validate:query+deadline+cancel+recall",
    "query:query+deadline+callback",
];

/// So many of the notable profiles are walked with wrong words in the fast tier.
const WORDS_WALKED: usize = 4;
/// Enough for every walk of the fast tier.
const STATES_MAX: usize = 40_000_000;

impl Walk {
    /// A walk.
    #[must_use]
    pub fn new(profile: SwitchProfile, faults: u8, words: u8, decisions: u8) -> Self {
        let resumes = faults.saturating_add(1);
        let bounds = Bounds { faults, words, decisions, resumes, every_history: false };
        Self { profile, bounds, states_max: STATES_MAX }
    }

    /// Where it begins: with the funds, and without.
    #[must_use]
    pub fn beginnings(&self) -> [State; 2] {
        let left = Left {
            faults: self.bounds.faults,
            words: self.bounds.words,
            decisions: self.bounds.decisions,
            customer_cancel: true,
            freeze: true,
            lateness: true,
        };
        [State::accepted(true, left), State::accepted(false, left)]
    }
}

/// Every accepted profile with nothing going wrong at our machines or on the wire and a decision of people; the
/// notable ones with one fault, and with one wrong word of the switch, in every place. Some seconds.
///
/// # Errors
/// A name of ours that is none.
pub fn fast() -> anyhow::Result<Vec<Walk>> {
    let mut walks: Vec<Walk> = Vec::new();
    for (n, name) in NOTABLE.iter().enumerate() {
        walks.push(Walk::new(profiles::named(name)?, 1, 0, 0));
        if n < WORDS_WALKED {
            walks.push(Walk::new(profiles::named(name)?, 0, 1, 1));
        }
    }
    walks.extend(profiles::accepted()?.into_iter().map(|profile| Walk::new(profile, 0, 0, 1)));
    Ok(walks)
}

/// The notable profiles with two faults, with two wrong words and two decisions, and with one fault beside either; every accepted
/// profile with one fault, and with one wrong word and a decision; and one with every history as a place of its own.
///
/// Two faults at the switch that can do everything, and a fault beside anything under the account lock, are more states than
/// a machine of a developer keeps. An hour of one core or more.
///
/// # Errors
/// A name of ours that is none.
pub fn deep() -> anyhow::Result<Vec<Walk>> {
    let mut walks = Vec::new();
    let whole = profiles::named(NOTABLE.first().copied().unwrap_or("at_most_once"))?;
    for name in NOTABLE {
        let profile = profiles::named(name)?;
        walks.push(Walk::new(profile.clone(), 0, 2, 2));
        if profile.strategy == Strategy::Validate {
            continue;
        }
        walks.push(Walk::new(profile.clone(), 1, 0, 1));
        walks.push(Walk::new(profile.clone(), 1, 1, 0));
        if profile != whole {
            walks.push(Walk::new(profile, 2, 0, 0));
        }
    }
    let mut exact = Walk::new(whole, 0, 1, 1);
    exact.bounds.every_history = true;
    walks.push(exact);
    for profile in profiles::accepted()? {
        walks.push(Walk::new(profile.clone(), 1, 0, 0));
        walks.push(Walk::new(profile, 0, 1, 1));
    }
    Ok(walks)
}

/// Makes all walks, on every core. `progress` is told of each.
#[must_use]
pub fn walk_all(walks: &[Walk], progress: &(dyn Fn(usize, &Walk, &search::Found) + Sync)) -> Found {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(walks.len()) {
            scope.spawn(|| {
                while let Some(walk) = walks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Ok(model) = Model::new(walk.profile.clone(), walk.bounds) else { continue };
                    let one = search::search(&model, &walk.beginnings(), walk.states_max);
                    let branches = tally::branches(&model);
                    let told = one
                        .violation
                        .as_ref()
                        .and_then(|(_, sequence)| search::tell(&model, &walk.beginnings(), sequence));
                    if let Ok(mut found) = found.lock() {
                        found.add(walk, &one, branches, told);
                        progress(usize::try_from(found.walks).unwrap_or(0), walk, &one);
                    }
                }
            });
        }
    });
    found.into_inner().unwrap_or_default()
}

impl Found {
    fn add(
        &mut self,
        walk: &Walk,
        one: &search::Found,
        branches: BTreeMap<String, u64>,
        told: Option<Vec<String>>,
    ) {
        self.walks += 1;
        self.states += one.states;
        self.paths += one.paths;
        for (name, times) in &one.ends {
            *self.ends.entry(name.clone()).or_default() += times;
        }
        for (name, times) in branches {
            *self.branches.entry(name).or_default() += times;
        }
        if let Some((violation, sequence)) = &one.violation {
            let (walk, sequence) = (walk.clone(), sequence.clone());
            self.violations.push(Broken { walk, violation: *violation, sequence, told });
        }
        if one.cut_off {
            self.cut_off.push(profiles::name(&walk.profile));
        }
    }
}
