//! FedNow: settled but not posted, then returned in parts; the end stays settled (I30, I31).

use std::time::Duration;

use serde_json::json;
use testkit::System;
use testkit::system::OPENING_MINOR;
use testkit::wait::until;

use crate::kinds::fednow;

const WITHIN: Duration = Duration::from_secs(30);

#[tokio::test]
async fn i30_i31_a_transfer_accepted_without_posting_settles_and_its_returns_are_credited()
-> anyhow::Result<()> {
    let system = System::start("returns", fednow()).await?;
    let behaviour = json!({"callback": {"posting": "pending", "copies": 2}});
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500);
    let timeline = system.timeline(&payment.payment_id).await?;
    assert!(timeline.iter().any(|line| line.contains("has not posted it to the payee yet")), "{timeline:?}");

    let id = system.transfer_name(&payment.payment_id).await?;
    system.switch.report_posting(&id, "return_coming").await?;
    system.switch.return_part(&id, "first", 200).await?;
    system.switch.return_part(&id, "second", 300).await?;
    let credited = || async { Ok((system.available().await? == OPENING_MINOR).then_some(())) };
    until("both returns are credited", WITHIN, credited).await?;
    let shown = system.payment(&payment.payment_id).await?;
    assert_eq!((&shown["status"], &shown["returned_minor"]), (&json!("settled"), &json!(500)), "{shown}");
    let kinds: Vec<String> =
        sqlx::query_scalar("SELECT kind FROM outbox WHERE subject_key = $1 ORDER BY sequence")
            .bind(&payment.payment_id)
            .fetch_all(&system.database.pool)
            .await?;
    assert_eq!(kinds[kinds.len() - 2..], ["transfer_returned", "transfer_returned"]);
    assert!(system.exceptions(&payment.payment_id).await?.is_empty());
    let audit = system.audit().await?;
    assert_eq!((audit.payments, audit.debited), (1, 0), "nothing is charged in the end");
    Ok(())
}
