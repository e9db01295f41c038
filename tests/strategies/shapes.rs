//! Switches of every kind: the profile that describes one, and the shape that the mock takes for it.

use serde_json::json;
use testkit::{System, SystemOptions};

/// Asked by reference before anything is sent.
pub(crate) fn query() -> SystemOptions {
    SystemOptions::default().with_long_attempts()
}

/// Deduplicates by reference; cannot be asked.
pub(crate) fn reference() -> SystemOptions {
    let mut options = query().with_profile("strategy", "reference").with_profile("has_query", false);
    options.shape = json!({"query": false});
    options
}

/// Our own log; a PENDING in it is resolved by asking.
pub(crate) fn write_ahead() -> SystemOptions {
    let mut options = query().with_profile("strategy", "write_ahead").with_profile("deduplicates", false);
    options.shape = json!({"dedup": false});
    options
}

/// One attempt; neither deduplicates nor can be asked, and calls back.
pub(crate) fn at_most_once() -> SystemOptions {
    let mut options = SystemOptions::default()
        .with_profile("strategy", "at_most_once")
        .with_profile("deduplicates", false)
        .with_profile("has_query", false);
    options.shape = json!({"dedup": false, "query": false});
    options
}

/// No references at all: do once, read back.
pub(crate) fn validate() -> SystemOptions {
    let mut options = SystemOptions::default()
        .with_profile("strategy", "validate")
        .with_profile("deduplicates", false)
        .with_profile("tombstones", false)
        .with_profile("has_callback", false);
    options.shape = json!({"keys": false, "dedup": false, "tombstone": false, "callback": false});
    options
}

/// Says how a transfer ended in its statement alone.
pub(crate) fn statement_only() -> SystemOptions {
    let mut options = reference()
        .with_profile("has_callback", false)
        .with_profile("can_cancel", false)
        .with_profile("can_recall", false)
        .with_profile("has_statement", true);
    options.shape = json!({"query": false, "callback": false, "cancel": false, "recall": false});
    options
}

/// Can be asked, and never calls back.
pub(crate) fn no_callback() -> SystemOptions {
    let mut options = query().with_profile("has_callback", false);
    options.shape = json!({"callback": false});
    options
}

/// Can be asked, but neither cancels nor honours a deadline: nothing found proves nothing.
pub(crate) fn forgetful() -> SystemOptions {
    let mut options = SystemOptions::default()
        .with_profile("can_cancel", false)
        .with_profile("tombstones", false)
        .with_profile("honours_deadline", false)
        .with_profile("sla_ms", 500);
    options.shape = json!({"cancel": false, "tombstone": false, "deadline": false});
    options
}

/// Every strategy, by name.
pub(crate) fn strategies() -> [(&'static str, SystemOptions); 5] {
    [
        ("query", query()),
        ("reference", reference()),
        ("write-ahead", write_ahead()),
        ("at-most-once", at_most_once()),
        ("validate", validate()),
    ]
}

/// How often the book has a transfer of this reference.
pub(crate) async fn copies(system: &System, reference: &str) -> anyhow::Result<usize> {
    Ok(system.switch.transfers().await?.iter().filter(|entry| entry.reference == reference).count())
}
