//! The activities: steps of our ledger, steps at a switch, and the account lock.
//!
//! Each activity runs at least once and keeps no state. A repeat is harmless because of the key that the ledger
//! records in the step's transaction and the reference at the switch.

pub mod debit;
pub mod first_steps;
pub mod ledger;
pub mod local_submits;
pub mod lock;
pub mod switch;

use std::time::Duration;

use payment_ledger::LedgerError;
use service_kit::error_chain;
use temporalio_sdk::ApplicationFailure;
use temporalio_sdk::activities::ActivityError;

/// Task queue of submit at one switch. Each switch has its own, so that a hung switch uses up only its own slots.
pub fn submit_queue(prefix: &str, switch: &str) -> String {
    format!("{prefix}-submit-{switch}")
}

/// Task queue of cancel, poll, recall and operator decisions at one switch, so that a compensation never waits
/// behind submits.
pub fn cancel_queue(prefix: &str, switch: &str) -> String {
    format!("{prefix}-cancel-{switch}")
}

/// A ledger step without an outcome is retried: an unknown outcome never counts as a failure.
fn ledger_failure(error: LedgerError) -> ActivityError {
    if !matches!(error, LedgerError::Unavailable(_)) {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "an activity of a payment's workflow failed at the ledger; Temporal retries the activity"
        );
    }
    retryable("ledger_unavailable", &error_chain(&error), None)
}

/// Ends this attempt without an outcome. The server repeats it after `delay`, or by the activity's retry policy if
/// `delay` is `None`. `kind` is the failure's type in Temporal.
pub(crate) fn retryable(kind: &str, detail: &str, delay: Option<Duration>) -> ActivityError {
    ActivityError::application(
        ApplicationFailure::builder(anyhow::anyhow!(detail.to_owned()))
            .type_name(kind.to_owned())
            .maybe_next_retry_delay(delay)
            .build(),
    )
}

/// Why an attempt has no outcome, in one word. The failure's text has words of the switch or of the database, which a trace backend or
/// Temporal's history need not know.
pub(crate) fn failure_kind(error: &ActivityError) -> String {
    match error {
        ActivityError::Application(failure) => failure.type_name().unwrap_or("failed").to_owned(),
        ActivityError::Cancelled { .. } => "cancelled".into(),
        _ => "no outcome".into(),
    }
}
