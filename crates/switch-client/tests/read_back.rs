//! Lookup of a transfer in the listing of a switch without references, and in a statement: one table each. An ambiguous
//! lookup is no answer.

#![allow(clippy::unwrap_used, reason = "an unexpected value fails the test")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, Request};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::{get, post};
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::{Money, parse_currency};
use payment_protocol::submit::QueryAnswer;
use payment_protocol::{SwitchProfile, keys};
use serde_json::{Value, json};
use switch_client::{HttpJsonClient, LookupKey, SecretsOf, Switches, TransferRef};

const DATE: (header::HeaderName, &str) = (header::DATE, "Sun, 06 Nov 1994 08:49:37 GMT");

/// Requests that the stub received: path and query.
type Requests = Arc<Mutex<Vec<String>>>;

/// A client of a switch that lists these transfers after marker `0`, two per page, and answers for each by its id.
async fn client_with_listing(transfers: Vec<Value>) -> (HttpJsonClient, Requests) {
    let requests = Requests::default();
    let recorded = requests.clone();
    let all = transfers.clone();
    let list = move |Query(parameters): Query<HashMap<String, String>>| async move {
        let after: i64 = parameters.get("after").map_or(0, |after| after.parse().unwrap());
        let id = |transfer: &Value| transfer["transfer_id"].as_str().unwrap().parse::<i64>().unwrap();
        let mut page: Vec<_> = all.iter().filter(|transfer| id(transfer) > after).cloned().collect();
        if parameters.contains_key("last") {
            page = page.split_off(page.len().saturating_sub(1));
        }
        let more = page.len() > 2;
        page.truncate(2);
        let next = page.last().filter(|_| more).map(|last| last["transfer_id"].clone());
        ([DATE], json!({"transfers": page, "next": next}).to_string())
    };
    let by_id = move |axum::extract::Path(id): axum::extract::Path<String>| async move {
        match transfers.iter().find(|transfer| transfer["transfer_id"] == id.as_str()) {
            Some(transfer) => ([DATE], transfer.to_string()).into_response(),
            None => (StatusCode::NOT_FOUND, [DATE], json!({"code": "unknown_transfer"}).to_string())
                .into_response(),
        }
    };
    let cancel = |axum::extract::Path(id): axum::extract::Path<String>| async move {
        ([DATE], json!({"transfer_id": id, "answer": "CANCELLED", "known": true}).to_string())
    };
    let routes = Router::new()
        .route("/v1/transfers", get(list))
        .route("/v1/transfers/by-id/{id}", get(by_id))
        .route("/v1/transfers/by-id/{id}/cancel", post(cancel))
        .layer(axum::middleware::map_request(move |request: Request| {
            recorded.lock().unwrap().push(request.uri().to_string());
            async move { request }
        }));
    (serve(routes).await, requests)
}

/// A client of a switch whose statement has these entries, with so many per page.
async fn client_with_statement(entries: Vec<Value>, per_page: usize) -> (HttpJsonClient, Requests) {
    let requests = Requests::default();
    let recorded = requests.clone();
    let read = move |Query(parameters): Query<HashMap<String, String>>| async move {
        let after: usize = parameters.get("after").map_or(0, |after| after.parse().unwrap());
        let page: Vec<Value> = entries
            .iter()
            .enumerate()
            .skip(after)
            .take(per_page)
            .map(|(n, entry)| {
                let mut entry = entry.clone();
                entry["cursor"] = (n + 1).to_string().into();
                entry
            })
            .collect();
        let next = (after + page.len() < entries.len()).then(|| (after + page.len()).to_string());
        ([DATE], json!({"entries": page, "next": next, "complete_until": "2026-01-01T00:00:01Z"}).to_string())
    };
    let routes = Router::new().route("/v1/statement", get(read)).layer(axum::middleware::map_request(
        move |request: Request| {
            recorded.lock().unwrap().push(request.uri().to_string());
            async move { request }
        },
    ));
    (serve(routes).await, requests)
}

