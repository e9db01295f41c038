//! The statement: the lookup of one transfer, the position before a submit, and the pages for reconciliation.

use payment_protocol::submit::QueryAnswer;
use serde_json::{Value, json};
use switch_client::SwitchClient;
use switch_client::client::STATEMENT_NOT_READ_TO_END;

use crate::calls::{client_with, lookup_key, query_word, reference};
use crate::server::{Server, Step, response};

fn entry(cursor: &str, reference: &str, status: &str) -> Value {
    json!({"cursor": cursor, "transfer_id": format!("t{cursor}"), "reference": reference, "status": status,
        "amount_minor": 500, "currency": "EUR", "finished_at": "2026-01-01T00:00:00Z"})
}

fn other(cursor: &str) -> Value {
    entry(cursor, "tx_other:submit", "SETTLED")
}

fn with(mut entry: Value, field: &str, value: Value) -> Value {
    entry[field] = value;
    entry
}

fn bytes(entries: &[Value], next: Value) -> Vec<u8> {
    response(200, json!({"entries": entries, "next": next}).to_string().as_bytes())
}

fn page(entries: &[Value], next: Value) -> Step {
    Step::Send(bytes(entries, next))
}

fn cut(entries: &[Value]) -> Step {
    let bytes = bytes(entries, Value::Null);
    Step::Send(bytes[..bytes.len() - 1].to_vec())
}

#[tokio::test]
async fn each_line_of_the_statement_about_our_transfer_decides_the_lookup() {
    let ours = |cursor: &str, status: &str| entry(cursor, &reference(), status);
    for (name, entries, expected) in [
        ("settled", vec![ours("1", "SETTLED")], "settled"),
        ("rejected", vec![ours("1", "REJECTED")], "void"),
        ("cancelled", vec![ours("1", "CANCELLED")], "void"),
        ("returned", vec![ours("1", "RETURNED")], "returned"),
        ("settled, then returned", vec![ours("1", "SETTLED"), ours("2", "RETURNED")], "returned"),
        (
            "returned, then settled: out of order",
            vec![ours("1", "RETURNED"), ours("2", "SETTLED")],
            "returned",
        ),
        ("rejected twice", vec![ours("1", "REJECTED"), ours("2", "REJECTED")], "void"),
        ("the same line twice", vec![ours("1", "SETTLED"), ours("1", "SETTLED")], "settled"),
        // A finished transfer has one end, so one of the lines is wrong.
        ("rejected and settled", vec![ours("1", "REJECTED"), ours("2", "SETTLED")], "no answer"),
        (
            "settled and cancelled",
            vec![ours("1", "SETTLED"), other("2"), ours("3", "CANCELLED")],
            "no answer",
        ),
        ("pending, which is no end", vec![ours("1", "PENDING")], "pending"),
        (
            "settled without an amount",
            vec![with(ours("1", "SETTLED"), "amount_minor", Value::Null)],
            "no answer",
        ),
        ("another reference", vec![other("1")], "not listed"),
        ("no reference", vec![with(ours("1", "REJECTED"), "reference", Value::Null)], "not listed"),
    ] {
        let server = Server::start(vec![page(&entries, Value::Null)]).await;
        let reply = client_with(&server.url, &json!({})).statement(&lookup_key(None, None)).await;
        assert_eq!(query_word(&reply.answer), expected, "{name}: {reply:?}");
    }
}

