//! Alerts about payments, built from the enums: a new state, operator reason, exception kind or alert kind does not compile
//! until its alert is written here.

mod exceptions;

use std::time::Duration;

use payment_protocol::PaymentState;
use payment_protocol::alert::AlertKind;
use payment_protocol::cause::OperatorReason;
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::exception::ExceptionKind;

use crate::alert::Severity::{self, Critical, Warning};
use crate::alert::{Alert, Page, pascal_case};

/// Runbook file of payment states.
pub const STATES: &str = "payment-states.md";
/// Runbook file of operator reasons.
pub const REASONS: &str = "operator-reasons.md";
/// Runbook file of exceptions.
pub const EXCEPTIONS: &str = "exceptions.md";
/// Runbook file of alerts recorded for single payments.
pub const PAYMENT_ALERTS: &str = "payment-alerts.md";

/// Three updates of the gauges, so that a single slow one raises no alert.
const SEVERAL_UPDATES: Duration = Duration::from_secs(15);
/// Two hold audits.
const TWO_AUDITS: Duration = Duration::from_secs(120);

/// Every alert about payments.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let states = PaymentState::ALL.iter().map(|state| state_alert(*state));
    let reasons = OperatorReason::ALL.iter().map(|reason| reason_alert(*reason));
    let exceptions = ExceptionKind::ALL.iter().map(|kind| exceptions::exception_alert(*kind));
    let drifts = Drift::ALL.iter().map(|kind| exceptions::drift_alert(*kind));
    let recorded = AlertKind::ALL.iter().map(|kind| recorded_alert(*kind));
    states.chain(reasons).chain(exceptions).chain(drifts).chain(recorded).collect()
}

/// Urgency and texts of an alert.
struct Texts {
    severity: Severity,
    summary: &'static str,
    description: &'static str,
}

/// An open state: how long a payment may stay in it without moving.
struct OpenState {
    limit_s: i64,
    severity: Severity,
    /// The problem, without the time.
    problem: &'static str,
    description: &'static str,
}

fn state_alert(state: PaymentState) -> Alert {
    open_state(state).map_or_else(|| hold_alert(state), |open| stuck_alert(state, &open))
}

/// The alert texts of an open state; `None` if the state is final.
fn open_state(state: PaymentState) -> Option<OpenState> {
    use PaymentState as S;
    Some(match state {
        // The starter polls every 100 ms.
        S::Accepted => OpenState {
            limit_s: 60,
            severity: Critical,
            problem: "An accepted payment has been waiting for its workflow to start",
            description: "Customers' new payments wait; no amount is held yet. Check first that a payment-worker is running and that Temporal answers.",
        },
        // A reserve takes milliseconds and is retried without limit.
        S::Started => OpenState {
            limit_s: 60,
            severity: Critical,
            problem: "A started payment has been waiting for the ledger to reserve its amount",
            description: "The customer's payment waits; no money has moved. Check first the payment's pending activity in the Temporal UI, then whether the ledger's database answers.",
        },
        // All submit attempts together may take 30 s; before them a payment may wait 60 s (the SLA) for its account lock.
        S::Reserved => OpenState {
            limit_s: 180,
            severity: Warning,
            problem: "A reserved payment has been waiting for its switch to accept the transfer",
            description: "The customer's amount is held. Find the payment with `payctl stuck --older-than 1s`, then check with `payctl show PAYMENT_ID` whether a submit attempt is recorded.",
        },
        // The SLA is 60 s, and a recovery workflow starts after 90 s.
        S::Submitted => OpenState {
            limit_s: 300,
            severity: Critical,
            problem: "A submitted payment has been neither confirmed nor cancelled",
            description: "The customer's amount is held, and no workflow enforces the payment's SLA. Check first that a payment-worker is running and that Temporal answers.",
        },
        // A debit takes milliseconds and is retried without limit.
        S::Confirmed => OpenState {
            limit_s: 60,
            severity: Critical,
            problem: "A payment that settled at its switch has not been debited from the customer",
            description: "The money left and the bank bears the amount until the debit. Find the payment with `payctl stuck --older-than 1s`, then check with `payctl show PAYMENT_ID` whether the ledger refused the debit.",
        },
        // Cancel attempts are at most 5 minutes apart. Where the switch's `alert_after_ms` is longer than this limit, the gauge begins
        // that much later.
        S::Cancelling => OpenState {
            limit_s: Tolerance::default().cancelling_s,
            severity: Critical,
            problem: "A cancelling payment has had no final status from its switch",
            description: "The customer's amount stays held and the transfer may still settle. Find the payment with `payctl stuck --older-than 1s`, then read the switch's last answer with `payctl show PAYMENT_ID`.",
        },
        // Half a working day for two operators to decide.
        S::NeedsOperator => OpenState {
            limit_s: 4 * 3_600,
            severity: Critical,
            problem: "A payment that needs an operator has been waiting for a decision",
            description: "The customer's amount stays held until two operators decide about the payment. Find it and its operator reason with `payctl stuck --older-than 1s`, then propose a decision with `payctl decide`.",
        },
        S::Settled | S::Rejected | S::Failed | S::TimedOut | S::Cancelled => return None,
    })
}