async fn serve(routes: Router) -> HttpJsonClient {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let switches: Switches = serde_json::from_value(json!({"mock": {
        "base_url": url, "api_token": "t", "profile": {
            "strategy": "validate", "has_query": true, "deduplicates": false, "retention_s": 86_400,
            "tombstones": false, "honours_deadline": true, "max_skew_ms": 0, "can_cancel": true,
            "can_recall": true, "has_callback": false, "attempt_timeout_ms": 2_000,
    }}}))
    .unwrap();
    let checked = switches.check(SecretsOf::Requests).unwrap();
    let (_, options, profile): (_, _, &SwitchProfile) = checked.iter().next().unwrap();
    HttpJsonClient::new(options, profile).unwrap()
}

fn tx() -> TxId {
    TxId::derive(&PaymentId::new("pay_1").unwrap())
}

fn lookup_key(marker: Option<&str>, transfer_id: Option<&str>) -> LookupKey {
    LookupKey {
        name: keys::submit(&tx()).into(),
        marker: marker.map(str::to_owned),
        transfer_id: transfer_id.map(str::to_owned),
        creditor_account: "FR-BOB".into(),
        money: Money::from_minor(500, parse_currency("EUR").unwrap()).unwrap(),
    }
}

fn transfer(id: &str, status: &str, amount_minor: i64, currency: &str) -> Value {
    json!({"transfer_id": id, "status": status, "amount_minor": amount_minor, "currency": currency,
           "creditor_account": "FR-BOB", "received_at": "2026-01-01T00:00:00Z"})
}

fn code(answer: &QueryAnswer) -> &'static str {
    match answer {
        QueryAnswer::Pending => "pending",
        QueryAnswer::Settled(_) => "settled",
        QueryAnswer::Returned(_) => "returned",
        QueryAnswer::Void { .. } => "void",
        QueryAnswer::NotFound => "not found",
        QueryAnswer::NotListed { .. } => "not listed",
        QueryAnswer::Ambiguous { .. } => "ambiguous",
        QueryAnswer::OurFault { .. } => "our fault",
        QueryAnswer::NoAnswer { .. } => "no answer",
    }
}

#[tokio::test]
async fn s1_8_the_only_listed_candidate_after_the_marker_is_our_transfer() {
    let other = |id| transfer(id, "SETTLED", 501, "EUR");
    for (marker, listed, expected, id) in [
        (Some("0"), vec![], "not found", None),
        (Some(""), vec![transfer("1", "PENDING", 500, "EUR")], "pending", Some("1")),
        (Some("0"), vec![transfer("1", "SETTLED", 500, "EUR")], "settled", Some("1")),
        (Some("0"), vec![transfer("1", "RETURNED", 500, "EUR")], "returned", Some("1")),
        (Some("0"), vec![transfer("1", "REJECTED", 500, "EUR")], "void", Some("1")),
        (Some("0"), vec![other("1"), transfer("2", "SETTLED", 500, "USD")], "not found", None),
        // At the marker, so sent before.
        (Some("1"), vec![transfer("1", "SETTLED", 500, "EUR")], "not found", None),
        (
            Some("0"),
            vec![other("1"), other("2"), other("3"), transfer("4", "SETTLED", 500, "EUR")],
            "settled",
            Some("4"),
        ),
        // Two candidates, even on two pages and with one of them void.
        (
            Some("0"),
            vec![transfer("1", "REJECTED", 500, "EUR"), other("2"), transfer("3", "SETTLED", 500, "EUR")],
            "ambiguous",
            None,
        ),
        // Without a marker nothing was sent, or the marker's commit was lost.
        (None, vec![transfer("1", "SETTLED", 500, "EUR")], "ambiguous", None),
        (None, vec![other("1")], "not found", None),
        (None, vec![], "not found", None),
    ] {
        let (client, _) = client_with_listing(listed.clone()).await;
        let reply = client.query(TransferRef::LookupKey(&lookup_key(marker, None))).await;
        assert_eq!(
            (code(&reply.answer), reply.transfer_id.as_deref()),
            (expected, id),
            "{marker:?} {listed:?}"
        );
        assert!(
            expected == "no answer" || reply.switch_now.is_some(),
            "expected the switch's time: {listed:?}"
        );
        if let QueryAnswer::Settled(report) = reply.answer {
            assert_eq!(report.reference, keys::submit(&tx()).as_str());
            assert_eq!((report.amount_minor, report.currency.as_str()), (500, "EUR"));
        }
    }
}

