//! How far each profile is walked, and the results of all walks together.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use payment_protocol::SwitchProfile;
use payment_protocol::profile::{ConfirmByQuery, Rail, Strategy};

use crate::invariants::{self, Violation};
use crate::model::{Model, WalkBounds};
use crate::search::{self, SearchResult, Sequence};
use crate::state::{Budget, State};
use crate::{coverage, profiles};

/// One walk: a profile and its bounds.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Profile of the walked switch.
    pub profile: SwitchProfile,
    /// Bounds of the walk.
    pub bounds: WalkBounds,
    /// The walk stops at this many states, which is reported.
    pub states_max: usize,
}

/// The results of all walks.
#[derive(Debug, Default)]
pub struct Summary {
    /// Completed walks.
    pub walks: u64,
    /// States visited.
    pub states: u64,
    /// Moves from state to state that were walked.
    pub paths: u64,
    /// How often each outcome was reached.
    pub outcomes: BTreeMap<String, u64>,
    /// How many different exchanges reached each branch.
    pub branches: BTreeMap<String, u64>,
    /// The violations.
    pub violations: Vec<Counterexample>,
    /// The profiles whose walk was cut off.
    pub cut_off: Vec<String>,
}

/// One violation, with the shortest sequence that leads to it.
#[derive(Debug)]
pub struct Counterexample {
    /// The walk that found the violation.
    pub walk: Walk,
    /// The violated invariant.
    pub violation: Violation,
    /// The moves, by number.
    pub sequence: Sequence,
    /// The moves in words, and the last state.
    pub description: Option<Vec<String>>,
}

/// Profiles that represent typical switches; other profiles are walked less far.
const REPRESENTATIVE: &[&str] = &[
    "query:query+dedup+tombstone+deadline+cancel+recall+callback",
    "reference:dedup+tombstone+deadline+cancel+recall+callback",
    "write_ahead:query+deadline+cancel+callback",
    "at_most_once:cancel+callback",
    "at_most_once:statement",
    "validate:query+deadline+cancel+recall",
    "query:query+deadline+callback",
];

/// Profiles of switches that leave most to operators.
const FEW_ANSWERS: &[&str] =
    &["at_most_once:callback", "at_most_once:recall+callback", "query:query+dedup+callback"];
/// Profiles of switches that can cancel or recall, and whose customers' accounts are restored when no confirmation comes.
const RESTORING: &[&str] = &[
    "query:query+dedup+tombstone+deadline+cancel+recall+callback+restore",
    "at_most_once:recall+callback+statement+restore",
];
/// Profiles of switches whose callbacks move no money until a query confirms them. With the customer's and the account's events in the
/// deep tier.
const CONFIRMING: &[&str] = &[
    "query:query+dedup+tombstone+deadline+cancel+recall+callback+confirm",
    "at_most_once:query+recall+callback+confirm",
];
/// Profiles walked with a lost commit and a fault, of ours or of the switch; without the customer's and the account's events (limits:
/// decisions 0020 and 0025). At the last five the first attempt may be recorded together with the reserve.
const LOST_AND_FAULTY: &[&str] = &[
    "validate:query+deadline+cancel+recall",
    "at_most_once:callback",
    "query:query+deadline+callback",
    "at_most_once:cancel+callback",
    "write_ahead:query+deadline+cancel+callback",
    "query:query+dedup+tombstone+deadline+cancel+recall+callback",
    "reference:dedup+tombstone+deadline+cancel+recall+callback",
    "query:query+dedup+callback",
    "rtp",
    "pix",
];
/// Profiles walked with a lost commit, a fault of ours and one of the switch, and with a failover and one of the switch.
const LOST_WITH_BOTH_FAULTS: &[&str] =
    &["at_most_once:cancel+callback", "query:query+deadline+callback", "query:query+dedup+callback"];
/// The representative profile of a switch whose statement alone says what became of a transfer.
const STATEMENT_ONLY: &str = "at_most_once:statement";
/// The representative profile of a switch without references.
const WITHOUT_REFERENCES: &str = "validate:query+deadline+cancel+recall";
/// How many of the representative profiles the fast tier walks with faults of the switch.
const WITH_SWITCH_FAULTS: usize = 4;
/// Of so many accepted profiles the short tier walks one.
const WITHOUT_TROUBLE: usize = 10;
/// Profiles that the short tier walks with a fault, or a lost commit, and with all events; seeded bugs have these walks.
const WITH_ALL_EVENTS: &[&str] = &[
    "query:query+dedup+tombstone+deadline+cancel+recall+callback",
    "query:query+deadline+callback",
    "at_most_once:cancel+callback",
];
/// Profiles that the short tier walks with two runs alive at once.
const WITH_SECOND_RUNS: &[&str] = &[
    "query:query+dedup+tombstone+deadline+cancel+recall+callback",
    "query:query+deadline+callback",
    "at_most_once:statement",
    "validate:query+deadline+cancel+recall",
];
/// More states than any walk has, about 15 GB of memory.
const STATES_MAX: usize = 120_000_000;

