//! Nothing can be missing: metrics, alerts and pages of the runbook are compared with the sources and the enums.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod alerts;
mod codes;
mod listed;
mod promtool;
mod runbook;

use std::path::{Path, PathBuf};

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The Rust sources of the packages below these folders (`src`, not `tests`), each without its unit tests.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in folders {
        walk(&root().join(folder), &mut found);
    }
    assert!(found.len() > 5, "{folders:?}");
    found
}

fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !["tests", "target", "examples"].contains(&name.as_str()) {
            walk(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            let path = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            found.push((path, code));
        }
    }
}

/// What stands between the parenthesis at `from` and the one that closes it.
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

/// The texts in quotes.
fn literals(code: &str) -> Vec<&str> {
    code.split('"').skip(1).step_by(2).collect()
}

/// Lower-case words joined by `_`, as codes and names are.
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}