#[tokio::test]
async fn s1_8_a_known_transfer_id_is_queried_without_the_listing() {
    let listed = vec![transfer("1", "SETTLED", 500, "EUR"), transfer("2", "SETTLED", 500, "EUR")];
    let (client, requests) = client_with_listing(listed).await;
    let reply = client.query(TransferRef::LookupKey(&lookup_key(Some("0"), Some("2")))).await;
    assert_eq!(code(&reply.answer), "settled");
    let unknown = client.query(TransferRef::LookupKey(&lookup_key(Some("0"), Some("9")))).await;
    assert_eq!(code(&unknown.answer), "not found");
    let paths = requests.lock().unwrap().clone();
    assert_eq!(paths, ["/v1/transfers/by-id/2", "/v1/transfers/by-id/9"]);
}

#[tokio::test]
async fn s1_8_a_cancel_without_exactly_one_listed_candidate_cancels_nothing() {
    let key = keys::compensate_submit(&tx());
    let ours = transfer("7", "PENDING", 500, "EUR");
    let (client, requests) = client_with_listing(vec![ours.clone()]).await;
    let reply = client.cancel(TransferRef::LookupKey(&lookup_key(Some("0"), None)), &key).await;
    assert_eq!(reply.answer, CancelAnswer::Cancelled { tombstoned: Some(false) });
    assert_eq!(reply.transfer_id.as_deref(), Some("7"));
    assert_eq!(requests.lock().unwrap().last().unwrap(), "/v1/transfers/by-id/7/cancel");

    let (client, _) = client_with_listing(vec![]).await;
    let reply = client.cancel(TransferRef::LookupKey(&lookup_key(Some("0"), None)), &key).await;
    assert_eq!(reply.answer, CancelAnswer::NotFound);
    assert!(reply.switch_now.is_some());

    let (client, requests) =
        client_with_listing(vec![ours.clone(), transfer("8", "PENDING", 500, "EUR")]).await;
    let reply = client.cancel(TransferRef::LookupKey(&lookup_key(Some("0"), None)), &key).await;
    assert_eq!(reply.answer, CancelAnswer::CannotCancel, "the query that follows returns the ambiguity");
    assert!(
        requests.lock().unwrap().iter().all(|path| !path.ends_with("/cancel")),
        "expected no cancel request"
    );
}

#[tokio::test]
async fn s1_8_the_marker_is_the_newest_transfer_to_the_account() {
    let (client, _) =
        client_with_listing(vec![transfer("3", "SETTLED", 1, "EUR"), transfer("5", "PENDING", 2, "EUR")])
            .await;
    assert_eq!(client.marker("FR-BOB").await, Ok("5".into()));
    let (client, _) = client_with_listing(vec![]).await;
    assert_eq!(
        client.marker("FR-BOB").await,
        Ok(String::new()),
        "expected the start of the listing as marker"
    );
    let without_listing = serve(Router::new()).await;
    assert!(without_listing.marker("FR-BOB").await.is_err());
}

