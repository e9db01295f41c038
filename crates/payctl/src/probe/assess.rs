//! Compares the findings with the configured profile and with every strategy.

use payment_protocol::SwitchProfile;
use payment_protocol::profile::{ConfirmByQuery, Strategy};
use serde::Serialize;

use super::findings::{CapabilityMeasurement, Findings, SwitchCapability};

/// A profile setting that differs from the measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProfileDifference {
    /// Name of the setting in the configuration.
    pub(crate) setting: &'static str,
    /// The configured value.
    pub(crate) configured: bool,
    /// The measured value.
    pub(crate) measured: bool,
}

impl ProfileDifference {
    /// Whether the profile relies on a capability that the switch lacks. The opposite difference only leaves
    /// a capability unused.
    pub(crate) fn is_unsafe(&self) -> bool {
        self.configured && !self.measured
    }
}

/// Whether one strategy is safe at the measured switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct StrategyAssessment {
    /// The strategy.
    pub(crate) strategy: Strategy,
    /// Whether the strategy is safe.
    pub(crate) safe: bool,
    /// Why the strategy is unsafe, or when it needs an operator.
    pub(crate) remarks: Vec<String>,
}

/// The configured profile compared with the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ProfileAssessment {
    /// Settings that differ from the measurement.
    pub(crate) differences: Vec<ProfileDifference>,
    /// Every strategy.
    pub(crate) strategies: Vec<StrategyAssessment>,
    /// Changes that make the configured profile safe and correct; empty if it is. `None` if no profile is
    /// safe at this switch.
    pub(crate) changes: Option<Vec<String>>,
    /// Settings that the profile relies on and that the probe could not measure.
    pub(crate) not_measured: Vec<&'static str>,
    #[serde(skip)]
    settings: Vec<(&'static str, SwitchCapability, bool)>,
}

impl ProfileAssessment {
    /// Name and value of the setting that describes a capability.
    pub(crate) fn setting_of(&self, capability: SwitchCapability) -> Option<(&'static str, bool)> {
        self.settings
            .iter()
            // The last one: a repeated submit that is the query is deduplication above all.
            .rfind(|(_, of, _)| *of == capability)
            .map(|(setting, _, value)| (*setting, *value))
    }

    /// Whether everything measurable was measured. A probe never measures callbacks, and a recall only with a
    /// settled transfer.
    pub(crate) fn is_complete(&self) -> bool {
        self.not_measured.iter().all(|setting| matches!(*setting, "has_callback" | "can_recall"))
    }

    /// Whether the configured profile is safe, and no measurement contradicts a setting it relies on.
    pub(crate) fn is_safe(&self) -> bool {
        self.changes.as_ref().is_some_and(Vec::is_empty)
    }
}

/// Assesses the configured profile. An unmeasured capability counts as missing for the strategies, except
/// callbacks and recall, which count as configured: callbacks cannot be measured, and no strategy relies on
/// recalls.
pub(crate) fn assess(configured: &SwitchProfile, findings: &Findings) -> ProfileAssessment {
    let mut corrected = configured.clone();
    let settings = settings(configured.strategy, configured.query_is_repeat)
        .map(|(name, of)| (name, of, *setting_mut(&mut corrected, name)));
    let differences = differences(&settings, findings);
    let strategies =
        Strategy::ALL.iter().map(|strategy| assess_strategy(*strategy, configured, findings)).collect();
    let mut changes = Vec::new();
    for difference in differences.iter().filter(|difference| difference.is_unsafe()) {
        *setting_mut(&mut corrected, difference.setting) = false;
        changes.push(format!("{} = false", difference.setting));
    }
    let changes = corrected.nearest_safe().map(|(more, _)| [changes, more].concat());
    let not_measured = settings
        .iter()
        .filter(|(_, of, value)| *value && findings.measured(*of) == CapabilityMeasurement::Unknown);
    let not_measured = not_measured.map(|(setting, ..)| *setting).collect();
    ProfileAssessment { differences, strategies, changes, not_measured, settings: settings.to_vec() }
}

