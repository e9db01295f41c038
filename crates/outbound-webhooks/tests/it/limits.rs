//! In-flight limits of endpoints and tenants, and fairness between tenants.

use outbound_webhooks::deliveries::DeliveryState;
use sqlx::PgPool;

use crate::support::{Reply, TestEndpoint, TestWebhooks, status, until};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_a_hung_webhook_endpoint_uses_up_only_its_own_in_flight_limit(pool: PgPool) {
    let mut webhooks = TestWebhooks::with_long_timeouts(pool);
    (webhooks.options.max_in_flight, webhooks.options.max_in_flight_per_endpoint) = (4, 2);
    let server =
        TestEndpoint::start(|request, _| if request.path == "hung" { Reply::Never } else { status(200) })
            .await;
    let hung = webhooks.endpoint("acme", &server.url("hung"), &["to_hung"]).await;
    let well = webhooks.endpoint("acme", &server.url("well"), &["to_well"]).await;
    for n in 0..20 {
        webhooks.publish("acme", &format!("h{n}"), "to_hung").await;
    }
    let _sender = webhooks.sender();
    until("the endpoint hangs", async || server.requests_to("hung").len() == 2).await;
    for n in 0..20 {
        webhooks.publish("acme", &format!("w{n}"), "to_well").await;
    }
    until("every delivery to the other endpoint succeeds", async || {
        webhooks.deliveries(&well.id).await.iter().all(|one| one.state == DeliveryState::Delivered)
    })
    .await;
    assert_eq!((server.max_in_flight("hung"), server.requests_to("hung").len()), (2, 2));
    assert!(webhooks.deliveries(&hung.id).await.iter().all(|one| one.state == DeliveryState::Pending));
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_hung_webhook_endpoints_use_up_only_their_tenants_in_flight_limit(pool: PgPool) {
    let mut webhooks = TestWebhooks::with_long_timeouts(pool);
    (
        webhooks.options.max_in_flight,
        webhooks.options.max_in_flight_per_endpoint,
        webhooks.options.max_in_flight_per_tenant,
    ) = (6, 2, 4);
    let server =
        TestEndpoint::start(|request, _| if request.path == "hung" { Reply::Never } else { status(200) })
            .await;
    for _ in 0..10 {
        webhooks.endpoint("acme", &server.url("hung"), &[]).await;
    }
    let well = webhooks.endpoint("globex", &server.url("well"), &[]).await;
    for n in 0..3 {
        assert_eq!(webhooks.publish("acme", &format!("h{n}"), "happened").await, 10);
    }
    let _sender = webhooks.sender();
    until("the endpoint hangs", async || server.requests_to("hung").len() == 4).await;
    for n in 0..20 {
        webhooks.publish("globex", &format!("w{n}"), "happened").await;
    }
    until("every delivery to the other endpoint succeeds", async || {
        webhooks.deliveries(&well.id).await.iter().all(|one| one.state == DeliveryState::Delivered)
    })
    .await;
    assert_eq!((server.max_in_flight("hung"), server.requests_to("hung").len()), (4, 4));
}

/// The endpoints answer, so none counts as failing, and their tenants always have due deliveries.
#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn s3_5_tenants_with_a_webhook_backlog_do_not_starve_another_tenant(pool: PgPool) {
    let mut webhooks = TestWebhooks::new(pool);
    (
        webhooks.options.max_in_flight,
        webhooks.options.max_in_flight_per_endpoint,
        webhooks.options.max_in_flight_per_tenant,
    ) = (2, 2, 2);
    let server = TestEndpoint::start(|_, _| status(200)).await;
    for tenant in ["acme", "initech"] {
        for _ in 0..10 {
            webhooks.endpoint(tenant, &server.url("busy"), &[]).await;
        }
        for n in 0..50 {
            assert_eq!(webhooks.publish(tenant, &format!("{tenant}-{n}"), "happened").await, 10);
        }
    }
    let quiet = webhooks.endpoint("globex", &server.url("quiet"), &[]).await;
    let _sender = webhooks.sender();
    until("the backlog is being sent", async || server.requests().len() > 20).await;
    webhooks.publish("globex", "w1", "happened").await;
    let before = server.requests().len();
    webhooks.wait_for_delivery(&quiet.id, "delivered", |one| one.state == DeliveryState::Delivered).await;
    let place = server.requests().iter().position(|one| one.path == "quiet").unwrap();
    // The order among three tenants is random; the two with a backlog have a thousand deliveries.
    assert!(
        place < before + 100,
        "expected soon after the {before} requests before it was due, got {place} requests before it"
    );
}
