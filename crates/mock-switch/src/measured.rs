//! What the switch measures of itself.

use service_kit::metrics::{Kind, Metric};

/// Every metric of the switch.
pub const METRICS: &[Metric] = &[
    Metric {
        name: "mock_switch_requests_total",
        kind: Kind::Counter,
        unit: "requests",
        labels: &["operation", "fault"],
        meaning: "Requests of banks, by operation and by whether a scripted fault met them",
    },
    Metric {
        name: "mock_switch_transfers_ended_total",
        kind: Kind::Counter,
        unit: "transfers",
        labels: &[],
        meaning: "Transfers that were settled or rejected when their time had come",
    },
    Metric {
        name: "mock_switch_callbacks_total",
        kind: Kind::Counter,
        unit: "callbacks",
        labels: &["outcome"],
        meaning: "Callbacks that were sent, by what came of it",
    },
];
