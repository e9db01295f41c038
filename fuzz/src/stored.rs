//! Records in the database and in Temporal's histories, which a later version reads.

use payment_ledger::events::TransferEvent;
use payment_protocol::SwitchProfile;
use payment_protocol::cause::Cause;
use payment_protocol::payment::Payment;
use payment_protocol::report::SettledReport;
use reconciliation::{ReconciliationProgress, ReconciliationReport};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first line names the record; the rest is its JSON. What is read is written and read again without a change.
pub(crate) fn check(input: &[u8]) -> bool {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return false };
    let (name, json) = (&input[..end], &input[end + 1..]);
    match name {
        b"payment" => is_read::<Payment>(json),
        b"profile" => is_read::<SwitchProfile>(json),
        b"cause" => is_read::<Cause>(json),
        b"settled_report" => is_read::<SettledReport>(json),
        b"event" => is_read::<TransferEvent>(json),
        b"progress" => is_read::<ReconciliationProgress>(json),
        b"report" => is_read::<ReconciliationReport>(json),
        _ => false,
    }
}

fn is_read<T: DeserializeOwned + Serialize>(json: &[u8]) -> bool {
    let Ok(record) = serde_json::from_slice::<T>(json) else { return false };
    let written = serde_json::to_vec(&record).expect("a record can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).unwrap(), written, "the record changed");
    true
}
