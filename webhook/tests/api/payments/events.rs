//! `GET /api/v1/payments/{payment_id}/events`: every line once and in order, from wherever a client goes on; how many may
//! watch, for how long, and what it costs.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, Request, StatusCode};
use futures::StreamExt as _;
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, PgTransaction};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tower::ServiceExt as _;

use crate::support::{ACME, ACME_TILL, Api, GLOBEX, PAYMENTS, config, order_with};

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);
/// Between two looks at something that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One event, as it came.
#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

/// A stream that is open; dropped, it is cut.
struct Events {
    status: StatusCode,
    headers: HeaderMap,
    body: BodyDataStream,
    text: String,
}

impl Events {
    async fn open(api: &Api, key: &str, id: &str, query: &str, last_seen: Option<&str>) -> Self {
        let path = format!("{PAYMENTS}/{id}/events{query}");
        let mut request = Request::get(path).header("authorization", format!("Bearer {key}"));
        if let Some(last_seen) = last_seen {
            request = request.header("last-event-id", last_seen);
        }
        let response = api.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.into_data_stream();
        Self { status: parts.status, headers: parts.headers, body, text: String::new() }
    }

    /// What stands between two empty lines; none at the end of the stream.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Some(block);
            }
            let more = timeout(LONG, self.body.next()).await.expect("nothing comes");
            let Some(more) = more else {
                assert_eq!(self.text, "", "half an event");
                return None;
            };
            self.text.push_str(std::str::from_utf8(&more.unwrap()).unwrap());
        }
    }

    /// The next event; none at the end of the stream. Heartbeats alone, for ever, are neither.
    async fn next(&mut self) -> Option<Event> {
        timeout(LONG, self.after_heartbeats()).await.expect("only heartbeats come")
    }

    async fn after_heartbeats(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| {
                let value = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                value.map(str::to_owned)
            };
            if let Some(data) = field("data") {
                let data = serde_json::from_str(&data).unwrap();
                return Some(Event { id: field("id").unwrap(), name: field("event").unwrap(), data });
            }
        }
    }

    async fn some(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.next().await.expect("the stream ended"));
        }
        events
    }

    async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// All from the start, or after the last that was seen.
async fn open(api: &Api, id: &str, last_seen: Option<&str>) -> Events {
    let events = Events::open(api, ACME, id, "", last_seen).await;
    assert_eq!(events.status, StatusCode::OK);
    events
}

/// The status and the code of a stream that is refused.
async fn refused(
    api: &Api,
    key: &str,
    id: &str,
    query: &str,
    last_seen: Option<&str>,
) -> (u16, Value, String) {
    let answer = Events::open(api, key, id, query, last_seen).await;
    let wait = answer.headers.get("retry-after").map_or("", |wait| wait.to_str().unwrap()).to_owned();
    let mut body = answer.body;
    let bytes = body.next().await.unwrap().unwrap();
    let problem: Value = serde_json::from_slice(&bytes).unwrap();
    (answer.status.as_u16(), problem["code"].clone(), wait)
}

const INTERNAL: bool = true;

