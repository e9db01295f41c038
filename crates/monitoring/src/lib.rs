//! What is measured, when somebody is called, and which page says what to do.
//!
//! Metrics are listed once; alert rules are made from the enums of the service, so that a state, a reason or a kind cannot
//! be added without an alert; and each alert names its page of the runbook. Tests compare the lists with the sources, the
//! rules with `deploy/alerts`, and the pages of `deploy/runbook` with everything that needs one.
//!
//! | file | question |
//! |---|---|
//! | [`metrics`] | what is measured, by which process, in what? |
//! | [`measure`] | what does every process measure of itself? |
//! | [`task`] | which work of the relay must not stop? |
//! | [`alert`] | what is an alert, as Prometheus reads it? |
//! | [`payments`] | when is somebody called about payments? |
//! | [`parts`] | when is somebody called about the processes? |
//! | [`document`] | how do people read all of it? |

pub mod alert;
pub mod document;
pub mod measure;
pub mod metrics;
pub mod parts;
pub mod payments;
pub mod task;

use alert::Alert;

/// Every alert, the payments' first.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let mut all = payments::alerts();
    all.extend(parts::alerts());
    all
}
