//! An alert, and how Prometheus reads it.

use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

/// Who is called, and how soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Somebody is woken: money or the promise is in question, or nothing moves any more.
    Critical,
    /// Somebody looks today.
    Warning,
    /// Shown; nobody is called.
    Info,
}

impl Severity {
    /// The value of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// A page of the runbook: a section of a file below `deploy/runbook`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Page {
    /// The file.
    pub file: &'static str,
    /// The section's heading.
    pub section: String,
}

impl Page {
    /// The section of `file` that is called `section`.
    pub fn new(file: &'static str, section: impl Into<String>) -> Self {
        Self { file, section: section.into() }
    }
}

/// The link, as Markdown has it.
impl Display for Page {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}#{}", self.file, self.section.to_lowercase())
    }
}

/// When somebody is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// What must be so, in PromQL.
    pub expr: String,
    /// For how long it must have been so.
    pub held_for: Duration,
    /// Who is called.
    pub severity: Severity,
    /// What is so, in a sentence.
    pub summary: String,
    /// Why then, and not earlier or later.
    pub because: String,
    /// What to do.
    pub page: Page,
}

/// One rule in the file.
impl Display for Alert {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "      - alert: {}", self.name)?;
        writeln!(f, "        expr: {}", quoted(&self.expr))?;
        writeln!(f, "        for: {}s", self.held_for.as_secs())?;
        writeln!(f, "        labels:")?;
        writeln!(f, "          severity: {}", self.severity.as_str())?;
        writeln!(f, "        annotations:")?;
        writeln!(f, "          summary: {}", quoted(&self.summary))?;
        writeln!(f, "          because: {}", quoted(&self.because))?;
        writeln!(f, "          runbook: {}", quoted(&format!("deploy/runbook/{}", self.page)))
    }
}

/// A text that YAML reads as it is.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `needs_operator` as a part of a name: `NeedsOperator`.
pub(crate) fn camel(word: &str) -> String {
    word.split('_')
        .flat_map(|part| {
            let mut letters = part.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}

/// `needs_operator` as a part of a sentence: `needs operator`.
pub(crate) fn spoken(word: &str) -> String {
    word.replace('_', " ")
}
