//! Every `payctl` command in the documents exists: its subcommands and its options.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};

/// Fewest commands that the documents show. A search that finds fewer has become blind.
const DOCUMENTED_MIN: usize = 200;

#[test]
fn every_payctl_command_in_the_documents_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let mut documents = Vec::new();
    for entry in ["README.md", "docs", "deploy", "crates", "workers", "webhook", "tests", "examples"] {
        markdown_files(&root.join(entry), &mut documents);
    }
    let command = super::Cli::command();
    let (mut found, mut wrong) = (0, Vec::new());
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document can be read");
        for shown in commands(&text) {
            found += 1;
            if let Err(problem) = check(&command, &shown) {
                wrong.push(format!("{}: payctl {shown}: {problem}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(found >= DOCUMENTED_MIN, "only {found} commands were found");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let command = super::Cli::command();
    for (shown, is_right) in [
        ("decide late-debit EXCEPTION ..", true),
        ("decide PAYMENT_ID debit --reason \"...\"", true),
        ("exceptions correct EXCEPTION late-debit", false),
        ("kill-switch halt", false),
        ("show PAYMENT_ID --verbose", false),
        ("shows PAYMENT_ID", false),
    ] {
        assert_eq!(check(&command, shown).is_ok(), is_right, "{shown}");
    }
}

fn markdown_files(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder can be read") {
            markdown_files(&entry.expect("a folder can be read").path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "md") {
        found.push(path.to_owned());
    }
}

/// The commands in code: inline, where a line may end within it, and one a line in blocks.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("    ")) {
        found.extend(line.trim_start().strip_prefix("payctl ").map(str::to_owned));
    }
    for (index, code) in text.split('`').enumerate() {
        if index % 2 == 1 && !code.contains("\n\n") {
            let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
            found.extend(code.strip_prefix("payctl ").map(str::to_owned));
        }
    }
    found
}

/// Follows the words of a command line through the subcommands; then each word with dashes has to be an option.
fn check(payctl: &Command, shown: &str) -> Result<(), String> {
    let mut command = payctl;
    // What may follow it in a document: a comment, another command, a pipe, a value by a command.
    let end = [" #", ";", " && ", " | ", "$("].iter().filter_map(|next| shown.find(next)).min();
    let shown = shown.get(..end.unwrap_or(shown.len())).unwrap_or(shown);
    let mut words = shown.split_whitespace().peekable();
    while let Some(word) = words.peek() {
        let Some(next) = command.find_subcommand(word) else { break };
        command = next;
        words.next();
    }
    let placeholder = |word: &str| !word.starts_with(|first: char| first.is_ascii_lowercase());
    if let Some(word) = words.peek()
        && command.has_subcommands()
        && !placeholder(word)
        && !word.contains('|')
    {
        return Err(format!("{} has no subcommand {word}", command.get_name()));
    }
    if let (Some(word), None) = (words.peek(), command.get_positionals().next())
        && !word.starts_with(['-', '<', '.', '['])
        && command.get_name() != payctl.get_name()
        && !word.contains('|')
    {
        return Err(format!("{} takes no argument, such as {word}", command.get_name()));
    }
    for option in words.filter_map(|word| word.strip_prefix("--")) {
        let name = option.split('=').next().unwrap_or(option);
        let is_known = command.get_arguments().any(|argument| argument.get_long() == Some(name));
        if !is_known && !["help", "version", ""].contains(&name) {
            return Err(format!("{} has no option --{name}", command.get_name()));
        }
    }
    Ok(())
}
