//! Mechanical checks of the repository. They need neither PostgreSQL nor Temporal.

mod cited_paths;
mod cited_tests;
mod crate_dependencies;
mod replaced_words;
mod word_pattern;

use std::path::{Path, PathBuf};

/// The root folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
