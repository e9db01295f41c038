//! Each bug of `tests/seeded` can be put into the code as it is, and names a test that exists. `./dev sabotage` shows that the test fails.

use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::{root, tracked_files};

/// The line of a bug that names a test: `Caught by: `, variables and the target of `cargo test`, the test last.
const CAUGHT_BY: &str = "Caught by: ";

#[test]
fn every_seeded_bug_applies_and_names_a_test() -> anyhow::Result<()> {
    let bugs = tracked_files(&["tests/seeded/*.patch"])?;
    ensure!(bugs.len() >= 20, "only {} bugs are tracked", bugs.len());
    let mut sources = String::new();
    for file in tracked_files(&["*.rs"])? {
        sources.push_str(&std::fs::read_to_string(root().join(file)).unwrap_or_default());
    }
    for bug in bugs {
        let applied = Command::new("git").current_dir(root()).args(["apply", "--check", &bug]).output()?;
        ensure!(
            applied.status.success(),
            "{bug} does not apply; the code has changed, so write the bug again:\n{}",
            String::from_utf8_lossy(&applied.stderr)
        );
        let text = std::fs::read_to_string(root().join(&bug))?;
        let tests: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(CAUGHT_BY)).collect();
        ensure!(!tests.is_empty(), "{bug} names no test that catches it");
        for test in tests {
            let path = test.split_whitespace().next_back().context("a line without a test")?;
            let name = path.rsplit("::").next().unwrap_or(path);
            ensure!(sources.contains(&format!("fn {name}(")), "{bug} names {name}, which does not exist");
        }
    }
    Ok(())
}
