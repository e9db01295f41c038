//! A small pattern language for words in prose and identifiers.
//!
//! A line is split into words at every character that is no ASCII letter, and inside identifiers at each capital:
//! `leader_seat` and `LeaderSeat` both have the words `leader` and `seat`. A pattern is one or more words, in lower case:
//!
//! - `seat` matches this word anywhere, also as a part of an identifier;
//! - `nudge*` matches every word that begins with `nudge`;
//! - `left in peace` matches words separated by white space;
//! - `left_in_peace` matches the same words inside one identifier.

use std::collections::BTreeSet;
use std::ops::Bound;

/// A word of a line, in lower case, with its position in bytes.
struct Word {
    text: String,
    start: usize,
    end: usize,
}

/// How a word of a pattern is separated from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Separator {
    WhiteSpace,
    Identifier,
}

/// A parsed pattern.
#[derive(Debug)]
pub(crate) struct WordPattern {
    words: Vec<String>,
    separator: Separator,
}

impl WordPattern {
    /// Parses a pattern.
    pub(crate) fn parse(pattern: &str) -> Self {
        let separator = if pattern.contains('_') { Separator::Identifier } else { Separator::WhiteSpace };
        let words = pattern.split(['_', ' ']).map(str::to_owned).collect();
        Self { words, separator }
    }

    /// Whether a text with these words can have a match: the pattern's first word is one of them.
    pub(crate) fn may_match(&self, words: &BTreeSet<String>) -> bool {
        self.words.first().is_some_and(|first| match first.strip_suffix('*') {
            Some(prefix) => words
                .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
                .next()
                .is_some_and(|word| word.starts_with(prefix)),
            None => words.contains(first),
        })
    }

    /// Whether a line, split by [`Line::split`], has a match.
    pub(crate) fn matches(&self, line: &Line<'_>) -> bool {
        line.words.windows(self.words.len()).any(|window| {
            let words_match =
                window.iter().zip(&self.words).all(|(word, pattern)| match pattern.strip_suffix('*') {
                    Some(prefix) => word.text.starts_with(prefix),
                    None => word.text == *pattern,
                });
            words_match && window.windows(2).all(|pair| self.is_separated(line, &pair[0], &pair[1]))
        })
    }

    fn is_separated(&self, line: &Line<'_>, first: &Word, second: &Word) -> bool {
        let between = line.text.get(first.end..second.start).unwrap_or_default();
        match self.separator {
            Separator::WhiteSpace => !between.is_empty() && between.chars().all(char::is_whitespace),
            Separator::Identifier => between.is_empty() || between == "_",
        }
    }
}

/// A line and its words.
pub(crate) struct Line<'a> {
    text: &'a str,
    words: Vec<Word>,
}

impl<'a> Line<'a> {
    /// Splits a line into words.
    pub(crate) fn split(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        let letter = |n: usize| bytes.get(n).copied().filter(u8::is_ascii_alphabetic);
        let mut words = Vec::new();
        let mut start = None;
        for n in 0..=bytes.len() {
            let is_first = letter(n).is_some_and(|this| {
                let before = n.checked_sub(1).and_then(letter);
                let after = letter(n + 1);
                let is_capital = this.is_ascii_uppercase();
                let ends_acronym = after.is_some_and(|after| after.is_ascii_lowercase());
                before.is_none_or(|before| is_capital && (before.is_ascii_lowercase() || ends_acronym))
            });
            if (is_first || letter(n).is_none())
                && let Some(start) = start.take()
            {
                words.push(Word { text: text[start..n].to_ascii_lowercase(), start, end: n });
            }
            if is_first {
                start = Some(n);
            }
        }
        Self { text, words }
    }

    /// Its different words, in lower case.
    pub(crate) fn vocabulary(self) -> BTreeSet<String> {
        self.words.into_iter().map(|word| word.text).collect()
    }
}

#[test]
fn a_replaced_word_pattern_matches_whole_words_in_text_and_identifiers() {
    #[rustfmt::skip]
    let table = [
        // pattern         line                                  matches
        ("seat",          "the seat is taken",                   true),
        ("seat",          "Seat of the leader",                  true),
        ("seat",          "fn lost_seat() {}",                   true),
        ("seat",          "struct LeaderSeat;",                  true),
        ("seat",          "seats and reseating",                 false),
        ("nudge*",        "nudged twice",                        true),
        ("nudge*",        "SEND_NUDGES",                         true),
        ("undo",          "an undocumented field",               false),
        ("http",          "an HTTPSender",                       true),
        ("left in peace", "the switch is left in peace",         true),
        ("left in peace", "left_in_peace",                       false),
        ("left_in_peace", "s4_6_a_store_left_in_peace()",        true),
        ("left_in_peace", "LeftInPeace",                         true),
        ("is none",       "if x.is_none() {",                    false),
        ("is none",       "there is none",                       true),
        ("room",          "für room",                            true),
    ];
    for (pattern, line, expected) in table {
        let parsed = WordPattern::parse(pattern);
        assert_eq!(parsed.matches(&Line::split(line)), expected, "{pattern} in {line:?}");
        assert!(parsed.may_match(&Line::split(line).vocabulary()) || !expected, "{pattern} in {line:?}");
    }
}