#[tokio::test]
async fn s0_16_a_switch_statement_lookup_continues_at_the_last_position() {
    let ours = keys::submit(&tx()).to_string();
    let entry = |reference: Option<&str>, id: &str, status: &str| json!({"reference": reference, "transfer_id": id, "status": status, "amount_minor": 500, "currency": "EUR"});
    let others = || (0..5).map(|n| entry(Some("tx_other:submit"), &n.to_string(), "SETTLED"));
    for (last, expected) in [
        (vec![], "not listed"),
        (vec![entry(Some(&ours), "9", "SETTLED")], "settled"),
        (vec![entry(Some(&ours), "9", "REJECTED")], "void"),
        (vec![entry(Some(&ours), "9", "CANCELLED")], "void"),
        // The entry of the settlement comes before the entry of the recall.
        (vec![entry(Some(&ours), "9", "SETTLED"), entry(Some(&ours), "9", "RETURNED")], "returned"),
        // An entry without a reference is matched by the switch's own id.
        (vec![entry(None, "8", "REJECTED"), entry(None, "9", "SETTLED")], "settled"),
    ] {
        let (client, _) = client_with_statement(others().chain(last.clone()).collect(), 2).await;
        let reply = client.statement(&lookup_key(None, Some("9"))).await;
        assert_eq!(code(&reply.answer), expected, "{last:?}");
    }
    let (client, requests) = client_with_statement(others().collect(), 2).await;
    for _ in 0..2 {
        assert_eq!(code(&client.statement(&lookup_key(None, None)).await.answer), "not listed");
    }
    assert_eq!(client.statement_position().await.as_deref(), Some("5"));
    let paths = requests.lock().unwrap().clone();
    assert_eq!(paths.last().unwrap(), "/v1/statement?limit=1000&after=5", "{paths:?}");
    assert_eq!(paths.len(), 4, "expected three pages, then one request after the last position");
}

/// After a restart: nothing is in memory, and the statement is long.
#[tokio::test]
async fn s0_16_a_new_client_reads_a_long_statement_from_a_recorded_position() {
    let entry = |n: usize| json!({"reference": format!("tx_{n}:submit"), "transfer_id": n.to_string(), "status": "SETTLED", "amount_minor": 500, "currency": "EUR"});
    let mut entries: Vec<Value> = (0..10_000).map(entry).collect();
    entries.push(json!({"reference": keys::submit(&tx()).to_string(), "transfer_id": "ours", "status": "SETTLED", "amount_minor": 500, "currency": "EUR"}));
    let (client, requests) = client_with_statement(entries, 1_000).await;
    assert_eq!(client.statement_position().await, None);
    assert_eq!(requests.lock().unwrap().len(), 0, "expected no read from the beginning of the statement");

    // A payment from before the restart, and one whose marker the first one's lookup gave.
    let marker = lookup_key(Some("9500"), None);
    assert_eq!(code(&client.statement(&marker).await.answer), "settled");
    assert_eq!(*requests.lock().unwrap(), ["/v1/statement?limit=1000&after=9500"]);
    let other =
        LookupKey { name: keys::submit(&TxId::derive(&PaymentId::new("pay_2").unwrap())).into(), ..marker };
    assert_eq!(code(&client.statement(&other).await.answer), "not listed");
    assert_eq!(client.statement_position().await.as_deref(), Some("10001"));
    assert_eq!(requests.lock().unwrap().len(), 2);
}

/// The position goes on from where the lookups got to, if they did not reach the end.
#[tokio::test]
async fn s0_16_a_switch_statement_position_continues_to_the_end() {
    let entry = |n: usize| json!({"reference": format!("tx_{n}:submit"), "transfer_id": n.to_string(), "status": "SETTLED", "amount_minor": 500, "currency": "EUR"});
    let (client, requests) = client_with_statement((0..70).map(entry).collect(), 2).await;
    assert_eq!(code(&client.statement(&lookup_key(None, None)).await.answer), "no answer");
    assert_eq!(requests.lock().unwrap().len(), 20, "expected as many pages as one call may read");
    assert_eq!(client.statement_position().await.as_deref(), Some("70"));
    assert_eq!(client.statement_position().await.as_deref(), Some("70"));
    assert_eq!(requests.lock().unwrap().len(), 35, "expected each page to be read once");
}
