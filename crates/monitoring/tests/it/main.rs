//! Completeness: metrics, alerts and runbook pages are compared with the sources and the enums.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic fails the test")]

mod alerts;
mod codes;
mod dashboard;
mod metrics;
mod promtool;
mod runbook;

use std::path::{Path, PathBuf};

/// Root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Path and code of the Rust sources below these folders, without integration tests, examples and unit tests.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    for folder in folders {
        collect_sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 5, "expected sources below {folders:?}");
    files
}

fn collect_sources(folder: &Path, files: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "target", "examples"].contains(&name.as_str()) {
            collect_sources(&path, files);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            let path = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            files.push((path, code));
        }
    }
}

/// The text between the parenthesis at `from` and its closing one.
fn arguments(code: &str, from: usize) -> &str {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, letter) in code[from..].char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return &code[from + 1..from + at];
                }
            }
            _ => {}
        }
    }
    panic!("a parenthesis is not closed: {}", &code[from..(from + 60).min(code.len())]);
}

/// The quoted strings in a text.
fn literals(code: &str) -> Vec<&str> {
    code.split('"').skip(1).step_by(2).collect()
}

/// Whether the text is snake case, as codes and names are.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
