//! Alerts about payments, made from the enums: a state, a reason or a kind that is added has an alert, and whoever adds it
//! must say here how urgent it is, or this does not compile.

use std::time::Duration;

use payment_ledger::ExceptionKind;
use payment_ledger::audit::reconcile::drift::{Drift, Tolerance};
use payment_ledger::operator::alerts::AlertKind;
use payment_protocol::PaymentState;
use payment_protocol::cause::OperatorReason;

use crate::alert::Severity::{self, Critical, Warning};
use crate::alert::{Alert, Page, camel, spoken};

/// Pages of payment states.
pub const STATES: &str = "payment-states.md";
/// Pages of the reasons for which a payment stands before a person.
pub const REASONS: &str = "operator-reasons.md";
/// Pages of exceptions: what contradicts the books.
pub const EXCEPTIONS: &str = "exceptions.md";
/// Pages of what a person is alerted to about one payment.
pub const PAYMENT_ALERTS: &str = "payment-alerts.md";

/// Two looks of the relay, so that a single slow one calls nobody.
const SEEN_TWICE: Duration = Duration::from_secs(15);
/// Two audits.
const AUDITED_TWICE: Duration = Duration::from_secs(120);

/// Every alert about payments.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let states = PaymentState::ALL.iter().map(|state| of_state(*state));
    let reasons = OperatorReason::ALL.iter().map(|reason| of_reason(*reason));
    let exceptions =
        ExceptionKind::ALL.iter().map(|kind| of_kind("Exception", kind.as_str(), exception(*kind)));
    let drifts = Drift::ALL.iter().map(|kind| of_kind("Drift", kind.as_str(), drift(*kind)));
    let alerted = AlertKind::ALL.iter().map(|kind| of_alert_kind(*kind));
    states.chain(reasons).chain(exceptions).chain(drifts).chain(alerted).collect()
}

/// How long a payment may stay in a state without moving.
struct Stay {
    most_s: i64,
    severity: Severity,
    because: &'static str,
}

/// None of a state that is an end: a payment may stay there, and must hold nothing.
fn stay(state: PaymentState) -> Option<Stay> {
    use PaymentState as S;
    let at_most = |most_s, severity, because| Some(Stay { most_s, severity, because });
    match state {
        S::Accepted => at_most(
            60,
            Critical,
            "a starter looks every 100 ms; what is not started within the profile's start_within (an hour) is rejected",
        ),
        S::Started => {
            at_most(60, Critical, "holding the amount takes milliseconds, and is tried without end")
        }
        S::Reserved => at_most(
            180,
            Warning,
            "all attempts of submit have 30 s together; before them a payment may wait for its account as long as the SLA, 60 s",
        ),
        S::Submitted => at_most(
            300,
            Critical,
            "the SLA is 60 s, and a workflow that is lost is taken up again after 90 s: nobody carries it on",
        ),
        S::Confirmed => {
            at_most(60, Critical, "the money has left; debiting takes milliseconds, and is tried without end")
        }
        S::Cancelling => at_most(
            Tolerance::default().cancelling_s,
            Critical,
            "a switch is asked every five minutes at the latest; this is three times that, and what a sweep calls stuck",
        ),
        S::NeedsOperator => at_most(
            4 * 3_600,
            Critical,
            "a customer's money is held; half a working day is enough for two people to decide",
        ),
        S::Settled | S::Rejected | S::Failed | S::TimedOut | S::Cancelled => None,
    }
}

fn of_state(state: PaymentState) -> Alert {
    let page = Page::new(STATES, state.as_str());
    let (name, word) = (camel(state.as_str()), state.as_str());
    match stay(state) {
        Some(Stay { most_s, severity, because }) => Alert {
            name: format!("PaymentStays{name}"),
            expr: format!("max(payments_open_idle_seconds{{state=\"{word}\"}}) > {most_s}"),
            held_for: SEEN_TWICE,
            severity,
            summary: format!("A payment has been {} for more than {most_s} s", spoken(word)),
            because: because.to_owned(),
            page,
        },
        None => Alert {
            name: format!("HoldAfter{name}"),
            expr: format!("max(holds_open{{state=\"{word}\"}}) > 0"),
            held_for: AUDITED_TWICE,
            severity: Critical,
            summary: format!("A payment has ended {} and its amount is still held", spoken(word)),
            because:
                "an end and its hold are closed in one transaction: seen in two audits, it is not under way"
                    .to_owned(),
            page,
        },
    }
}

