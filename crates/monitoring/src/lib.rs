//! Metrics, alert rules, the dashboard, and the runbook page of each alert.
//!
//! Each metric is listed once. Alert rules are built from the enums of the service, so that a state, a reason or an exception
//! kind cannot be added without an alert, and each alert links to its page of the runbook. Tests compare the list of metrics
//! with the sources, the rules with `deploy/alerts`, and the pages of `deploy/runbook` with everything that needs a page.
//!
//! | module | content |
//! |---|---|
//! | [`metrics`] | every metric: name, kind, unit, labels, meaning, and the processes that export it |
//! | [`measure`] | the metrics that every process exports |
//! | [`background_task`] | the background tasks and how long each may go without success |
//! | [`alert`] | an alert and its form in a Prometheus rule file |
//! | [`payments`] | alerts about payments, holds and exceptions |
//! | [`services`] | alerts about the processes and their dependencies |
//! | [`dashboard`] | the generated Grafana dashboard |
//! | [`document`] | the generated files below `deploy/alerts` |

pub mod alert;
pub mod background_task;
pub mod dashboard;
pub mod document;
pub mod measure;
pub mod metrics;
pub mod payments;
pub mod services;

use alert::Alert;

/// Every alert, those about payments first.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let mut all = payments::alerts();
    all.extend(services::alerts());
    all
}