/// An entry without a reference could be about our transfer, unless its id or money is another: a complete statement proves nothing then.
#[tokio::test]
async fn an_entry_without_a_reference_keeps_a_complete_statement_from_proving_an_absence() {
    let unnamed = || with(entry("2", "", "SETTLED"), "reference", Value::Null);
    for (name, entries, transfer_id, is_proof) in [
        ("nothing else", vec![other("1")], None, true),
        ("an entry without a reference", vec![other("1"), unnamed()], None, false),
        ("one of another transfer", vec![unnamed()], Some("t9"), true),
        ("one of another amount", vec![with(unnamed(), "amount_minor", 501.into())], None, true),
        ("one of another currency", vec![with(unnamed(), "currency", "SEK".into())], None, true),
        ("one without an amount", vec![with(unnamed(), "amount_minor", Value::Null)], None, false),
    ] {
        let body = json!({"entries": entries, "next": null, "complete_until": "2026-01-01T00:00:01Z"});
        let server = Server::start(vec![Step::Send(response(200, body.to_string().as_bytes()))]).await;
        let client = client_with(&server.url, &json!({}));
        for _ in 0..2 {
            let answer = client.statement(&lookup_key(None, transfer_id)).await.answer;
            let QueryAnswer::NotListed { complete_until_ms } = answer else { panic!("{name}: {answer:?}") };
            assert_eq!(complete_until_ms.is_some(), is_proof, "{name}");
        }
        let reads_on = server.request_lines()[1].contains("&after=");
        assert_eq!(reads_on, is_proof, "{name}: the second lookup begins where the entry was read");
    }
}

#[tokio::test]
async fn a_statement_lookup_is_bounded_and_continues_at_its_position() {
    let ours = || entry("9", &reference(), "REJECTED");
    let position = |request: &String| request.split_once("&after=").map(|(_, after)| after.to_owned());
    for (name, steps, expected, read, continued) in [
        (
            "repeats the page without end",
            vec![page(&[other("1")], "1".into())],
            STATEMENT_NOT_READ_TO_END,
            20,
            Some("1"),
        ),
        (
            "repeats an empty page without end",
            vec![page(&[], "1".into())],
            STATEMENT_NOT_READ_TO_END,
            20,
            None,
        ),
        (
            "cuts off the last page",
            vec![page(&[other("1")], "1".into()), cut(&[ours()])],
            "connection",
            2,
            Some("1"),
        ),
        (
            "answers the last page with 503",
            vec![page(&[other("1")], "1".into()), Step::Send(response(503, b""))],
            "503",
            2,
            Some("1"),
        ),
        (
            "answers the last page with 403",
            vec![page(&[other("1")], "1".into()), Step::Send(response(403, b""))],
            "403",
            2,
            Some("1"),
        ),
        ("lists nothing", vec![page(&[], Value::Null)], "NotListed", 1, None),
        ("lists others", vec![page(&[other("1"), other("2")], Value::Null)], "NotListed", 1, Some("2")),
    ] {
        let server = Server::start(steps).await;
        let client = client_with(&server.url, &json!({}));
        let reply = client.statement(&lookup_key(None, None)).await;
        assert!(format!("{:?}", reply.answer).contains(expected), "the switch {name}: {reply:?}");
        assert_eq!(server.requests().len(), read, "the switch {name}");
        client.statement(&lookup_key(None, None)).await;
        let next = position(&server.request_lines()[read]);
        assert_eq!(next.as_deref(), continued, "the switch {name}: expected the position of the next lookup");
    }
}

#[tokio::test]
async fn s0_15_a_statement_page_is_complete_or_an_error() {
    let null = || Value::Null;
    let one = || vec![other("2")];
    for (name, after, step, expected) in [
        ("lists one line", None, page(&one(), null()), Some((1, true))),
        ("lists nothing", None, page(&[], null()), Some((0, true))),
        ("has a further page", None, page(&one(), "2".into()), Some((1, false))),
        ("continues after the position", Some("1"), page(&one(), "2".into()), Some((1, false))),
        ("lists lines out of order", None, page(&[other("2"), other("1")], null()), Some((2, true))),
        // The reader would ask for the same page without end.
        ("has a page after an empty one", None, page(&[], "2".into()), None),
        ("has a page after an empty one, at a position", Some("1"), page(&[], "2".into()), None),
        ("repeats the position", Some("2"), page(&[other("1"), other("2")], "2".into()), None),
        ("repeats the position on the last page", Some("2"), page(&one(), null()), None),
        ("lists the same line twice", None, page(&[other("2"), other("2")], null()), None),
        ("lists more lines than asked for", None, page(&lines(1_001), null()), None),
        ("lists as many lines as asked for", None, page(&lines(1_000), "1000".into()), Some((1_000, false))),
        (
            "lists a pending transfer",
            None,
            page(&[with(other("2"), "status", "PENDING".into())], null()),
            None,
        ),
        ("lists a line without an id", None, page(&[with(other("2"), "transfer_id", null())], null()), None),
        (
            "lists a line without an amount",
            None,
            page(&[with(other("2"), "amount_minor", null())], null()),
            None,
        ),
        (
            "lists a line without a currency",
            None,
            page(&[with(other("2"), "currency", null())], null()),
            None,
        ),
        ("lists a line without an end", None, page(&[with(other("2"), "finished_at", null())], null()), None),
        (
            "lists a line with an unreadable end",
            None,
            page(&[with(other("2"), "finished_at", "soon".into())], null()),
            None,
        ),
        ("lists a line without a cursor", None, page(&[with(other("2"), "cursor", null())], null()), None),
        ("cuts off the page", None, cut(&one()), None),
    ] {
        let server = Server::start(vec![step]).await;
        let page = client_with(&server.url, &json!({})).statement_page(after).await;
        let found = page.as_ref().ok().map(|page| (page.lines.len(), page.is_last));
        assert_eq!(found, expected, "the switch {name}: {:?}", page.err());
    }
}

