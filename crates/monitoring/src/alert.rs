//! An alert and its form in a Prometheus rule file.

use std::fmt::{Display, Formatter, Result};
use std::time::Duration;

/// How urgent an alert is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Page the operator on call: money or a guarantee is at risk, or payments have stopped.
    Critical,
    /// Look at it within the working day.
    Warning,
    /// Shown on dashboards only.
    Info,
}

impl Severity {
    /// Value of the label `severity`.
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
    /// Name of the file.
    pub file: &'static str,
    /// Heading of the section.
    pub section: String,
}

impl Page {
    /// The section with the heading `section` in `file`.
    pub fn new(file: &'static str, section: impl Into<String>) -> Self {
        Self { file, section: section.into() }
    }
}

/// A Markdown link target, relative to `deploy/runbook`.
impl Display for Page {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{}#{}", self.file, self.section.to_lowercase())
    }
}

/// An alert rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Name, in Pascal case; states the condition.
    pub name: String,
    /// Condition, in PromQL.
    pub expr: String,
    /// How long the condition must hold before the alert fires (`for`).
    pub pending_for: Duration,
    /// Urgency.
    pub severity: Severity,
    /// Problem, in one sentence. Prometheus templates are allowed.
    pub summary: String,
    /// The affected customers, payments or processes, and the first action.
    pub description: String,
    /// Page of the runbook.
    pub page: Page,
}

/// One rule of the rule file.
impl Display for Alert {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(f, "      - alert: {}", self.name)?;
        writeln!(f, "        expr: {}", quoted(&self.expr))?;
        writeln!(f, "        for: {}s", self.pending_for.as_secs())?;
        writeln!(f, "        labels:")?;
        writeln!(f, "          severity: {}", self.severity.as_str())?;
        writeln!(f, "        annotations:")?;
        writeln!(f, "          summary: {}", quoted(&self.summary))?;
        writeln!(f, "          description: {}", quoted(&self.description))?;
        writeln!(f, "          runbook: {}", quoted(&format!("deploy/runbook/{}", self.page)))
    }
}

/// A single-quoted YAML scalar.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `needs_operator` or `needs-operator` as `NeedsOperator`.
pub(crate) fn pascal_case(word: &str) -> String {
    word.split(['_', '-'])
        .flat_map(|part| {
            let mut letters = part.chars();
            letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}
