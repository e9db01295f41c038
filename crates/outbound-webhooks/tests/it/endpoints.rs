//! Endpoints: fan-out of events, the limit per tenant, ownership, and operator commands.

use std::sync::Arc;

use outbound_webhooks::endpoints::{
    self, CreateEndpointOutcome, DisabledReason, EndpointChange, EndpointScope, EndpointStatus,
    EndpointUpdateOutcome,
};
use outbound_webhooks::target::Target;
use outbound_webhooks::{EndpointId, FanOutError, WebhookEvent, fan_out};
use postgres_kit::Pool;
use serde_json::json;
use sqlx::PgPool;
use trace_kit::TraceParent;

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

/// Events of several tenants, each with the body and the trace that are its own.
#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn events_that_fan_out_together_reach_the_webhook_endpoints_of_their_own_tenants(pool: PgPool) {
    let webhooks = TestWebhooks::new(pool);
    let acme = webhooks.endpoint("acme", CLOSED_PORT_URL, &[]).await;
    let globex = webhooks.endpoint("globex", CLOSED_PORT_URL, &["sent"]).await;
    let trace = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let data = ["acme-1", "globex-1", "nobody-1", "globex-2", "acme-2"].map(|id| json!({"of": id}));
    let event = |n: usize, kind| {
        let event_id = data[n]["of"].as_str().unwrap();
        let (tenant, number) = event_id.split_once('-').unwrap();
        WebhookEvent {
            tenant,
            event_id,
            kind,
            version: 1,
            key: "k",
            sequence: number.parse().unwrap(),
            at: jiff::Timestamp::UNIX_EPOCH,
            data: &data[n],
            trace_parent: (tenant == "acme").then_some(&trace),
        }
    };
    let events =
        [event(0, "pending"), event(1, "pending"), event(2, "sent"), event(3, "sent"), event(4, "sent")];
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    assert_eq!(fan_out(&mut connection, &events).await.unwrap(), 3);
    assert_eq!(fan_out(&mut connection, &events).await.unwrap(), 0, "expected one delivery of each event");
    assert_eq!(fan_out(&mut connection, &[event(2, "sent")]).await.unwrap(), 0);
    let rows: Vec<(String, String, String, String, Option<String>)> = sqlx::query_as(
        "SELECT endpoint_id, kind, event_id, body::json #>> '{data,of}', trace_parent FROM webhook_deliveries ORDER BY position",
    )
    .fetch_all(&webhooks.pool)
    .await
    .unwrap();
    let row = |endpoint: &EndpointId, kind: &str, id: &str, trace: Option<&TraceParent>| {
        (
            endpoint.to_string(),
            kind.to_owned(),
            id.to_owned(),
            id.to_owned(),
            trace.map(TraceParent::to_string),
        )
    };
    let expected = [
        row(&acme.id, "pending", "acme-1", Some(&trace)),
        row(&globex.id, "sent", "globex-2", None),
        row(&acme.id, "sent", "acme-2", Some(&trace)),
    ];
    assert_eq!(rows, expected);
}

#[sqlx::test(migrator = "outbound_webhooks::MIGRATOR")]
async fn an_ambiguous_webhook_event_id_is_rejected(pool: PgPool) {
    let data = json!({});
    let mut tx = Pool::from(pool.clone()).begin().await.unwrap();
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
            trace_parent: None,
        };
        assert!(matches!(fan_out(&mut tx, &[message]).await, Err(FanOutError::EventId)), "{event_id:?}");
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
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
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
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
    let connection = &mut connection;
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
    let mut connection = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
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

    let mut operator = Pool::from(webhooks.pool.clone()).acquire().await.unwrap();
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
