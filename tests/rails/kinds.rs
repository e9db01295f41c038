//! The rails: the shipped profile, and the matching features of the mock switch, with shorter times.

use payment_protocol::profile::Rail;
use serde_json::{Value, json};
use testkit::SystemOptions;

/// The first query, counted from the first attempt, in milliseconds; in place of 9 s to 90 s.
pub(crate) const FIRST_ASK_AFTER_MS: u64 = 1_500;

/// Features that no rail has.
const ABSENT: [&str; 3] = ["cancel", "tombstone", "listing"];

/// The bank's own part of a rail's ids.
fn participant(rail: Rail) -> &'static str {
    match rail {
        Rail::SctInst => "DEMODEFF",
        Rail::FedNow => "DEMO00001",
        Rail::Rtp => "DEMO0000001",
        Rail::Upi => "DEM",
        Rail::Pix => "00000001",
    }
}

fn rail(rail: Rail, times: &[(&str, Value)], shape: Value) -> SystemOptions {
    let profile = json!({"participant": participant(rail)});
    let mut options = SystemOptions { rail: Some(rail.as_str()), profile, shape, ..SystemOptions::default() };
    // A transfer with an id of another pattern is refused.
    options.shape["id_pattern"] = rail.as_str().into();
    for field in ABSENT {
        options.shape[field] = false.into();
    }
    let short = [("retry_interval_max_ms", 500), ("backoff_ms", 100), ("alert_after_ms", 60_000)];
    for (field, value) in short {
        options = options.with_profile(field, value);
    }
    for (field, value) in times {
        options = options.with_profile(field, value.clone());
    }
    options
}

/// SEPA Instant: asked after its time, never twice sent. The customer's account is not restored while a test lasts.
pub(crate) fn sct_inst() -> SystemOptions {
    let times = [
        ("first_ask_after_ms", json!(FIRST_ASK_AFTER_MS)),
        ("sla_ms", json!(FIRST_ASK_AFTER_MS)),
        ("start_within_ms", json!(60_000)),
        ("restore_customer_after_ms", json!(600_000)),
    ];
    let shape = json!({"dedup": false, "refuses_duplicates": true, "reject_codes": "iso",
        "recall_takes_time": true, "one_recall": true,
        "query_after_ms": FIRST_ASK_AFTER_MS - 500, "decides_within_ms": FIRST_ASK_AFTER_MS});
    rail(Rail::SctInst, &times, shape)
}

/// The customer's account is restored this long after the receipt of the order, in milliseconds; in place of 9 s, so that a slow machine starts
/// and sends the payment before.
pub(crate) const RESTORED_AFTER_MS: u64 = 22_000;

/// SEPA Instant, where the customer's account is restored while the switch says nothing: it decides only when the test lets it.
pub(crate) fn sct_inst_restoring() -> SystemOptions {
    let times = [
        ("sla_ms", json!(10_000)),
        ("attempt_timeout_ms", json!(1_000)),
        ("submit_budget_ms", json!(6_500)),
        ("start_within_ms", json!(15_000)),
        ("restore_customer_after_ms", json!(RESTORED_AFTER_MS)),
    ];
    let mut options = sct_inst();
    options.shape["decides_within_ms"] = 0.into();
    for (field, value) in times {
        options = options.with_profile(field, value);
    }
    options
}

/// SEPA Instant with the times of its shipped profile; the switch confirms after the customer's account was restored.
pub(crate) fn sct_inst_late() -> SystemOptions {
    let shape = json!({"dedup": false, "refuses_duplicates": true, "reject_codes": "iso"});
    let options = rail(Rail::SctInst, &[], shape);
    SystemOptions { settle_after_ms: 12_000, ..options }
}

/// FedNow: the same, with a clock of its own that the switch decides by.
pub(crate) fn fednow() -> SystemOptions {
    let times = [
        ("first_ask_after_ms", json!(FIRST_ASK_AFTER_MS)),
        ("sla_ms", json!(FIRST_ASK_AFTER_MS)),
        ("attempt_timeout_ms", json!(1_000)),
    ];
    let shape = json!({"dedup": false, "refuses_duplicates": true, "reject_codes": "iso",
        "recall_takes_time": true,
        "query_after_ms": FIRST_ASK_AFTER_MS - 500, "decides_within_ms": FIRST_ASK_AFTER_MS - 500});
    rail(Rail::FedNow, &times, shape)
}

/// RTP: no query but the repeated submit.
pub(crate) fn rtp() -> SystemOptions {
    let times =
        [("sla_ms", json!(1_000)), ("attempt_timeout_ms", json!(1_000)), ("submit_budget_ms", json!(6_500))];
    let shape = json!({"query": false, "deadline": false, "statement": false, "reject_codes": "iso",
        "recall_takes_time": true});
    rail(Rail::Rtp, &times, shape)
}

/// UPI: three queries, then the file of the settlement cycle.
pub(crate) fn upi() -> SystemOptions {
    let times = [
        ("first_ask_after_ms", json!(FIRST_ASK_AFTER_MS)),
        ("sla_ms", json!(FIRST_ASK_AFTER_MS)),
        ("attempt_timeout_ms", json!(1_000)),
        ("submit_budget_ms", json!(6_500)),
        ("ask_interval_ms", json!(300)),
        ("submit_deadline_ms", json!(1_000)),
        ("retention_s", json!(4)),
        ("ask_window_s", json!(60)),
        ("settled_within_ms", json!(1_000)),
    ];
    let shape = json!({"dedup": false, "deadline": false, "recall": false, "queries_max": 3,
        "query_after_ms": FIRST_ASK_AFTER_MS - 500, "retention_s": 60, "statement_cycle_s": 1});
    rail(Rail::Upi, &times, shape)
}

/// Pix: as RTP, and the switch refuses what comes after its time.
pub(crate) fn pix() -> SystemOptions {
    let times = [
        ("sla_ms", json!(1_000)),
        ("attempt_timeout_ms", json!(1_000)),
        ("submit_budget_ms", json!(6_500)),
        ("submit_deadline_ms", json!(2_000)),
    ];
    let shape = json!({"query": false, "recall": false, "reject_codes": "spi", "decides_within_ms": 2_000});
    rail(Rail::Pix, &times, shape)
}
