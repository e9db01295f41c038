//! The metrics of the switch.

use service_kit::metrics::{Kind, Metric};

/// Every metric of the switch.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "mock_switch_requests_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["operation", "fault"],
        meaning: "Requests of banks, by operation and by whether a scripted fault applied (yes, no)",
    },
    Metric {
        name: "mock_switch_transfers_ended_total",
        kind: Kind::Counter,
        unit: "transfers",
        labels: &[],
        meaning: "Transfers that were settled or rejected when they were due",
    },
    Metric {
        name: "mock_switch_callbacks_total",
        kind: Kind::Counter,
        unit: "callbacks",
        labels: &["outcome"],
        meaning: "Attempts to send a callback, by outcome (delivered, failed)",
    },
];
