//! What was found, beside the configured profile.

use payment_protocol::SwitchProfile;
use payment_protocol::profile::Strategy;
use serde::Serialize;

use super::findings::{Ability, Findings, Measured};

/// A setting that says something else than was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// As in the configuration.
    pub(crate) setting: &'static str,
    /// What it says.
    pub(crate) configured: bool,
    /// What was seen.
    pub(crate) measured: bool,
}

impl Difference {
    /// Whether the bank counts on something that the switch does not do. The other way round it only
    /// leaves something unused.
    pub(crate) fn is_dangerous(&self) -> bool {
        self.configured && !self.measured
    }
}

/// Whether a strategy is safe with what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Judgement {
    /// Which.
    pub(crate) strategy: Strategy,
    /// Whether it is.
    pub(crate) safe: bool,
    /// Why not, or what a person may be needed for.
    pub(crate) remarks: Vec<String>,
}

/// The profile, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Judged {
    /// Settings that say otherwise.
    pub(crate) differences: Vec<Difference>,
    /// Every strategy.
    pub(crate) strategies: Vec<Judgement>,
    /// What to change in the configured profile so that it is safe and true: nothing when it is. None when
    /// only another switch would help.
    pub(crate) changes: Option<Vec<String>>,
    /// Settings that the profile counts on, and that this probe could not see.
    pub(crate) unseen: Vec<&'static str>,
    #[serde(skip)]
    settings: Vec<(&'static str, Ability, bool)>,
}

impl Judged {
    /// The setting that speaks of an ability, and what it says.
    pub(crate) fn setting_of(&self, ability: Ability) -> Option<(&'static str, bool)> {
        self.settings.iter().find(|(_, of, _)| *of == ability).map(|(setting, _, says)| (*setting, *says))
    }

    /// Whether everything was seen that a probe can see, of what the profile counts on. Callbacks never are,
    /// and a recall only where a transfer settled.
    pub(crate) fn is_seen(&self) -> bool {
        self.unseen.iter().all(|setting| matches!(*setting, "has_callback" | "can_recall"))
    }

    /// Whether nothing was seen to be missing that the configured profile counts on, and it is safe.
    pub(crate) fn is_safe(&self) -> bool {
        self.changes.as_ref().is_some_and(Vec::is_empty)
    }
}

/// Judges the configured profile by what was found. What could not be told counts as not there for the
/// strategies, except callbacks and recall, which are then taken as configured: the one cannot be seen
/// from here, and no strategy rests on the other.
pub(crate) fn judge(configured: &SwitchProfile, findings: &Findings) -> Judged {
    let mut kept = configured.clone();
    let said = settings(configured.strategy).map(|(name, of)| (name, of, *field(&mut kept, name)));
    let differences = differences(&said, findings);
    let strategies = Strategy::ALL.iter().map(|strategy| consider(*strategy, configured, findings)).collect();
    let mut changes = Vec::new();
    for difference in differences.iter().filter(|difference| difference.is_dangerous()) {
        *field(&mut kept, difference.setting) = false;
        changes.push(format!("{} = false", difference.setting));
    }
    let changes = kept.nearest_safe().map(|(more, _)| [changes, more].concat());
    let unseen = said.iter().filter(|(_, of, says)| *says && findings.measured(*of) == Measured::Unknown);
    let unseen = unseen.map(|(setting, ..)| *setting).collect();
    Judged { differences, strategies, changes, unseen, settings: said.to_vec() }
}

fn consider(strategy: Strategy, configured: &SwitchProfile, findings: &Findings) -> Judgement {
    let mut profile = SwitchProfile { strategy, ..configured.clone() };
    for (setting, ability) in settings(strategy) {
        let measured = findings.measured(ability);
        if measured != Measured::Unknown || !matches!(ability, Ability::Recall | Ability::Callback) {
            *field(&mut profile, setting) = measured == Measured::Yes;
        }
    }
    match profile.check() {
        Ok(warnings) => Judgement {
            strategy,
            safe: true,
            remarks: warnings.into_iter().map(|warning| warning.to_string()).collect(),
        },
        Err(error) => Judgement { strategy, safe: false, remarks: vec![error.to_string()] },
    }
}

