//! The explorer's seeded bugs, each with the shortest sequence that it found: recorded by the test `seeded` of the explorer, which also
//! compares the recording.

use serde::{Deserialize, Serialize};

/// One seeded bug.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Bug {
    /// The name of its patch.
    pub name: String,
    /// What is wrong, in a sentence.
    pub description: String,
    /// The number of the violated invariant.
    pub violates: String,
    /// The violated invariant.
    pub invariant: String,
    /// The profile of the switch.
    pub profile: String,
    /// The shortest sequence, and the books at its end.
    pub steps: Vec<String>,
}

/// The bugs, by name.
///
/// # Errors
/// The recording is not readable, which a test excludes.
pub fn recorded() -> Result<Vec<Bug>, serde_json::Error> {
    serde_json::from_str(include_str!("../../payment-explorer/seeded/sequences.json"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_seeded_bug_has_a_recorded_sequence() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../payment-explorer/seeded");
        let mut patches: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "patch"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        patches.sort();
        let bugs = recorded().unwrap();
        assert_eq!(bugs.iter().map(|bug| bug.name.clone()).collect::<Vec<_>>(), patches);
        assert!(bugs.iter().all(|bug| bug.steps.len() > 2 && !bug.invariant.is_empty()));
    }
}