fn lines(count: usize) -> Vec<Value> {
    (1..=count)
        .map(|n| {
            json!({"cursor": n.to_string(), "transfer_id": n.to_string(), "status": "SETTLED",
        "amount_minor": 1, "currency": "EUR", "finished_at": "2026-01-01T00:00:00Z"})
        })
        .collect()
}

/// Any position read before a submit is valid: the statement is read on from a position that a lookup reached, as far as it can
/// be read, and not at all without one.
#[tokio::test]
async fn a_statement_position_is_one_that_was_read_before() {
    let first = || page(&[other("1")], "1".into());
    for (name, then, expected, requests) in [
        ("lists a second page", vec![page(&[other("2")], Value::Null)], Some("2"), 1),
        ("lists nothing more", vec![page(&[], Value::Null)], Some("1"), 1),
        ("is busy", vec![Step::Send(response(503, b""))], Some("1"), 1),
        ("closes", vec![Step::Send(vec![])], Some("1"), 1),
        ("does not know our token", vec![Step::Send(response(401, b""))], Some("1"), 1),
        ("answers no JSON", vec![Step::Send(response(200, b"x"))], Some("1"), 1),
        ("cuts off the second page", vec![cut(&[other("2")])], Some("1"), 1),
    ] {
        // The lookup reads the first page, and is refused the second one.
        let steps = [vec![first(), Step::Send(response(503, b""))], then].concat();
        let server = Server::start(steps).await;
        let client = client_with(&server.url, &json!({}));
        client.statement(&lookup_key(None, None)).await;
        let before = server.requests().len();
        let position = SwitchClient::statement_position(&client).await;
        assert_eq!(position.as_deref(), expected, "the switch {name}");
        assert_eq!(server.requests().len() - before, requests, "the switch {name}");
    }
    let server = Server::start(vec![first()]).await;
    assert_eq!(client_with(&server.url, &json!({})).statement_position().await, None);
    assert!(server.requests().is_empty(), "a new client reads nothing from the beginning");
}

#[tokio::test]
async fn s0_15_a_full_switch_statement_page_is_read_an_oversized_one_is_not() {
    let full = |details: usize| -> Vec<Value> {
        let line = |n: usize| {
            json!({"cursor": n.to_string(), "reference": format!("tx_{n:032x}:submit"), "status": "SETTLED",
                "transfer_id": format!("transfer-{n:032x}"), "amount_minor": 500, "currency": "EUR",
                "finished_at": "2026-01-01T00:00:00.123456Z", "details": "x".repeat(details)})
        };
        (0..1_000).map(line).collect()
    };
    for (details, expected) in [(300, Ok((1_000, true))), (2_000, Err("longer than"))] {
        let server = Server::start(vec![page(&full(details), Value::Null)]).await;
        let read = client_with(&server.url, &json!({})).statement_page(None).await;
        match (read.map(|page| (page.lines.len(), page.is_last)), expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected),
            (Err(detail), Err(expected)) => assert!(detail.contains(expected), "{detail}"),
            (read, expected) => panic!("{read:?}, expected {expected:?}"),
        }
    }
}
