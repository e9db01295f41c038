//! What must hold after a case, beside what the ledger, Temporal and the switch show.

use payment_protocol::PaymentState;
use payment_protocol::ids::PaymentId;
use payment_protocol::submit::QueryAnswer;

use super::cases::Case;
use crate::document::money;
use crate::explain::PaymentExplanation;
use crate::outcome::CommandOutcome;
use crate::table::{Align, Table};

/// The expected and the seen, row by row.
pub(super) struct Comparison(Vec<Row>);

struct Row {
    name: &'static str,
    expected: String,
    seen: String,
    /// `None` if it could not be seen.
    is_equal: Option<bool>,
}

impl Comparison {
    /// Compares the records of the case's payment with what the case must leave.
    pub(super) fn of(case: &Case, explanation: &PaymentExplanation) -> Self {
        Self(vec![
            row("state", case.ends.as_str(), explanation.ledger.payment.view.state.as_str()),
            charged(case, explanation),
            exceptions(case, explanation),
            transfer(case, explanation),
            workflow(case, explanation),
            invariants(explanation),
        ])
    }

    /// Success if everything is as expected.
    pub(super) fn outcome(&self) -> CommandOutcome {
        if self.0.iter().any(|row| row.is_equal == Some(false)) {
            CommandOutcome::CheckFailed
        } else if self.0.iter().any(|row| row.is_equal.is_none()) {
            CommandOutcome::Unknown
        } else {
            CommandOutcome::Success
        }
    }

    pub(super) fn table(&self) -> Table<4> {
        let left = Align::Left;
        let mut table = Table::new([("", left), ("expected", left), ("seen", left), ("", left)]);
        for row in &self.0 {
            let mark = match row.is_equal {
                Some(true) => "",
                Some(false) => "DIFFERS",
                None => "unknown",
            };
            table.row([row.name, &row.expected, &row.seen, mark]);
        }
        table
    }

    /// One sentence.
    pub(super) fn summary(&self, case: &Case, id: &PaymentId) -> String {
        let of = |is_equal| {
            let rows = self.0.iter().filter(|row| row.is_equal == is_equal);
            rows.map(|row| row.name).collect::<Vec<_>>().join(", ")
        };
        match self.outcome() {
            CommandOutcome::Success => format!("{}: ended as expected; the books are equal", case.name),
            CommandOutcome::Unknown => {
                format!("{}: not compared: {}; next: payctl show {id}", case.name, of(None))
            }
            _ => format!(
                "{}: ended otherwise than expected: {}; next: payctl show {id}",
                case.name,
                of(Some(false))
            ),
        }
    }
}

fn row(name: &'static str, expected: impl Into<String>, seen: impl Into<String>) -> Row {
    let (expected, seen) = (expected.into(), seen.into());
    Row { name, is_equal: Some(expected == seen), expected, seen }
}

/// What the customer was charged, in debits of the journal.
fn charged(case: &Case, explanation: &PaymentExplanation) -> Row {
    let view = &explanation.ledger.payment.view;
    let debits: Vec<_> = explanation
        .ledger
        .journal
        .iter()
        .filter(|entry| {
            entry.kind == "debit" || entry.kind == "late_debit" && entry.debit_account == view.source_account
        })
        .map(|entry| money(entry.amount_minor, &entry.currency))
        .collect();
    let seen = if debits.is_empty() { "nothing".to_owned() } else { debits.join(" + ") };
    let expected = match case.ends {
        PaymentState::Settled => money(case.amount_minor, &view.currency),
        _ => "nothing".to_owned(),
    };
    row("charged", expected, seen)
}

fn exceptions(case: &Case, explanation: &PaymentExplanation) -> Row {
    let words = |mut kinds: Vec<&str>| {
        kinds.sort_unstable();
        if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") }
    };
    let expected = words(case.exceptions.iter().map(|kind| kind.as_str()).collect());
    let seen = words(explanation.ledger.exceptions.iter().map(|exception| exception.kind.as_str()).collect());
    row("exceptions", expected, seen)
}

/// The transfer at the switch: settled if the customer was charged, not otherwise.
fn transfer(case: &Case, explanation: &PaymentExplanation) -> Row {
    let is_settled = case.ends == PaymentState::Settled;
    let expected = if is_settled { "settled" } else { "not settled" }.to_owned();
    let (seen, is_equal) = match &explanation.switch {
        Ok(view) => {
            let is_equal = match &view.answer {
                QueryAnswer::Settled(report) => Some(is_settled && report.amount_minor == case.amount_minor),
                // A statement lists a settled transfer when its cycle is closed.
                QueryAnswer::NotListed { .. } if is_settled => None,
                QueryAnswer::Void { .. }
                | QueryAnswer::Returned(_)
                | QueryAnswer::NotFound
                | QueryAnswer::NotListed { .. } => Some(!is_settled),
                _ => Some(false),
            };
            (view.describe(), is_equal)
        }
        Err(error) => (error.clone(), None),
    };
    Row { name: "transfer", expected, seen, is_equal }
}

/// A payment that does not settle ends its workflow as failed.
fn workflow(case: &Case, explanation: &PaymentExplanation) -> Row {
    let expected = if case.ends == PaymentState::Settled { "completed" } else { "failed" };
    match &explanation.workflow {
        Ok(view) => row("workflow", expected, view.status),
        Err(error) => {
            Row { name: "workflow", expected: expected.into(), seen: error.clone(), is_equal: None }
        }
    }
}

fn invariants(explanation: &PaymentExplanation) -> Row {
    let violated: Vec<_> = explanation.violated().map(|invariant| invariant.number).collect();
    let seen =
        if violated.is_empty() { "hold".to_owned() } else { format!("violated: {}", violated.join(", ")) };
    row("invariants", "hold", seen)
}
