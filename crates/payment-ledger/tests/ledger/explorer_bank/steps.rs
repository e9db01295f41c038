//! Every step of the ledger about a payment is an operation of this test, or is named here with the reason why not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Where the ledger's steps are: files and directories of its source.
const SOURCES: [&str; 6] = [
    "steps",
    "switch",
    "operator/decisions",
    "operator/alerts.rs",
    "audit/reconcile/findings.rs",
    "audit/reconcile/restore.rs",
];

/// The calls of the ledger by this test.
const CALLS: &str = include_str!("ledger_side.rs");

/// The steps that it calls through the support module.
const SUPPORT: [&str; 2] = ["accept", "request_cancel"];

/// The public functions that this test does not call, with the reason.
const NOT_COMPARED: &[(&str, &str)] = &[
    ("accepted_payment", READS),
    ("account_at_switch", READS),
    ("before_debit", READS),
    ("recorded_transfer", READS),
    ("decision", READS),
    ("decision_outcome", READS),
    ("first_attempt", READS),
    ("last_submission", READS),
    ("lookup_key", READS),
    ("named_transaction", READS),
    ("transfer_name", READS),
    (
        "reserve_with_attempt",
        "writes what reserve and record_attempt write, or nothing: tests/group_commit.rs",
    ),
    ("record_listed_returns", "finds the returns of a statement, each of which is then what store_return is"),
    ("unrecorded_parts", READS),
    ("store_posting", "appends a line that no rule reads"),
    ("due_recalls", READS),
    ("recalls_by_switch", READS),
    ("postpone_recall", "as begin_recall_after_end"),
    ("open_exception_by_operator", "asks for a correction, and changes nothing that a rule reads"),
    ("begin_recall_after_end", "counts an attempt of a recall that moves no money and that no rule reads"),
    ("record_recall_answer", "as begin_recall_after_end"),
    ("store_recall_answer", "as begin_recall_after_end"),
    ("overdue_restores", READS),
    ("restore_all_due", "restores each payment that is due, one by one"),
    ("stored_requests", READS),
    ("ended_without_attempt", READS),
    ("first_line_since", READS),
    ("transfers_without_attempt", READS),
    ("ended_workflows_without_payment", READS),
    ("claim_accepted", "hands out payments to starters, and changes nothing that a rule reads"),
    ("claim_idle", "hands out payments to the liveness check, and changes nothing that a rule reads"),
    ("claim_undelivered", "hands out messages; the explorer delivers a message at any time, and repeatedly"),
    ("mark_delivered", "ends the repetition of a delivery, which is harmless"),
    ("mark_all_delivered", "as mark_delivered"),
    ("wake_starters", "a notification without a record"),
    ("alert", "a notification of operators, which no rule reads"),
    ("record_start_rejection", "counts, and then does what needs_operator does, which is compared"),
    (
        "mark_ended_workflow",
        "sets the marks of mark_open_payments and of begin_cancel, which are compared, for one payment",
    ),
    ("bound_deadline", "a time of the switch's clock; the explorer has phases of the clock instead"),
];

const READS: &str = "only reads";

#[test]
fn r38_every_ledger_step_is_compared_with_the_explored_bank() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut steps = BTreeSet::new();
    SOURCES.iter().for_each(|path| collect(&source.join(path), &mut steps));
    let reasons: BTreeMap<_, _> = NOT_COMPARED.iter().copied().collect();
    let is_called = |step: &str| CALLS.contains(&format!(".{step}(")) || SUPPORT.contains(&step);
    let forgotten: Vec<_> =
        steps.iter().filter(|step| !is_called(step) && !reasons.contains_key(step.as_str())).collect();
    assert!(forgotten.is_empty(), "neither compared nor named with a reason: {forgotten:?}");
    let stale: Vec<_> = reasons.keys().filter(|step| !steps.contains(**step) || is_called(step)).collect();
    assert!(stale.is_empty(), "named as not compared, and compared or gone: {stale:?}");
    assert!(steps.len() > 40, "found only {steps:?}");
}

/// The names of the public asynchronous functions below `path`.
fn collect(path: &Path, steps: &mut BTreeSet<String>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| collect(&entry.unwrap().path(), steps));
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub async fn "));
    steps.extend(names.filter_map(|name| name.split(['(', '<']).next()).map(str::to_owned));
}
