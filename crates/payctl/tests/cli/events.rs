//! `payctl events`, and the customer notifications in `payctl show`.

use jiff::Timestamp;
use outbox::consume::{ParkedDelivery, park};

use crate::bank::Bank;

#[tokio::test]
async fn r23_payctl_lists_retries_and_discards_parked_events() {
    let bank = Bank::open().await;
    assert_eq!(bank.payctl(&["events", "parked"]).await.success(), "nothing is parked\n");
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
        published_at: Timestamp::UNIX_EPOCH,
        subject: "payments.0.transfer_sent".into(),
        event_id: None,
        payload: b"{".to_vec(),
        reason: "not an event".into(),
        deliveries: 5,
    };
    park(bank.ledger.pool(), &delivery, None).await.unwrap();

    let listed = bank.payctl(&["events", "parked"]).await.check_failed();
    for part in [event_id.as_str(), "too large", "PAYMENTS 7", "not an event"] {
        assert!(listed.contains(part), "{part}\n{listed}");
    }

    let retry = ["events", "retry", &event_id, "--reason", "the broker's limit is corrected"];
    assert!(bank.by("Ann", &retry).await.success().contains("queued to be published again"));
    let output = bank.by("Ann", &retry).await.refused();
    assert!(output.contains("is not parked"), "{output}");

    // An unreadable message is discarded once.
    let discard = ["events", "discard", "notifier", "PAYMENTS", "7", "--reason", "not ours"];
    let output = bank.by("Ann", &discard[..5]).await.refused();
    assert!(output.contains("--reason"), "{output}");
    bank.by("Ann", &[&discard[..6], &[" "]].concat()).await.refused();
    assert_eq!(
        bank.by("Ann", &discard).await.success(),
        "message PAYMENTS 7 discarded for consumer notifier\n"
    );
    let output = bank.by("Ann", &discard).await.refused();
    assert!(output.contains("message PAYMENTS 7 is not parked for consumer notifier"), "{output}");
    assert_eq!(bank.payctl(&["events", "parked"]).await.success(), "nothing is parked\n");
    let record: (String, String, Vec<u8>) =
        sqlx::query_as("SELECT discarded_by, discarded_reason, payload FROM parked_deliveries")
            .fetch_one(bank.ledger.pool())
            .await
            .unwrap();
    assert_eq!(record, ("Ann".into(), "not ours".into(), b"{".to_vec()));

    sqlx::query("UPDATE outbox SET published_at = now()").execute(bank.ledger.pool()).await.unwrap();
    let republish = ["events", "republish", "--since", "10m", "--reason", "the broker lost its disk"];
    assert_eq!(bank.by("Ann", &republish).await.success(), "2 queued to be published again\n");
    assert_eq!(bank.by("Ann", &republish).await.success(), "0 queued to be published again\n");
}

#[tokio::test]
async fn payctl_show_lists_the_customer_notifications_of_a_payment() {
    let bank = Bank::open().await;
    let id = bank.settled("one").await.id;
    sqlx::query("INSERT INTO notifications (payment_id, event_id, kind, message) VALUES ($1, 'e', 'transfer_sent', 'Transfer sent.')")
        .bind(id.as_str())
        .execute(bank.ledger.pool())
        .await
        .unwrap();
    let shown = bank.payctl(&["show", id.as_str()]).await;
    assert!(
        shown.stdout.contains("customer notifications") && shown.stdout.contains("Transfer sent."),
        "{}",
        shown.stdout
    );
    let document = bank.json(&["show", id.as_str()]).await;
    assert_eq!(document["notifications"][0]["message"], "Transfer sent.");
}