fn stuck_alert(state: PaymentState, open: &OpenState) -> Alert {
    let word = state.as_str();
    let name = match state {
        PaymentState::NeedsOperator => "OperatorDecisionOverdue".to_owned(),
        _ => format!("PaymentStuck{}", pascal_case(word)),
    };
    let limit_s = open.limit_s;
    Alert {
        name,
        expr: format!("max(payments_open_idle_seconds{{state=\"{word}\"}}) > {limit_s}"),
        pending_for: SEVERAL_UPDATES,
        severity: open.severity,
        summary: format!("{} for more than {}", open.problem, duration_text(limit_s)),
        description: open.description.to_owned(),
        page: Page::new(STATES, word),
    }
}

/// `4 hours`, `1 minute`, `90 seconds`: the largest unit without a remainder.
fn duration_text(seconds: i64) -> String {
    let (count, unit) = match seconds {
        s if s % 3_600 == 0 => (s / 3_600, "hour"),
        s if s % 60 == 0 => (s / 60, "minute"),
        s => (s, "second"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// The alert on open holds of payments in a final state. The final state and the close of the hold are written in one
/// transaction, so an open hold in two audits was not left by the service.
fn hold_alert(state: PaymentState) -> Alert {
    let summary = match state {
        PaymentState::Settled => "A payment in the final state settled still has an open hold",
        PaymentState::Rejected => "A payment in the final state rejected has an open hold",
        PaymentState::Failed => "A payment in the final state failed still has an open hold",
        PaymentState::TimedOut => "A payment in the final state timed_out still has an open hold",
        _ => "A payment in the final state cancelled still has an open hold",
    };
    Alert {
        name: format!("HoldOpenAfter{}", pascal_case(state.as_str())),
        expr: format!("max(holds_open{{state=\"{}\"}}) > 0", state.as_str()),
        pending_for: TWO_AUDITS,
        severity: Critical,
        summary: summary.to_owned(),
        description: "The customer cannot spend the held amount, and the ledger's database was probably changed outside the service. Find the hold with `payctl exceptions`, then check the journal with `payctl ledger verify`.".to_owned(),
        page: Page::new(STATES, state.as_str()),
    }
}

fn reason_alert(reason: OperatorReason) -> Alert {
    const HELD: &str = "The customer's amount stays held until operators decide whether the money left. Find the payment with `payctl stuck --older-than 1s`, then ask the switch's operators how its transfer ended.";
    const MONEY_LEFT: &str = "The money left and will not come back; the customer is not debited, and the bank bears the amount until two operators decide who does (`payctl decide`). Find the payment with `payctl stuck --older-than 1s`.";
    let (severity, summary, description) = match reason {
        OperatorReason::SettledWithoutAttempt => (
            Critical,
            "its switch settled a transfer that the ledger did not submit",
            "Money left that the ledger did not record as sent; the bank bears it. A submit attempt was lost, or another party sends with the bank's references: find out first whether the ledger's database was restored from a backup.",
        ),
        OperatorReason::CompensationFailed => (
            Critical,
            "the release of its hold failed permanently",
            "The customer's amount stays held although the release is due: the ledger refused it. Find the payment with `payctl stuck --older-than 1s`, then read the violated invariant with `payctl show PAYMENT_ID`.",
        ),
        OperatorReason::WorkflowStartRefused => (
            Critical,
            "Temporal refused to start its workflow five times",
            "The customer's payment waits; an amount is held only if the payment had started before. Temporal will probably refuse other payments too. Read first in the payment-worker's log why Temporal refuses to start workflows.",
        ),
        OperatorReason::RecallRefused => (Warning, "its switch refused to return the money", MONEY_LEFT),
        OperatorReason::RecallUnsupported => (Warning, "its switch cannot return the money", MONEY_LEFT),
        OperatorReason::ConfirmationMismatch => (
            Warning,
            "its switch reported data that differ from the payment, or contradict its statement",
            HELD,
        ),
        OperatorReason::SwitchRetentionExpired => {
            (Warning, "the switch's retention of its reference has expired", HELD)
        }
        OperatorReason::NotFoundIsInconclusive => {
            (Warning, "its switch does not find the transfer, which is inconclusive", HELD)
        }
        OperatorReason::AcceptedThenUnknown => (
            Critical,
            "its switch accepted or confirmed the transfer and says now that it does not know it",
            HELD,
        ),
        OperatorReason::AmbiguousTransfer => {
            (Warning, "its switch lists several transfers that may be the payment's", HELD)
        }
        OperatorReason::QueriesSpent => {
            (Warning, "its switch answers no further query of the transfer", HELD)
        }
        OperatorReason::SettledWithoutHold => (
            Critical,
            "its switch settled the transfer and the ledger has no hold to debit",
            "The money left and the customer is not debited: the ledger's database lost the reserve. Find out whether a standby was promoted or a backup restored, then decide who is debited (`payctl decide`). Find the payment with `payctl stuck --older-than 1s`.",
        ),
        OperatorReason::DebitFailed => (
            Critical,
            "the debit of money that left failed permanently",
            "The money left and the customer is not debited: the ledger refused the debit. Find the payment with `payctl stuck --older-than 1s`, then read the violated invariant with `payctl show PAYMENT_ID`.",
        ),
        OperatorReason::NoCancelOrQuery => (Warning, "its switch supports neither cancel nor query", HELD),
    };
    let word = reason.as_str();
    Alert {
        name: format!("PaymentNeedsOperator{}", pascal_case(word)),
        expr: format!("max(payments_needing_operator{{reason=\"{word}\"}}) > 0"),
        pending_for: SEVERAL_UPDATES,
        severity,
        summary: format!("A payment needs an operator: {summary} (payments: {{{{ $value }}}})"),
        description: description.to_owned(),
        page: Page::new(REASONS, word),
    }
}

fn recorded_alert(kind: AlertKind) -> Alert {
    let texts = match kind {
        AlertKind::CompensationFailed => Texts {
            severity: Critical,
            summary: "The release of an open payment's hold failed permanently",
            description: "The customer's amount stays held although the release is due. Find the payment with `payctl stuck --older-than 1s`, then read the violated invariant with `payctl show PAYMENT_ID`.",
        },
        AlertKind::DebitFailed => Texts {
            severity: Critical,
            summary: "The debit of an open payment whose money left failed permanently",
            description: "The bank bears the amount until the debit is done. Find the payment with `payctl stuck --older-than 1s`, then read the violated invariant with `payctl show PAYMENT_ID`.",
        },
        // Raised after the profile's `alert_after_ms`, 2 minutes by default, or at once after a 4xx answer.
        AlertKind::CancelUndecided => Texts {
            severity: Warning,
            summary: "A switch has given no final answer to the cancel of an open payment",
            description: "The customer's amount stays held. Find the payment with `payctl stuck --older-than 1s` and read the switch's last answer with `payctl show PAYMENT_ID`: after a 4xx answer, correct the switch's section of the service's configuration.",
        },
        AlertKind::RecallUndecided => Texts {
            severity: Warning,
            summary: "A switch has given no final answer to the recall of an open payment",
            description: "The money left and the customer could not be debited: the bank bears the amount meanwhile. Find the payment with `payctl stuck --older-than 1s`, and ask the switch's operators to answer the recall of its reference.",
        },
        AlertKind::NeedsOperator => Texts {
            severity: Warning,
            summary: "Open payments need an operator decision, whatever the operator reason",
            description: "The customers' amounts stay held. List the payments and their operator reasons with `payctl stuck --older-than 1s`, then follow the alert PaymentNeedsOperator.. of each reason, which fires too.",
        },
    };
    let word = kind.as_str();
    Alert {
        name: format!("Payment{}", pascal_case(word)),
        expr: format!("max(payments_alerted{{kind=\"{word}\"}}) > 0"),
        pending_for: SEVERAL_UPDATES,
        severity: texts.severity,
        summary: format!("{} (payments: {{{{ $value }}}})", texts.summary),
        description: texts.description.to_owned(),
        page: Page::new(PAYMENT_ALERTS, word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_duration_is_written_in_its_largest_unit() {
        let written = [3_600, 14_400, 60, 900, 90, 1].map(duration_text);
        assert_eq!(written, ["1 hour", "4 hours", "1 minute", "15 minutes", "90 seconds", "1 second"]);
    }
}
