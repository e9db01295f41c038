//! Every path of a payment, grouped by the kind of switch.

use serde_json::{Value, json};
use testkit::SystemOptions;

use crate::switch_kinds::{at_most_once, no_callback, no_proof_of_absence, validate};

/// One path: its name, the behaviour of the switch, and the final state, or `needs_operator`.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) behaviour: Value,
    pub(crate) end: &'static str,
}

/// The paths that one system runs.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) options: SystemOptions,
    pub(crate) paths: Vec<Path>,
}

fn path(name: &'static str, end: &'static str, behaviour: Value) -> Path {
    Path { name, behaviour, end }
}

fn hold() -> Value {
    json!({"outcome": "hold"})
}

/// All groups of paths.
pub(crate) fn groups() -> Vec<Group> {
    // The second switch has a short SLA for the paths in which it expires.
    let short_sla = [("sla_ms", json!(700))];
    let believed = |options: SystemOptions| options.with_profile("confirm_by_query", "never");
    vec![
        Group {
            name: "query",
            options: believed(SystemOptions::default().with_long_attempts()).with_other_switch(&short_sla),
            paths: query_paths(),
        },
        Group {
            name: "confirming",
            options: SystemOptions::default().with_long_attempts(),
            paths: vec![
                path("confirmed_settled", "settled", hold()),
                path(
                    "unconfirmed_settled",
                    "settled",
                    json!({"outcome": "hold", "callback": {"lose": true}}),
                ),
            ],
        },
        Group {
            name: "polled",
            options: no_callback().with_other_switch(&short_sla),
            paths: vec![
                path("polled_settled", "settled", hold()),
                path("polled_timed_out", "timed_out", hold()),
            ],
        },
        Group {
            name: "at-most-once",
            options: believed(at_most_once()),
            paths: vec![path(
                "reconciled_settled",
                "settled",
                json!({"outcome": "hold", "submit": ["accept_drop_answer"]}),
            )],
        },
        Group {
            name: "account-lock",
            options: validate(),
            paths: vec![path("account_lock_settled", "settled", hold())],
        },
        Group {
            name: "operator-decision",
            options: believed(no_proof_of_absence().with_long_attempts()),
            paths: vec![
                path("decision_debit", "settled", not_found("settle")),
                path("decision_release", "timed_out", not_found("reject")),
                path("decision_retry_cancel", "settled", not_found("settle")),
            ],
        },
    ]
}

/// The switch has the transfer, answers queries with `not_found`, and sends no callback.
fn not_found(outcome: &str) -> Value {
    json!({
        "outcome": outcome,
        "callback": {"lose": true},
        "query": [{"fault": "not_found", "times": "always"}],
    })
}

/// The paths at a switch with every feature.
fn query_paths() -> Vec<Path> {
    let always = |fault: &str| json!([{"fault": fault, "times": "always"}]);
    vec![
        path("settled", "settled", hold()),
        path(
            "settled_by_query",
            "settled",
            json!({"submit": ["accept_drop_answer"], "settle_after_ms": 0, "callback": {"lose": true}}),
        ),
        path("settled_after_slow_reserve", "settled", hold()),
        path("rejected", "rejected", json!({})),
        path("submit_refused", "failed", json!({"submit": ["refuse"]})),
        path("submit_unknown", "failed", json!({"submit": always("drop_request")})),
        path("failure_reported", "failed", hold()),
        path("timed_out", "timed_out", hold()),
        path("settled_after_sla", "settled", json!({"callback": {"lose": true}})),
        path("customer_cancelled", "cancelled", hold()),
        path("settled_while_cancelling", "settled", hold()),
        path("recalled", "failed", hold()),
        path("recall_refused", "needs_operator", json!({"outcome": "hold", "recall": ["refuse"]})),
        path("settled_awaiting_operator", "settled", hold()),
        path("recovered", "failed", hold()),
        path("reset", "failed", hold()),
    ]
}
