//! Which shipped rails a switch behaves like.

use payment_protocol::SwitchProfile;
use payment_protocol::ids::SwitchName;
use payment_protocol::profile::Rail;
use serde::Serialize;

use super::findings::{CapabilityMeasurement, Findings, SwitchCapability};

/// How much later than measured a rail's `first_ask_after_ms` may be: the margins that profiles add.
const MARGIN_MS: u64 = 6_000;

/// What only some rails do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct RailTraits {
    /// Whether a query right after the submit was refused as too early; `None` if none was answered or refused.
    pub(crate) refuses_early_query: Option<bool>,
    /// How long after the first submit a query was refused as too early for the last time, at least, in milliseconds.
    pub(crate) early_query_after_ms: Option<u64>,
    /// How long after the first submit a query was answered for the first time, at most, in milliseconds; `None` if not measured, or not
    /// within the time of the probe.
    pub(crate) first_query_after_ms: Option<u64>,
    /// The reason code of a refused transfer; `None` if none was refused, or the switch's rejects have no codes.
    pub(crate) reject_code: Option<String>,
    /// Whether a transfer was refused at all.
    pub(crate) saw_a_refusal: bool,
}

/// The rails whose shipped profile no measurement contradicts.
pub(crate) fn matching(findings: &Findings, traits: &RailTraits) -> Vec<Rail> {
    let Ok(switch) = SwitchName::new("probed") else { return Vec::new() };
    let agrees = |rail: &Rail| {
        rail.profile(&switch).is_ok_and(|profile| {
            has_capabilities(&profile, findings)
                && has_query_time(&profile, traits)
                && has_codes(&profile, traits)
        })
    };
    Rail::ALL.iter().copied().filter(agrees).collect()
}

fn has_capabilities(profile: &SwitchProfile, findings: &Findings) -> bool {
    use SwitchCapability::{Cancel, Deadline, Dedup, Query, Statement, Tombstone};
    [
        // A repeated submit answers the question, and a call of its own does not exist.
        (Query, profile.has_query && !profile.query_is_repeat),
        (Dedup, profile.deduplicates),
        (Tombstone, profile.tombstones),
        (Deadline, profile.honours_deadline),
        (Cancel, profile.can_cancel),
        (Statement, profile.has_statement),
    ]
    .into_iter()
    .all(|(capability, expected)| match findings.measured(capability) {
        CapabilityMeasurement::Yes => expected,
        CapabilityMeasurement::No => !expected,
        CapabilityMeasurement::Unknown => true,
    })
}

fn has_query_time(profile: &SwitchProfile, traits: &RailTraits) -> bool {
    let expected_ms = profile.first_ask_after_ms;
    match (traits.refuses_early_query, traits.first_query_after_ms) {
        (None, _) => true,
        (Some(false), _) => expected_ms == 0,
        (Some(true), None) => expected_ms > super::measure::FIRST_QUERY_TIMEOUT_MS,
        // The switch began to answer between the two queries.
        (Some(true), Some(answered_ms)) => {
            let refused_ms = traits.early_query_after_ms.unwrap_or(0);
            (refused_ms..=answered_ms.saturating_add(MARGIN_MS)).contains(&expected_ms)
        }
    }
}

fn has_codes(profile: &SwitchProfile, traits: &RailTraits) -> bool {
    match &traits.reject_code {
        Some(code) => profile.reject_codes.contains_key(code),
        None => !traits.saw_a_refusal || profile.reject_codes.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probe asks once a second: the switch began to answer between the last refused query and the first answered one.
    #[test]
    fn a_rails_first_query_fits_a_switch_that_began_to_answer_before_it() {
        let profile = Rail::SctInst.profile(&SwitchName::new("s").unwrap()).unwrap();
        assert_eq!(profile.first_ask_after_ms, 9_500);
        for (refused_ms, answered_ms, fits) in [
            (Some(8_100), 9_100, true),
            (Some(8_700), 9_700, true),
            (None, 9_700, true),
            (Some(9_600), 10_600, false),
            (Some(1_000), 2_000, false),
        ] {
            let traits = RailTraits {
                refuses_early_query: Some(true),
                early_query_after_ms: refused_ms,
                first_query_after_ms: Some(answered_ms),
                ..RailTraits::default()
            };
            assert_eq!(has_query_time(&profile, &traits), fits, "{refused_ms:?} {answered_ms}");
        }
    }
}