fn assess_strategy(
    strategy: Strategy,
    configured: &SwitchProfile,
    findings: &Findings,
) -> StrategyAssessment {
    let mut profile = SwitchProfile { strategy, ..configured.clone() };
    for (setting, capability) in settings(strategy, configured.query_is_repeat) {
        let measured = findings.measured(capability);
        if measured != CapabilityMeasurement::Unknown
            || !matches!(capability, SwitchCapability::Recall | SwitchCapability::Callback)
        {
            *setting_mut(&mut profile, setting) = measured == CapabilityMeasurement::Yes;
        }
    }
    // No strategy relies on it, and a configuration that omits it follows the switch.
    if !profile.can_confirm_by_query() {
        profile.confirm_by_query = ConfirmByQuery::Never;
    }
    match profile.check() {
        Ok(warnings) => StrategyAssessment {
            strategy,
            safe: true,
            remarks: warnings.into_iter().map(|warning| warning.to_string()).collect(),
        },
        // The profile has one setting for both ways to query.
        Err(_) if strategy == Strategy::Validate && !profile.has_query => StrategyAssessment {
            strategy,
            safe: false,
            remarks: vec![
                "validate looks the transfer up in a listing, which the switch does not have".into(),
            ],
        },
        Err(error) => StrategyAssessment { strategy, safe: false, remarks: vec![error.to_string()] },
    }
}

