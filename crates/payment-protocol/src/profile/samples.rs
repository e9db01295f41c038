//! Profiles for the tests of this folder.

use super::settings::SwitchProfile;

/// A switch that offers everything.
pub(super) fn full() -> SwitchProfile {
    serde_json::from_str(
        r#"{"switch":"s","strategy":"query","has_query":true,"deduplicates":true,"retention_s":86400,
            "tombstones":true,"honours_deadline":true,"max_skew_ms":1000,"can_cancel":true,
            "can_recall":true,"has_callback":true}"#,
    )
    .unwrap()
}
