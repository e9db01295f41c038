//! Every alert and error code has a runbook page, every page belongs to one, and every page is complete.

use std::collections::{BTreeMap, BTreeSet};

use monitoring::alerts;

use crate::{codes, read, root};

/// Headings of each page, in this order.
const HEADINGS: [&str; 4] = ["Meaning", "Impact", "Check", "Action"];
/// The last sentence of each action starts with these words and says how to verify that the problem is solved.
const RESOLUTION: &str = "Resolved when";

/// Runbook file of the payments API's codes.
const API_CODES: &str = "api-codes.md";
/// Runbook file of the steps after the database lost commits, which no alert and no code announces.
const STEPS: &str = "lost-commits.md";
/// Runbook file of the codes that only operator-api has.
const OPERATOR_CODES: &str = "operator-codes.md";
/// Runbook file of the mock switch's codes.
const SWITCH_CODES: &str = "switch-codes.md";

/// The sections that each file must have.
fn required_sections() -> BTreeMap<String, BTreeSet<String>> {
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for alert in alerts() {
        sections.entry(alert.page.file.to_owned()).or_default().insert(alert.page.section);
    }
    let bank_codes = codes::bank_codes();
    // Codes of the payments API, too, are documented there.
    let switch_codes = codes::mock_switch_codes().difference(&bank_codes).cloned().collect();
    let operator_codes: BTreeSet<_> = codes::operator_api_codes().difference(&bank_codes).cloned().collect();
    assert!(bank_codes.len() > 30 && operator_codes.len() > 10, "{bank_codes:?} {operator_codes:?}");
    sections.insert(OPERATOR_CODES.to_owned(), operator_codes);
    sections.insert(API_CODES.to_owned(), bank_codes);
    sections.insert(SWITCH_CODES.to_owned(), switch_codes);
    sections
}

/// Text of each page by its heading.
fn pages(file: &str) -> BTreeMap<String, String> {
    let text = read(&format!("deploy/runbook/{file}"));
    let pages: Vec<_> = text.split("\n## ").skip(1).filter_map(|page| page.split_once('\n')).collect();
    let by_heading: BTreeMap<_, _> =
        pages.iter().map(|(heading, body)| (heading.trim().to_owned(), (*body).to_owned())).collect();
    assert_eq!(by_heading.len(), pages.len(), "{file}: headings must be unique");
    by_heading
}

#[test]
fn s0_15_every_alert_and_code_has_a_runbook_page_and_none_is_unused() {
    for (file, required) in required_sections() {
        let pages: BTreeSet<_> = pages(&file).into_keys().collect();
        let missing: Vec<_> = required.difference(&pages).collect();
        assert!(missing.is_empty(), "deploy/runbook/{file} has no page for {missing:#?}");
        let unused: Vec<_> = pages.difference(&required).collect();
        assert!(unused.is_empty(), "pages without alert or code in deploy/runbook/{file}: {unused:#?}");
    }
}

#[test]
fn s0_15_every_runbook_page_has_all_four_parts() {
    for file in required_sections().into_keys() {
        for (heading, page) in pages(&file) {
            let parts: Vec<_> = page.split("### ").skip(1).filter_map(|part| part.split_once('\n')).collect();
            let headings: Vec<_> = parts.iter().map(|(heading, _)| heading.trim()).collect();
            assert_eq!(headings, HEADINGS, "{file}, {heading}");
            for (part, text) in parts {
                let text = text.trim();
                let is_complete = text.len() >= 20 && text.ends_with(['.', '`', '|']);
                assert!(is_complete, "{file}, {heading}: \"{part}\" is incomplete: {text:?}");
                let has_resolution =
                    text.split_whitespace().collect::<Vec<_>>().join(" ").contains(RESOLUTION);
                assert_eq!(
                    has_resolution,
                    part.trim() == "Action",
                    "{file}, {heading}: \"{RESOLUTION}\" in \"{part}\""
                );
            }
        }
    }
}

#[test]
fn s0_15_the_runbook_index_links_to_every_file_and_nothing_else() {
    let index = read("deploy/runbook/README.md");
    let mut files: BTreeSet<_> = required_sections().into_keys().chain([STEPS.to_owned()]).collect();
    for entry in std::fs::read_dir(root().join("deploy/runbook")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(
            name == "README.md" || files.contains(&name),
            "deploy/runbook/{name} has no alert, no code and no steps"
        );
    }
    for link in index.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        files.remove(link);
        assert!(
            root().join("deploy/runbook").join(link).exists(),
            "the index links to a missing file: {link}"
        );
    }
    assert!(files.is_empty(), "the index has no link to {files:?}");
}

#[test]
fn s0_15_every_payctl_command_in_the_runbook_exists() {
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
    for file in required_sections().into_keys() {
        for (heading, page) in pages(&file) {
            for command in page.split("`payctl ").skip(1) {
                let name = command.split([' ', '`']).next().unwrap();
                assert!(names.contains(name), "{file}, {heading}: payctl has no command {name}");
                used += 1;
            }
        }
    }
    assert!(used > 50, "expected more than 50 commands, got {used}");
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
