//! Alerts about open exceptions.

use payment_protocol::drift::Drift;
use payment_protocol::exception::ExceptionKind;

use super::{EXCEPTIONS, SEVERAL_UPDATES, Texts};
use crate::alert::Severity::{self, Critical, Warning};
use crate::alert::{Alert, Page, pascal_case};

const NO_MONEY_MOVED: &str = "No customer is affected and no money moved. Start with `payctl exceptions`.";

/// The alert on open exceptions of a kind that is recorded while a payment is processed.
pub(super) fn exception_alert(kind: ExceptionKind) -> Alert {
    let texts = match kind {
        ExceptionKind::LateConfirmation => Texts {
            severity: Critical,
            summary: "A switch confirmed a payment that had already ended unpaid",
            description: "The money left and the customer got the amount back: the bank bears it until a correction. Start with `payctl exceptions`.",
        },
        ExceptionKind::ContradictoryFinalStatus => Texts {
            severity: Critical,
            summary: "A switch reported two contradictory final statuses for a transfer",
            description: "The money may have left although the payment ended unpaid, or the reverse. Ask the switch's operators which status is true.",
        },
        ExceptionKind::SettledWithoutAttempt => Texts {
            severity: Critical,
            summary: "A switch settled a transfer without a recorded attempt",
            description: "Money left that this service did not send. Find out first whether the database was restored; otherwise treat it as an attack.",
        },
        ExceptionKind::CallbackFromOtherSwitch => Texts {
            severity: Critical,
            summary: "A switch sent a callback about a payment of another switch",
            description: "No payment was changed, but a callback secret may be compromised. Compare the configured secrets first.",
        },
        ExceptionKind::CallbackEventIdReused => Texts {
            severity: Critical,
            summary: "A switch reused the event id of a callback with another body",
            description: "The second body was not applied. Ask the switch's operators whether they sent it; if they did not, the secret is compromised.",
        },
        ExceptionKind::ConfirmationMismatch => Texts {
            severity: Warning,
            summary: "A confirmation of a switch does not match the payment",
            description: "The customer's amount stays held. Compare amount, currency and reference with `payctl exceptions`.",
        },
        ExceptionKind::CallbackForUnknownPayment => Texts {
            severity: Warning,
            summary: "A switch sent a callback for an unknown payment",
            description: NO_MONEY_MOVED,
        },
        ExceptionKind::DebitedToClaims => Texts {
            severity: Warning,
            summary: "A payment was debited to the claims account instead of the customer",
            description: "The bank bears the amount until it is returned or written off. Start with `payctl exceptions`.",
        },
    };
    open_exception_alert(kind.as_str(), &texts)
}

/// The alert on open exceptions of a kind that a reconciliation run or a hold audit finds.
pub(super) fn drift_alert(kind: Drift) -> Alert {
    let texts = Texts {
        severity: drift_severity(kind),
        summary: drift_summary(kind),
        description: drift_description(kind),
    };
    open_exception_alert(kind.as_str(), &texts)
}

fn drift_severity(kind: Drift) -> Severity {
    match kind {
        Drift::MissingHold
        | Drift::OrphanHold
        | Drift::SettledNotDebited
        | Drift::DebitedNotSettled
        | Drift::ReleasedButSettled
        | Drift::AmountMismatch
        | Drift::SettledTwice
        | Drift::TransferWithoutPayment
        | Drift::JournalHashMismatch => Critical,
        // The alert of the state `cancelling` is critical; this one stays until the exception is closed.
        Drift::StuckCancelling
        | Drift::PaymentWithoutWorkflow
        | Drift::WorkflowWithoutPayment
        | Drift::UnmatchedCallback => Warning,
    }
}

fn drift_summary(kind: Drift) -> &'static str {
    match kind {
        Drift::MissingHold => "A reserved payment has no hold",
        Drift::OrphanHold => "A hold is open without an open payment or without a journal entry",
        Drift::SettledNotDebited => "A settled transfer has not been debited",
        Drift::DebitedNotSettled => "A debited payment has no settled transfer in the switch's statement",
        Drift::ReleasedButSettled => "A transfer settled although the customer's hold was released",
        Drift::AmountMismatch => "A transfer settled with another amount or currency than was sent",
        Drift::SettledTwice => "A payment has more than one settled transfer",
        Drift::TransferWithoutPayment => "A settled transfer belongs to no payment",
        Drift::PaymentWithoutWorkflow => "An open payment has no running workflow",
        Drift::WorkflowWithoutPayment => "A workflow is running without an open payment",
        Drift::UnmatchedCallback => "An authentic callback matches no payment",
        Drift::StuckCancelling => "The audit recorded a payment that is stuck cancelling",
        Drift::JournalHashMismatch => "The journal differs from its seal",
    }
}

fn drift_description(kind: Drift) -> &'static str {
    match kind {
        Drift::MissingHold | Drift::OrphanHold => {
            "A customer's available balance may be wrong, and the database was changed outside the service. Start with `payctl ledger verify`."
        }
        Drift::SettledNotDebited => {
            "The money left and the bank bears the amount. Check first with `payctl show PAYMENT_ID` whether the payment is open."
        }
        Drift::DebitedNotSettled => {
            "A customer may have been charged for a transfer that did not happen. Ask the switch's operators whether it settled."
        }
        Drift::ReleasedButSettled => {
            "The money left and the bank bears the amount until a correction. Start with `payctl exceptions`."
        }
        Drift::AmountMismatch => {
            "More or other money left than the customer was debited. Ask the switch's operators what was settled."
        }
        Drift::SettledTwice => {
            "More money left than the customer was debited. Stop the switch first with `payctl kill-switch stop`."
        }
        Drift::TransferWithoutPayment => {
            "Money left for which no customer is debited. Find out first whether the database was restored; otherwise stop the switch."
        }
        Drift::PaymentWithoutWorkflow => {
            "The payment does not move although recovery should have started. Check first that a payment-worker is running and that Temporal answers."
        }
        Drift::WorkflowWithoutPayment => {
            "The workflow can move no money. Find out first whether the database was restored."
        }
        Drift::UnmatchedCallback => NO_MONEY_MOVED,
        Drift::StuckCancelling => {
            "The customer's amount stays held. Follow the page of the state, then close the exception."
        }
        Drift::JournalHashMismatch => {
            "Ledger history was changed or lost outside the service. Preserve the database and start with `payctl ledger verify`."
        }
    }
}

fn open_exception_alert(word: &str, texts: &Texts) -> Alert {
    Alert {
        name: format!("OpenException{}", pascal_case(word)),
        expr: format!("max(exceptions_open{{kind=\"{word}\"}}) > 0"),
        pending_for: SEVERAL_UPDATES,
        severity: texts.severity,
        summary: format!("{} (open exceptions: {{{{ $value }}}})", texts.summary),
        description: texts.description.to_owned(),
        page: Page::new(EXCEPTIONS, word),
    }
}
