//! The text of a customer notification.

use payment_ledger::events::{self, EventKind, TransferEvent};
use payment_protocol::money::{format_major, parse_currency};
use payment_protocol::rules::Bearer;

/// The notification of an event. Reasons are codes for programs, so the text omits them.
pub(crate) fn message(kind: EventKind, event: &TransferEvent) -> String {
    let TransferEvent { amount, currency, source_account, end_to_end_id, .. } = event;
    let reference = end_to_end_id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    let transfer = format!("transfer of {amount} {currency} from {source_account}{reference}");
    let outcome = match kind {
        EventKind::TransferPending => "is pending: the amount is held in your account",
        EventKind::TransferNeedsOperator => {
            "takes longer: our staff are checking it, you need not do anything"
        }
        EventKind::TransferRestored => {
            "is not confirmed: the amount is available to you again, and the transfer may still be executed"
        }
        EventKind::TransferSent => match event.late_settlement {
            None => "was sent: your account was debited",
            Some(Bearer::Customer) => "was executed late: your account was debited",
            Some(Bearer::Bank) => "was executed: your account was not debited, we will contact you",
        },
        EventKind::TransferReturned => {
            let what = match event.reason.as_deref() {
                Some(events::CORRECTION) => "was not sent, or came back",
                _ => "came back",
            };
            let credited = match event.credited {
                Some(Bearer::Bank) => "your account had not been debited for it",
                Some(Bearer::Customer) | None => "it was credited to your account",
            };
            return format!("{} of your {transfer} {what}: {credited}.", part(event, event.returned_minor));
        }
        EventKind::TransferCharged => {
            // A payment that settled late at the bank's expense is known to the customer as executed.
            let executed = match event.status.as_str() {
                "settled" => "was executed",
                _ => "was executed after all, contrary to our earlier message",
            };
            let charged = part(event, event.charged_minor);
            return format!("Your {transfer} {executed}: {charged} was debited from your account.");
        }
        EventKind::TransferRejected => "was rejected: nothing was charged",
        EventKind::TransferFailed => "failed: nothing was charged",
        EventKind::TransferTimedOut => "was not confirmed in time: nothing was charged",
        EventKind::TransferCancelled => "was cancelled: nothing was charged",
    };
    format!("Your {transfer} {outcome}.")
}

/// A part of the transfer's amount in words.
fn part(event: &TransferEvent, minor: Option<i64>) -> String {
    match (minor, parse_currency(&event.currency)) {
        (Some(minor), Ok(known)) => format!("{} {}", format_major(minor, known), event.currency),
        _ => "Money".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(change: impl FnOnce(&mut TransferEvent)) -> TransferEvent {
        let text = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../crates/payment-ledger/events/transfer_sent.v1.example.json"
        ));
        let event: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
        let mut transfer: TransferEvent = serde_json::from_value(event["body"].clone()).unwrap();
        change(&mut transfer);
        transfer
    }

    /// Who bears a late settlement or gets a return, in words (S0.9).
    #[test]
    fn s0_9_a_customer_reads_whether_the_account_was_debited_or_credited() {
        let [sent, returned, restored] =
            [EventKind::TransferSent, EventKind::TransferReturned, EventKind::TransferRestored];
        let charged_later = EventKind::TransferCharged;
        let late = |bearer| transfer(|transfer| transfer.late_settlement = Some(bearer));
        let charged = |status: &str| {
            transfer(|transfer| (transfer.status, transfer.charged_minor) = (status.to_owned(), Some(1000)))
        };
        let corrected = |bearer| {
            transfer(|transfer| {
                (transfer.returned_minor, transfer.credited) = (Some(1250), Some(bearer));
                transfer.reason = Some(events::CORRECTION.to_owned());
            })
        };
        let part = |minor, bearer| {
            transfer(|transfer| (transfer.returned_minor, transfer.credited) = (Some(minor), Some(bearer)))
        };
        #[rustfmt::skip]
        let cases = [
            (restored, transfer(|_| ()),            "is not confirmed: the amount is available to you again, and the transfer may still be executed."),
            (sent,     late(Bearer::Customer),      "was executed late: your account was debited."),
            (sent,     late(Bearer::Bank),          "was executed: your account was not debited, we will contact you."),
            (returned, part(250, Bearer::Customer), "came back: it was credited to your account."),
            (returned, part(1250, Bearer::Bank),    "came back: your account had not been debited for it."),
            (returned, corrected(Bearer::Customer), "was not sent, or came back: it was credited to your account."),
            (returned, corrected(Bearer::Bank),     "was not sent, or came back: your account had not been debited for it."),
            (charged_later, charged("settled"),     "(invoice 2026-117) was executed: 10.00 EUR was debited from your account."),
            (charged_later, charged("failed"),      "was executed after all, contrary to our earlier message: 10.00 EUR was debited from your account."),
        ];
        for (kind, transfer, words) in cases {
            let text = message(kind, &transfer);
            assert!(text.ends_with(words), "{text}");
        }
        assert!(
            message(returned, &part(250, Bearer::Customer))
                .starts_with("2.50 EUR of your transfer of 12.50 EUR")
        );
    }
}