fn of_reason(reason: OperatorReason) -> Alert {
    use OperatorReason as R;
    let (severity, because) = match reason {
        R::SettledWithoutAttempt => (
            Critical,
            "money left that we did not send: the record of an attempt is lost, or somebody sends beside us",
        ),
        R::CompensationFailed => {
            (Critical, "a step could not be undone, so something is not as the books say")
        }
        R::WorkflowStartRefused => {
            (Critical, "Temporal refuses starts that it should take: others will follow")
        }
        R::RecallRefused | R::RecallUnsupported => {
            (Warning, "the money left and stays away; who bears it can be decided today")
        }
        R::ConfirmationMismatch
        | R::SwitchRetentionExpired
        | R::NotFoundIsInconclusive
        | R::NoCancelOrQuery => {
            (Warning, "the amount is held and safe; only people can say what became of it")
        }
    };
    let word = reason.as_str();
    Alert {
        name: format!("PaymentStandsFor{}", camel(word)),
        expr: format!("max(payments_needing_operator{{reason=\"{word}\"}}) > 0"),
        held_for: SEEN_TWICE,
        severity,
        summary: format!("{{{{ $value }}}} payments stand before a person: {}", spoken(word)),
        because: because.to_owned(),
        page: Page::new(REASONS, word),
    }
}

fn exception(kind: ExceptionKind) -> (Severity, &'static str) {
    use ExceptionKind as E;
    match kind {
        E::LateConfirmation => {
            (Critical, "money left of a payment that was given back: the bank bears it until it is corrected")
        }
        E::ContradictoryFinalStatus => {
            (Critical, "a switch that says two things may have moved money twice or not at all")
        }
        E::SettledWithoutAttempt => (Critical, "money left that we did not send"),
        E::CallbackFromOtherSwitch => {
            (Critical, "a switch speaks of payments that are not its own: a key may be in wrong hands")
        }
        E::CallbackEventIdReused => {
            (Critical, "an event id with two bodies: a defect of the switch, or somebody who has its secret")
        }
        E::ConfirmationMismatch => {
            (Warning, "the payment keeps its hold; nothing moves until somebody has looked")
        }
        E::CallbackForUnknownPayment => (Warning, "no payment of ours moves by it"),
        E::DebitedToClaims => (Warning, "the bank bears it; it stays so until it is written off"),
    }
}

fn drift(kind: Drift) -> (Severity, &'static str) {
    use Drift as D;
    match kind {
        D::MissingHold | D::OrphanHold => (
            Critical,
            "a hold and its payment are changed in one transaction: this cannot come about by itself",
        ),
        D::SettledNotDebited | D::ReleasedButSettled => {
            (Critical, "the money left and nobody was debited: the bank bears it")
        }
        D::DebitedNotSettled => (Critical, "a customer was debited for what the switch did not settle"),
        D::AmountMismatch | D::SettledTwice => {
            (Critical, "more or other money left than the customer was debited")
        }
        D::TransferWithoutPayment => (Critical, "money left that no payment accounts for"),
        D::JournalHashMismatch => (Critical, "history was changed behind the service's back"),
        D::PaymentWithoutWorkflow => {
            (Warning, "the starter takes lost payments up again; this one it has not for ten minutes")
        }
        D::WorkflowWithoutPayment => (Warning, "it can move no money: every step asks the payment's row"),
        D::UnmatchedCallback => (Warning, "no payment of ours moves by it"),
        D::StuckCancelling => {
            (Warning, "the state's own alert calls somebody; this one stays until it is closed")
        }
    }
}

fn of_kind(prefix: &str, word: &str, (severity, because): (Severity, &'static str)) -> Alert {
    Alert {
        name: format!("{prefix}{}", camel(word)),
        expr: format!("max(exceptions_open{{kind=\"{word}\"}}) > 0"),
        held_for: SEEN_TWICE,
        severity,
        summary: format!("{{{{ $value }}}} open exceptions: {}", spoken(word)),
        because: because.to_owned(),
        page: Page::new(EXCEPTIONS, word),
    }
}

fn of_alert_kind(kind: AlertKind) -> Alert {
    let (severity, because) = match kind {
        AlertKind::CompensationFailed => (Critical, "a step could not be undone, and nobody but people can"),
        AlertKind::CancelUndecided => (
            Warning,
            "raised once the switch has been asked for the profile's alert_after (two minutes) or says that we ask wrongly",
        ),
        AlertKind::RecallUndecided => {
            (Warning, "the money left and could not be debited; the switch is asked on")
        }
        AlertKind::NeedsOperator => (Warning, "beside the alert of its reason: this one counts them all"),
    };
    let word = kind.as_str();
    Alert {
        name: format!("PaymentAlert{}", camel(word)),
        expr: format!("max(payments_alerted{{kind=\"{word}\"}}) > 0"),
        held_for: SEEN_TWICE,
        severity,
        summary: format!("{{{{ $value }}}} open payments with the alert {}", spoken(word)),
        because: because.to_owned(),
        page: Page::new(PAYMENT_ALERTS, word),
    }
}
