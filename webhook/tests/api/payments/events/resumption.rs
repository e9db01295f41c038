//! A stream continues after the last received event.

use axum::http::StatusCode;
use sqlx::PgPool;

use super::client::{Event, StreamResponse, names, open, refused};
use super::{insert_entry, settle};
use crate::support::{ACME, Api, PAYMENTS};

/// A settled payment with more than one page of entries, some of them internal.
async fn long_payment(api: &Api) -> (String, Vec<Event>) {
    let (id, _) = api.accepted_payment("long").await;
    for n in 0..115 {
        insert_entry(&api.pool, &id, "cancelling", &format!("attempt {n}"), n % 7 == 3).await;
    }
    settle(api, &id).await;
    let all = open(api, &id, None).await.rest().await;
    assert!(all.len() > 100, "{}", all.len());
    (id, all)
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_event_stream_cut_after_any_event_continues_with_the_next(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, all) = long_payment(&api).await;
    let positions: Vec<String> = (1..all.len()).map(|position| position.to_string()).collect();
    assert!(all.iter().map(|event| &event.id).eq(positions.iter().chain([&"end".to_owned()])));
    for cut in 0..all.len() {
        let mut first = open(&api, &id, None).await;
        let mut events = first.take(cut).await;
        drop(first);
        let last = events.last().map_or("0".to_owned(), |event| event.id.clone());
        let second = if cut % 2 == 0 {
            open(&api, &id, Some(&last)).await
        } else {
            // The header takes precedence over the query.
            let header = (cut % 3 == 0).then_some(last.as_str());
            let query = if header.is_some() { "1" } else { &last };
            StreamResponse::open(&api, ACME, &id, &format!("?last_event_id={query}"), header).await
        };
        events.extend(second.rest().await);
        assert_eq!(events, all, "cut after {cut}");
    }
    // After the final event: 204, so that a browser does not reconnect.
    let ended = StreamResponse::open(&api, ACME, &id, "", Some("end")).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
    assert_eq!(ended.rest().await, []);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_event_stream_client_that_reconnects_gets_each_entry_once(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let writing = async {
        for n in 0..60 {
            insert_entry(&api.pool, &id, "cancelling", &format!("attempt {n}"), n % 5 == 0).await;
            if n % 6 == 0 {
                // Pauses, so that some entries are read one by one and some together.
                api.get(ACME, &format!("{PAYMENTS}/{id}")).await;
            }
        }
        settle(&api, &id).await;
    };
    let reading = async {
        let mut events: Vec<Event> = Vec::new();
        while events.last().is_none_or(|event| event.id != "end") {
            let last = events.last().map(|event| event.id.clone());
            let mut stream = open(&api, &id, last.as_deref()).await;
            for _ in 0..=events.len() % 4 {
                events.extend(stream.next().await);
            }
            assert!(events.len() < 100, "expected no repeated events: {events:?}");
        }
        events
    };
    let (events, ()) = tokio::join!(reading, writing);
    assert_eq!(events, open(&api, &id, None).await.rest().await);
    assert_eq!(events.len(), 1 + 48 + 1 + 1);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_event_stream_with_an_unknown_last_event_id_is_refused(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let code = async |query: &str, header: Option<&str>| refused(&api, ACME, &id, query, header).await.1;
    for unknown in ["2", "999999999", "end"] {
        assert_eq!(code("", Some(unknown)).await, "unknown_event", "{unknown}");
    }
    assert_eq!(code("?last_event_id=-1", None).await, "malformed_last_event_id");
    assert_eq!(code("", Some("one")).await, "malformed_last_event_id");
    assert_eq!(code("?since=1", None).await, "malformed_query");
    settle(&api, &id).await;
    let rest = open(&api, &id, Some("2")).await.rest().await;
    assert_eq!(names(&rest), ["end"], "expected the final event after the last entry");
}
