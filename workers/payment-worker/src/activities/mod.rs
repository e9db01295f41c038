//! The activities, by what they touch: our ledger, a switch, or the lock of an account.
//!
//! Each runs at least once and keeps no state of its own; what makes a repeat harmless is the key
//! recorded in the ledger's transaction and the reference at the switch.

pub mod ledger;
pub mod lock;
pub mod switch;

use std::time::Duration;

use payment_ledger::LedgerError;
use temporalio_sdk::ApplicationFailure;
use temporalio_sdk::activities::ActivityError;

/// Task queue of submit for one switch: a hung switch fills only its own slots.
pub fn submit_queue(prefix: &str, switch: &str) -> String {
    format!("{prefix}-submit-{switch}")
}

/// Task queue of cancel, query, recall, polling and decisions for one switch, so that undoing never waits behind
/// submits.
pub fn cancel_queue(prefix: &str, switch: &str) -> String {
    format!("{prefix}-ask-{switch}")
}

/// A step of the ledger without an outcome. Never final: unknown is never treated as failed.
fn no_outcome(error: LedgerError) -> ActivityError {
    if !matches!(error, LedgerError::Unavailable(_)) {
        tracing::error!(error = &error as &dyn std::error::Error, "a ledger step does not get through");
    }
    again("ledger_unavailable", &chain(&error), None)
}

/// Ends this attempt as undecided; the server repeats it by the step's retry policy, or after
/// `delay`.
pub(crate) fn again(kind: &str, detail: &str, delay: Option<Duration>) -> ActivityError {
    ActivityError::application(
        ApplicationFailure::builder(anyhow::anyhow!(detail.to_owned()))
            .type_name(kind.to_owned())
            .maybe_next_retry_delay(delay)
            .build(),
    )
}

/// An error with its sources, on one session.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}
