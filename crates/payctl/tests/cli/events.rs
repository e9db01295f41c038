//! `events`, and what `show` says of them.

use outbox::intake::{ParkedDelivery, park};

use crate::bank::Bank;

#[tokio::test]
async fn r23_what_is_parked_is_listed_and_tried_again() {
    let bank = Bank::open().await;
    assert_eq!(bank.payctl(&["events", "parked"]).await.done(), "nothing is parked\n");
    let id = bank.settled("one").await.id;
    let event_id = format!("{id}:transfer_sent");
    sqlx::query(
        "UPDATE outbox SET parked_at = now(), rejections = 5, rejection = 'too large' WHERE event_id = $1",
    )
    .bind(&event_id)
    .execute(bank.ledger.pool())
    .await
    .unwrap();
    let delivery = ParkedDelivery {
        consumer: "notifier".into(),
        stream: "PAYMENTS".into(),
        stream_sequence: 7,
        subject: "payments.0.transfer_sent".into(),
        event_id: None,
        payload: b"{".to_vec(),
        reason: "this is no event".into(),
        deliveries: 5,
    };
    park(bank.ledger.pool(), &delivery, None).await.unwrap();

    let listed = bank.payctl(&["events", "parked"]).await.not_as_it_should_be();
    for part in [event_id.as_str(), "too large", "PAYMENTS 7", "this is no event"] {
        assert!(listed.contains(part), "{part}\n{listed}");
    }

    assert!(bank.payctl(&["events", "retry", &event_id]).await.done().contains("published again"));
    let said = bank.payctl(&["events", "retry", &event_id]).await.refused();
    assert!(said.contains("is not parked"), "{said}");

    // What nobody can read is never taken in: a person lets go of it, once.
    let discard = ["events", "discard", "notifier", "PAYMENTS", "7", "--by", "ann", "--reason", "not ours"];
    let said = bank.payctl(&discard[..5]).await.refused();
    assert!(said.contains("--by"), "{said}");
    bank.payctl(&[&discard[..6], &[" ", "--reason", "not ours"]].concat()).await.refused();
    assert_eq!(bank.payctl(&discard).await.done(), "PAYMENTS 7 is discarded for notifier\n");
    let said = bank.payctl(&discard).await.refused();
    assert!(said.contains("PAYMENTS 7 is not parked for notifier"), "{said}");
    assert_eq!(bank.payctl(&["events", "parked"]).await.done(), "nothing is parked\n");
    let record: (String, String, Vec<u8>) =
        sqlx::query_as("SELECT discarded_by, discarded_reason, payload FROM parked_deliveries")
            .fetch_one(bank.ledger.pool())
            .await
            .unwrap();
    assert_eq!(record, ("ann".into(), "not ours".into(), b"{".to_vec()));

    sqlx::query("UPDATE outbox SET published_at = now()").execute(bank.ledger.pool()).await.unwrap();
    assert_eq!(
        bank.payctl(&["events", "republish", "--since", "10m"]).await.done(),
        "2 events are published again\n"
    );
}

#[tokio::test]
async fn what_the_customer_was_told_is_shown() {
    let bank = Bank::open().await;
    let id = bank.settled("one").await.id;
    sqlx::query("INSERT INTO notifications (payment_id, event_id, kind, message) VALUES ($1, 'e', 'transfer_sent', 'It went.')")
        .bind(id.as_str())
        .execute(bank.ledger.pool())
        .await
        .unwrap();
    let shown = bank.payctl(&["show", id.as_str()]).await;
    assert!(
        shown.stdout.contains("told the customer") && shown.stdout.contains("It went."),
        "{}",
        shown.stdout
    );
    let document = bank.json(&["show", id.as_str()]).await;
    assert_eq!(document["notifications"][0]["message"], "It went.");
}
