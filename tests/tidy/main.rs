//! Mechanical checks of the repository. They need neither PostgreSQL nor Temporal.

mod cited_paths;
mod cited_tests;
mod crate_dependencies;
mod replaced_words;
mod seeded_bugs;
mod word_pattern;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// The root folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The files that git tracks and whose names match one of the patterns. A file that is deleted and not yet committed is still
/// listed.
fn tracked_files(patterns: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--"]).args(patterns);
    let output = git.output().context("git could not be started")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let files = String::from_utf8(output.stdout)?;
    Ok(files.split('\0').filter(|file| !file.is_empty()).map(str::to_owned).collect())
}
