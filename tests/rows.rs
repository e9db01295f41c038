//! The rows of `requirements.md` and `faults.md` name tests that are there.

use std::path::Path;

/// The names in backticks that look like a row's test: `r19_...`, `s0_8_...`.
fn cited(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let numbered = |name: &&str| {
        let mut letters = name.chars();
        matches!(letters.next(), Some('r' | 's')) && letters.next().is_some_and(|c| c.is_ascii_digit())
    };
    quoted.filter(numbered).collect()
}

/// All Rust sources below a folder, as one text.
fn sources(folder: &Path, text: &mut String) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, text)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

#[test]
fn every_cited_test_exists() -> std::io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = String::new();
    for folder in ["../crates", "../workers", "../webhook", "."] {
        sources(&here.join(folder), &mut tests)?;
    }
    for file in ["requirements.md", "faults.md"] {
        let rows = std::fs::read_to_string(here.join(file))?;
        let names = cited(&rows);
        assert!(names.len() > 20, "{file} names few tests: {names:?}");
        let gone: Vec<_> = names.into_iter().filter(|name| !tests.contains(&format!("fn {name}("))).collect();
        assert!(gone.is_empty(), "{file} names tests that are not there: {gone:#?}");
    }
    Ok(())
}
