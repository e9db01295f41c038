//! What is sent, again and again until it is taken, by senders that die and endpoints that misbehave.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeSet;

use axum::body::{Body, Bytes};
use axum::http::Response;
use outbound_webhooks::deliveries::{self, DeliveryState, Replay};
use outbound_webhooks::endpoints::{self, DisabledReason, Status, Wish};
use outbound_webhooks::target::Target;
use serde_json::{Value, json};
use sqlx::PgPool;
use support::{Book, Receiver, Reply, options, status, until};
use tokio::sync::watch;

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_what_is_sent_is_signed_and_taken_once(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(204)).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    assert_eq!(book.happens("acme", "k:happened", "happened").await, 1);
    let sender = book.sender();
    let delivery =
        book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    assert_eq!((delivery.failed_attempts, delivery.next_attempt_at), (0, None));
    assert_eq!(delivery.attempts.len(), 1);
    assert_eq!((delivery.attempts[0].response_status, &delivery.attempts[0].error), (Some(204), &None));

    let [came] = &receiver.came()[..] else { panic!("{:?}", receiver.came()) };
    assert_eq!(
        (came.id(), &came.headers["content-type"]),
        ("k:happened", &"application/json".parse().unwrap())
    );
    assert!(came.is_good(&book.secret(&endpoint.id, 1)));
    assert!(!came.is_good(&book.secret(&endpoint.id, 2)));
    let body: Value = serde_json::from_slice(&came.body).unwrap();
    assert_eq!(
        body,
        json!({"type": "happened", "timestamp": "1970-01-01T00:00:00Z", "version": 1, "key": "k", "sequence": 7,
            "data": {"amount": "12.50"}})
    );
    sender.stop().await;
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_what_fails_is_sent_again_under_the_same_id_until_it_is_taken(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, times| match times {
        1 => status(500),
        2 => status(404),
        3 => status(302),
        _ => status(200),
    })
    .await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    let delivery =
        book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    let statuses: Vec<_> = delivery.attempts.iter().map(|attempt| attempt.response_status.unwrap()).collect();
    assert_eq!(statuses, [500, 404, 302, 200]);
    assert_eq!(delivery.attempts[0].error.as_deref(), Some("answered 500"));
    let came = receiver.came();
    assert_eq!(came.len(), 4);
    assert!(came.iter().all(|one| one.id() == "e1" && one.body == came[0].body));
    assert_eq!(book.read(&endpoint.id).await.failing_since, None, "it answers again");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_after_the_last_pause_it_has_failed_and_can_be_replayed(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(503)).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    let failed = book.until_one(&endpoint.id, "failed", |one| one.state == DeliveryState::Failed).await;
    assert_eq!(
        (failed.failed_attempts, failed.attempts.len(), receiver.came().len()),
        (4, 4, 4),
        "three pauses"
    );

    receiver.behave(|_, _| status(200));
    let mut connection = book.pool.acquire().await.unwrap();
    assert_eq!(deliveries::replay(&mut connection, &endpoint.id, "another").await.unwrap(), Replay::Unknown);
    assert_eq!(deliveries::replay(&mut connection, &endpoint.id, "e1").await.unwrap(), Replay::Due);
    let again = book.until_one(&endpoint.id, "replayed", |one| one.state == DeliveryState::Delivered).await;
    assert_eq!((again.failed_attempts, again.attempts.len()), (0, 5), "what came before stays on record");
    // What was delivered can be had once more.
    assert_eq!(deliveries::replay(&mut connection, &endpoint.id, "e1").await.unwrap(), Replay::Due);
    until("it comes once more", async || receiver.came().len() == 6).await;
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn everything_that_failed_since_an_instant_is_replayed_and_nothing_else(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|came, _| status(if came.id() == "good" { 200 } else { 500 })).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    for id in ["old", "good", "new-1", "new-2"] {
        book.happens("acme", id, "happened").await;
    }
    let ended = async || {
        book.deliveries(&endpoint.id).await.iter().all(|delivery| delivery.state != DeliveryState::Pending)
    };
    let _sender = book.sender();
    until("all have ended", ended).await;
    book.sql(
        "UPDATE webhook_deliveries SET created_at = created_at - interval '1 day' WHERE endpoint_id = $1 AND event_id = 'old'",
        &endpoint.id,
    )
    .await;
    let since = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(1);
    receiver.behave(|_, _| status(200));
    let mut connection = book.pool.acquire().await.unwrap();
    assert_eq!(deliveries::replay_failed(&mut connection, &endpoint.id, since).await.unwrap(), 2);
    until("all have ended again", ended).await;
    let failed: Vec<_> = book.deliveries(&endpoint.id).await;
    let failed: Vec<_> = failed.iter().filter(|one| one.state == DeliveryState::Failed).collect();
    assert_eq!(failed.iter().map(|one| one.event_id.as_str()).collect::<Vec<_>>(), ["old"]);
    assert_eq!(receiver.came().iter().filter(|one| one.id() == "good").count(), 1);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_when_a_sender_dies_another_takes_over_after_the_lease(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, times| if times == 1 { Reply::Never } else { status(200) }).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let first = book.sender();
    until("it was sent", async || receiver.came().len() == 1).await;
    first.kill().await;
    let _second = book.sender();
    let delivery =
        book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    assert_eq!((delivery.failed_attempts, delivery.attempts.len()), (0, 1), "a death is no failed attempt");
    assert_eq!(receiver.came().iter().map(|one| one.id().to_owned()).collect::<Vec<_>>(), ["e1", "e1"]);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_who_lost_the_lease_decides_nothing(pool: PgPool) {
    let book = Book::patient(pool);
    let (let_go, held) = watch::channel(false);
    let receiver =
        Receiver::start(move |_, times| if times == 1 { late(500, &held) } else { status(200) }).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _slow = book.sender();
    until("it was sent", async || receiver.came().len() == 1).await;
    // Its lease ends while it still reads the answer, and another takes over.
    book.sql(
        "UPDATE webhook_deliveries SET next_attempt_at = now() - interval '1 second' WHERE endpoint_id = $1",
        &endpoint.id,
    )
    .await;
    book.until_one(&endpoint.id, "taken over", |one| one.state == DeliveryState::Delivered).await;
    let_go.send(true).unwrap();
    let delivery = book.until_one(&endpoint.id, "both on record", |one| one.attempts.len() == 2).await;
    assert_eq!((delivery.state, delivery.failed_attempts), (DeliveryState::Delivered, 0));
    assert_eq!(book.read(&endpoint.id).await.failing_since, None);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_what_is_under_way_is_not_replayed(pool: PgPool) {
    let book = Book::patient(pool);
    let (let_go, held) = watch::channel(false);
    let receiver =
        Receiver::start(move |_, times| if times == 1 { late(500, &held) } else { status(200) }).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    until("it was sent", async || receiver.came().len() == 1).await;
    let mut connection = book.pool.acquire().await.unwrap();
    assert_eq!(deliveries::replay(&mut connection, &endpoint.id, "e1").await.unwrap(), Replay::UnderWay);
    let_go.send(true).unwrap();
    let delivery =
        book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    let statuses: Vec<_> = delivery.attempts.iter().map(|attempt| attempt.response_status).collect();
    assert_eq!((statuses, delivery.failed_attempts), (vec![Some(500), Some(200)], 1), "its lease stood");
}

/// An answer that is under way until the test lets go: its head comes at once, its body ends only then.
fn late(status: u16, held: &watch::Receiver<bool>) -> Reply {
    let mut held = held.clone();
    let body = Body::from_stream(futures_of(async move {
        let _ = held.wait_for(|is_free| *is_free).await;
    }));
    Reply::Now(Response::builder().status(status).body(body).unwrap())
}

/// A body that ends when something has come to pass.
fn futures_of(
    event: impl Future<Output = ()> + Send + 'static,
) -> impl futures::Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static {
    futures::stream::once(async move {
        event.await;
        Ok(Bytes::from_static(b"late"))
    })
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn r32_two_senders_never_make_the_same_attempt(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let one = book.endpoint("acme", &receiver.url("one"), &[]).await;
    let two = book.endpoint("acme", &receiver.url("two"), &[]).await;
    let events: BTreeSet<String> = (0..60).map(|n| format!("e{n}")).collect();
    for event in &events {
        assert_eq!(book.happens("acme", event, "happened").await, 2);
    }
    let _senders = [book.sender(), book.sender(), book.sender()];
    for endpoint in [&one, &two] {
        until("all are delivered", async || {
            book.deliveries(&endpoint.id).await.iter().all(|one| one.state == DeliveryState::Delivered)
        })
        .await;
    }
    for name in ["one", "two"] {
        let came: Vec<String> = receiver.came_to(name).iter().map(|came| came.id().to_owned()).collect();
        assert_eq!(came.len(), events.len(), "each came once");
        assert_eq!(came.into_iter().collect::<BTreeSet<_>>(), events);
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_an_endpoint_that_hangs_fills_its_own_slots_only(pool: PgPool) {
    let mut book = Book::patient(pool);
    (book.options.max_in_flight, book.options.max_in_flight_per_endpoint) = (4, 2);
    let receiver =
        Receiver::start(|came, _| if came.path == "hung" { Reply::Never } else { status(200) }).await;
    let hung = book.endpoint("acme", &receiver.url("hung"), &["to_hung"]).await;
    let well = book.endpoint("acme", &receiver.url("well"), &["to_well"]).await;
    for n in 0..20 {
        book.happens("acme", &format!("h{n}"), "to_hung").await;
    }
    let _sender = book.sender();
    until("it hangs", async || receiver.came_to("hung").len() == 2).await;
    for n in 0..20 {
        book.happens("acme", &format!("w{n}"), "to_well").await;
    }
    until("the other one is told everything", async || {
        book.deliveries(&well.id).await.iter().all(|one| one.state == DeliveryState::Delivered)
    })
    .await;
    assert_eq!((receiver.most_at_once("hung"), receiver.came_to("hung").len()), (2, 2));
    assert!(book.deliveries(&hung.id).await.iter().all(|one| one.state == DeliveryState::Pending));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_tenant_whose_endpoints_hang_fills_its_own_slots_only(pool: PgPool) {
    let mut book = Book::patient(pool);
    (
        book.options.max_in_flight,
        book.options.max_in_flight_per_endpoint,
        book.options.max_in_flight_per_tenant,
    ) = (6, 2, 4);
    let receiver =
        Receiver::start(|came, _| if came.path == "hung" { Reply::Never } else { status(200) }).await;
    for _ in 0..10 {
        book.endpoint("acme", &receiver.url("hung"), &[]).await;
    }
    let well = book.endpoint("globex", &receiver.url("well"), &[]).await;
    for n in 0..3 {
        assert_eq!(book.happens("acme", &format!("h{n}"), "happened").await, 10);
    }
    let _sender = book.sender();
    until("it hangs", async || receiver.came_to("hung").len() == 4).await;
    for n in 0..20 {
        book.happens("globex", &format!("w{n}"), "happened").await;
    }
    until("the other one is told everything", async || {
        book.deliveries(&well.id).await.iter().all(|one| one.state == DeliveryState::Delivered)
    })
    .await;
    assert_eq!((receiver.most_at_once("hung"), receiver.came_to("hung").len()), (4, 4));
}

/// They answer, so nothing counts as failed, and there is always more for them.
#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_tenants_that_never_run_out_do_not_keep_another_waiting(pool: PgPool) {
    let mut book = Book::new(pool);
    (
        book.options.max_in_flight,
        book.options.max_in_flight_per_endpoint,
        book.options.max_in_flight_per_tenant,
    ) = (2, 2, 2);
    let receiver = Receiver::start(|_, _| status(200)).await;
    for tenant in ["acme", "initech"] {
        for _ in 0..10 {
            book.endpoint(tenant, &receiver.url("busy"), &[]).await;
        }
        for n in 0..50 {
            assert_eq!(book.happens(tenant, &format!("{tenant}-{n}"), "happened").await, 10);
        }
    }
    let quiet = book.endpoint("globex", &receiver.url("quiet"), &[]).await;
    let _sender = book.sender();
    until("they are busy", async || receiver.came().len() > 20).await;
    book.happens("globex", "w1", "happened").await;
    let before = receiver.came().len();
    book.until_one(&quiet.id, "told", |one| one.state == DeliveryState::Delivered).await;
    let place = receiver.came().iter().position(|one| one.path == "quiet").unwrap();
    // By chance, of three at most; those that never run out have a thousand.
    assert!(place < before + 100, "it came after {place} others, {before} before it was due");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn no_answer_in_time_is_a_failed_attempt(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, times| if times == 1 { Reply::Never } else { status(200) }).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    let delivery =
        book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    let [first, _] = &delivery.attempts[..] else { panic!("{delivery:?}") };
    assert_eq!((first.response_status, first.error.as_deref()), (None, Some("no answer within 2000 ms")));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn of_a_long_answer_only_the_beginning_is_read_and_one_without_end_changes_nothing(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|came, _| {
        let body = match came.path.as_str() {
            "long" => Body::from(vec![0_u8; 1 << 20]),
            _ => Body::from_stream(futures_of(std::future::pending())),
        };
        Reply::Now(Response::new(body))
    })
    .await;
    for name in ["long", "endless"] {
        let endpoint = book.endpoint("acme", &receiver.url(name), &[name]).await;
        book.happens("acme", &format!("e-{name}"), name).await;
        let sender = book.sender();
        let delivery =
            book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
        let said = delivery.attempts[0].response_excerpt.clone().unwrap();
        assert_eq!(said.chars().count(), if name == "long" { 512 } else { 0 }, "{name}");
        sender.stop().await;
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_busy_endpoint_is_left_alone_for_as_long_as_it_says(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| {
        let answer = Response::builder().status(429).header("retry-after", "3600").body(Body::empty());
        Reply::Now(answer.unwrap())
    })
    .await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    let delivery = book.until_one(&endpoint.id, "tried", |one| one.failed_attempts == 1).await;
    let pause_s = delivery.next_attempt_at.unwrap().duration_since(jiff::Timestamp::now()).as_secs();
    assert!((3_500..=3_600).contains(&pause_s), "{pause_s} s");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_endpoint_that_is_gone_is_disabled_and_what_waits_for_it_waits(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(410)).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let sender = book.sender();
    book.until_one(&endpoint.id, "given up", |one| one.state == DeliveryState::Failed).await;
    let disabled = book.read(&endpoint.id).await;
    assert_eq!(
        (disabled.status, disabled.disabled_reason),
        (Status::Disabled, Some(DisabledReason::EndpointGone))
    );
    assert_eq!(book.happens("acme", "e2", "happened").await, 0, "it is told nothing more");
    sender.stop().await;

    // What was on its way when it was disabled goes out when it is told again.
    book.sql(
        "UPDATE webhook_endpoints SET status = 'active', disabled_reason = NULL WHERE endpoint_id = $1",
        &endpoint.id,
    )
    .await;
    book.happens("acme", "e3", "happened").await;
    let asked = endpoints::Change { status: Some(Status::Disabled), ..endpoints::Change::default() };
    let mut connection = book.pool.acquire().await.unwrap();
    let changed = endpoints::change(&mut connection, "acme", &endpoint.id, asked).await.unwrap();
    assert!(matches!(changed, Wish::Done(_)), "{changed:?}");
    receiver.behave(|_, _| status(200));
    let _sender = book.sender();
    let other = book.endpoint("acme", &receiver.url("other"), &[]).await;
    book.happens("acme", "e4", "happened").await;
    book.until_one(&other.id, "the other one is told", |one| one.state == DeliveryState::Delivered).await;
    assert_eq!(receiver.came_to("hook").len(), 1);
    let again = endpoints::Change { status: Some(Status::Active), ..endpoints::Change::default() };
    let changed = endpoints::change(&mut connection, "acme", &endpoint.id, again).await.unwrap();
    assert!(matches!(changed, Wish::Done(_)), "{changed:?}");
    until("it is told what waited", async || receiver.came_to("hook").iter().any(|one| one.id() == "e3"))
        .await;
}

/// A 410 under way when its endpoint moves says nothing of where it is then, and lifts nothing that an operator has done.
#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_late_answer_undoes_nothing_that_was_decided_meanwhile(pool: PgPool) {
    let book = Book::patient(pool);
    let (let_go, held) = watch::channel(false);
    let receiver = Receiver::start(move |_, _| late(410, &held)).await;
    let moved = book.endpoint("acme", &receiver.url("moved"), &[]).await;
    let stopped = book.endpoint("acme", &receiver.url("stopped"), &[]).await;
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    until("both were sent", async || receiver.came().len() == 2).await;

    let mut connection = book.pool.acquire().await.unwrap();
    let there = Target::read(&receiver.url("elsewhere"), &book.options.rules).unwrap();
    let change = endpoints::Change { target: Some(&there), ..endpoints::Change::default() };
    let changed = endpoints::change(&mut connection, "acme", &moved.id, change).await.unwrap();
    assert!(matches!(changed, Wish::Done(_)), "{changed:?}");
    assert!(endpoints::disable_as_operator(&mut connection, &stopped.id, "ann: a flood").await.unwrap());
    let_go.send(true).unwrap();
    for endpoint in [&moved, &stopped] {
        book.until_one(&endpoint.id, "given up", |one| one.state == DeliveryState::Failed).await;
    }
    let moved = book.read(&moved.id).await;
    assert_eq!((moved.status, moved.failing_since), (Status::Active, None));
    let stopped = book.read(&stopped.id).await;
    assert_eq!(stopped.disabled_reason, Some(DisabledReason::ByOperator), "or its tenant could lift it");
    assert_eq!(stopped.disabled_note.as_deref(), Some("ann: a flood"));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_endpoint_that_fails_for_days_is_disabled(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(500)).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    for (age, expected) in [("4 days 23 hours", None), ("5 days 1 minute", Some(DisabledReason::Failing))] {
        sqlx::query("UPDATE webhook_endpoints SET failing_since = now() - $1::text::interval")
            .bind(age)
            .execute(&book.pool)
            .await
            .unwrap();
        book.happens("acme", &age.replace(' ', "-"), "happened").await;
        let sender = book.sender();
        until("it was tried", async || receiver.came().iter().any(|one| one.id() == age.replace(' ', "-")))
            .await;
        sender.stop().await;
        assert_eq!(book.read(&endpoint.id).await.disabled_reason, expected, "{age}");
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_quiet_days_after_a_failure_disable_nothing(pool: PgPool) {
    let book = Book::patient(pool);
    let (let_go, held) = watch::channel(false);
    // One is under way until the test has seen that the endpoint fails: when all have failed it does no more.
    let receiver =
        Receiver::start(move |came, _| if came.id() == "e3" { late(503, &held) } else { status(503) }).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    for event in ["e1", "e2", "e3"] {
        book.happens("acme", event, "happened").await;
    }
    let sender = book.sender();
    until("it fails", async || book.read(&endpoint.id).await.failing_since.is_some()).await;
    let_go.send(true).unwrap();
    until("all have failed", async || {
        book.deliveries(&endpoint.id).await.iter().all(|one| one.state == DeliveryState::Failed)
    })
    .await;
    sender.stop().await;
    assert_eq!(book.read(&endpoint.id).await.failing_since, None, "nothing is tried any more");
    // Ten days pass with no event, and then there is a hiccup.
    book.sql(
        "UPDATE webhook_endpoints SET failing_since = failing_since - interval '10 days' WHERE endpoint_id = $1",
        &endpoint.id,
    )
    .await;
    receiver.behave(|_, times| status(if times == 1 { 503 } else { 200 }));
    book.happens("acme", "e4", "happened").await;
    let _sender = book.sender();
    until("it is told", async || book.deliveries(&endpoint.id).await[0].state == DeliveryState::Delivered)
        .await;
    assert_eq!(book.read(&endpoint.id).await.status, Status::Active);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn both_secrets_sign_while_they_overlap_and_then_one(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    let _sender = book.sender();
    let sent = async |event: &str| {
        book.happens("acme", event, "happened").await;
        until("it came", async || receiver.came().iter().any(|one| one.id() == event)).await;
        let came = receiver.came().into_iter().find(|one| one.id() == event).unwrap();
        let good: Vec<i32> =
            (1..=4).filter(|version| came.is_good(&book.secret(&endpoint.id, *version))).collect();
        assert_eq!(came.signatures(), good.len());
        good
    };
    let rotate = async || {
        let mut connection = book.pool.acquire().await.unwrap();
        let key = support::master_key(&book.options);
        endpoints::rotate(&mut connection, key, "acme", &endpoint.id, 3_600).await.unwrap().unwrap()
    };
    assert_eq!(sent("before").await, [1]);
    assert_eq!(rotate().await.secret_version, 2);
    assert_eq!(sent("overlap").await, [1, 2]);
    book.sql("UPDATE webhook_endpoints SET old_secret_until = now() WHERE endpoint_id = $1", &endpoint.id)
        .await;
    assert_eq!(sent("after").await, [2]);
    rotate().await;
    rotate().await;
    assert_eq!(sent("twice").await, [3, 4], "one that leaked is out after two rotations");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_what_was_never_sent_is_put_off_and_no_try(pool: PgPool) {
    let mut book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let endpoint = book.endpoint("acme", &receiver.url("hook"), &[]).await;
    // Another master key: nothing is signed until the secret is rotated.
    let mut other = options();
    other.master_key = Some("//////////////////////////////////////////8=".into());
    book.options = other.check().unwrap();
    book.happens("acme", "e1", "happened").await;
    let _sender = book.sender();
    // Oftener than the schedule has attempts.
    let mut looks = BTreeSet::new();
    until("it was put off many times", async || {
        looks.extend(book.deliveries(&endpoint.id).await[0].attempts.iter().map(|one| one.ended_at));
        looks.len() > 8
    })
    .await;
    let waiting = book.until_one(&endpoint.id, "waits", |_| true).await;
    assert_eq!((waiting.state, waiting.failed_attempts), (DeliveryState::Pending, 0));
    let [once] = &waiting.attempts[..] else { panic!("one reason is on record once: {waiting:?}") };
    assert!(once.error.as_deref().unwrap().contains("another outbound_webhooks.master_key"), "{once:?}");
    assert_eq!(book.read(&endpoint.id).await.failing_since, None);
    assert_eq!(receiver.came().len(), 0);
    let mut connection = book.pool.acquire().await.unwrap();
    let key = support::master_key(&book.options);
    let rotated =
        endpoints::rotate(&mut connection, key, "acme", &endpoint.id, 3_600).await.unwrap().unwrap();
    assert_eq!(rotated.old_secret_until, None, "nobody here can sign with the old one");
    book.until_one(&endpoint.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    assert!(receiver.came()[0].is_good(&book.secret(&endpoint.id, 2)));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_what_could_not_be_sent_for_as_long_as_anything_is_kept_has_failed(pool: PgPool) {
    let mut book = Book::new(pool);
    let endpoint = book.endpoint("acme", "http://127.0.0.1:9/hook", &[]).await;
    book.happens("acme", "e1", "happened").await;
    book.sql(
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days' WHERE endpoint_id = $1",
        &endpoint.id,
    )
    .await;
    let mut other = options();
    other.master_key = Some("//////////////////////////////////////////8=".into());
    book.options = other.check().unwrap();
    let _sender = book.sender();
    let failed = book.until_one(&endpoint.id, "given up", |one| one.state == DeliveryState::Failed).await;
    assert!(failed.attempts[0].error.as_deref().unwrap().starts_with("not sent"), "{failed:?}");
    assert_eq!(failed.failed_attempts, 0, "the endpoint was never asked");
    assert_eq!(book.read(&endpoint.id).await.failing_since, None, "no fault of the endpoint");
}
