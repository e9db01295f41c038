//! One payment request sent several times under one idempotency key (S0.1, S0.17, S4.1).

use testkit::system::{OPENING_MINOR, payment_request};
use testkit::{System, SystemOptions};

#[tokio::test]
async fn s0_1_s0_17_repeated_requests_are_one_payment_with_one_answer() -> anyhow::Result<()> {
    let system = System::start("twice", SystemOptions::default()).await?;
    let body = payment_request("7.00");
    let responses =
        futures::future::try_join_all((0..8).map(|_| system.post_payment("the-key", &body))).await?;
    let created = responses.iter().filter(|response| response.status() == 201).count();
    assert_eq!(created, 1);
    assert!(responses.iter().all(|response| matches!(response.status().as_u16(), 200 | 201 | 409)));

    let mut first = None;
    for response in responses {
        if response.status() != 409 {
            let text = response.text().await?;
            assert_eq!(first.get_or_insert_with(|| text.clone()), &text, "the bodies differ");
        }
    }
    let repeated = system.post_payment("the-key", &body).await?;
    assert_eq!(repeated.status(), 200);
    assert_eq!(repeated.headers()["Idempotent-Replay"], "true");
    assert_eq!(Some(repeated.text().await?), first);
    let changed = system.post_payment("the-key", &payment_request("7.01")).await?;
    assert_eq!(changed.status(), 422);

    let id: String =
        sqlx::query_scalar("SELECT payment_id FROM payments").fetch_one(&system.database.pool).await?;
    system.wait_for_state(&id, "settled").await?;
    assert_eq!(system.post_payment("the-key", &body).await?.status(), 200, "a repeat after the end");
    assert_eq!(system.available().await?, OPENING_MINOR - 700);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