async fn write(db: impl sqlx::PgExecutor<'_>, id: &str, state: &str, detail: &str, internal: bool) {
    sqlx::query("INSERT INTO timeline (payment_id, state, detail, is_internal) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(state)
        .bind(detail)
        .bind(internal)
        .execute(db)
        .await
        .unwrap();
}

/// A step of the payment, by hand.
async fn step(api: &Api, id: &str, state: &str) {
    write(&api.pool, id, state, &format!("it is {state}"), !INTERNAL).await;
}

/// The end and its line, in one transaction as always.
async fn settle(api: &Api, id: &str) {
    settle_in(api.pool.begin().await.unwrap(), id).await;
}

async fn settle_in(mut tx: PgTransaction<'_>, id: &str) {
    write(&mut *tx, id, "settled", "it is settled", !INTERNAL).await;
    sqlx::query("UPDATE payments SET state = 'settled', ended_at = now() WHERE payment_id = $1")
        .bind(id)
        .execute(&mut *tx)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Waits until somebody waits for a lock.
async fn until_one_waits(api: &Api) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND wait_event_type = 'Lock'";
    let waits = async {
        while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&api.pool).await.unwrap() == 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    timeout(LONG, waits).await.expect("nobody waits for a lock");
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn lines_come_as_they_are_written_and_the_end_closes(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let mut events = open(&api, &id, None).await;
    assert_eq!(events.headers["content-type"], "text/event-stream");
    assert_eq!(events.headers["cache-control"], "no-cache");
    assert_eq!(events.block().await.as_deref(), Some("retry: 2000"));
    let mut seen = events.some(1).await;
    for state in ["reserved", "submitted"] {
        // What the bank's own people did is passed over, and takes no place.
        write(&api.pool, &id, state, "a note of ours", INTERNAL).await;
        step(&api, &id, state).await;
        seen.extend(events.some(1).await);
    }
    settle(&api, &id).await;
    seen.extend(events.rest().await);

    assert_eq!(names(&seen), ["accepted", "reserved", "submitted", "settled", "end"]);
    let ids: Vec<_> = seen.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "end"]);
    // The very same as GET shows.
    let mut shown = api.get(ACME, &format!("{PAYMENTS}/{id}")).await.json;
    let timeline = shown["timeline"].as_array().unwrap().clone();
    assert_eq!(seen[..4].iter().map(|event| event.data.clone()).collect::<Vec<_>>(), timeline);
    for other in ["timeline", "notifications"] {
        shown.as_object_mut().unwrap().remove(other);
    }
    assert_eq!(seen[4].data, shown);

    assert_eq!(open(&api, &id, None).await.rest().await, seen, "who comes after the end gets all of it");
    assert_eq!(Events::open(&api, ACME_TILL, &id, "", None).await.rest().await, seen, "the tenant's own");
}

