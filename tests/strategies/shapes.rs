//! Switches of every kind: the profile that describes one, and the shape that the mock takes for it.

use serde_json::json;
use testkit::{Options, System};

/// Asked by reference before anything is sent.
pub(crate) fn query() -> Options {
    Options::default().unhurried()
}

/// Deduplicates by reference; cannot be asked.
pub(crate) fn reference() -> Options {
    let mut options = query().profile("strategy", "reference").profile("has_query", false);
    options.shape = json!({"query": false});
    options
}

/// Our own log; a PENDING in it is resolved by asking.
pub(crate) fn write_ahead() -> Options {
    let mut options = query().profile("strategy", "write_ahead").profile("deduplicates", false);
    options.shape = json!({"dedup": false});
    options
}

/// One attempt; neither deduplicates nor can be asked, and calls back.
pub(crate) fn at_most_once() -> Options {
    let mut options = Options::default()
        .profile("strategy", "at_most_once")
        .profile("deduplicates", false)
        .profile("has_query", false);
    options.shape = json!({"dedup": false, "query": false});
    options
}

/// No references at all: do once, read back.
pub(crate) fn validate() -> Options {
    let mut options = Options::default()
        .profile("strategy", "validate")
        .profile("deduplicates", false)
        .profile("tombstones", false)
        .profile("has_callback", false);
    options.shape = json!({"keys": false, "dedup": false, "tombstone": false, "callback": false});
    options
}

/// Says how a transfer ended in its statement alone.
pub(crate) fn statement_only() -> Options {
    let mut options = reference()
        .profile("has_callback", false)
        .profile("can_cancel", false)
        .profile("can_recall", false)
        .profile("has_statement", true);
    options.shape = json!({"query": false, "callback": false, "cancel": false, "recall": false});
    options
}

/// Can be asked, and never calls back.
pub(crate) fn no_callback() -> Options {
    let mut options = query().profile("has_callback", false);
    options.shape = json!({"callback": false});
    options
}

/// Can be asked, but neither cancels nor honours a deadline: nothing found proves nothing.
pub(crate) fn forgetful() -> Options {
    let mut options = Options::default()
        .profile("can_cancel", false)
        .profile("tombstones", false)
        .profile("honours_deadline", false)
        .profile("sla_ms", 500);
    options.shape = json!({"cancel": false, "tombstone": false, "deadline": false});
    options
}

/// Every strategy, by name.
pub(crate) fn strategies() -> [(&'static str, Options); 5] {
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
    Ok(system.switch.book().await?.iter().filter(|entry| entry.reference == reference).count())
}