/// What the fast tier leaves to the deep tier, in words; printed with its counts.
pub const LEFT_TO_DEEP: &[&str] = &[
    "two faults; a fault with a decision; a fault of each kind except at the rails; two faults of the switch with two decisions",
    "a fault at a profile that is neither representative nor a rail's, and at one that confirms callbacks by a query with a customer's or account's event; a failover with a fault of the switch, except at three profiles, and there with a decision; two runs alive at once with a decision",
];

/// What no tier walks, in words; printed with the counts.
pub const NOT_WALKED: &[&str] = &[
    "a lost commit with a fault and a customer's or account's event (limits: decision 0020)",
    "a lost commit and a loss of Temporal's record together (payctl restore-check)",
    "a transfer sent within the first workflow task whose records and reply are lost together, if the repeated reserve is then refused (limits: decision 0025)",
    "three runs alive at once; two runs alive at once with another fault, or with a decision at a switch that has only a statement",
    "two other payments to one account; false evidence in two decisions, or in a correction",
    "a further decision after a refused one beside a second payment or a second run; a failover with a second payment (ends at limits of decision 0008)",
    "a failover of our database with a customer's or account's event, with a fault of ours or two of the switch, or to a standby that is behind by more than the switch's retention",
    "a copy of the switch that forgot a transfer and accepts a delayed request of it again; one that forgets what we have no answer about",
    "lost commits of an acceptance, of a limit, of a statement's position; ids of the rails; returns of a part; interval and window of queries",
    "a stranger's transfer as the only candidate after our marker; a copy that lags beyond the deadline (limits: decision 0008)",
];

impl Walk {
    /// A walk with these bounds.
    #[must_use]
    pub fn new(profile: SwitchProfile, faults: u8, switch_faults: u8, decisions: u8) -> Self {
        let recoveries = faults.saturating_add(1);
        let bounds = WalkBounds {
            faults,
            switch_faults,
            lost_commits: 0,
            failovers: 0,
            second_runs: 0,
            second_payments: 0,
            false_decisions: 0,
            decisions,
            events: WalkBounds::EVENTS,
            recoveries,
            every_history: false,
        };
        Self { profile, bounds, states_max: STATES_MAX }
    }

    /// This walk, in which this many confirmed commits may be lost.
    #[must_use]
    pub fn with_lost_commits(mut self, lost_commits: u8) -> Self {
        self.bounds.lost_commits = lost_commits;
        self
    }

    /// This walk, in which our ledger may fail over this many times to a standby that has fallen behind.
    #[must_use]
    pub fn with_failovers(mut self, failovers: u8) -> Self {
        self.bounds.failovers = failovers;
        self
    }

    /// This walk, in which this many runs may go on beside the present one.
    #[must_use]
    pub fn with_second_runs(mut self, second_runs: u8) -> Self {
        self.bounds.second_runs = second_runs;
        self
    }

    /// This walk, in which this many other payments may use the same account.
    #[must_use]
    pub fn with_second_payments(mut self, second_payments: u8) -> Self {
        self.bounds.second_payments = second_payments;
        self
    }

    /// This walk, in which this many decisions may rest on false evidence.
    #[must_use]
    pub fn with_false_decisions(mut self, false_decisions: u8) -> Self {
        self.bounds.false_decisions = false_decisions;
        self
    }

    /// This walk, with at most this many of the customer's and the account's events.
    #[must_use]
    pub fn with_events(mut self, events: u8) -> Self {
        self.bounds.events = events;
        self
    }

    /// The first states: an account with the funds, and one without.
    #[must_use]
    pub fn first_states(&self) -> [State; 2] {
        let budget = Budget {
            faults: self.bounds.faults,
            switch_faults: self.bounds.switch_faults,
            lost_commits: self.bounds.lost_commits,
            failovers: self.bounds.failovers,
            second_runs: self.bounds.second_runs,
            second_payments: self.bounds.second_payments,
            false_decisions: self.bounds.false_decisions,
            decisions: self.bounds.decisions,
            events: self.bounds.events,
            customer_cancel: true,
            freeze: true,
            late_start: true,
        };
        [State::accepted(true, budget), State::accepted(false, budget)]
    }
}

