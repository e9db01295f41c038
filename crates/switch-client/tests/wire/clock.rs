//! The header `Date`: the switch's clock, on which deadlines count. A header that is not exactly one IMF-fixdate is missing.

use serde_json::json;
use switch_client::SwitchClient;

use crate::calls::{ALL, Call, client_with};
use crate::server::{DATE, Server, Step, raw, response};

const TIME: &str = "1994-11-06T08:49:37Z";

/// The header lines, and the time that they mean.
fn dates() -> Vec<(Vec<&'static str>, Option<&'static str>)> {
    vec![
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 GMT"], Some(TIME)),
        (vec!["DATE:   Sun, 06 Nov 1994 08:49:37 GMT  "], Some(TIME)),
        // The switch's clock counts, however far it is from ours. Beyond the years that can be counted it is missing.
        (vec!["Date: Fri, 01 Jan 9999 00:00:00 GMT"], Some("9999-01-01T00:00:00Z")),
        (vec!["Date: Thu, 01 Jan 1970 00:00:00 GMT"], Some("1970-01-01T00:00:00Z")),
        (vec!["Date: Fri, 31 Dec 9999 23:59:59 GMT"], None),
        (vec![], None),
        (vec!["Date:"], None),
        (vec!["Date: yesterday"], None),
        (vec!["Date: 784111777"], None),
        (vec!["Date: 1994-11-06T08:49:37Z"], None),
        // Obsolete forms. A year of two digits needs a guess, and asctime names no zone.
        (vec!["Date: Sunday, 06-Nov-94 08:49:37 GMT"], None),
        (vec!["Date: Sun Nov  6 08:49:37 1994"], None),
        (vec!["Date: Sun, 06 Nov 94 08:49:37 GMT"], None),
        // Forms of mail, which HTTP does not have.
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 +0000"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 +0200"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 EST"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 Z"], None),
        (vec!["Date: 06 Nov 1994 08:49:37 GMT"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49 GMT"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 GMT (comment)"], None),
        (vec!["Date: Sun, 6 Nov 1994 08:49:37 GMT"], None),
        (vec!["Date: sun, 06 nov 1994 08:49:37 gmt"], None),
        // Impossible times.
        (vec!["Date: Mon, 06 Nov 1994 08:49:37 GMT"], None),
        (vec!["Date: Wed, 30 Feb 1994 08:49:37 GMT"], None),
        (vec!["Date: Sun, 06 Nov 1994 24:00:00 GMT"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:60:37 GMT"], None),
        // Two headers: a proxy added its own clock.
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 GMT", "Date: Fri, 01 Jan 9999 00:00:00 GMT"], None),
        (vec!["Date: Fri, 01 Jan 9999 00:00:00 GMT", "Date: Sun, 06 Nov 1994 08:49:37 GMT"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 GMT", "Date: Sun, 06 Nov 1994 08:49:37 GMT"], None),
        (vec!["Date: Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT"], None),
    ]
}

/// The calls whose answer carries the switch's time.
fn dated() -> impl Iterator<Item = Call> {
    ALL.into_iter().filter(|call| !matches!(call, Call::Marker | Call::StatementPage))
}

#[tokio::test]
async fn each_date_header_of_the_switch_is_its_time_or_missing() {
    let call = Call::Query;
    for (lines, expected) in dates() {
        let body = call.definite().1.to_string();
        let headers = [&lines[..], &["Connection: close"]].concat();
        let server = Server::start(vec![Step::Send(raw(200, &headers, body.as_bytes()))]).await;
        let client = call.client(&server, 30_000);
        let outcome = call.make(&client).await;
        assert_eq!(outcome.word, "void", "{lines:?}");
        assert_eq!(outcome.switch_now.map(|now| now.to_string()).as_deref(), expected, "{lines:?}");
        // The clock that the next submit uses is the same.
        let now = client.switch_now().await;
        assert_eq!(now.is_ok(), expected.is_some(), "{lines:?}: {now:?}");
        let requests = if expected.is_some() { 1 } else { 2 };
        assert_eq!(
            server.requests().len(),
            requests,
            "{lines:?}: expected a call to /health only without a time"
        );
    }
}

#[tokio::test]
async fn every_answer_of_the_switch_with_a_date_sets_its_clock() {
    for call in dated() {
        for status in [200, 202, 204, 302, 400, 401, 404, 409, 422, 429, 500, 503] {
            let server = Server::start(vec![Step::Send(response(status, b"{}"))]).await;
            let client = call.client(&server, 30_000);
            call.make(&client).await;
            let now = client.switch_now().await.unwrap();
            assert!(now >= TIME.parse().unwrap(), "{call:?} {status}: {now}");
            assert_eq!(server.requests().len(), 1, "{call:?} {status}: expected the clock to be known");
        }
    }
}

/// The answer that the caller judges carries the time of the same response and of no earlier one.
#[tokio::test]
async fn an_answer_without_a_date_carries_no_time_of_an_earlier_one() {
    for call in dated() {
        let (status, body) = call.definite();
        let body = body.to_string();
        let undated = raw(status, &["Connection: close"], body.as_bytes());
        let server =
            Server::start(vec![Step::Send(response(status, body.as_bytes())), Step::Send(undated)]).await;
        let client = call.client(&server, 30_000);
        let first = call.make(&client).await;
        assert_eq!(first.switch_now.map(|now| now.to_string()).as_deref(), Some(TIME), "{call:?}");
        let second = call.make(&client).await;
        assert_eq!((second.word.as_str(), second.switch_now), (call.definite_outcome(), None), "{call:?}");
    }
}

#[tokio::test]
async fn the_switch_time_is_read_from_any_answer_to_a_health_call() {
    for (name, bytes, is_known) in [
        ("is healthy", response(200, b"ok"), true),
        ("is not healthy", response(503, b""), true),
        ("has no such path", response(404, b""), true),
        ("redirects", raw(302, &["Location: /x", &format!("Date: {DATE}"), "Content-Length: 0"], b""), true),
        ("sends no date", raw(200, &["Content-Length: 0"], b""), false),
        ("closes", vec![], false),
        ("cuts off the body", raw(200, &[&format!("Date: {DATE}"), "Content-Length: 9"], b"x"), false),
    ] {
        let server = Server::start(vec![Step::Send(bytes)]).await;
        let now = SwitchClient::switch_now(&client_with(&server.url, &json!({}))).await;
        assert_eq!(now.is_ok(), is_known, "the switch {name}: {now:?}");
        assert_eq!(server.request_lines(), ["GET /health"], "the switch {name}");
    }
}
