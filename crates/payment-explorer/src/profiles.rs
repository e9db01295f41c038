//! The explored switches: one of each group of accepted profiles that the protocol treats alike.

use std::collections::BTreeSet;

use payment_protocol::SwitchProfile;
use payment_protocol::ids::SwitchName;
use payment_protocol::profile::{ConfirmByQuery, Rail, Strategy};

/// A capability of a switch, by its word in a profile's name.
type Capability = (&'static str, fn(&mut SwitchProfile) -> &mut bool);

const CAPABILITIES: [Capability; 8] = [
    ("query", |profile| &mut profile.has_query),
    ("dedup", |profile| &mut profile.deduplicates),
    ("tombstone", |profile| &mut profile.tombstones),
    ("deadline", |profile| &mut profile.honours_deadline),
    ("cancel", |profile| &mut profile.can_cancel),
    ("recall", |profile| &mut profile.can_recall),
    ("callback", |profile| &mut profile.has_callback),
    ("statement", |profile| &mut profile.has_statement),
];

/// The word of a profile whose customers' accounts are restored when no confirmation comes. Not walked with every accepted profile: it
/// changes no message to the switch.
const RESTORE: &str = "restore";

/// The word of a profile whose callbacks move no money until a query confirms them. Not walked with every accepted profile: it changes
/// nothing where the switch cannot be queried or does not call back.
const CONFIRM: &str = "confirm";

/// A switch without capabilities.
///
/// # Errors
/// The switch's name is invalid, which does not occur.
fn minimal(strategy: Strategy) -> anyhow::Result<SwitchProfile> {
    Ok(SwitchProfile::minimal(SwitchName::new("switch")?, strategy))
}

/// The profile of a rail, by its name, or of a name like `query:dedup+cancel+callback`.
///
/// # Errors
/// The name contains an unknown strategy or capability.
pub fn named(name: &str) -> anyhow::Result<SwitchProfile> {
    if let Some(rail) = Rail::parse(name) {
        return Ok(rail.profile(&SwitchName::new("switch")?)?);
    }
    let (strategy, capabilities) = name.split_once(':').unwrap_or((name, ""));
    let strategy = Strategy::parse(strategy).ok_or_else(|| {
        let all: Vec<_> = Strategy::ALL.iter().map(|strategy| strategy.as_str()).collect();
        let rails: Vec<_> = Rail::ALL.iter().map(|rail| rail.as_str()).collect();
        let (all, rails) = (all.join(", "), rails.join(", "));
        anyhow::anyhow!("unknown strategy {strategy:?}; use one of {all}, or name a rail: {rails}")
    })?;
    let mut profile = minimal(strategy)?;
    for word in capabilities.split('+').filter(|word| !word.is_empty()) {
        if word == RESTORE {
            let sent_by_ms = profile.start_within_ms.saturating_add(profile.submit_budget_ms);
            profile.restore_customer_after_ms = Some(sent_by_ms);
            continue;
        }
        if word == CONFIRM {
            profile.confirm_by_query = ConfirmByQuery::Always;
            continue;
        }
        let (_, capability) = CAPABILITIES.iter().find(|(known, _)| *known == word).ok_or_else(|| {
            let all: Vec<_> = CAPABILITIES.iter().map(|(word, _)| *word).collect();
            anyhow::anyhow!(
                "unknown capability {word:?}; use one of {}, {RESTORE}, {CONFIRM}",
                all.join(", ")
            )
        })?;
        *capability(&mut profile) = true;
    }
    Ok(profile)
}

/// The profiles of the rails.
///
/// # Errors
/// A built-in profile is invalid, which does not occur.
pub fn rails() -> anyhow::Result<Vec<SwitchProfile>> {
    Rail::ALL.iter().map(|rail| named(rail.as_str())).collect()
}

/// The name of a profile.
#[must_use]
pub fn name(profile: &SwitchProfile) -> String {
    let is_of = |rail: &Rail| rail.profile(&profile.switch).is_ok_and(|of_rail| of_rail == *profile);
    if let Some(rail) = Rail::ALL.iter().copied().find(is_of) {
        return rail.to_string();
    }
    let mut profile = profile.clone();
    let mut words: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(_, capability)| *capability(&mut profile))
        .map(|(word, _)| *word)
        .collect();
    words.extend(profile.restore_customer_after_ms.map(|_| RESTORE));
    words.extend((profile.confirm_by_query != ConfirmByQuery::Never).then_some(CONFIRM));
    format!("{}:{}", profile.strategy, words.join("+"))
}