/// Every accepted profile with one decision and without faults; the representative ones and every rail also with one fault, with one fault
/// of the switch (a rail also with both), with one lost commit, with a failover, with two runs alive at once, and with a decision on false evidence, at every point; three profiles with a failover and a
/// fault of the switch. Some minutes.
///
/// Not walked: see [`NOT_WALKED`].
///
/// # Errors
/// A built-in profile name is invalid, which does not occur.
pub fn fast() -> anyhow::Result<Vec<Walk>> {
    let mut walks: Vec<Walk> = Vec::new();
    for (n, name) in REPRESENTATIVE.iter().enumerate() {
        walks.push(Walk::new(profiles::named(name)?, 1, 0, 0));
        walks.push(Walk::new(profiles::named(name)?, 0, 0, 1).with_lost_commits(1));
        walks.push(Walk::new(profiles::named(name)?, 0, 0, 0).with_second_runs(1).with_events(0));
        if n < WITH_SWITCH_FAULTS {
            walks.push(Walk::new(profiles::named(name)?, 0, 1, 1));
        }
    }
    for name in REPRESENTATIVE.iter().chain(FEW_ANSWERS) {
        let profile = profiles::named(name)?;
        walks.push(Walk::new(profile.clone(), 0, 0, 1).with_false_decisions(1).with_events(1));
        walks.push(Walk::new(profile, 0, 1, 1).with_false_decisions(1).with_events(0));
    }
    for name in RESTORING {
        let profile = profiles::named(name)?;
        walks.push(Walk::new(profile.clone(), 0, 0, 1));
        walks.push(Walk::new(profile.clone(), 0, 0, 1).with_lost_commits(1).with_events(1));
        walks.push(Walk::new(profile, 0, 1, 1).with_events(1));
    }
    for name in CONFIRMING {
        let profile = profiles::named(name)?;
        walks.push(Walk::new(profile.clone(), 1, 0, 0).with_events(0));
        walks.push(Walk::new(profile.clone(), 0, 0, 1).with_events(1));
        walks.push(Walk::new(profile.clone(), 0, 0, 1).with_lost_commits(1).with_events(0));
        walks.push(Walk::new(profile, 0, 1, 1).with_false_decisions(1).with_events(0));
    }
    for rail in Rail::ALL {
        let profile = profiles::named(rail.as_str())?;
        walks.push(Walk::new(profile.clone(), 1, 0, 0).with_events(1));
        walks.push(Walk::new(profile.clone(), 0, 1, 1).with_events(1));
        walks.push(Walk::new(profile.clone(), 1, 1, 0).with_events(0));
        walks.push(Walk::new(profile.clone(), 0, 0, 1).with_lost_commits(1).with_events(1));
        walks.push(Walk::new(profile.clone(), 0, 0, 0).with_second_runs(1).with_events(0));
        walks.push(Walk::new(profile, 0, 1, 1).with_false_decisions(1).with_events(0));
    }
    for name in LOST_AND_FAULTY {
        walks.push(Walk::new(profiles::named(name)?, 1, 0, 0).with_lost_commits(1).with_events(0));
        let decided = Walk::new(profiles::named(name)?, 0, 1, 1).with_lost_commits(1).with_events(0);
        walks.push(decided.with_false_decisions(1));
    }
    let rails = Rail::ALL.iter().map(|rail| rail.as_str());
    for name in REPRESENTATIVE.iter().chain(RESTORING).chain(CONFIRMING).copied().chain(rails) {
        walks.push(Walk::new(profiles::named(name)?, 0, 0, 1).with_failovers(1).with_events(0));
    }
    for name in LOST_WITH_BOTH_FAULTS {
        walks.push(Walk::new(profiles::named(name)?, 0, 1, 0).with_failovers(1).with_events(0));
    }
    let validate = profiles::named(WITHOUT_REFERENCES)?;
    walks.push(
        Walk::new(validate.clone(), 0, 0, 1).with_second_payments(1).with_lost_commits(1).with_events(0),
    );
    walks.push(Walk::new(validate.clone(), 0, 1, 1).with_second_payments(1));
    walks.push(Walk::new(validate, 1, 0, 0).with_second_payments(1).with_events(0));
    walks.extend(profiles::accepted()?.into_iter().map(|profile| Walk::new(profile, 0, 0, 1)));
    Ok(walks)
}

