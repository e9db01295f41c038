//! Records in the database and in Temporal's histories, which a later version reads.

use outbox::Event;
use payment_ledger::events::TransferEvent;
use payment_protocol::SwitchProfile;
use payment_protocol::cause::Cause;
use payment_protocol::payment::Payment;
use payment_protocol::report::SettledReport;
use reconciliation::{ReconciliationProgress, ReconciliationReport};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The name of a record, and whether JSON is one.
type Record = (&'static str, fn(&[u8]) -> bool);

const RECORDS: [Record; 7] = [
    ("payment", is_read::<Payment>),
    ("profile", is_read::<SwitchProfile>),
    ("cause", is_read::<Cause>),
    ("settled_report", is_read::<SettledReport>),
    ("event", is_event),
    ("progress", is_read::<ReconciliationProgress>),
    ("report", is_read::<ReconciliationReport>),
];

/// The first line names the record; the rest is its JSON. What is read is written and read again without a change.
pub(crate) fn check(input: &[u8]) -> bool {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return false };
    let (name, json) = (&input[..end], &input[end + 1..]);
    RECORDS.iter().any(|(record, is_read)| record.as_bytes() == name && is_read(json))
}

/// The names of all records.
pub fn records() -> impl Iterator<Item = &'static str> {
    RECORDS.iter().map(|(name, _)| *name)
}

/// A message of the broker whose body is an event of a transfer.
fn is_event(json: &[u8]) -> bool {
    is_read::<Event>(json)
        && serde_json::from_slice::<Event>(json)
            .is_ok_and(|event| is_read::<TransferEvent>(event.body.to_string().as_bytes()))
}

fn is_read<T: DeserializeOwned + Serialize>(json: &[u8]) -> bool {
    let Ok(record) = serde_json::from_slice::<T>(json) else { return false };
    let written = serde_json::to_vec(&record).expect("a record can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).unwrap(), written, "the record changed");
    true
}