/// The accepted profiles; one of each group that the protocol treats alike.
///
/// # Errors
/// As [`named`].
pub fn accepted() -> anyhow::Result<Vec<SwitchProfile>> {
    let mut all = Vec::new();
    for strategy in Strategy::ALL {
        for bits in 0..1_u32 << CAPABILITIES.len() {
            let mut profile = minimal(*strategy)?;
            for (at, (_, capability)) in CAPABILITIES.iter().enumerate() {
                *capability(&mut profile) = bits & (1 << at) != 0;
            }
            if profile.check().is_ok() && !is_redundant(&profile) {
                all.push(profile);
            }
        }
    }
    Ok(all)
}

/// The accepted profiles whose callbacks a query can confirm, with callbacks that move no money until one does.
///
/// # Errors
/// As [`named`].
pub fn confirming() -> anyhow::Result<Vec<SwitchProfile>> {
    let mut all = accepted()?;
    all.retain(|profile| profile.has_callback && profile.can_confirm_by_query());
    for profile in &mut all {
        profile.confirm_by_query = ConfirmByQuery::Always;
    }
    Ok(all)
}

/// Some of the accepted profiles, with callbacks that move money and with callbacks that a query must confirm. Each strategy has each pair
/// of capabilities, offered or not, that any of these profiles has: a bug that needs one strategy and two capabilities is found without
/// walking every profile far.
///
/// # Errors
/// As [`named`].
pub fn accepted_pairs() -> anyhow::Result<Vec<SwitchProfile>> {
    let accepted = [accepted()?, confirming()?].concat();
    let mut missing: BTreeSet<Pair> = accepted.iter().flat_map(pairs).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let new_pairs = |profile: &&SwitchProfile| {
            pairs(profile).into_iter().filter(|pair| missing.contains(pair)).count()
        };
        // Of several the one with the fewest capabilities, whose walks are short.
        let Some(next) = accepted.iter().rev().max_by_key(new_pairs) else { break };
        for pair in pairs(next) {
            missing.remove(&pair);
        }
        chosen.push(next.clone());
    }
    Ok(chosen)
}

/// A strategy with two capabilities, offered or not.
type Pair = (&'static str, (&'static str, bool), (&'static str, bool));

/// Every pair of a profile's capabilities.
fn pairs(profile: &SwitchProfile) -> Vec<Pair> {
    let mut profile = profile.clone();
    let strategy = profile.strategy.as_str();
    let mut offered = CAPABILITIES.map(|(word, capability)| (word, *capability(&mut profile))).to_vec();
    offered.push((CONFIRM, profile.confirm_by_query != ConfirmByQuery::Never));
    let mut pairs = Vec::new();
    for (at, one) in offered.iter().enumerate() {
        pairs.extend(offered.iter().skip(at + 1).map(|other| (strategy, *one, *other)));
    }
    pairs
}

/// Whether a profile with fewer capabilities behaves the same.
fn is_redundant(profile: &SwitchProfile) -> bool {
    // Only a cancel leaves a tombstone.
    profile.tombstones && !profile.can_cancel
        // At a switch without references no statement is read.
        || profile.has_statement && profile.strategy == Strategy::Validate
        // A single attempt is never deduplicated.
        || profile.deduplicates && profile.strategy.reconciles()
}
