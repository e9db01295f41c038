//! The switches that are explored: every profile that is accepted, as far as the protocol can tell them apart.

use payment_protocol::SwitchProfile;
use payment_protocol::ids::SwitchName;
use payment_protocol::profile::Strategy;

/// What a switch can or cannot do, by the word it has in a profile's name.
type Flag = (&'static str, fn(&mut SwitchProfile) -> &mut bool);

const FLAGS: [Flag; 8] = [
    ("query", |profile| &mut profile.has_query),
    ("dedup", |profile| &mut profile.deduplicates),
    ("tombstone", |profile| &mut profile.tombstones),
    ("deadline", |profile| &mut profile.honours_deadline),
    ("cancel", |profile| &mut profile.can_cancel),
    ("recall", |profile| &mut profile.can_recall),
    ("callback", |profile| &mut profile.has_callback),
    ("statement", |profile| &mut profile.has_statement),
];

/// A switch that can do nothing.
///
/// # Errors
/// None, unless its name is no name.
fn bare(strategy: Strategy) -> anyhow::Result<SwitchProfile> {
    Ok(SwitchProfile::bare(SwitchName::new("switch")?, strategy))
}

/// The profile of a name like `query:dedup+cancel+callback`.
///
/// # Errors
/// A word that is no strategy or no capability.
pub fn named(name: &str) -> anyhow::Result<SwitchProfile> {
    let (strategy, flags) = name.split_once(':').unwrap_or((name, ""));
    let strategy = Strategy::parse(strategy).ok_or_else(|| {
        let all: Vec<_> = Strategy::ALL.iter().map(|strategy| strategy.as_str()).collect();
        anyhow::anyhow!("{strategy:?} is no strategy; there are {}", all.join(", "))
    })?;
    let mut profile = bare(strategy)?;
    for word in flags.split('+').filter(|word| !word.is_empty()) {
        let (_, flag) = FLAGS.iter().find(|(known, _)| *known == word).ok_or_else(|| {
            let all: Vec<_> = FLAGS.iter().map(|(word, _)| *word).collect();
            anyhow::anyhow!("{word:?} is no capability; there are {}", all.join(", "))
        })?;
        *flag(&mut profile) = true;
    }
    Ok(profile)
}

/// The name of a profile.
#[must_use]
pub fn name(profile: &SwitchProfile) -> String {
    let mut profile = profile.clone();
    let words: Vec<&str> =
        FLAGS.iter().filter(|(_, flag)| *flag(&mut profile)).map(|(word, _)| *word).collect();
    format!("{}:{}", profile.strategy, words.join("+"))
}

/// Every accepted profile. Of profiles that no code of ours and no answer of the switch can tell apart, one.
///
/// # Errors
/// As [`named`].
pub fn accepted() -> anyhow::Result<Vec<SwitchProfile>> {
    let mut all = Vec::new();
    for strategy in Strategy::ALL {
        for bits in 0..1_u32 << FLAGS.len() {
            let mut profile = bare(*strategy)?;
            for (at, (_, flag)) in FLAGS.iter().enumerate() {
                *flag(&mut profile) = bits & (1 << at) != 0;
            }
            if profile.check().is_ok() && !has_a_twin(&profile) {
                all.push(profile);
            }
        }
    }
    Ok(all)
}

/// Whether another profile, with less, is the same to everybody.
fn has_a_twin(profile: &SwitchProfile) -> bool {
    // A statement is read only where there is no query.
    profile.has_statement && profile.has_query
        // A tombstone is left only by a cancel.
        || profile.tombstones && !profile.can_cancel
        // What is sent once is never deduplicated.
        || profile.deduplicates && profile.strategy.reconciles()
}
