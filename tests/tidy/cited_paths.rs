//! The files and folders that the documents link or name exist.

use std::path::Path;
use std::process::Command;

use crate::root;

/// Top folders of the repository: a text in backticks that begins with one of them and `/` is a path from the root.
const TOP_FOLDERS: [&str; 8] =
    ["benches", "crates", "deploy", "docs", "scripts", "tests", "webhook", "workers"];

/// Targets of the links in a Markdown text, without the web and without the anchor; a link to an anchor alone is left out.
fn link_targets(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty())
}

/// Paths in backticks, from the root of the repository. Patterns such as `tests/*.rs` and commands with blanks are no paths.
fn named_paths(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2).filter(|quoted| {
        let top = quoted.split('/').next().unwrap_or_default();
        quoted.contains('/') && TOP_FOLDERS.contains(&top) && !quoted.contains(['*', ' ', '{', '<', '\n'])
    })
}

fn documents() -> anyhow::Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "*.md"]).current_dir(root()).output()?;
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

#[test]
fn every_link_and_path_in_a_document_exists() -> anyhow::Result<()> {
    let (mut checked, mut missing) = (0, Vec::new());
    for document in documents()? {
        let file = root().join(&document);
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let folder = file.parent().unwrap_or(Path::new(""));
        let linked = link_targets(&text).map(|target| (target, folder.join(target)));
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
