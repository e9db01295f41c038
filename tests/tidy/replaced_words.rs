//! No tracked file has a word that was replaced by a standard term.
//!
//! `replaced_words.txt` lists the words, `allowed_words.txt` the exceptions. Only text files of the listed kinds that git
//! tracks are checked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;

use crate::word_pattern::{Line, WordPattern};
use crate::{root, tracked_files};

/// The kinds of files that are checked; without generated code, whose texts are checked in the code that they are generated from.
#[rustfmt::skip]
const CHECKED: [&str; 16] = [
    "*.rs", "*.sql", "*.md", "*.toml", "*.sh", "*.yml", "*.yaml", "*.py", "*.c", "*.conf", "*.patch", "*.example", "*Dockerfile", "dev",
    "*.ts", ":(exclude)clients/python/payments_client",
];

/// One replaced word.
struct ReplacedWord {
    pattern: String,
    parsed: WordPattern,
    replacement: String,
}

/// The rows of a text file: cells separated by `|`; comments begin with `#`.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| line.split('|').map(str::trim).collect())
}

fn replaced_words() -> anyhow::Result<Vec<ReplacedWord>> {
    let mut words = Vec::new();
    for row in rows(include_str!("replaced_words.txt")) {
        let [patterns, replacement] = row[..] else { anyhow::bail!("not `patterns | replacement`: {row:?}") };
        words.extend(patterns.split(',').map(|pattern| ReplacedWord {
            pattern: pattern.trim().to_owned(),
            parsed: WordPattern::parse(pattern.trim()),
            replacement: replacement.to_owned(),
        }));
    }
    Ok(words)
}

/// The allowed pairs of file and pattern.
fn allowed_words() -> anyhow::Result<BTreeSet<(String, String)>> {
    let mut allowed = BTreeSet::new();
    for row in rows(include_str!("allowed_words.txt")) {
        let [file, pattern, reason] = row[..] else {
            anyhow::bail!("not `file | pattern | reason`: {row:?}")
        };
        ensure!(!reason.is_empty(), "the exception for {pattern} in {file} has no reason");
        allowed.insert((file.to_owned(), pattern.to_owned()));
    }
    Ok(allowed)
}

/// A line of text or comment without its indentation and comment marker, to continue the line before it.
fn continuation(line: &str) -> &str {
    let line = line.trim_start();
    let marker = ["///", "//!", "//", "--", "#", "*"].into_iter().find(|marker| line.starts_with(marker));
    marker.map_or(line, |marker| line[marker.len()..].trim_start())
}

#[test]
fn no_file_has_a_replaced_word() -> anyhow::Result<()> {
    let (words, mut unused) = (replaced_words()?, allowed_words()?);
    let allowed = unused.clone();
    let mut matches = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for file in tracked_files(&CHECKED)? {
        let Ok(text) = std::fs::read_to_string(root().join(&file)) else { continue };
        // Most files have the beginning of few patterns.
        let vocabulary = Line::split(&text).vocabulary();
        let words: Vec<_> = words.iter().filter(|word| word.parsed.may_match(&vocabulary)).collect();
        let lines: Vec<&str> = text.lines().collect();
        for (n, line) in lines.iter().enumerate() {
            // A phrase may be broken over two lines; what the next line has alone is found there.
            let next = lines.get(n + 1).map_or("", |next| continuation(next));
            let joined = format!("{line} {next}");
            let (joined, next) = (Line::split(&joined), Line::split(next));
            let is_here = |word: &&&ReplacedWord| word.parsed.matches(&joined) && !word.parsed.matches(&next);
            for word in words.iter().filter(is_here) {
                let exception = (file.clone(), word.pattern.clone());
                unused.remove(&exception);
                if !allowed.contains(&exception) {
                    *counts.entry(&word.pattern).or_default() += 1;
                    matches.push(format!("{file}:{}: {} -> {}", n + 1, word.pattern, word.replacement));
                }
            }
        }
    }
    let counts: Vec<_> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    ensure!(
        matches.is_empty(),
        "{}\n{} replaced words; by word: {}. Exceptions with a reason: tests/tidy/allowed_words.txt",
        matches.join("\n"),
        matches.len(),
        counts.join(", ")
    );
    ensure!(unused.is_empty(), "exceptions in tests/tidy/allowed_words.txt that nothing needs: {unused:?}");
    Ok(())
}
