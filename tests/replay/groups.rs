//! Every path a payment can take, by the kind of switch that it goes by.

use serde_json::{Value, json};
use testkit::SystemOptions;

use crate::shapes::{at_most_once, forgetful, no_callback, validate};

/// One path: its name, how the switch treats the payment, and the state it comes to by itself or is driven to.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) behaviour: Value,
    pub(crate) end: &'static str,
}

/// The paths of one system.
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

/// All there are.
pub(crate) fn groups() -> Vec<Group> {
    // The second switch has the short time that some paths wait out.
    let short = [("sla_ms", json!(700))];
    vec![
        Group { name: "asked", options: SystemOptions::default().with_other_switch(&short), paths: asked() },
        Group {
            name: "polled",
            options: no_callback().with_other_switch(&short),
            paths: vec![
                path("polled_settled", "settled", hold()),
                path("polled_timed_out", "timed_out", hold()),
            ],
        },
        Group {
            name: "one-attempt",
            options: at_most_once(),
            paths: vec![path(
                "reconciled_settled",
                "settled",
                json!({"outcome": "hold", "submit": ["accept_drop_answer"]}),
            )],
        },
        Group { name: "locked", options: validate(), paths: vec![path("locked_settled", "settled", hold())] },
        Group {
            name: "decided",
            options: forgetful(),
            paths: vec![
                path("decided_settle", "settled", unknown("settle")),
                path("decided_release", "timed_out", unknown("reject")),
                path("decided_ask_again", "settled", unknown("settle")),
            ],
        },
    ]
}

/// The switch has it, says that it knows nothing of it, and does not call back.
fn unknown(outcome: &str) -> Value {
    json!({
        "outcome": outcome,
        "callback": {"lose": true},
        "query": [{"fault": "not_found", "times": "always"}],
    })
}

/// At a switch that can do everything.
fn asked() -> Vec<Path> {
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
        path("settled_before_a_person", "settled", hold()),
        path("resumed", "failed", hold()),
        path("reset", "failed", hold()),
    ]
}
