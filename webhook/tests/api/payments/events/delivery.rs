//! Every entry is delivered once, in order, and the final event last.

use sqlx::PgPool;

use super::client::{StreamResponse, names, open, open_before_next_page};
use super::{INTERNAL, add_entry, insert_entry, settle, settle_in, wait_for_lock_waiter};
use crate::support::{ACME, ACME_TILL, Api, PAYMENTS};

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn event_streams_send_timeline_entries_as_written_and_close_at_the_end(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let mut stream = open(&api, &id, None).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    assert_eq!(stream.headers["cache-control"], "no-store");
    assert_eq!(stream.block().await.as_deref(), Some("retry: 2000"));
    let mut events = stream.take(1).await;
    for state in ["reserved", "submitted"] {
        // Internal entries are skipped and have no position.
        insert_entry(&api.pool, &id, state, "an internal note", INTERNAL).await;
        add_entry(&api, &id, state).await;
        events.extend(stream.take(1).await);
    }
    settle(&api, &id).await;
    events.extend(stream.rest().await);

    assert_eq!(names(&events), ["accepted", "reserved", "submitted", "settled", "end"]);
    let ids: Vec<_> = events.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "end"]);
    // The same data as GET returns.
    let mut payment = api.get(ACME, &format!("{PAYMENTS}/{id}")).await.json;
    let timeline = payment["timeline"].as_array().unwrap().clone();
    assert_eq!(events[..4].iter().map(|event| event.data.clone()).collect::<Vec<_>>(), timeline);
    for other in ["timeline", "notifications"] {
        payment.as_object_mut().unwrap().remove(other);
    }
    assert_eq!(events[4].data, payment);

    assert_eq!(open(&api, &id, None).await.rest().await, events, "a stream opened after the end");
    let till = StreamResponse::open(&api, ACME_TILL, &id, "", None).await;
    assert_eq!(till.rest().await, events, "another client of the tenant");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_event_stream_does_not_skip_a_timeline_entry_committed_late(pool: PgPool) {
    let api = Api::new(pool).await;
    let ((slow, _), (quick, _)) = (api.accepted_payment("slow").await, api.accepted_payment("quick").await);
    let (mut slow_stream, mut quick_stream) = (open(&api, &slow, None).await, open(&api, &quick, None).await);
    slow_stream.take(1).await;
    quick_stream.take(1).await;
    // The slow entry takes its number first, and commits after the quick entry was received.
    let committing = async {
        let mut tx = api.pool.begin().await.unwrap();
        insert_entry(&mut *tx, &slow, "reserved", "early number", !INTERNAL).await;
        add_entry(&api, &quick, "reserved").await;
        assert_eq!(names(&quick_stream.take(1).await), ["reserved"]);
        tx.commit().await.unwrap();
    };
    // Read concurrently, so that no earlier update is pending.
    let (late, ()) = tokio::join!(slow_stream.take(1), committing);
    assert_eq!(names(&late), ["reserved"]);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn timeline_entries_of_a_payment_are_committed_in_number_order(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, _) = api.accepted_payment("k").await;
    let mut tx = api.pool.begin().await.unwrap();
    let lock = "SELECT FROM payments WHERE payment_id = $1 FOR UPDATE";
    sqlx::query(lock).bind(&id).execute(&mut *tx).await.unwrap();
    insert_entry(&mut *tx, &id, "reserved", "the first number", !INTERNAL).await;
    let cancel = format!("{PAYMENTS}/{id}/cancel");
    // Without the lock of the payment's row the cancel would take the second number and commit first.
    let committing = async {
        wait_for_lock_waiter(&api).await;
        tx.commit().await.unwrap();
    };
    let (cancelled, ()) = tokio::join!(api.post(ACME, &cancel, "c", ""), committing);
    assert_eq!(cancelled.status, 202);
    let events = open(&api, &id, None).await.take(3).await;
    let details: Vec<_> = events[1..].iter().map(|event| event.data["detail"].clone()).collect();
    assert_eq!(details, ["the first number", "the customer requested a cancel"]);
}

/// One commit writes both: a read during this commit must not find the end without its entry.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_end_of_an_event_stream_is_never_sent_before_its_timeline_entry(pool: PgPool) {
    let api = Api::new(pool).await;
    let (id, stream) = open_before_next_page(&api).await;
    let mut tx = api.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE payments").execute(&mut *tx).await.unwrap();
    let settling = async {
        wait_for_lock_waiter(&api).await;
        settle_in(tx, &id).await;
    };
    let (rest, ()) = tokio::join!(stream.rest(), settling);
    assert_eq!(names(&rest), ["settled", "end"]);
}
