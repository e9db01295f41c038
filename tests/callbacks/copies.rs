//! A switch that sends a callback again and again (R17).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{anyhow, ensure};
use futures::future::try_join_all;
use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};

/// Copies of the callback, sent at once; as many follow after the payment's end.
const COPIES: usize = 100;

#[tokio::test]
async fn r17_a_hundred_copies_of_a_callback_debit_once_and_are_each_answered_200() -> anyhow::Result<()> {
    let system = System::start(
        "callback-copies",
        SystemOptions::default().with_long_attempts().with_profile("sla_ms", 600_000),
    )
    .await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold", "callback": {"lose": true}})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let success = TestCallback::success(&payment.reference, 500);
    // The copies come before the switch can confirm what they say.
    let copies = async || {
        // A database that stands still for seconds is a 503, after which a switch sends the copy again.
        let unavailable = AtomicUsize::new(0);
        let copy = || async {
            until("the copy is answered", Duration::from_secs(60), || async {
                let answer = system.post_callback(&success).await.map_err(|error| anyhow!("{error:#}"))?;
                if answer == 503 {
                    unavailable.fetch_add(1, Ordering::Relaxed);
                    return Ok(None);
                }
                Ok(Some(answer))
            })
            .await
        };
        let answers = try_join_all((0..COPIES).map(|_| copy())).await?;
        ensure!(answers.iter().all(|answer| *answer == 200), "{answers:?}");
        let unavailable = unavailable.into_inner();
        ensure!(unavailable < COPIES / 2, "{unavailable} copies were answered 503");
        anyhow::Ok(())
    };
    copies().await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    copies().await?;
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM switch_callbacks WHERE event_id = $1")
        .bind(&success.event_id)
        .fetch_one(&system.database.pool)
        .await?;
    ensure!(stored == 1, "{stored} rows of one callback");
    ensure!(system.available().await? == OPENING_MINOR - 500, "the copies were charged");
    ensure!(system.exceptions(&payment.payment_id).await?.is_empty(), "a copy is an exception");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}
