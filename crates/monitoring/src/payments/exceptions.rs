//! Alerts about open exceptions.

use payment_protocol::drift::Drift;
use payment_protocol::exception::ExceptionKind;

use super::{EXCEPTIONS, SEVERAL_UPDATES, Texts};
use crate::alert::Severity::{self, Critical, Warning};
use crate::alert::{Alert, Page, pascal_case};

const NO_MONEY_MOVED: &str = "Nobody is affected yet: the callback moved no money. Find it with `payctl exceptions` and ask the switch's operators which transfer it means.";

/// The alert on open exceptions of a kind that is recorded while a payment is processed.
pub(super) fn exception_alert(kind: ExceptionKind) -> Alert {
    let texts = match kind {
        ExceptionKind::LateConfirmation => Texts {
            severity: Critical,
            summary: "A switch confirmed a payment after the payment had ended unpaid",
            description: "The money left and the customer got the held amount back: the bank bears it until a correction. Find the payment with `payctl exceptions`, then propose `payctl decide late-debit`.",
        },
        ExceptionKind::ContradictoryFinalStatus => Texts {
            severity: Critical,
            summary: "A switch reported one transfer both as settled and as void, or does not confirm its own callback",
            description: "The bank may bear a transfer that left, or the customer may be charged for one that did not. Find the payment with `payctl exceptions` and ask the switch's operators which status is true. If they did not send the callback, somebody else signs with the switch's callback secret: replace it.",
        },
        ExceptionKind::ReturnedAfterDebit => Texts {
            severity: Critical,
            summary: "The money of a settled payment came back after the customer was debited, or a callback says so",
            description: "The customer was charged for a transfer that the receiving bank returned: the money is on the bank's account at the switch. Find the payment with `payctl exceptions`, see whether the money is there, then propose `payctl decide return-credit`.",
        },
        ExceptionKind::ReturnDiffers => Texts {
            severity: Critical,
            summary: "A switch reported a return that does not fit its payment",
            description: "The return moved no money: the bank may have money at the switch that is the customer's. Compare the return in `payctl show PAYMENT_ID` with the payment, then ask the switch's operators which transfer it means.",
        },
        ExceptionKind::SettledWithoutAttempt => Texts {
            severity: Critical,
            summary: "A switch has a transfer of which the ledger has no submit attempt",
            description: "Money left or may leave that this service has no record of; the bank bears it. Find out first whether the ledger's database was restored from a backup; if not, treat it as an attack and stop the switch with `payctl kill-switch stop`.",
        },
        ExceptionKind::AttemptRecordLost => Texts {
            severity: Critical,
            summary: "The ledger's database lost the record of a submit attempt",
            description: "The answer to an attempt arrived and the attempt's record was gone; the service wrote it again. The database confirmed a commit and lost it, so other records may be missing. Find out whether a standby was promoted or a backup restored.",
        },
        ExceptionKind::WorkflowInputDiffers => Texts {
            severity: Critical,
            summary: "Somebody started a payment workflow with a payment that is not the ledger's",
            description: "Nobody is affected: the workflow did nothing. But somebody who is not this service can write to Temporal, or a restored database lacks the payment. Look at the workflow's start in the Temporal UI, and who may write to the namespace.",
        },
        ExceptionKind::AcceptedThenUnknown => Texts {
            severity: Critical,
            summary: "A switch accepted a transfer and says now that it does not know it",
            description: "The customer's amount stays held, because the transfer may still settle. Find the payment with `payctl exceptions` and ask the switch's operators whether the switch failed over or lost data.",
        },
        ExceptionKind::CallbackFromOtherSwitch => Texts {
            severity: Critical,
            summary: "A switch sent a callback about a payment of another switch",
            description: "Nobody is affected yet: the callback changed no payment, but a callback secret may be compromised. Compare the `callback_secrets` of both switches first, and rotate a secret that both have.",
        },
        ExceptionKind::CallbackEventIdReused => Texts {
            severity: Critical,
            summary: "A switch sent one callback event id with two different bodies",
            description: "Nobody is affected yet: the service applied the first body only. Ask the switch's operators whether they sent the second; if not, rotate the switch's callback secret.",
        },
        ExceptionKind::ConfirmationMismatch => Texts {
            severity: Warning,
            summary: "A switch confirmed a transfer that differs from what the payment sent",
            description: "The customer's amount stays held. Compare the confirmed amount, currency and reference with the payment in `payctl exceptions`, then ask the switch's operators what they settled.",
        },
        ExceptionKind::CallbackForUnknownPayment => Texts {
            severity: Warning,
            summary: "A switch sent a signed callback for a payment that the ledger does not have",
            description: NO_MONEY_MOVED,
        },
        ExceptionKind::DebitedToClaims => Texts {
            severity: Warning,
            summary: "A settled payment was debited from the bank's claims account, not from the customer",
            description: "The bank bears the amount until two operators correct it. Find the payment with `payctl exceptions`, then propose `payctl decide return-credit` if the switch returned the money, else `payctl decide write-off`.",
        },
        ExceptionKind::OpenedByOperator => Texts {
            severity: Warning,
            summary: "An operator opened an exception about an ended payment, and it is still open",
            description: "An operator knows of the payment what no report of the switch says. Read the reason in `payctl exceptions`, then propose the correction it asks for, or close it.",
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
        Drift::MissingHold => "A reserved payment has no hold in the customer's account",
        Drift::OrphanHold => "A customer's hold is open without an open payment or without a journal entry",
        Drift::SettledNotDebited => "A switch settled a transfer that the ledger has not debited",
        Drift::DebitedNotSettled => {
            "The ledger debited a payment that the switch's statement does not show as settled"
        }
        Drift::ReleasedButSettled => "A switch settled a transfer although the customer's hold was released",
        Drift::AmountMismatch => "A switch settled a transfer with another amount or currency than was sent",
        Drift::SettledTwice => "A switch settled more than one transfer for one payment",
        Drift::TransferWithoutPayment => {
            "A switch settled a transfer that belongs to no payment in the ledger"
        }
        Drift::PaymentWithoutWorkflow => "An open payment has no running workflow in Temporal",
        Drift::WorkflowWithoutPayment => {
            "A payment workflow is running in Temporal without an open payment in the ledger"
        }
        Drift::UnmatchedCallback => {
            "A reconciliation run found a stored callback that matches no payment in the ledger"
        }
        Drift::StuckCancelling => {
            "A reconciliation run found a payment that is stuck in the state cancelling"
        }
        Drift::JournalHashMismatch => "The ledger's journal differs from its seal, the stored hash chain",
    }
}

fn drift_description(kind: Drift) -> &'static str {
    match kind {
        Drift::MissingHold | Drift::OrphanHold => {
            "A customer's available balance may be wrong, and the ledger's database was changed outside the service. Find the hold with `payctl exceptions`, then check the journal with `payctl ledger verify`."
        }
        Drift::SettledNotDebited => {
            "The money left and the bank bears the amount. Find the payment with `payctl exceptions`, then check with `payctl show PAYMENT_ID` whether it is still open."
        }
        Drift::DebitedNotSettled => {
            "A customer may have been charged for a transfer that did not happen. Find the payment with `payctl exceptions` and ask the switch's operators whether its transfer settled."
        }
        Drift::ReleasedButSettled => {
            "The money left and the customer got the held amount back: the bank bears it until a correction. Find the payment with `payctl exceptions`, then propose `payctl decide late-debit`."
        }
        Drift::AmountMismatch => {
            "The bank paid another amount than the customer was or will be debited. Find the payment with `payctl exceptions` and ask the switch's operators which amount they settled."
        }
        Drift::SettledTwice => {
            "The bank paid more than the customer was debited. Stop new payments to the switch first with `payctl kill-switch stop`, then find the payment with `payctl exceptions`."
        }
        Drift::TransferWithoutPayment => {
            "Money left for which no customer is debited; the bank bears it. Find out first whether the ledger's database was restored from a backup; if not, stop the switch with `payctl kill-switch stop`."
        }
        Drift::PaymentWithoutWorkflow => {
            "The customer's payment does not advance, although a recovery workflow should have started. Check first that a payment-worker is running and that Temporal answers."
        }
        Drift::WorkflowWithoutPayment => {
            "Nobody is affected yet: without an open payment the workflow can move no money. Find out first whether the ledger's database was restored from a backup."
        }
        Drift::UnmatchedCallback => NO_MONEY_MOVED,
        Drift::StuckCancelling => {
            "The customer's amount stays held. Find the payment with `payctl exceptions`, follow the runbook section cancelling in payment-states.md, then close the exception with `payctl decide close`."
        }
        Drift::JournalHashMismatch => {
            "Any customer's balance may be wrong: journal entries were changed or lost outside the service. Preserve the ledger's database first, then find the entries with `payctl ledger verify`."
        }
    }
}

fn open_exception_alert(word: &str, texts: &Texts) -> Alert {
    Alert {
        name: format!("OpenException{}", pascal_case(word)),
        expr: format!("max(exceptions_open{{kind=\"{word}\"}}) > 0"),
        pending_for: SEVERAL_UPDATES,
        severity: texts.severity,
        summary: format!("{} (exceptions to decide: {{{{ $value }}}})", texts.summary),
        description: texts.description.to_owned(),
        page: Page::new(EXCEPTIONS, word),
    }
}
