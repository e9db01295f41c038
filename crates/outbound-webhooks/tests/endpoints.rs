//! Who is told of what, whose endpoints are whose, and what is kept.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use outbound_webhooks::deliveries::{self, DeliveryState, Filter};
use outbound_webhooks::endpoints::{self, Change, Creation, DisabledReason, Status, Whose, Wish};
use outbound_webhooks::target::Target;
use outbound_webhooks::{EndpointId, FanOutError, Message, fan_out, keep, measure};
use serde_json::json;
use sqlx::PgPool;
use support::{Book, Receiver, status, until};

const URL: &str = "http://127.0.0.1:9/hook";

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_event_is_for_the_endpoints_of_its_tenant_that_want_it(pool: PgPool) {
    let book = Book::new(pool);
    let all = book.endpoint("acme", URL, &[]).await;
    let some = book.endpoint("acme", URL, &["sent", "failed"]).await;
    let other = book.endpoint("globex", URL, &[]).await;
    assert_eq!(book.happens("acme", "e1", "sent").await, 2);
    assert_eq!(book.happens("acme", "e1", "sent").await, 0, "once for each endpoint");
    assert_eq!(book.happens("acme", "e2", "pending").await, 1);
    assert_eq!(book.happens("nobody", "e3", "sent").await, 0);
    let told = async |id: &EndpointId| {
        let all = book.deliveries(id).await;
        all.into_iter().map(|delivery| delivery.event_id).collect::<Vec<_>>()
    };
    assert_eq!(told(&all.id).await, ["e2", "e1"]);
    assert_eq!(told(&some.id).await, ["e1"]);
    assert!(told(&other.id).await.is_empty());
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_id_that_could_be_read_two_ways_is_not_sent(pool: PgPool) {
    let data = json!({});
    let mut tx = pool.begin().await.unwrap();
    for event_id in ["", "a.b", "a b", "a\n", "é", &"x".repeat(257)] {
        let at = jiff::Timestamp::UNIX_EPOCH;
        let message =
            Message { tenant: "t", event_id, kind: "k", version: 1, key: "k", sequence: 1, at, data: &data };
        assert!(matches!(fan_out(&mut tx, &message).await, Err(FanOutError::EventId)), "{event_id:?}");
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_tenant_has_ten_endpoints_at_most_however_it_asks(pool: PgPool) {
    let book = Arc::new(Book::new(pool));
    let asked: Vec<_> = (0..16)
        .map(|_| {
            let book = Arc::clone(&book);
            tokio::spawn(async move { book.try_endpoint("acme", URL, &[]).await })
        })
        .collect();
    let mut made = Vec::new();
    for one in asked {
        if let Creation::Made(endpoint) = one.await.unwrap() {
            made.push(endpoint);
        }
    }
    assert_eq!(made.len(), 10);
    assert!(matches!(book.try_endpoint("globex", URL, &[]).await, Creation::Made(_)));
    let mut connection = book.pool.acquire().await.unwrap();
    assert_eq!(endpoints::delete(&mut connection, "acme", &made[0].id).await.unwrap(), Wish::Done(()));
    assert!(
        matches!(book.try_endpoint("acme", URL, &[]).await, Creation::Made(_)),
        "a deleted one makes room"
    );
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn anothers_endpoint_is_not_there(pool: PgPool) {
    let book = Book::new(pool);
    let theirs = book.endpoint("acme", URL, &[]).await;
    let id = &theirs.id;
    let key = support::master_key(&book.options);
    let mut connection = book.pool.acquire().await.unwrap();
    let connection = &mut *connection;
    assert_eq!(endpoints::get(connection, Whose::Tenant("globex"), id).await.unwrap(), None);
    assert_eq!(endpoints::list(connection, Whose::Tenant("globex"), 10).await.unwrap(), []);
    assert_eq!(endpoints::change(connection, "globex", id, Change::default()).await.unwrap(), Wish::NotFound);
    assert_eq!(endpoints::rotate(connection, key, "globex", id, 0).await.unwrap(), None);
    assert_eq!(endpoints::delete(connection, "globex", id).await.unwrap(), Wish::NotFound);
    assert_eq!(book.read(id).await, theirs, "nothing has changed");
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn what_the_banks_own_people_disable_its_tenant_cannot_lift(pool: PgPool) {
    let book = Book::new(pool);
    let id = book.endpoint("acme", URL, &[]).await.id;
    let mut connection = book.pool.acquire().await.unwrap();
    let set = |status| Change { status: Some(status), ..Change::default() };
    let mut change = async |to| match endpoints::change(&mut connection, "acme", &id, set(to)).await.unwrap()
    {
        Wish::Done(endpoint) => Some((endpoint.status, endpoint.disabled_reason)),
        refused => {
            assert_eq!(refused, Wish::DisabledByOperator);
            None
        }
    };
    assert_eq!(change(Status::Disabled).await, Some((Status::Disabled, Some(DisabledReason::ByTenant))));
    assert_eq!(change(Status::Active).await, Some((Status::Active, None)));

    let mut operator = book.pool.acquire().await.unwrap();
    assert!(endpoints::disable_as_operator(&mut operator, &id, "ann: it floods us").await.unwrap());
    assert_eq!(change(Status::Active).await, None);
    assert_eq!(change(Status::Disabled).await, None, "nor does it become their own wish");
    assert_eq!(endpoints::delete(&mut connection, "acme", &id).await.unwrap(), Wish::DisabledByOperator);
    // Another of theirs on that host would be the same one; another's is not.
    assert_eq!(book.try_endpoint("acme", URL, &[]).await, Creation::DisabledByOperator);
    assert!(matches!(book.try_endpoint("globex", URL, &[]).await, Creation::Made(_)));
    let elsewhere = book.endpoint("acme", "https://elsewhere.example/hook", &[]).await.id;
    let there = Target::read(&format!("{URL}/other"), &book.options.rules).unwrap();
    let moved = Change { target: Some(&there), ..Change::default() };
    let moved = endpoints::change(&mut connection, "acme", &elsewhere, moved).await.unwrap();
    assert_eq!(moved, Wish::DisabledByOperator);
    let still = book.read(&id).await;
    assert_eq!((still.status, still.disabled_reason), (Status::Disabled, Some(DisabledReason::ByOperator)));
    assert_eq!(still.disabled_note.as_deref(), Some("ann: it floods us"));
    assert!(endpoints::enable_as_operator(&mut connection, &id).await.unwrap());
    assert!(!endpoints::enable_as_operator(&mut connection, &id).await.unwrap());
    assert_eq!(book.read(&id).await.status, Status::Active);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn deliveries_are_listed_in_pages(pool: PgPool) {
    let book = Book::new(pool);
    let id = book.endpoint("acme", URL, &[]).await.id;
    for n in 0..5 {
        book.happens("acme", &format!("e{n}"), "happened").await;
    }
    let mut connection = book.pool.acquire().await.unwrap();
    let mut seen = Vec::new();
    loop {
        let after = seen.last().cloned();
        let filter = Filter { state: Some(DeliveryState::Pending), after: after.as_deref() };
        let page = deliveries::list(&mut connection, &id, filter, 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|delivery| delivery.event_id));
    }
    assert_eq!(seen, ["e4", "e3", "e2", "e1", "e0"]);
    let failed = Filter { state: Some(DeliveryState::Failed), after: None };
    assert!(deliveries::list(&mut connection, &id, failed, 2).await.unwrap().is_empty());
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn so_many_are_replayed_at_once_the_oldest_first(pool: PgPool) {
    let book = Book::new(pool);
    let id = book.endpoint("acme", URL, &[]).await.id;
    book.sql(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at)
         SELECT $1, 'e' || n, 'happened', '{}', 'failed', now() FROM generate_series(1, 1003) n",
        &id,
    )
    .await;
    let mut connection = book.pool.acquire().await.unwrap();
    let mut replay =
        async || deliveries::replay_failed(&mut connection, &id, Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(replay().await, deliveries::REPLAYED_MAX.unsigned_abs());
    let left = book.deliveries(&id).await;
    let left: Vec<_> = left.iter().filter(|one| one.state == DeliveryState::Failed).collect();
    assert_eq!(left.iter().map(|one| one.event_id.as_str()).collect::<Vec<_>>(), ["e1003", "e1002", "e1001"]);
    assert_eq!([replay().await, replay().await], [3, 0]);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn the_tables_stay_small(pool: PgPool) {
    let book = Book::new(pool);
    let receiver = Receiver::start(|_, _| status(200)).await;
    let id = book.endpoint("acme", &receiver.url("hook"), &["happened"]).await.id;
    let deleted = book.endpoint("acme", URL, &["other"]).await.id;
    for event in ["old", "new"] {
        book.happens("acme", event, "happened").await;
    }
    book.happens("acme", "gone", "other").await;
    // As after many replays.
    book.sql(
        "INSERT INTO webhook_attempts (position, duration_ms, error)
         SELECT d.position, 1, 'x' FROM webhook_deliveries d, generate_series(1, 150) WHERE d.endpoint_id = $1",
        &id,
    )
    .await;
    let sender = book.sender();
    until("all are delivered", async || {
        book.deliveries(&id).await.iter().all(|one| one.state == DeliveryState::Delivered)
    })
    .await;
    sender.stop().await;
    let attempts = async || {
        let count = "SELECT count(*) FROM webhook_attempts JOIN webhook_deliveries USING (position)
                     WHERE event_id = 'new' GROUP BY event_id";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&book.pool).await.unwrap()
    };
    assert_eq!(attempts().await, 100);

    let mut connection = book.pool.acquire().await.unwrap();
    assert_eq!(endpoints::delete(&mut connection, "acme", &deleted).await.unwrap(), Wish::Done(()));
    book.sql(
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days', ended_at = now() - interval '31 days' WHERE endpoint_id = $1 AND event_id = 'old'",
        &id,
    )
    .await;
    assert_eq!(keep::prune(&book.pool, Duration::from_secs(30 * 86_400)).await.unwrap(), 2);
    let left: Vec<(String,)> =
        sqlx::query_as("SELECT event_id FROM webhook_deliveries").fetch_all(&book.pool).await.unwrap();
    assert_eq!(left, [("new".to_owned(),)], "not the old one, and none of the deleted endpoint");
    let endpoints: i64 =
        sqlx::query_scalar("SELECT count(*) FROM webhook_endpoints").fetch_one(&book.pool).await.unwrap();
    assert_eq!(endpoints, 1);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_what_is_still_tried_is_kept_however_old(pool: PgPool) {
    let book = Book::new(pool);
    let active = book.endpoint("acme", URL, &["happened"]).await.id;
    let disabled = book.endpoint("acme", URL, &["other"]).await.id;
    for event in ["replayed", "ended-lately"] {
        book.happens("acme", event, "happened").await;
    }
    book.happens("acme", "waits", "other").await;
    book.sql(
        "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = 'by_tenant' WHERE endpoint_id = $1",
        &disabled,
    )
    .await;
    book.sql(
        "UPDATE webhook_deliveries SET next_attempt_at = now() - interval '31 days' WHERE endpoint_id = $1",
        &disabled,
    )
    .await;
    book.sql(
        "UPDATE webhook_deliveries SET created_at = now() - interval '31 days',
                state = 'failed', ended_at = now() - interval '1 day' WHERE endpoint_id = $1",
        &active,
    )
    .await;
    let mut connection = book.pool.acquire().await.unwrap();
    assert_eq!(
        deliveries::replay(&mut connection, &active, "replayed").await.unwrap(),
        deliveries::Replay::Due
    );
    assert_eq!(keep::prune(&book.pool, Duration::from_secs(30 * 86_400)).await.unwrap(), 1);
    let left: Vec<_> = book.deliveries(&active).await.into_iter().map(|one| one.event_id).collect();
    assert_eq!(left, ["ended-lately", "replayed"]);
    assert!(
        book.deliveries(&disabled).await.is_empty(),
        "it has waited in vain for as long as anything is kept"
    );
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn what_waits_is_measured(pool: PgPool) {
    let book = Book::new(pool);
    let id = book.endpoint("acme", URL, &[]).await.id;
    let disabled = book.endpoint("acme", URL, &[]).await.id;
    for event in ["e1", "e2"] {
        book.happens("acme", event, "happened").await;
    }
    book.sql("UPDATE webhook_deliveries SET next_attempt_at = now() + interval '1 hour' WHERE event_id = 'e2' AND endpoint_id = $1", &id)
        .await;
    book.sql("UPDATE webhook_deliveries SET next_attempt_at = now() - interval '1 hour' WHERE event_id = 'e1' AND endpoint_id = $1", &id)
        .await;
    let mut connection = book.pool.acquire().await.unwrap();
    endpoints::disable_as_operator(&mut connection, &disabled, "ann: no").await.unwrap();
    let now = measure(&book.pool).await.unwrap();
    assert_eq!((now.active, now.disabled, now.pending, now.due), (1, 1, 2, 1));
    assert!((3_600_000..3_700_000).contains(&now.oldest_due_ms), "{now:?}");
}
