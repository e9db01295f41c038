//! The listing of a switch without references: the marker before a submit, and the lookup after it. A marker that is older
//! than the newest transfer would make an earlier transfer of the same amount look like ours.

use serde_json::{Value, json};
use switch_client::{SwitchClient, TransferRef};

use crate::calls::{ACCOUNT, client_with, lookup_key, query_word};
use crate::server::{Server, Step, response};

fn entry(id: &str, status: &str) -> Value {
    json!({"transfer_id": id, "status": status, "amount_minor": 500, "currency": "EUR", "creditor_account": ACCOUNT,
        "received_at": "2026-01-01T00:00:00Z"})
}

fn with(mut entry: Value, field: &str, value: Value) -> Value {
    entry[field] = value;
    entry
}

fn page(transfers: &[Value], next: Value) -> Step {
    Step::Send(response(200, json!({"transfers": transfers, "next": next}).to_string().as_bytes()))
}

#[tokio::test]
async fn s1_8_a_marker_is_the_one_newest_transfer_or_an_error() {
    let settled = |id| entry(id, "SETTLED");
    let null = || Value::Null;
    for (name, step, expected) in [
        ("lists the newest transfer", page(&[settled("5")], null()), Some("5")),
        ("lists no transfer", page(&[], null()), Some("")),
        ("lists a transfer without an id", page(&[with(settled("5"), "transfer_id", null())], null()), None),
        ("lists a transfer with an empty id", page(&[settled("")], null()), None),
        ("lists two transfers", page(&[settled("3"), settled("5")], null()), None),
        ("lists two transfers, the newest first", page(&[settled("5"), settled("3")], null()), None),
        (
            "lists another account",
            page(&[with(settled("5"), "creditor_account", "FR-EVE".into())], null()),
            None,
        ),
        ("names no account", page(&[with(settled("5"), "creditor_account", null())], null()), None),
        ("has a page after the newest transfer", page(&[settled("5")], "5".into()), None),
        ("has a page after no transfer", page(&[], "5".into()), None),
    ] {
        let server = Server::start(vec![step]).await;
        let client = client_with(&server.url, &json!({}));
        let marker = SwitchClient::marker(&client, ACCOUNT).await;
        assert_eq!(marker.as_deref().ok(), expected, "the switch {name}: {marker:?}");
    }
}

/// The answer to a lookup after marker `0`, and the number of requests.
async fn look_up(steps: Vec<Step>) -> (&'static str, usize) {
    let server = Server::start(steps).await;
    let client = client_with(&server.url, &json!({}));
    let reply = client.query(TransferRef::LookupKey(&lookup_key(Some("0"), None))).await;
    (query_word(&reply.answer), server.requests().len())
}

#[tokio::test]
async fn s1_8_a_lookup_concludes_only_from_a_complete_listing() {
    let (rejected, null) = (|id| entry(id, "REJECTED"), || Value::Null);
    let other = |id| with(entry(id, "SETTLED"), "amount_minor", 501.into());
    let cut = |step: Step| match step {
        Step::Send(bytes) => Step::Send(bytes[..bytes.len() - 1].to_vec()),
        step => step,
    };
    let busy = || Step::Send(response(503, b""));
    let first = || page(&[rejected("7")], "7".into());
    let last = || page(&[rejected("7")], null());
    for (name, steps, expected) in [
        ("lists our transfer", vec![last()], ("void", 1)),
        ("lists nothing", vec![page(&[], null())], ("not found", 1)),
        ("lists another amount", vec![page(&[other("7")], null())], ("not found", 1)),
        ("lists it on the second page", vec![page(&[other("1")], "1".into()), last()], ("void", 2)),
        ("lists it out of order", vec![page(&[other("9"), rejected("7"), other("8")], null())], ("void", 1)),
        // Only a person knows which of several is ours.
        ("lists the same line twice", vec![page(&[rejected("7"), rejected("7")], null())], ("ambiguous", 1)),
        ("lists it on both pages", vec![first(), last()], ("no answer", 2)),
        // A listing that was not read to its end finds nothing.
        ("cuts off the second page", vec![first(), cut(page(&[], null()))], ("no answer", 2)),
        ("answers the second page with 503", vec![first(), busy()], ("no answer", 2)),
        ("answers the second page with 503", vec![page(&[], "1".into()), busy()], ("no answer", 2)),
        ("repeats the page without end", vec![page(&[other("1")], "1".into())], ("no answer", 2)),
        ("repeats an empty page without end", vec![page(&[], "1".into())], ("no answer", 10)),
        ("lists empty positions without end", vec![page(&[other("1")], "".into())], ("no answer", 10)),
        // A listing that does not begin after the marker has earlier transfers, which are not ours.
        ("starts with the marker", vec![page(&[rejected("0")], null())], ("no answer", 1)),
        ("ignores the marker", vec![page(&[other("0"), rejected("7")], null())], ("no answer", 1)),
    ] {
        assert_eq!(look_up(steps).await, expected, "the switch {name}");
    }
}

/// A listed transfer that cannot be compared could be ours, so its listing finds nothing.
#[tokio::test]
async fn s1_8_a_listed_transfer_that_cannot_be_compared_is_no_answer() {
    for (field, value) in [
        ("creditor_account", json!("FR-EVE")),
        ("creditor_account", json!("fr-bob")),
        ("creditor_account", json!(null)),
        ("transfer_id", json!("")),
        ("transfer_id", json!(null)),
        ("amount_minor", json!(null)),
        ("currency", json!(null)),
    ] {
        for status in ["PENDING", "SETTLED", "REJECTED", "CANCELLED"] {
            let listed = with(entry("7", status), field, value.clone());
            let found = look_up(vec![page(&[listed], Value::Null)]).await;
            assert_eq!(found, ("no answer", 1), "{status}, {field} {value}");
        }
    }
}
