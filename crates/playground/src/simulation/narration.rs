//! Who acts in a move of the explorer, and the move as a sentence.

use payment_explorer::bank::Bank;

use super::choice::RECORDS_AND_DEBITS;
use crate::run::{Actor, Side, Step};
use crate::schedule::{Fault, Instant, Schedule};

/// The step of a move.
pub(super) fn step(at: Instant, description: &str, fault: Option<Fault>) -> Step {
    Step::simulated(Side::WithKeys, at, actor(description), sentence(description), fault)
}

/// A step that changes nothing that the explorer knows of.
pub(super) fn remark(at: Instant, text: &str, fault: Option<Fault>) -> Step {
    Step::simulated(Side::WithKeys, at, Actor::Worker, text.to_owned(), fault)
}

/// The first steps: the customer's request.
pub(super) fn order(schedule: &Schedule) -> Vec<Step> {
    let step = |actor, text: &str, fault| {
        Step::simulated(Side::WithKeys, Instant::Order, actor, text.to_owned(), fault)
    };
    let mut steps = vec![
        step(Actor::Customer, "The customer orders 42.00 USD, with an Idempotency-Key.", None),
        step(
            Actor::Ledger,
            "Payments-api stores the key, the payment and the answer in one transaction.",
            None,
        ),
    ];
    if schedule.has(Instant::Order, Fault::Repeat) {
        steps.push(step(
            Actor::Customer,
            "The customer orders again, with the same Idempotency-Key.",
            Some(Fault::Repeat),
        ));
        steps.push(step(
            Actor::Ledger,
            "The key is known: the stored answer is returned, and nothing else happens.",
            None,
        ));
    }
    steps
}

fn actor(description: &str) -> Actor {
    let (first, rest) = description.split_once(": ").unwrap_or((description, ""));
    match first {
        "ledger" => Actor::Ledger,
        "debit" if rest.contains("the switch") => Actor::Switch,
        "debit" => Actor::Ledger,
        "late" if rest.starts_with("ledger") => Actor::Ledger,
        "late" if rest.contains("the switch") => Actor::Switch,
        "submit" | "cancel" | "recall" | "poll" | "apply decision" if rest.contains(": the switch") => {
            Actor::Switch
        }
        "submit" if rest.contains("lost") || rest.contains("in transit") => Actor::Network,
        "operators decide" => Actor::Operator,
        "signal" | "the workflow handles" => Actor::Temporal,
        _ if first.starts_with("the starter") || first.starts_with("the SLA") => Actor::Temporal,
        _ if first.starts_with("callback")
            || first.starts_with("the switch")
            || first.starts_with("the clock") =>
        {
            Actor::Switch
        }
        _ if first.starts_with("the account") => Actor::Ledger,
        _ => Actor::Worker,
    }
}

/// A step of the ledger that books nothing has met its key, or was refused: the move alone does not say so.
pub(super) fn booked<'d>(description: &'d str, before: &Bank, after: &Bank) -> &'d str {
    match description {
        "ledger: debit" | RECORDS_AND_DEBITS if after.debit_refused => "ledger: debit, refused",
        "ledger: debit" | "debit: debit" | "ledger: reserve" | "ledger: release"
            if before.journal == after.journal =>
        {
            "ledger: the key is recorded"
        }
        _ => description,
    }
}

fn sentence(description: &str) -> String {
    let known = match description {
        "ledger: reserve" => "The ledger holds the amount.",
        "ledger: debit" => "The ledger debits the held amount: the customer is charged.",
        "debit: read whether the debit needs a query" => {
            "The ledger says whether a query must confirm the callback before money moves."
        }
        "debit: query: the switch reports settled" => {
            "The switch is queried over the bank's own connection, and reports settled."
        }
        RECORDS_AND_DEBITS => {
            "The ledger records the switch's answer and debits the held amount: the customer is charged."
        }
        "ledger: debit, refused" => "The ledger refuses the debit: the account is frozen.",
        "ledger: the key is recorded" => {
            "The ledger finds the step's key recorded: it returns the recorded outcome and books nothing."
        }
        "ledger: release" => "The ledger releases the held amount.",
        "callback SUCCESS" => "The switch's callback reports SUCCESS; payments-api verifies and stores it.",
        "callback FAILURE, false" => "The switch's callback reports FAILURE. That alone releases nothing.",
        "late: the submit arrives: the switch has it already" => {
            "The late submit arrives: the switch knows its reference and does nothing."
        }
        "late: the submit arrives: the switch refuses: it has a tombstone" => {
            "The late submit arrives: the switch has a tombstone under its reference and refuses it."
        }
        _ => "",
    };
    if !known.is_empty() {
        return known.into();
    }
    let mut letters = description.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str())
}
