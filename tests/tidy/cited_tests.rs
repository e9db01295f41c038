//! The tests that `requirements.md` and `faults.md` cite exist.

use std::path::Path;

use crate::root;

/// The names of tests in backticks: sentences of at least four words.
fn cited_names(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_sentence = |name: &&str| {
        let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        name.matches('_').count() >= 3 && name.chars().all(of_a_name)
    };
    quoted.filter(is_sentence).collect()
}

/// Appends all Rust sources in a folder.
fn read_sources(folder: &Path, text: &mut String) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_sources(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn every_test_cited_in_requirements_and_faults_exists() -> std::io::Result<()> {
    let mut sources = String::new();
    for folder in ["crates", "workers", "webhook", "operator-api", "tests", "fuzz"] {
        read_sources(&root().join(folder), &mut sources)?;
    }
    for file in ["requirements.md", "faults.md"] {
        let text = std::fs::read_to_string(root().join("tests").join(file))?;
        let names = cited_names(&text);
        assert!(names.len() > 20, "{file} cites only {names:?}");
        let missing: Vec<_> =
            names.into_iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
        assert!(missing.is_empty(), "{file} cites tests that do not exist: {missing:#?}");
    }
    Ok(())
}