fn differences(
    settings: &[(&'static str, SwitchCapability, bool)],
    findings: &Findings,
) -> Vec<ProfileDifference> {
    let differences = settings.iter().filter_map(|&(setting, capability, configured)| {
        let measured = match findings.measured(capability) {
            CapabilityMeasurement::Yes => true,
            CapabilityMeasurement::No => false,
            CapabilityMeasurement::Unknown => return None,
        };
        (configured != measured).then_some(ProfileDifference { setting, configured, measured })
    });
    differences.collect()
}

/// The setting that describes each capability. Strategy `validate` queries by the listing, and a rail without a query by the repeated
/// submit.
fn settings(strategy: Strategy, query_is_repeat: bool) -> [(&'static str, SwitchCapability); 8] {
    let query = match strategy {
        Strategy::Validate => SwitchCapability::Listing,
        _ if query_is_repeat => SwitchCapability::Dedup,
        _ => SwitchCapability::Query,
    };
    [
        ("has_query", query),
        ("deduplicates", SwitchCapability::Dedup),
        ("tombstones", SwitchCapability::Tombstone),
        ("honours_deadline", SwitchCapability::Deadline),
        ("can_cancel", SwitchCapability::Cancel),
        ("can_recall", SwitchCapability::Recall),
        ("has_statement", SwitchCapability::Statement),
        ("has_callback", SwitchCapability::Callback),
    ]
}

fn setting_mut<'p>(profile: &'p mut SwitchProfile, setting: &str) -> &'p mut bool {
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
    use payment_protocol::ids::SwitchName;
    use payment_protocol::profile::Rail;

    use super::*;

    fn profile(strategy: &str) -> SwitchProfile {
        serde_json::from_value(serde_json::json!({
            "switch": "s", "strategy": strategy, "has_query": true, "deduplicates": true, "retention_s": 86_400,
            "tombstones": true, "honours_deadline": true, "max_skew_ms": 1_000, "can_cancel": true,
            "can_recall": true, "has_callback": true, "has_statement": true,
        }))
        .unwrap()
    }

    fn all_but(missing: &[SwitchCapability], not_measured: &[SwitchCapability]) -> Findings {
        let mut findings = Findings::default();
        for capability in SwitchCapability::ALL {
            let measured = match capability {
                SwitchCapability::Callback => CapabilityMeasurement::Unknown,
                _ if missing.contains(&capability) => CapabilityMeasurement::No,
                _ if not_measured.contains(&capability) => CapabilityMeasurement::Unknown,
                _ => CapabilityMeasurement::Yes,
            };
            findings.record(capability, measured, "");
        }
        findings
    }

    fn safe(assessment: &ProfileAssessment) -> Vec<&'static str> {
        let safe = assessment.strategies.iter().filter(|assessed| assessed.safe);
        safe.map(|assessed| assessed.strategy.as_str()).collect()
    }

    #[test]
    fn a_probe_finds_no_change_for_a_correct_switch_profile() {
        let assessment = assess(&profile("query"), &all_but(&[], &[]));
        assert!(
            assessment.is_safe() && assessment.is_complete() && assessment.differences.is_empty(),
            "{assessment:?}"
        );
        assert_eq!(assessment.not_measured, ["has_callback"]);
        assert_eq!(safe(&assessment), ["query", "reference", "write_ahead", "at_most_once"]);
    }

    #[test]
    fn s0_11_a_probe_that_misses_a_capability_proposes_another_strategy() {
        let no_query = assess(&profile("query"), &all_but(&[SwitchCapability::Query], &[]));
        let difference = ProfileDifference { setting: "has_query", configured: true, measured: false };
        assert_eq!(no_query.differences, [difference]);
        let expected = ["has_query = false", "strategy = \"reference\""].map(String::from);
        assert_eq!(no_query.changes.as_deref(), Some(&expected[..]));
        assert_eq!(safe(&no_query), ["reference", "write_ahead", "at_most_once"]);

        let neither = assess(
            &profile("write_ahead"),
            &all_but(&[SwitchCapability::Query, SwitchCapability::Dedup], &[]),
        );
        let expected = ["has_query = false", "deduplicates = false", "strategy = \"at_most_once\""];
        assert_eq!(neither.changes.as_deref(), Some(&expected.map(String::from)[..]));
        assert_eq!(safe(&neither), ["at_most_once"]);
    }

    /// RTP and Pix: no query, but the repeated submit.
    #[test]
    fn s0_11_a_probe_finds_no_change_for_a_rail_whose_query_is_the_repeated_submit() {
        for rail in [Rail::Rtp, Rail::Pix] {
            let profile = rail.profile(&SwitchName::new("s").unwrap()).unwrap();
            let mut missing = vec![SwitchCapability::Query];
            for (setting, capability) in settings(profile.strategy, true) {
                if !*setting_mut(&mut profile.clone(), setting) {
                    missing.push(capability);
                }
            }
            let assessment = assess(&profile, &all_but(&missing, &[]));
            assert!(assessment.is_safe() && assessment.differences.is_empty(), "{rail:?}: {assessment:?}");
            assert_eq!(assessment.setting_of(SwitchCapability::Dedup), Some(("deduplicates", true)));
            assert_eq!(assessment.setting_of(SwitchCapability::Query), None);
            missing.push(SwitchCapability::Dedup);
            let without = assess(&profile, &all_but(&missing, &[]));
            assert!(!without.is_safe(), "{rail:?}: {without:?}");
        }
    }

    #[test]
    fn an_unmeasured_switch_capability_is_no_difference_and_not_relied_on() {
        let assessment =
            assess(&profile("query"), &all_but(&[], &[SwitchCapability::Query, SwitchCapability::Dedup]));
        assert!(assessment.differences.is_empty() && assessment.is_safe() && !assessment.is_complete());
        assert_eq!(assessment.not_measured, ["has_query", "deduplicates", "has_callback"]);
        assert_eq!(safe(&assessment), ["at_most_once"]);
    }

    #[test]
    fn a_measured_but_unconfigured_switch_capability_is_a_safe_difference() {
        let mut incomplete = profile("reference");
        incomplete.has_statement = false;
        let assessment = assess(&incomplete, &all_but(&[], &[]));
        assert_eq!(assessment.differences.len(), 1);
        assert!(!assessment.differences[0].is_unsafe() && assessment.is_safe());
    }

    #[test]
    fn strategy_validate_is_safe_for_a_probed_switch_without_references() {
        let mut without_references = profile("validate");
        (without_references.deduplicates, without_references.tombstones, without_references.has_callback) =
            (false, false, false);
        use SwitchCapability::{Callback, Dedup, Query, References, Tombstone};
        let mut findings = all_but(&[References, Query, Dedup, Tombstone], &[]);
        findings.record(Callback, CapabilityMeasurement::No, "");
        let assessment = assess(&without_references, &findings);
        assert!(assessment.is_safe(), "{assessment:?}");
        assert_eq!(safe(&assessment), ["at_most_once", "validate"]);

        let assessment = assess(&profile("query"), &findings);
        let changes = assessment.changes.as_ref().unwrap().join(", ");
        let expected = "has_query = false, deduplicates = false, tombstones = false, has_callback = false, \
                        strategy = \"at_most_once\"";
        assert_eq!(changes, expected);
        assert_eq!(safe(&assessment), ["at_most_once", "validate"]);
    }
}
