//! The text of a customer notification.

use payment_ledger::events::{EventKind, TransferEvent};
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::rules::Bearer;

/// The notification of an event. Reasons are codes for programs, so the text omits them.
pub(crate) fn message(kind: EventKind, transfer: &TransferEvent) -> String {
    let TransferEvent { amount, currency, source_account, end_to_end_id, .. } = transfer;
    if kind == EventKind::TransferReturned {
        return returned(transfer);
    }
    let outcome = match kind {
        EventKind::TransferPending => "is pending: the amount is held in your account",
        EventKind::TransferNeedsOperator => {
            "takes longer: our staff are checking it, you need not do anything"
        }
        EventKind::TransferRestored => {
            "is not confirmed: the amount is available to you again, and the transfer may still be executed"
        }
        EventKind::TransferSent => match transfer.late_settlement {
            None => "was sent: your account was debited",
            Some(Bearer::Customer) => "was executed late: your account was debited",
            Some(Bearer::Bank) => "was executed: your account was not debited, we will contact you",
        },
        EventKind::TransferReturned => "was returned",
        EventKind::TransferRejected => "was rejected: nothing was charged",
        EventKind::TransferFailed => "failed: nothing was charged",
        EventKind::TransferTimedOut => "was not confirmed in time: nothing was charged",
        EventKind::TransferCancelled => "was cancelled: nothing was charged",
    };
    let reference = end_to_end_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    format!("Your transfer of {amount} {currency} from {source_account}{reference} {outcome}.")
}

/// The notification of a return.
fn returned(transfer: &TransferEvent) -> String {
    let TransferEvent { amount, currency, source_account, end_to_end_id, .. } = transfer;
    let reference = end_to_end_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let part = match (transfer.returned_minor, parse_currency(currency)) {
        (Some(minor), Ok(known)) => format!("{} {currency}", format_major(minor, known)),
        _ => "Money".to_owned(),
    };
    let credited = match transfer.credited {
        Some(Bearer::Bank) => "your account had not been debited for it",
        Some(Bearer::Customer) | None => "it was credited to your account",
    };
    format!(
        "{part} of your transfer of {amount} {currency} from {source_account}{reference} came back: {credited}."
    )
}
