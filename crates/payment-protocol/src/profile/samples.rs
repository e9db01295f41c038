//! Profiles for the tests of this folder.

use super::settings::SwitchProfile;
use super::strategy::Strategy;
use crate::reject::RejectMeaning;

/// A switch that offers everything.
pub(super) fn full() -> SwitchProfile {
    serde_json::from_str(
        r#"{"switch":"s","strategy":"query","has_query":true,"deduplicates":true,"retention_s":86400,
            "tombstones":true,"honours_deadline":true,"max_skew_ms":1000,"can_cancel":true,
            "can_recall":true,"has_callback":true}"#,
    )
    .unwrap()
}

/// A switch without references, whose strategy is `validate`.
pub(super) fn without_references() -> SwitchProfile {
    let mut profile = SwitchProfile { strategy: Strategy::Validate, ..full() };
    (profile.deduplicates, profile.tombstones, profile.has_callback) = (false, false, false);
    profile
}

/// A switch whose query is the repeated submit, without the window that such a switch needs.
pub(super) fn queried_by_repeating() -> SwitchProfile {
    let mut profile = SwitchProfile { strategy: Strategy::Reference, ..full() };
    (profile.query_is_repeat, profile.reject_is_final, profile.burns_reference) = (true, true, true);
    profile.reject_codes = [("AC04".into(), RejectMeaning::Dead)].into();
    profile
}