fn differences(said: &[(&'static str, Ability, bool)], findings: &Findings) -> Vec<Difference> {
    let differing = said.iter().filter_map(|&(setting, ability, configured)| {
        let measured = match findings.measured(ability) {
            Measured::Yes => true,
            Measured::No => false,
            Measured::Unknown => return None,
        };
        (configured != measured).then_some(Difference { setting, configured, measured })
    });
    differing.collect()
}

/// Which setting speaks of which ability. Strategy validate asks the listing.
fn settings(strategy: Strategy) -> [(&'static str, Ability); 8] {
    let query = if strategy == Strategy::Validate { Ability::Listing } else { Ability::Query };
    [
        ("has_query", query),
        ("deduplicates", Ability::Dedup),
        ("tombstones", Ability::Tombstone),
        ("honours_deadline", Ability::Deadline),
        ("can_cancel", Ability::Cancel),
        ("can_recall", Ability::Recall),
        ("has_statement", Ability::Statement),
        ("has_callback", Ability::Callback),
    ]
}

fn field<'p>(profile: &'p mut SwitchProfile, setting: &str) -> &'p mut bool {
    match setting {
        "has_query" => &mut profile.has_query,
        "deduplicates" => &mut profile.deduplicates,
        "tombstones" => &mut profile.tombstones,
        "honours_deadline" => &mut profile.honours_deadline,
        "can_cancel" => &mut profile.can_cancel,
        "can_recall" => &mut profile.can_recall,
        "has_callback" => &mut profile.has_callback,
        _ => &mut profile.has_statement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(strategy: &str) -> SwitchProfile {
        serde_json::from_value(serde_json::json!({
            "switch": "s", "strategy": strategy, "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true,
            "can_recall": true, "has_callback": true, "has_statement": true,
        }))
        .unwrap()
    }

    fn all_but(missing: &[Ability], untold: &[Ability]) -> Findings {
        let mut findings = Findings::default();
        for ability in Ability::ALL {
            let measured = match ability {
                Ability::Callback => Measured::Unknown,
                _ if missing.contains(&ability) => Measured::No,
                _ if untold.contains(&ability) => Measured::Unknown,
                _ => Measured::Yes,
            };
            findings.note(ability, measured, "");
        }
        findings
    }

    fn safe(judged: &Judged) -> Vec<&'static str> {
        let safe = judged.strategies.iter().filter(|judgement| judgement.safe);
        safe.map(|judgement| judgement.strategy.as_str()).collect()
    }

    #[test]
    fn a_true_profile_needs_no_change() {
        let judged = judge(&profile("query"), &all_but(&[], &[]));
        assert!(judged.is_safe() && judged.is_seen() && judged.differences.is_empty(), "{judged:?}");
        assert_eq!(judged.unseen, ["has_callback"]);
        assert_eq!(safe(&judged), ["query", "reference", "write_ahead", "at_most_once"]);
    }

    #[test]
    fn s0_11_a_promise_that_is_not_kept_changes_the_strategy() {
        let no_query = judge(&profile("query"), &all_but(&[Ability::Query], &[]));
        let difference = Difference { setting: "has_query", configured: true, measured: false };
        assert_eq!(no_query.differences, [difference]);
        let expected = ["has_query = false", "strategy = \"reference\""].map(String::from);
        assert_eq!(no_query.changes.as_deref(), Some(&expected[..]));
        assert_eq!(safe(&no_query), ["reference", "write_ahead", "at_most_once"]);

        let neither = judge(&profile("write_ahead"), &all_but(&[Ability::Query, Ability::Dedup], &[]));
        let expected = ["has_query = false", "deduplicates = false", "strategy = \"at_most_once\""];
        assert_eq!(neither.changes.as_deref(), Some(&expected.map(String::from)[..]));
        assert_eq!(safe(&neither), ["at_most_once"]);
    }

    #[test]
    fn what_could_not_be_told_is_no_difference_and_makes_no_strategy_safe() {
        let judged = judge(&profile("query"), &all_but(&[], &[Ability::Query, Ability::Dedup]));
        assert!(judged.differences.is_empty() && judged.is_safe() && !judged.is_seen());
        assert_eq!(judged.unseen, ["has_query", "deduplicates", "has_callback"]);
        assert_eq!(safe(&judged), ["at_most_once"]);
    }

    #[test]
    fn more_than_is_configured_is_a_difference_without_danger() {
        let mut modest = profile("reference");
        modest.has_statement = false;
        let judged = judge(&modest, &all_but(&[], &[]));
        assert_eq!(judged.differences.len(), 1);
        assert!(!judged.differences[0].is_dangerous() && judged.is_safe());
    }

    #[test]
    fn a_switch_without_references_is_read_back() {
        let mut keyless = profile("validate");
        (keyless.deduplicates, keyless.tombstones, keyless.has_callback) = (false, false, false);
        use Ability::{Callback, Dedup, Query, References, Tombstone};
        let mut findings = all_but(&[References, Query, Dedup, Tombstone], &[]);
        findings.note(Callback, Measured::No, "");
        let judged = judge(&keyless, &findings);
        assert!(judged.is_safe(), "{judged:?}");
        assert_eq!(safe(&judged), ["at_most_once", "validate"]);

        let judged = judge(&profile("query"), &findings);
        let changes = judged.changes.as_ref().unwrap().join(", ");
        let expected = "has_query = false, deduplicates = false, tombstones = false, has_callback = false, \
                        strategy = \"at_most_once\"";
        assert_eq!(changes, expected);
        assert_eq!(safe(&judged), ["at_most_once", "validate"]);
    }
}