/// More lines than are read at once, some of them the bank's own.
async fn long(api: &Api) -> (String, Vec<Event>) {
    let (id, _) = api.paid("long").await;
    for n in 0..115 {
        write(&api.pool, &id, "cancelling", &format!("asked {n}"), n % 7 == 3).await;
    }
    settle(api, &id).await;
    let all = open(api, &id, None).await.rest().await;
    assert!(all.len() > 100, "{}", all.len());
    (id, all)
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn cut_after_any_event_it_goes_on_with_the_next(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, all) = long(&api).await;
    let places: Vec<String> = (1..all.len()).map(|place| place.to_string()).collect();
    assert!(all.iter().map(|event| &event.id).eq(places.iter().chain([&"end".to_owned()])));
    for cut in 0..all.len() {
        let mut first = open(&api, &id, None).await;
        let mut seen = first.some(cut).await;
        drop(first);
        let last = seen.last().map_or("0".to_owned(), |event| event.id.clone());
        let second = if cut % 2 == 0 {
            open(&api, &id, Some(&last)).await
        } else {
            // A header counts before the query of an address that was made earlier.
            let header = (cut % 3 == 0).then_some(last.as_str());
            let query = if header.is_some() { "1" } else { &last };
            Events::open(&api, ACME, &id, &format!("?last_event_id={query}"), header).await
        };
        seen.extend(second.rest().await);
        assert_eq!(seen, all, "cut after {cut}");
    }
    // Nothing is to come after the end, which a browser that asks again is told so.
    let over = Events::open(&api, ACME, &id, "", Some("end")).await;
    assert_eq!(over.status, StatusCode::NO_CONTENT);
    assert_eq!(over.rest().await, []);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_reader_that_is_cut_again_and_again_while_lines_are_written_gets_each_once(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let writing = async {
        for n in 0..60 {
            write(&api.pool, &id, "cancelling", &format!("asked {n}"), n % 5 == 0).await;
            if n % 6 == 0 {
                // So that some are read one by one and some together.
                api.get(ACME, &format!("{PAYMENTS}/{id}")).await;
            }
        }
        settle(&api, &id).await;
    };
    let reading = async {
        let mut seen: Vec<Event> = Vec::new();
        while seen.last().is_none_or(|event| event.id != "end") {
            let last = seen.last().map(|event| event.id.clone());
            let mut events = open(&api, &id, last.as_deref()).await;
            for _ in 0..=seen.len() % 4 {
                seen.extend(events.next().await);
            }
            assert!(seen.len() < 100, "the same again and again: {seen:?}");
        }
        seen
    };
    let (seen, ()) = tokio::join!(reading, writing);
    assert_eq!(seen, open(&api, &id, None).await.rest().await);
    assert_eq!(seen.len(), 1 + 48 + 1 + 1);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_number_that_is_committed_late_is_not_passed_over(pool: PgPool) {
    let api = Api::new(pool).await;
    let ((slow, _), (quick, _)) = (api.paid("slow").await, api.paid("quick").await);
    let (mut of_slow, mut of_quick) = (open(&api, &slow, None).await, open(&api, &quick, None).await);
    of_slow.some(1).await;
    of_quick.some(1).await;
    // It takes its number before the other one, and commits after the other one was seen.
    let committing = async {
        let mut tx = api.pool.begin().await.unwrap();
        write(&mut *tx, &slow, "reserved", "early number", !INTERNAL).await;
        step(&api, &quick, "reserved").await;
        assert_eq!(names(&of_quick.some(1).await), ["reserved"]);
        tx.commit().await.unwrap();
    };
    // It is read meanwhile, so that no earlier news is left that would have it look.
    let (late, ()) = tokio::join!(of_slow.some(1), committing);
    assert_eq!(names(&late), ["reserved"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn lines_of_one_payment_are_committed_in_the_order_of_their_numbers(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let mut tx = api.pool.begin().await.unwrap();
    let lock = "SELECT FROM payments WHERE payment_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(&id).execute(&mut *tx).await.unwrap();
    write(&mut *tx, &id, "reserved", "the first number", !INTERNAL).await;
    let cancel = format!("{PAYMENTS}/{id}/cancel");
    // It would take the second number and commit first, if it did not wait for the payment's row.
    let committing = async {
        until_one_waits(&api).await;
        tx.commit().await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(api.post(ACME, &cancel, "c", ""), committing);
    assert_eq!(cancelled.status, 202);
    let seen = open(&api, &id, None).await.some(3).await;
    let details: Vec<_> = seen[1..].iter().map(|event| event.data["detail"].clone()).collect();
    assert_eq!(details, ["the first number", "the customer requested a cancel"]);
}

/// A stream that has told as many lines as are read at once: it looks for more before there is news.
async fn about_to_look(api: &Api) -> (String, Events) {
    let (id, _) = api.paid("k").await;
    for n in 1..100 {
        write(&api.pool, &id, "cancelling", &format!("asked {n}"), !INTERNAL).await;
    }
    let mut events = open(api, &id, None).await;
    events.some(100).await;
    (id, events)
}

/// Both come by one commit: a look that this commit falls into must not find the one without the other.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_end_is_never_told_before_its_line(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, events) = about_to_look(&api).await;
    let mut tx = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE payments").execute(&mut *tx).await.unwrap();
    let settling = async {
        until_one_waits(&api).await;
        settle_in(tx, &id).await;
    };
    let (rest, ()) = tokio::join!(events.rest(), settling);
    assert_eq!(names(&rest), ["settled", "end"]);
}

/// Breaks the connection of whoever waits for a lock, one after the other.
async fn break_who_waits(api: &Api, times: usize) {
    let broken = "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock'";
    for _ in 0..times {
        until_one_waits(api).await;
        sqlx::query(broken).execute(&api.pool).await.unwrap();
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_a_database_that_breaks_off_is_asked_again_for_news(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let mut events = open(&api, &id, None).await;
    events.some(1).await;
    let mut tx = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE timeline").execute(&mut *tx).await.unwrap();
    break_who_waits(&api, 2).await;
    settle_in(tx, &id).await;
    assert_eq!(names(&events.rest().await), ["settled", "end"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_a_stream_goes_on_after_the_database_broke_off(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, events) = about_to_look(&api).await;
    let mut tx = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE payments").execute(&mut *tx).await.unwrap();
    let breaking = async {
        // Oftener than it would look anyway: for the next lines, and for the first news.
        break_who_waits(&api, 3).await;
        settle_in(tx, &id).await;
    };
    let (rest, ()) = tokio::join!(events.rest(), breaking);
    assert_eq!(names(&rest), ["settled", "end"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn who_may_not_see_a_payment_may_not_watch_it(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    for (key, id, status, code) in [
        (GLOBEX, id.as_str(), 404, "payment_not_found"),
        (ACME, "pay_0", 404, "payment_not_found"),
        (ACME, "%00", 404, "payment_not_found"),
        ("nobody", &id, 401, "unauthorized"),
    ] {
        assert_eq!(refused(&api, key, id, "", None).await, (status, json!(code), String::new()), "{id}");
    }
    // Whatever it says that it saw: nothing tells another's payment from none.
    assert_eq!(refused(&api, GLOBEX, &id, "", Some("1")).await.0, 404);
    api.make_key("payer", "acme", "shop", &[payment_ledger::access::api_keys::Scope::Pay]).await;
    assert_eq!(refused(&api, "payer", &id, "", None).await.1, "insufficient_scope");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_was_not_told_cannot_have_been_seen(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let code = async |query: &str, header: Option<&str>| refused(&api, ACME, &id, query, header).await.1;
    for unknown in ["2", "999999999", "end"] {
        assert_eq!(code("", Some(unknown)).await, "unknown_event", "{unknown}");
    }
    assert_eq!(code("?last_event_id=-1", None).await, "malformed_last_event_id");
    assert_eq!(code("", Some("one")).await, "malformed_last_event_id");
    assert_eq!(code("?since=1", None).await, "malformed_query");
    settle(&api, &id).await;
    let left = open(&api, &id, Some("2")).await.rest().await;
    assert_eq!(names(&left), ["end"], "the last line was seen, the end was not");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn so_many_may_watch_and_who_leaves_makes_room(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.paid("k").await;
    let api = Api::with(wide.pool.clone(), json!({"streams": {"max": 3, "per_client_max": 2}}));
    let full = |status: u16, code: &str| (status, json!(code), "5".to_owned());
    let (first, second) = (open(&api, &id, None).await, open(&api, &id, None).await);
    assert_eq!(refused(&api, ACME, &id, "", None).await, full(429, "too_many_streams"));
    let third = Events::open(&api, ACME_TILL, &id, "", None).await;
    assert_eq!(third.status, StatusCode::OK);
    assert_eq!(refused(&api, ACME_TILL, &id, "", None).await, full(503, "overloaded"));

    drop(first);
    let mut again = open(&api, &id, None).await;
    again.some(1).await;
    settle(&wide, &id).await;
    assert_eq!(names(&again.rest().await), ["settled", "end"]);
    assert_eq!(open(&api, &id, None).await.rest().await.len(), 3, "a stream that has ended makes room too");
    drop((second, third));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn opening_is_counted_as_a_read(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.paid("k").await;
    let api = Api::with(wide.pool.clone(), json!({"reads": {"per_s": 1, "burst": 2}}));
    for _ in 0..100 {
        let events = Events::open(&api, ACME, &id, "", None).await;
        assert!(events.headers.contains_key("ratelimit"));
        if events.status == StatusCode::TOO_MANY_REQUESTS {
            return;
        }
    }
    panic!("nothing was refused");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn streams_end_at_once_when_the_process_stops(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.paid("k").await;
    let mut waiting = open(&api, &id, None).await;
    waiting.some(1).await;
    let (unread, ended) = (open(&api, &id, None).await, waiting.next());
    let (ended, ()) = tokio::join!(ended, async { api.stopping.cancel() });
    assert_eq!(ended, None, "no end: the payment has none");
    assert_eq!(unread.rest().await, [], "what was not sent is sent by the next process");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_stream_lives_for_so_long_and_is_gone_on_with(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.paid("k").await;
    let api = Api::with(wide.pool.clone(), json!({"streams": {"lifetime_s": 3}}));
    let seen = open(&api, &id, None).await.rest().await;
    assert_eq!(names(&seen), ["accepted"], "closed without an end");
    settle(&api, &id).await;
    let seen = open(&api, &id, Some(&seen[0].id)).await.rest().await;
    assert_eq!(names(&seen), ["settled", "end"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_watching_holds_no_connection(pool: PgPool) {
    let wide = Api::new(pool).await;
    let (id, _) = wide.paid("k").await;
    let one = PgPoolOptions::new().max_connections(1).acquire_timeout(LONG);
    let one = one.connect_with(wide.pool.connect_options().as_ref().clone()).await.unwrap();
    let api = Api::with(one, json!({"requests_max": 1}));
    let mut all = Vec::new();
    for _ in 0..20 {
        let mut events = open(&api, &id, None).await;
        events.some(1).await;
        all.push(events);
    }
    // The only connection and the only request's place are free for payments.
    for n in 0..10 {
        let made = api.pay(&format!("k{n}"), &order_with("amount", json!("1"))).await;
        assert_eq!(made.status, 201, "{made:?}");
    }
    settle(&wide, &id).await;
    for events in all {
        assert_eq!(names(&events.rest().await), ["settled", "end"]);
    }
}

/// Serves on a port of its own, as the process does.
async fn serve(api: &Api, webhook: &Value) -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let bounds = config(webhook.clone()).api.connection_bounds().unwrap();
    let (router, stopping) = (api.router.clone(), api.stopping.clone());
    tokio::spawn(service_kit::serve::serve_on(listener, move |_| router.clone(), bounds, stopping));
    address
}

async fn ask(connection: &mut TcpStream, id: &str) {
    let request = format!(
        "GET {PAYMENTS}/{id}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ACME}\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).await.unwrap();
}

/// Reads until `wanted` came so often.
async fn read_until(connection: &mut TcpStream, text: &mut String, wanted: &str, times: usize) {
    let mut buffer = [0; 4096];
    let reading = async {
        while text.matches(wanted).count() < times {
            let read = connection.read(&mut buffer).await.unwrap();
            assert!(read > 0, "closed after {text}");
            text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        }
    };
    timeout(LONG, reading).await.expect("it does not come");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_heartbeat_keeps_a_quiet_stream_open(pool: PgPool) {
    let settings = json!({"quiet_timeout_s": 1});
    let api = Api::with(Api::new(pool).await.pool, settings.clone());
    let (id, _) = api.paid("k").await;
    let mut connection = TcpStream::connect(serve(&api, &settings).await).await.unwrap();
    ask(&mut connection, &id).await;
    let mut text = String::new();
    // Twice in the time after which a connection without a byte is closed.
    read_until(&mut connection, &mut text, ": heartbeat", 5).await;
    settle(&api, &id).await;
    read_until(&mut connection, &mut text, "event: end", 1).await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r35_who_does_not_read_is_cut_off(pool: PgPool) {
    let settings = json!({"quiet_timeout_s": 3, "streams": {"per_client_max": 1}});
    let api = Api::with(Api::new(pool).await.pool, settings.clone());
    let (id, _) = api.paid("k").await;
    // More than the sockets of both sides take.
    sqlx::query(
        "INSERT INTO timeline (payment_id, state, detail)
         SELECT $1, 'cancelling', repeat('x', 10000) FROM generate_series(1, 1000)",
    )
    .bind(&id)
    .execute(&api.pool)
    .await
    .unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut lazy = socket.connect(serve(&api, &settings).await).await.unwrap();
    ask(&mut lazy, &id).await;
    let mut text = String::new();
    read_until(&mut lazy, &mut text, "event: accepted", 1).await;
    assert_eq!(refused(&api, ACME, &id, "", None).await.1, "too_many_streams");
    until_there_is_room(&api, &id).await;
    drop(lazy);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn who_hangs_up_makes_room(pool: PgPool) {
    let settings = json!({"streams": {"per_client_max": 1}});
    let api = Api::with(Api::new(pool).await.pool, settings.clone());
    let (id, _) = api.paid("k").await;
    let mut connection = TcpStream::connect(serve(&api, &settings).await).await.unwrap();
    ask(&mut connection, &id).await;
    read_until(&mut connection, &mut String::new(), "event: accepted", 1).await;
    assert_eq!(refused(&api, ACME, &id, "", None).await.1, "too_many_streams");
    // Nothing is written to it for as long as a heartbeat takes, which is seconds: that it has gone is seen before.
    drop(connection);
    until_there_is_room(&api, &id).await;
}

async fn until_there_is_room(api: &Api, id: &str) {
    let room = async {
        while Events::open(api, ACME, id, "", None).await.status != StatusCode::OK {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    timeout(LONG, room).await.expect("it keeps its place");
}
