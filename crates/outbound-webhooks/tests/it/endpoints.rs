//! Endpoints: fan-out of events, the limit per tenant, ownership, and operator commands.

use std::sync::Arc;

use outbound_webhooks::endpoints::{
    self, CreateEndpointOutcome, DisabledReason, EndpointChange, EndpointScope, EndpointStatus,
    EndpointUpdateOutcome,
};
use outbound_webhooks::target::Target;
use outbound_webhooks::{EndpointId, FanOutError, WebhookEvent, fan_out};
use serde_json::json;
use sqlx::PgPool;

use crate::support::{CLOSED_PORT_URL, TestWebhooks, master_key};

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_event_fans_out_to_matching_webhook_endpoints_of_its_tenant(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let all = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await;
    let some = webhooks.endpoint("acme", CLOSED_PORT_URL, &["sent", "failed"]).await;
    let other = webhooks.endpoint("globex", CLOSED_PORT_URL, &[]).await;
    assert_eq!(webhooks.publish("acme", "e1", "sent").await, 2);
    assert_eq!(
        webhooks.publish("acme", "e1", "sent").await,
        0,
        "expected no second delivery of the same event"
    );
    assert_eq!(webhooks.publish("acme", "e2", "pending").await, 1);
    assert_eq!(webhooks.publish("nobody", "e3", "sent").await, 0);
    let event_ids = async |id: &EndpointId| {
        let all = webhooks.deliveries(id).await;
        all.into_iter().map(|delivery| delivery.event_id).collect::<Vec<_>>()
    };
    assert_eq!(event_ids(&all.id).await, ["e2", "e1"]);
    assert_eq!(event_ids(&some.id).await, ["e1"]);
    assert!(event_ids(&other.id).await.is_empty());
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_ambiguous_webhook_event_id_is_rejected(pool: PgPool) {
    let data = json!({});
    let mut tx = pool.begin().await.unwrap();
    for event_id in ["", "a.b", "a b", "a\n", "é", &"x".repeat(257)] {
        let at = jiff::Timestamp::UNIX_EPOCH;
        let message = WebhookEvent {
            tenant: "t",
            event_id,
            kind: "k",
            version: 1,
            key: "k",
            sequence: 1,
            at,
            data: &data,
        };
        assert!(matches!(fan_out(&mut tx, &message).await, Err(FanOutError::EventId)), "{event_id:?}");
    }
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn concurrent_webhook_endpoint_creations_respect_the_tenants_limit(pool: PgPool) {
    let webhooks = Arc::new(TestWebhooks::new(pool));
    let creations: Vec<_> = (0..16)
        .map(|_| {
            let webhooks = Arc::clone(&webhooks);
            tokio::spawn(async move { webhooks.try_endpoint("acme", CLOSED_PORT_URL, &[]).await })
        })
        .collect();
    let mut created = Vec::new();
    for one in creations {
        if let CreateEndpointOutcome::Created(endpoint) = one.await.unwrap() {
            created.push(endpoint);
        }
    }
    assert_eq!(created.len(), 10);
    assert!(matches!(
        webhooks.try_endpoint("globex", CLOSED_PORT_URL, &[]).await,
        CreateEndpointOutcome::Created(_)
    ));
    let mut connection = webhooks.pool.acquire().await.unwrap();
    assert_eq!(
        endpoints::delete(&mut connection, "acme", &created[0].id).await.unwrap(),
        EndpointUpdateOutcome::Done(())
    );
    assert!(
        matches!(
            webhooks.try_endpoint("acme", CLOSED_PORT_URL, &[]).await,
            CreateEndpointOutcome::Created(_)
        ),
        "expected a deleted endpoint not to count"
    );
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_webhook_endpoint_of_another_tenant_is_not_found(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let theirs = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await;
    let id = &theirs.id;
    let key = master_key(&webhooks.options);
    let mut connection = webhooks.pool.acquire().await.unwrap();
    let connection = &mut *connection;
    assert_eq!(endpoints::get(connection, EndpointScope::Tenant("globex"), id).await.unwrap(), None);
    assert_eq!(endpoints::list(connection, EndpointScope::Tenant("globex"), 10).await.unwrap(), []);
    assert_eq!(
        endpoints::change(connection, "globex", id, EndpointChange::default()).await.unwrap(),
        EndpointUpdateOutcome::NotFound
    );
    assert_eq!(endpoints::rotate(connection, key, "globex", id, 0).await.unwrap(), None);
    assert_eq!(endpoints::delete(connection, "globex", id).await.unwrap(), EndpointUpdateOutcome::NotFound);
    assert_eq!(webhooks.read(id).await, theirs);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn a_tenant_cannot_enable_a_webhook_endpoint_an_operator_disabled(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let id = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await.id;
    let mut connection = webhooks.pool.acquire().await.unwrap();
    let set = |status| EndpointChange { status: Some(status), ..EndpointChange::default() };
    let mut change = async |to| match endpoints::change(&mut connection, "acme", &id, set(to)).await.unwrap()
    {
        EndpointUpdateOutcome::Done(endpoint) => Some((endpoint.status, endpoint.disabled_reason)),
        refused => {
            assert_eq!(refused, EndpointUpdateOutcome::DisabledByOperator);
            None
        }
    };
    assert_eq!(
        change(EndpointStatus::Disabled).await,
        Some((EndpointStatus::Disabled, Some(DisabledReason::Tenant)))
    );
    assert_eq!(change(EndpointStatus::Active).await, Some((EndpointStatus::Active, None)));

    let mut operator = webhooks.pool.acquire().await.unwrap();
    assert!(endpoints::disable_as_operator(&mut operator, &id, "ann: it floods us").await.unwrap());
    assert_eq!(change(EndpointStatus::Active).await, None);
    assert_eq!(change(EndpointStatus::Disabled).await, None, "expected the reason to stay operator");
    assert_eq!(
        endpoints::delete(&mut connection, "acme", &id).await.unwrap(),
        EndpointUpdateOutcome::DisabledByOperator
    );
    // The tenant cannot create another endpoint on that host; another tenant can.
    assert_eq!(
        webhooks.try_endpoint("acme", CLOSED_PORT_URL, &[]).await,
        CreateEndpointOutcome::DisabledByOperator
    );
    assert!(matches!(
        webhooks.try_endpoint("globex", CLOSED_PORT_URL, &[]).await,
        CreateEndpointOutcome::Created(_)
    ));
    let elsewhere = webhooks.endpoint("acme", "https://elsewhere.example/hook", &[]).await.id;
    let there = Target::parse(&format!("{CLOSED_PORT_URL}/other"), &webhooks.options.rules).unwrap();
    let move_there = EndpointChange { target: Some(&there), ..EndpointChange::default() };
    let moved = endpoints::change(&mut connection, "acme", &elsewhere, move_there).await.unwrap();
    assert_eq!(moved, EndpointUpdateOutcome::DisabledByOperator);
    let unchanged = webhooks.read(&id).await;
    assert_eq!(
        (unchanged.status, unchanged.disabled_reason),
        (EndpointStatus::Disabled, Some(DisabledReason::Operator))
    );
    assert_eq!(unchanged.disabled_note.as_deref(), Some("ann: it floods us"));
    assert!(endpoints::enable_as_operator(&mut connection, &id).await.unwrap());
    assert!(!endpoints::enable_as_operator(&mut connection, &id).await.unwrap());
    assert_eq!(webhooks.read(&id).await.status, EndpointStatus::Active);
}
