//! The files and folders that the documents link or name exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{root, tracked_files};

/// Top folders of the repository: a text in backticks that begins with one of them and `/` is a path from the root.
const TOP_FOLDERS: [&str; 10] = [
    "benches",
    "clients",
    "crates",
    "deploy",
    "docs",
    "operator-api",
    "scripts",
    "tests",
    "webhook",
    "workers",
];

/// Targets of the links in a Markdown text, without the web: path and anchor, either may be empty.
fn link_targets(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .map(|target| target.split_once('#').unwrap_or((target, "")))
}

/// The anchors of a Markdown text: its headings in lower case, blanks as hyphens, without other punctuation.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    headings.map(|heading| heading.chars().filter_map(kept).collect()).collect()
}

/// Paths in backticks, from the root of the repository. Patterns such as `tests/*.rs` and commands with blanks are no paths.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|quoted| {
        let top = quoted.split('/').next().unwrap_or_default();
        quoted.contains('/') && TOP_FOLDERS.contains(&top) && !quoted.contains(['*', ' ', '{', '<', '\n'])
    })
}

#[test]
fn every_link_and_path_in_a_document_exists() -> anyhow::Result<()> {
    let (mut checked, mut missing) = (0, Vec::new());
    for document in tracked_files(&["*.md"])? {
        let file = root().join(&document);
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let folder = file.parent().unwrap_or(Path::new(""));
        for (path, anchor) in link_targets(&text).filter(|(_, anchor)| !anchor.is_empty()) {
            let target = if path.is_empty() { file.clone() } else { folder.join(path) };
            let is_known = std::fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
            if target.extension().is_some_and(|extension| extension == "md") && !is_known {
                missing.push(format!("{document}: {path}#{anchor}"));
            }
        }
        let linked = link_targets(&text)
            .filter(|(path, _)| !path.is_empty())
            .map(|(path, _)| (path, folder.join(path)));
        let named = named_paths(&text).map(|path| (path, root().join(path)));
        for (name, path) in linked.chain(named) {
            checked += 1;
            if !path.exists() {
                missing.push(format!("{document}: {name}"));
            }
        }
    }
    assert!(checked > 100, "expected more than 100 links and paths, found {checked}");
    assert!(missing.is_empty(), "documents name files that do not exist: {missing:#?}");
    Ok(())
}
