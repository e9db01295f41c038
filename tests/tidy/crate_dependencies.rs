//! The table "Dependencies" of crates/ARCHITECTURE.md matches the dependencies between the workspace members.
//!
//! The first cell of a row has one or more crates, the second the workspace members that each of them depends on, all in
//! backticks; a crate without dependencies on members has a second cell without backticks. Dependencies for tests and build
//! scripts do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::root;

/// Dependencies by crate.
type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Packages that are not part of the service: they depend on every crate and need no row.
const TEST_PACKAGES: [&str; 4] = ["benches", "fuzz-targets", "system-tests", "testkit"];

/// The text in backticks of a table cell.
fn names(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

/// The rows of the first table below the heading "Dependencies".
fn documented(text: &str) -> anyhow::Result<Dependencies> {
    let mut dependencies = Dependencies::new();
    let section = text.lines().skip_while(|line| *line != "## Dependencies");
    let table = section.skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    for row in table.skip(2) {
        let mut cells = row.trim_matches('|').split('|');
        let (crates, members) =
            (cells.next().unwrap_or_default(), cells.next().context("a row has one cell")?);
        for name in names(crates) {
            let is_new = dependencies.insert(name.clone(), names(members).collect()).is_none();
            ensure!(is_new, "`{name}` has two rows");
        }
    }
    Ok(dependencies)
}

/// The normal dependencies of each workspace member on other members.
fn declared() -> anyhow::Result<Dependencies> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = cargo.output().context("cargo could not be started")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let members: BTreeSet<_> = packages.iter().map(name).collect();
    let of_package = |package: &Value| {
        let all = package["dependencies"].as_array().into_iter().flatten();
        all.filter(|dependency| dependency["kind"].is_null())
            .map(name)
            .filter(|dependency| members.contains(dependency))
            .collect()
    };
    Ok(packages.iter().map(|package| (name(package), of_package(package))).collect())
}

/// The differences between the table and the manifests.
fn differences(documented: &Dependencies, declared: &Dependencies) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, members) in documented {
        let Some(actual) = declared.get(name) else {
            differences.push(format!("`{name}` has a row but is no workspace member"));
            continue;
        };
        for missing in actual.difference(members) {
            differences.push(format!("`{name}` depends on `{missing}`, which its row does not list"));
        }
        for unused in members.difference(actual) {
            differences.push(format!("`{name}` does not depend on `{unused}`, which its row lists"));
        }
    }
    let without_row = declared.keys().filter(|name| !TEST_PACKAGES.contains(&name.as_str()));
    for name in without_row.filter(|name| !documented.contains_key(*name)) {
        differences.push(format!("`{name}` has no row"));
    }
    differences
}

/// The table as the manifests require it.
fn required_table(declared: &Dependencies) -> String {
    let mut text = String::from("| crate | depends on |\n|---|---|\n");
    for (name, members) in declared.iter().filter(|(name, _)| !TEST_PACKAGES.contains(&name.as_str())) {
        let members: Vec<_> = members.iter().map(|member| format!("`{member}`")).collect();
        let members = if members.is_empty() { "no other crate".to_owned() } else { members.join(", ") };
        text.push_str(&format!("| `{name}` | {members} |\n"));
    }
    text
}

#[test]
fn the_architecture_lists_the_dependencies_between_crates() -> anyhow::Result<()> {
    let documented = documented(&std::fs::read_to_string(root().join("crates/ARCHITECTURE.md"))?)?;
    let declared = declared()?;
    let differences = differences(&documented, &declared);
    ensure!(
        differences.is_empty(),
        "the table \"Dependencies\" of crates/ARCHITECTURE.md differs from the manifests:\n{}\n\nRequired:\n{}",
        differences.join("\n"),
        required_table(&declared)
    );
    Ok(())
}

#[test]
fn each_kind_of_crate_dependency_difference_is_reported() -> anyhow::Result<()> {
    let table = "text\n\n## Dependencies\n\n| crate | depends on |\n|---|---|\n| `a`, `b` | `c` |\n| `gone` | none |\n\n| `d` | `e` |\n";
    let crates = [("a", vec!["c", "b"]), ("b", vec![]), ("c", vec![]), ("testkit", vec!["a"])];
    let declared = crates.map(|(name, members)| {
        (name.to_owned(), members.into_iter().map(str::to_owned).collect::<BTreeSet<_>>())
    });
    let expected = [
        "`a` depends on `b`, which its row does not list",
        "`b` does not depend on `c`, which its row lists",
        "`gone` has a row but is no workspace member",
        "`c` has no row",
    ];
    assert_eq!(differences(&documented(table)?, &declared.into()), expected);
    Ok(())
}
