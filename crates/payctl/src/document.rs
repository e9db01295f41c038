//! What the ledger says, as JSON for programs. Field names stay as they are.

use payment_ledger::access::api_keys::KeyView;
use payment_ledger::operator::decisions::DecisionView;
use payment_ledger::reads::queues::{ExceptionView, StuckPayment};
use payment_ledger::reads::view::PaymentView;
use payment_protocol::decision::{Action, DecisionOutcome};
use payment_protocol::money::{format_major, parse_currency};
use serde_json::{Value, json};

/// An amount for people. A currency that nobody knows keeps its minor units.
pub(crate) fn money(amount_minor: i64, currency: &str) -> String {
    match parse_currency(currency) {
        Ok(known) => format!("{} {currency}", format_major(amount_minor, known)),
        Err(_) => format!("{amount_minor} minor units of {currency}"),
    }
}

/// A sum for people, of however many payments.
pub(crate) fn wide_money(amount_minor: i128, currency: &str) -> String {
    i64::try_from(amount_minor).map_or_else(
        |_| format!("{amount_minor} minor units of {currency}"),
        |amount_minor| money(amount_minor, currency),
    )
}

/// Actions as they are typed on the command line.
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

/// An API key; neither the key nor its hash.
pub(crate) fn key(key: &KeyView) -> Value {
    json!({
        "id": key.id,
        "prefix": key.prefix,
        "tenant": key.caller.tenant,
        "client": key.caller.client,
        "scopes": key.scopes.words(),
        "status": key.status.as_str(),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "rotated_to": key.rotated_to,
    })
}

/// A payment that does not move.
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
    })
}

/// How a decision ended, for people; none while it is open. Who bears a debit is in its detail only.
pub(crate) fn result(decision: &DecisionView) -> Option<String> {
    decision.closed_at?;
    let detail = decision.detail.clone().unwrap_or_default();
    Some(match &decision.outcome {
        Some(DecisionOutcome::Settled) => format!("{}: {detail}", came(&DecisionOutcome::Settled)),
        Some(outcome) => came(outcome),
        None => detail,
    })
}

fn came(came: &DecisionOutcome) -> String {
    match came {
        DecisionOutcome::Settled => "settled, as money that left".into(),
        DecisionOutcome::Released(cause) => format!("released: nothing is charged; {cause}"),
        DecisionOutcome::RetryCancel => "the switch is being asked again".into(),
        DecisionOutcome::FinalStatus(final_status) => {
            format!("the switch itself said {final_status}; that is being followed")
        }
        DecisionOutcome::Refused { detail } => format!("not carried out: {detail}"),
        DecisionOutcome::Ended(end) => format!("not carried out: the payment had ended: {end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_their_currencys_decimals() {
        assert_eq!(money(1_250, "EUR"), "12.50 EUR");
        assert_eq!(money(1_250, "JPY"), "1250 JPY");
        assert_eq!(money(1_250, "???"), "1250 minor units of ???");
        assert_eq!(actions(&[Action::RetryCancel, Action::Debit]), "retry-cancel, settle");
    }
}