/// The walks of the fast tier with one kind of trouble at a time: faults of ours, faults of the switch (at the rails), lost commits,
/// failovers (not where callbacks await a query), second runs (at [`WITH_SECOND_RUNS`]), or false evidence; and every tenth of the
/// accepted profiles without trouble. Faults of the switch and lost commits at a rail are walked without the customer's and the account's
/// events, other faults and lost commits with at most one, except at [`WITH_ALL_EVENTS`]. An eighth of its states.
///
/// # Errors
/// As [`fast`].
pub fn short() -> anyhow::Result<Vec<Walk>> {
    let mut untroubled = 0_usize;
    let is_rail = |walk: &Walk| Rail::ALL.iter().any(|rail| profiles::name(&walk.profile) == rail.as_str());
    let is_one_of = |walk: &Walk, names: &[&str]| names.contains(&profiles::name(&walk.profile).as_str());
    let is_short = |walk: &Walk| match walk.bounds.kinds_of_trouble() {
        0 => {
            untroubled += 1;
            untroubled % WITHOUT_TROUBLE == 1
        }
        1 if walk.bounds.second_runs > 0 => is_one_of(walk, WITH_SECOND_RUNS),
        1 if is_rail(walk) => true,
        1 => {
            let awaits_query = walk.profile.confirm_by_query != ConfirmByQuery::Never;
            walk.bounds.switch_faults == 0 && (walk.bounds.failovers == 0 || !awaits_query)
        }
        _ => false,
    };
    let with_fewer_events = |walk: Walk| {
        let WalkBounds { faults, switch_faults, lost_commits, events, .. } = walk.bounds;
        let events_max = if switch_faults > 0 || lost_commits > 0 && is_rail(&walk) {
            0
        } else if faults + lost_commits > 0 && !is_one_of(&walk, WITH_ALL_EVENTS) {
            1
        } else {
            WalkBounds::EVENTS
        };
        walk.with_events(events.min(events_max))
    };
    Ok(fast()?.into_iter().filter(is_short).map(with_fewer_events).collect())
}

/// The representative profiles and every rail with two faults, with two faults of the switch and two decisions, and with one fault
/// together with either; three profiles with a lost commit and both faults, and with a failover and a fault of the switch; the
/// profiles of [`profiles::accepted_pairs`] with one fault and at most one event, and with one fault of the switch and a decision (none where
/// a query confirms callbacks or the switch has a statement); and one profile with every history as its own position, with a fault or two
/// faults of the switch.
///
/// Two faults at the switch that offers everything, a fault together with anything under the account lock, a decision beside two runs at
/// a switch that has only a statement, and a decision with every history as its own position have more states than a developer's machine
/// can store; two faults at the switch with references, and a fault with a decision at the switch that has only a statement, with at most
/// one event. Several hours on two cores.
///
/// # Errors
/// A built-in profile name is invalid, which does not occur.
pub fn deep() -> anyhow::Result<Vec<Walk>> {
    let mut walks = Vec::new();
    let full = profiles::named(REPRESENTATIVE.first().copied().unwrap_or("at_most_once"))?;
    for name in REPRESENTATIVE {
        let profile = profiles::named(name)?;
        walks.push(Walk::new(profile.clone(), 0, 2, 2));
        if profile != full {
            walks.push(Walk::new(profile.clone(), 0, 0, 0).with_second_runs(1).with_events(1));
        }
        if *name != STATEMENT_ONLY {
            walks.push(Walk::new(profile.clone(), 0, 0, 1).with_second_runs(1).with_events(0));
        }
        if profile.strategy == Strategy::Validate {
            continue;
        }
        let decided = Walk::new(profile.clone(), 1, 0, 1);
        walks.push(if *name == STATEMENT_ONLY { decided.with_events(1) } else { decided });
        walks.push(Walk::new(profile.clone(), 1, 1, 0));
        if profile != full {
            let two_faults = Walk::new(profile, 2, 0, 0);
            let is_large = two_faults.profile.strategy == Strategy::Reference;
            walks.push(if is_large { two_faults.with_events(1) } else { two_faults });
        }
    }
    for rail in Rail::ALL {
        let profile = profiles::named(rail.as_str())?;
        walks.push(Walk::new(profile.clone(), 0, 2, 2).with_events(1));
        walks.push(Walk::new(profile.clone(), 1, 0, 1));
        walks.push(Walk::new(profile.clone(), 1, 1, 0).with_events(1));
        walks.push(Walk::new(profile.clone(), 0, 0, 1).with_second_runs(1).with_events(0));
        walks.push(Walk::new(profile, 2, 0, 0).with_events(1));
    }
    let validate = profiles::named(WITHOUT_REFERENCES)?;
    walks.push(Walk::new(validate.clone(), 1, 1, 0).with_second_payments(1).with_events(0));
    walks.push(Walk::new(validate, 0, 0, 0).with_second_payments(1).with_second_runs(1).with_events(0));
    for mut exact in [
        Walk::new(full.clone(), 0, 1, 0),
        Walk::new(full.clone(), 0, 2, 0).with_events(1),
        Walk::new(full, 1, 0, 0).with_events(1),
    ] {
        exact.bounds.every_history = true;
        walks.push(exact);
    }
    for profile in profiles::accepted_pairs()? {
        // With a decision, callbacks that await a query and lines of a statement have too many orders; [`CONFIRMING`] and the
        // representative profiles walk some.
        let has_many_orders = profile.confirm_by_query != ConfirmByQuery::Never || profile.has_statement;
        let decisions = u8::from(!has_many_orders);
        walks.push(Walk::new(profile.clone(), 1, 0, 0).with_events(1));
        walks.push(Walk::new(profile, 0, 1, decisions).with_events(0));
    }
    for name in CONFIRMING {
        let profile = profiles::named(name)?;
        walks.push(Walk::new(profile.clone(), 1, 0, 0).with_events(1));
        walks.push(Walk::new(profile.clone(), 0, 1, 1).with_events(1));
        walks.push(Walk::new(profile.clone(), 1, 1, 0).with_events(0));
        walks.push(Walk::new(profile, 0, 0, 0).with_second_runs(1).with_events(0));
    }
    for name in LOST_WITH_BOTH_FAULTS {
        walks.push(Walk::new(profiles::named(name)?, 0, 1, 1).with_failovers(1).with_events(0));
    }
    for name in LOST_WITH_BOTH_FAULTS {
        walks.push(Walk::new(profiles::named(name)?, 1, 1, 0).with_lost_commits(1).with_events(0));
    }
    Ok(walks)
}

