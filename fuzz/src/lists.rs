//! A switch's statement, and the listing of a switch without references: the absence of our transfer is believed only of a list that is read
//! to its end and has nothing that could be it.

use payment_protocol::keys;
use payment_protocol::rail_id::TransferName;
use payment_protocol::submit::QueryAnswer;
use serde_json::Value;
use switch_client::{LookupKey, TransferRef};

use crate::switch::{self, SWITCH};

fn lookup_key(name: &TransferName) -> LookupKey {
    LookupKey {
        name: name.clone(),
        marker: Some("1".into()),
        transfer_id: None,
        creditor_account: switch::ACCOUNT.into(),
        money: switch::money(),
    }
}

fn text<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get(name).and_then(Value::as_str)
}

/// Whether the entry has another amount or currency than our transfer.
fn has_other_money(entry: &Value) -> bool {
    let amount = entry.get("amount_minor").and_then(Value::as_i64);
    amount.is_some_and(|minor| minor != switch::money().amount_minor())
        || text(entry, "currency").is_some_and(|code| code != switch::money().currency().code())
}

/// Whether the entry is the trace of a cancel: the switch has never received our transfer.
fn is_tombstone(entry: &Value) -> bool {
    text(entry, "status") == Some("CANCELLED") && entry["tombstone"] == true
}

/// What a definite answer about a transfer says, as the switch does; `None` if the answer is not definite.
fn status_of(answer: &QueryAnswer) -> Option<&'static [&'static str]> {
    match answer {
        QueryAnswer::Settled(_) => Some(&["SETTLED"]),
        QueryAnswer::Returned(_) => Some(&["RETURNED"]),
        QueryAnswer::Pending => Some(&["PENDING"]),
        QueryAnswer::Void { .. } => Some(&["REJECTED", "CANCELLED"]),
        QueryAnswer::NotFound
        | QueryAnswer::NotListed { .. }
        | QueryAnswer::Ambiguous { .. }
        | QueryAnswer::NoAnswer { .. }
        | QueryAnswer::OurFault { .. } => None,
    }
}

/// Every page of the statement is the input.
pub(crate) fn check_statement(input: &[u8]) -> bool {
    let Some((status, body)) = switch::respond(input) else { return false };
    let name = TransferName::from(keys::submit(&switch::our_payment()));
    let (answer, page) = SWITCH.runtime.block_on(async {
        (SWITCH.client.statement(&lookup_key(&name)).await.answer, SWITCH.client.statement_page(None).await)
    });
    let Ok(value) = serde_json::from_slice::<Value>(&body) else { return false };
    let no_entries = Vec::new();
    let entries = value.get("entries").and_then(Value::as_array).unwrap_or(&no_entries);
    if let Ok(page) = &page {
        assert!(
            status == 200 && page.lines.len() == entries.len(),
            "{} lines of {value:?}",
            page.lines.len()
        );
        assert!(page.is_last == value["next"].is_null(), "the end of {value:?}");
    }
    // A return of its own says nothing about the transfer's end.
    let of_transfers = || entries.iter().filter(|entry| entry["return_id"].is_null());
    let mut ours = of_transfers().filter(|entry| text(entry, "reference") == Some(name.on_wire()));
    match &answer {
        QueryAnswer::NotListed { complete_until_ms } => {
            assert!(
                status == 200 && value.get("next").is_some_and(Value::is_null),
                "the end of {status} {value:?}"
            );
            assert!(ours.next().is_none(), "not listed by {value:?}");
            if complete_until_ms.is_some() {
                let may_be_ours = |entry: &Value| entry["reference"].is_null() && !has_other_money(entry);
                assert!(!entries.iter().any(may_be_ours), "an absence in {value:?}");
                assert!(text(&value, "complete_until").is_some(), "complete by {value:?}");
            }
            true
        }
        QueryAnswer::NotFound => {
            assert!(status == 200 && ours.any(is_tombstone), "not found by {status} {value:?}");
            true
        }
        QueryAnswer::Ambiguous { .. } => panic!("an answer of another lookup"),
        QueryAnswer::NoAnswer { .. } | QueryAnswer::OurFault { .. } => page.is_ok(),
        definite => {
            let said = status_of(definite).unwrap_or_default();
            let is_said =
                ours.any(|entry| text(entry, "status").is_some_and(|status| said.contains(&status)));
            assert!(status == 200 && is_said, "{definite:?} by {status} {value:?}");
            true
        }
    }
}

/// Every page of the listing is the input.
pub(crate) fn check_listing(input: &[u8]) -> bool {
    let Some((status, body)) = switch::respond(input) else { return false };
    let name = TransferName::from(keys::submit(&switch::our_payment()));
    let key = lookup_key(&name);
    let (answer, marker) = SWITCH.runtime.block_on(async {
        let client = &SWITCH.client_of_listing;
        (client.query(TransferRef::LookupKey(&key)).await.answer, client.marker(switch::ACCOUNT).await)
    });
    let Ok(value) = serde_json::from_slice::<Value>(&body) else { return false };
    let no_transfers = Vec::new();
    let transfers = value.get("transfers").and_then(Value::as_array).unwrap_or(&no_transfers);
    let is_whole = status == 200 && value.get("next").is_some_and(Value::is_null);
    if let Ok(marker) = &marker {
        assert!(is_whole && transfers.len() <= 1, "the marker {marker:?} of {status} {value:?}");
        assert_eq!(marker, transfers.first().and_then(|one| text(one, "transfer_id")).unwrap_or_default());
    }
    let mut may_be_ours = transfers.iter().filter(|transfer| !has_other_money(transfer));
    match &answer {
        QueryAnswer::NotFound => {
            let (one, another) = (may_be_ours.next(), may_be_ours.next());
            let is_absent = one.is_none_or(is_tombstone) && another.is_none();
            assert!(is_whole && is_absent, "not found by {status} {value:?}");
            true
        }
        QueryAnswer::Ambiguous { .. } => {
            assert!(is_whole && may_be_ours.count() > 1, "ambiguous by {status} {value:?}");
            true
        }
        QueryAnswer::NotListed { .. } => panic!("an answer of another lookup"),
        QueryAnswer::NoAnswer { .. } | QueryAnswer::OurFault { .. } => marker.is_ok(),
        definite => {
            let said = status_of(definite).unwrap_or_default();
            let (one, another) = (may_be_ours.next(), may_be_ours.next());
            let is_said =
                one.and_then(|one| text(one, "status")).is_some_and(|status| said.contains(&status));
            assert!(is_whole && is_said && another.is_none(), "{definite:?} by {status} {value:?}");
            true
        }
    }
}
