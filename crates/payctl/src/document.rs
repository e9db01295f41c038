//! JSON documents of ledger records (`--json`), and the formatting of amounts, actions and decision outcomes.
//! Scripts depend on the field names.

use payment_ledger::operator::decisions::DecisionView;
use payment_ledger::reads::queues::{ExceptionView, StuckPayment};
use payment_ledger::reads::view::PaymentView;
use payment_protocol::decision::Action;
use payment_protocol::money::{format_major, parse_currency};
use serde_json::{Value, json};

/// Formats an amount in major units. An unknown currency keeps its minor units.
pub(crate) fn money(amount_minor: i64, currency: &str) -> String {
    match parse_currency(currency) {
        Ok(known) => format!("{} {currency}", format_major(amount_minor, known)),
        Err(_) => format!("{amount_minor} minor units of {currency}"),
    }
}

/// A number with its noun, `1 workflow` or `2 workflows`.
pub(crate) fn counted(number: impl Into<i128>, noun: &str) -> String {
    let number = number.into();
    let plural = match (number, noun.strip_suffix('y'), noun.ends_with('h')) {
        (1, _, _) => noun.to_owned(),
        (_, Some(stem), _) => format!("{stem}ies"),
        (_, None, true) => format!("{noun}es"),
        (_, None, false) => format!("{noun}s"),
    };
    format!("{number} {plural}")
}

/// Formats a sum over many payments, which may exceed one amount's range.
pub(crate) fn total(amount_minor: i128, currency: &str) -> String {
    i64::try_from(amount_minor).map_or_else(
        |_| format!("{amount_minor} minor units of {currency}"),
        |amount_minor| money(amount_minor, currency),
    )
}

/// Actions as `payctl decide` takes them.
pub(crate) fn actions(actions: &[Action]) -> String {
    actions.iter().map(|action| action.as_str().replace('_', "-")).collect::<Vec<_>>().join(", ")
}

/// A payment.
pub(crate) fn payment(payment: &PaymentView) -> Value {
    json!({
        "payment_id": payment.payment_id,
        "transaction_id": payment.tx_id,
        "state": payment.state,
        "reason": payment.reason,
        "operator_reason": payment.operator_reason,
        "needs_operator_since": payment.needs_operator_since,
        "restored_at": payment.restored_at,
        "returned_minor": payment.returned_minor,
        "allowed_actions": payment.allowed_actions,
        "amount_minor": payment.amount_minor,
        "currency": payment.currency,
        "source_account": payment.source_account,
        "destination_account": payment.destination_account,
        "end_to_end_id": payment.end_to_end_id,
        "switch": payment.switch,
        "workflow_id": payment.workflow_id,
        "accepted_at": payment.accepted_at,
        "updated_at": payment.updated_at,
        "ended_at": payment.ended_at,
    })
}

/// A stuck payment.
pub(crate) fn stuck(stuck: &StuckPayment) -> Value {
    json!({
        "payment": payment(&stuck.payment),
        "tenant": stuck.tenant_id,
        "age_s": stuck.age_s,
        "pending_decision": stuck.pending.as_ref().map(decision),
    })
}

/// A decision.
pub(crate) fn decision(decision: &DecisionView) -> Value {
    json!({
        "decision_id": decision.decision_id,
        "payment_id": decision.payment_id,
        "exception_id": decision.exception_id,
        "action": decision.action.as_str(),
        "reason": decision.reason,
        "evidence": decision.evidence,
        "proposed_by": decision.proposed_by,
        "proposed_at": decision.proposed_at,
        "confirmed_by": decision.confirmed_by,
        "confirmed_at": decision.confirmed_at,
        "confirm_reason": decision.confirm_reason,
        "status": decision.status.as_str(),
        "outcome": decision.outcome,
        "detail": decision.detail,
        "closed_at": decision.closed_at,
    })
}

/// An exception.
pub(crate) fn exception(exception: &ExceptionView) -> Value {
    json!({
        "exception_id": exception.exception_id,
        "payment_id": exception.payment_id,
        "kind": exception.kind,
        "detail": exception.detail,
        "opened_at": exception.opened_at,
        "closed_at": exception.closed_at,
        "closed_by": exception.closed_by,
        "proposed_decision": exception.proposed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payctl_prints_an_amount_with_the_decimals_of_its_currency() {
        assert_eq!(money(1_250, "EUR"), "12.50 EUR");
        assert_eq!(money(1_250, "JPY"), "1250 JPY");
        assert_eq!(money(1_250, "???"), "1250 minor units of ???");
    }

    #[test]
    fn payctl_prints_operator_actions_as_typed_on_the_command_line() {
        assert_eq!(actions(&[Action::RetryCancel, Action::Debit]), "retry-cancel, debit");
    }

    #[test]
    fn payctl_counts_with_the_singular_and_the_plural() {
        let counts = [(1, "workflow"), (0, "workflow"), (1, "entry"), (2, "entry"), (2, "batch")]
            .map(|(number, noun)| counted(number, noun));
        assert_eq!(counts, ["1 workflow", "0 workflows", "1 entry", "2 entries", "2 batches"]);
    }
}
