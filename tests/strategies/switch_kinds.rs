//! Every kind of switch: its profile, and the matching features of the mock switch.

use serde_json::json;
use testkit::{System, SystemOptions};

/// A switch for the strategy `query`: the service queries the reference before each attempt.
pub(crate) fn query() -> SystemOptions {
    SystemOptions::default().with_long_attempts()
}

/// A switch for the strategy `reference`: the switch deduplicates by reference and offers no query.
pub(crate) fn reference() -> SystemOptions {
    let mut options = query().with_profile("strategy", "reference").with_profile("has_query", false);
    options.shape = json!({"query": false});
    options
}

/// A switch for the strategy `write_ahead`: the submission log decides, and a query resolves a pending entry.
pub(crate) fn write_ahead() -> SystemOptions {
    let mut options = query().with_profile("strategy", "write_ahead").with_profile("deduplicates", false);
    options.shape = json!({"dedup": false});
    options
}

/// A switch for the strategy `at_most_once`: one attempt; the switch calls back and offers neither deduplication nor query.
pub(crate) fn at_most_once() -> SystemOptions {
    let mut options = query()
        .with_profile("strategy", "at_most_once")
        .with_profile("deduplicates", false)
        .with_profile("has_query", false);
    options.shape = json!({"dedup": false, "query": false});
    options
}

/// A switch for the strategy `validate`: one attempt; the switch has no references, and the transfer is found by its details.
pub(crate) fn validate() -> SystemOptions {
    let mut options = query()
        .with_profile("strategy", "validate")
        .with_profile("deduplicates", false)
        .with_profile("tombstones", false)
        .with_profile("has_callback", false);
    options.shape = json!({"keys": false, "dedup": false, "tombstone": false, "callback": false});
    options
}

/// A switch that reports the end of a transfer in its statement only.
pub(crate) fn statement_only() -> SystemOptions {
    let mut options = reference()
        .with_profile("has_callback", false)
        .with_profile("can_cancel", false)
        .with_profile("can_recall", false)
        .with_profile("has_statement", true);
    options.shape = json!({"query": false, "callback": false, "cancel": false, "recall": false});
    options
}

/// A switch with query and without callbacks.
pub(crate) fn no_callback() -> SystemOptions {
    let mut options = query().with_profile("has_callback", false);
    options.shape = json!({"callback": false});
    options
}

/// A switch with query, but without cancel, tombstones and deadline: `not_found` does not prove that the transfer is void.
pub(crate) fn no_proof_of_absence() -> SystemOptions {
    let mut options = SystemOptions::default()
        .with_profile("can_cancel", false)
        .with_profile("tombstones", false)
        .with_profile("honours_deadline", false)
        .with_profile("sla_ms", 500);
    options.shape = json!({"cancel": false, "tombstone": false, "deadline": false});
    options
}

/// Every strategy with its name.
pub(crate) fn strategies() -> [(&'static str, SystemOptions); 5] {
    [
        ("query", query()),
        ("reference", reference()),
        ("write-ahead", write_ahead()),
        ("at-most-once", at_most_once()),
        ("validate", validate()),
    ]
}

/// Number of transfers that the switch has under this reference.
pub(crate) async fn transfer_count(system: &System, reference: &str) -> anyhow::Result<usize> {
    Ok(system.switch.transfers().await?.iter().filter(|transfer| transfer.reference == reference).count())
}
