//! The explored switches: one of each group of accepted profiles that the protocol treats alike.

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

/// Whether a profile with fewer capabilities behaves the same.
fn is_redundant(profile: &SwitchProfile) -> bool {
    // Only a cancel leaves a tombstone.
    profile.tombstones && !profile.can_cancel
        // At a switch without references no statement is read.
        || profile.has_statement && profile.strategy == Strategy::Validate
        // A single attempt is never deduplicated.
        || profile.deduplicates && profile.strategy.reconciles()
}