/// Makes all walks, on every core. Calls `progress` after each, with the number of completed walks.
#[must_use]
pub fn walk_all(walks: &[Walk], progress: &(dyn Fn(usize, &Walk, &SearchResult) + Sync)) -> Summary {
    let next = AtomicUsize::new(0);
    let summary = Mutex::new(Summary::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores.min(walks.len()) {
            scope.spawn(|| {
                while let Some(walk) = walks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Ok(model) = Model::new(walk.profile.clone(), walk.bounds) else { continue };
                    let result = search::search(&model, &walk.first_states(), walk.states_max);
                    let branches = coverage::branches(&model);
                    let description =
                        result.violation.as_ref().and_then(|violation| describe(walk, &model, violation));
                    if let Ok(mut summary) = summary.lock() {
                        summary.add(walk, &result, branches, description);
                        progress(usize::try_from(summary.walks).unwrap_or(0), walk, &result);
                    }
                }
            });
        }
    });
    summary.into_inner().unwrap_or_default()
}

/// The moves of a violation in words. A dead end is followed to where its benign moves lead.
fn describe(
    walk: &Walk,
    model: &Model,
    (violation, sequence): &(Violation, Sequence),
) -> Option<Vec<String>> {
    let first_states = walk.first_states();
    let mut lines = search::describe(model, &first_states, sequence)?;
    if *violation == invariants::NO_DEAD_END {
        lines.push("from there, without a further fault:".into());
        lines.extend(search::describe_dead_end(model, &first_states, sequence)?);
    }
    Some(lines)
}

impl Summary {
    fn add(
        &mut self,
        walk: &Walk,
        result: &SearchResult,
        branches: BTreeMap<String, u64>,
        description: Option<Vec<String>>,
    ) {
        self.walks += 1;
        self.states += result.states;
        self.paths += result.paths;
        for (name, times) in &result.outcomes {
            *self.outcomes.entry(name.clone()).or_default() += times;
        }
        for (name, times) in branches {
            *self.branches.entry(name).or_default() += times;
        }
        if let Some((violation, sequence)) = &result.violation {
            let (walk, sequence) = (walk.clone(), sequence.clone());
            self.violations.push(Counterexample { walk, violation: *violation, sequence, description });
        }
        if result.cut_off {
            self.cut_off.push(profiles::name(&walk.profile));
        }
    }
}
