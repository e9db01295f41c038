//! Records that an earlier release stored can be read, and a record of a later release can be read after a rollback: fields may be
//! added with a default, never renamed or removed.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use payment_protocol::Payment;
use serde_json::{Value, json};

/// The input of a payment workflow as releases store it, in Temporal's history and, its profile, in the ledger: as the first one did, and
/// with every field that rails needed later. These texts never change; a later release adds a text of its own beside them.
const RELEASES: [&str; 2] =
    [include_str!("stored_records/payment_1.json"), include_str!("stored_records/payment_2.json")];

/// The fields of `old` that `new` lacks or has with another value.
fn differences(old: &Value, new: &Value, path: &str, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in old {
                let path = format!("{path}.{name}");
                match new.get(name) {
                    None => found.push(format!("{path} is missing")),
                    Some(kept) => differences(value, kept, &path, found),
                }
            }
        }
        (old, new) if old != new => found.push(format!("{path}: expected {old}, got {new}")),
        _ => {}
    }
}

#[test]
fn the_payment_record_of_each_release_is_read_with_every_field() {
    for record in RELEASES {
        let stored: Value = serde_json::from_str(record).unwrap();
        let payment: Payment = serde_json::from_value(stored.clone()).unwrap();
        let mut found = Vec::new();
        differences(&stored, &serde_json::to_value(&payment).unwrap(), "payment", &mut found);
        assert!(found.is_empty(), "a field was renamed, removed or changed: {found:#?}");
        payment.validate().unwrap();
    }
}

#[test]
fn a_payment_record_of_a_later_release_is_read_after_a_rollback() {
    for record in RELEASES {
        let mut stored: Value = serde_json::from_str(record).unwrap();
        let first: Payment = serde_json::from_value(stored.clone()).unwrap();
        stored["field_of_a_later_release"] = json!(1);
        stored["profile"]["field_of_a_later_release"] = json!({"nested": true});
        assert_eq!(serde_json::from_value::<Payment>(stored).unwrap(), first);
    }
}
