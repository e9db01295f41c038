//! Every alert and every error code has a page, every page has an owner, and no page is empty.

use std::collections::{BTreeMap, BTreeSet};

use monitoring::alerts;

use crate::{codes, read, root};

/// The same on each page, in this order.
const HEADINGS: [&str; 4] = ["What it means", "What the system did", "What to do", "How to know it is over"];

/// Pages of the payments API's codes.
const API_CODES: &str = "api-codes.md";
/// Pages of the switch's codes.
const SWITCH_CODES: &str = "switch-codes.md";

/// What needs a page, by file.
fn owners() -> BTreeMap<String, BTreeSet<String>> {
    let mut owners: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for alert in alerts() {
        owners.entry(alert.page.file.to_owned()).or_default().insert(alert.page.section);
    }
    let of_the_bank = codes::of_the_bank();
    // What both may answer is on the API's page.
    let of_the_switch = codes::of_the_switch().difference(&of_the_bank).cloned().collect();
    assert!(of_the_bank.len() > 30, "{of_the_bank:?}");
    owners.insert(API_CODES.to_owned(), of_the_bank);
    owners.insert(SWITCH_CODES.to_owned(), of_the_switch);
    owners
}

/// Pages by heading: what stands below it.
fn pages(file: &str) -> BTreeMap<String, String> {
    let text = read(&format!("deploy/runbook/{file}"));
    let pages: Vec<_> = text.split("\n## ").skip(1).filter_map(|page| page.split_once('\n')).collect();
    let by_heading: BTreeMap<_, _> =
        pages.iter().map(|(heading, body)| (heading.trim().to_owned(), (*body).to_owned())).collect();
    assert_eq!(by_heading.len(), pages.len(), "{file} has a heading twice");
    by_heading
}

#[test]
fn s0_15_every_alert_and_code_has_its_page_and_every_page_its_owner() {
    for (file, owners) in owners() {
        let pages: BTreeSet<_> = pages(&file).into_keys().collect();
        let missing: Vec<_> = owners.difference(&pages).collect();
        assert!(missing.is_empty(), "no page in deploy/runbook/{file} for {missing:#?}");
        let stray: Vec<_> = pages.difference(&owners).collect();
        assert!(stray.is_empty(), "pages of nothing in deploy/runbook/{file}: {stray:#?}");
    }
}

#[test]
fn s0_15_every_page_says_four_things() {
    for file in owners().into_keys() {
        for (heading, page) in pages(&file) {
            let parts: Vec<_> = page.split("### ").skip(1).filter_map(|part| part.split_once('\n')).collect();
            let headings: Vec<_> = parts.iter().map(|(heading, _)| heading.trim()).collect();
            assert_eq!(headings, HEADINGS, "{file}, {heading}");
            for (part, text) in parts {
                let text = text.trim();
                let is_said = text.len() >= 20 && text.ends_with(['.', '`', '|']);
                assert!(is_said, "{file}, {heading}: \"{part}\" says nothing: {text:?}");
            }
        }
    }
}

#[test]
fn s0_15_the_index_names_every_file_and_nothing_else() {
    let index = read("deploy/runbook/README.md");
    let mut files: BTreeSet<_> = owners().into_keys().collect();
    for entry in std::fs::read_dir(root().join("deploy/runbook")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(name == "README.md" || files.contains(&name), "{name} belongs to nothing");
    }
    for link in index.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        files.remove(link);
        assert!(root().join("deploy/runbook").join(link).exists(), "the index leads nowhere: {link}");
    }
    assert!(files.is_empty(), "not in the index: {files:?}");
}

/// Commands are typed as they are.
#[test]
fn s0_15_the_commands_of_the_pages_are_there() {
    let main = read("crates/payctl/src/main.rs");
    let commands = main.split("enum Command {").nth(1).unwrap().split("\n}\n").next().unwrap();
    let names: BTreeSet<String> = commands
        .lines()
        .filter_map(|line| line.trim().split_once('(').map(|(name, _)| name))
        .filter(|name| name.chars().all(char::is_alphanumeric))
        .map(kebab)
        .collect();
    assert!(names.contains("kill-switch") && names.contains("decide"), "{names:?}");
    let mut used = 0;
    for file in owners().into_keys() {
        for (heading, page) in pages(&file) {
            for command in page.split("`payctl ").skip(1) {
                let name = command.split([' ', '`']).next().unwrap();
                assert!(names.contains(name), "{file}, {heading}: there is no payctl {name}");
                used += 1;
            }
        }
    }
    assert!(used > 50, "{used}");
}

fn kebab(name: &str) -> String {
    let mut kebab = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !kebab.is_empty() {
            kebab.push('-');
        }
        kebab.push(letter.to_ascii_lowercase());
    }
    kebab
}
