//! `payctl webhooks`: endpoints, deliveries and replays.

use jiff::Timestamp;
use outbound_webhooks::endpoints::{self, CreateEndpointOutcome, NewEndpoint};
use outbound_webhooks::target::Target;
use outbound_webhooks::{OutboundWebhooksOptions, WebhookEvent, fan_out};
use postgres_kit::Pool;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::run::{CommandResult, payctl};
use crate::staff::Staff;

struct Webhooks {
    staff: Staff,
    pool: PgPool,
    /// Id of tenant acme's endpoint.
    endpoint: String,
}

impl Webhooks {
    /// An endpoint with two deliveries, one of them failed.
    async fn open() -> Self {
        let staff = Staff::open().await;
        let pool = staff.pool.clone();
        let master_key = Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".into());
        let options =
            OutboundWebhooksOptions { master_key, ..OutboundWebhooksOptions::default() }.check().unwrap();
        let target = Target::parse("https://bank.example/hooks", &options.rules).unwrap();
        let new = NewEndpoint { tenant: "acme", target: &target, kinds: &[] };
        let mut connection = Pool::from(pool.clone()).acquire().await.unwrap();
        let created = endpoints::create(&mut connection, options.master_key.as_ref().unwrap(), new, 10).await;
        let CreateEndpointOutcome::Created(endpoint) = created.unwrap() else {
            panic!("expected a new endpoint")
        };
        for event_id in ["pay_1:transfer_pending", "pay_1:transfer_sent"] {
            let (at, data) = (Timestamp::UNIX_EPOCH, json!({}));
            let (kind, key) = ("transfer_sent", "pay_1");
            let message = WebhookEvent {
                tenant: "acme",
                event_id,
                kind,
                version: 1,
                key,
                sequence: 1,
                at,
                data: &data,
                trace_parent: None,
            };
            fan_out(&mut connection, &[message]).await.unwrap();
        }
        sqlx::raw_sql(
            "UPDATE webhook_deliveries SET state = 'failed', failed_attempts = 10, ended_at = now() WHERE event_id = 'pay_1:transfer_sent';
             INSERT INTO webhook_attempts (position, duration_ms, response_status, error)
             SELECT position, 12, 500, 'answered 500' FROM webhook_deliveries WHERE state = 'failed'",
        )
        .execute(&pool)
        .await
        .unwrap();
        Self { staff, pool, endpoint: endpoint.id.to_string() }
    }

    async fn run(&self, args: &[&str]) -> CommandResult {
        payctl(&[&["webhooks"], args, &["--database-url", &self.staff.scratch.reading_url()]].concat()).await
    }

    /// What ann does.
    async fn ann(&self, args: &[&str]) -> CommandResult {
        self.staff.ann(&[&["webhooks"], args, &["--reason", "a flood"]].concat()).await
    }

    async fn json(&self, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["--json"]].concat()).await;
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
    }

    async fn failed(&self) -> i64 {
        let failed = "SELECT count(*) FROM webhook_deliveries WHERE state = 'failed'";
        sqlx::query_scalar(failed).fetch_one(&self.pool).await.unwrap()
    }
}

#[tokio::test]
async fn payctl_lists_webhook_endpoints_and_deliveries_without_secrets() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    for output in [webhooks.run(&["list"]).await.success(), webhooks.run(&["show", id]).await.success()] {
        for part in [id, "acme", "active", "https://bank.example/hooks"] {
            assert!(output.contains(part), "{part}\n{output}");
        }
        assert!(!output.contains("whsec_"), "{output}");
    }
    assert_eq!(
        webhooks.run(&["list", "--tenant", "globex"]).await.success(),
        "no webhook endpoint matches\n"
    );
    let listed = webhooks.json(&["list"]).await;
    assert_eq!(listed["webhook_endpoints"][0], webhooks.json(&["show", id]).await);

    let output = webhooks.run(&["deliveries", id]).await.check_failed();
    for part in ["pay_1:transfer_sent", "failed", "answered 500", "pay_1:transfer_pending", "pending"] {
        assert!(output.contains(part), "{part}\n{output}");
    }
    let pending = webhooks.run(&["deliveries", id, "--state", "pending"]).await.success();
    assert!(!pending.contains("transfer_sent") && pending.contains("none"), "{pending}");
    let document = webhooks.json(&["deliveries", id, "--state", "failed"]).await;
    assert_eq!(document["deliveries"][0]["attempts"][0]["response_status"], 500);
    let unknown = "whe_00000000000000000000000000000000";
    for command in ["show", "deliveries"] {
        let output = webhooks.run(&[command, unknown]).await.refused();
        assert!(output.contains("there is no webhook endpoint"), "{output}");
    }
}

#[tokio::test]
async fn payctl_replays_failed_webhook_deliveries() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    assert_eq!(
        webhooks.ann(&["replay", id, "--failed-since", "1h"]).await.success(),
        format!("1 queued for webhook endpoint {id}\n")
    );
    assert_eq!(webhooks.failed().await, 0);
    assert_eq!(
        webhooks.ann(&["replay", id, "--failed-since", "1h"]).await.success(),
        format!("0 queued for webhook endpoint {id}\n")
    );
    let output = webhooks.ann(&["replay", id, "pay_1:transfer_sent"]).await.success();
    assert_eq!(output, format!("event pay_1:transfer_sent queued for webhook endpoint {id}\n"));
    let output = webhooks.ann(&["replay", id, "pay_2:transfer_sent"]).await.refused();
    assert!(output.contains("has no delivery of event pay_2:transfer_sent"), "{output}");
    webhooks.ann(&["replay", id]).await.refused();
}

#[tokio::test]
async fn payctl_disables_and_enables_a_webhook_endpoint_in_an_operators_session() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    let output = webhooks.staff.ann(&["webhooks", "disable", id, "--reason", " "]).await.refused();
    assert!(output.contains("reason"), "{output}");
    let output = webhooks.staff.bob(&["webhooks", "disable", id, "--reason", "a flood"]).await.refused();
    assert!(output.contains("role_missing"), "{output}");
    let unknown = "whe_00000000000000000000000000000000";
    let output = webhooks.ann(&["disable", unknown]).await.refused();
    assert!(output.contains("there is no webhook endpoint"), "{output}");
    assert_eq!(webhooks.json(&["show", id]).await["status"], "active");

    webhooks.ann(&["disable", id]).await.success();
    let shown = webhooks.json(&["show", id]).await;
    assert_eq!(
        (&shown["disabled_reason"], &shown["disabled_note"]),
        (&json!("by_operator"), &json!("ann: a flood"))
    );
    for replay in [["replay", id, "--failed-since=1h"], ["replay", id, "pay_1:transfer_sent"]] {
        let output = webhooks.ann(&replay).await.refused();
        assert!(output.contains("is disabled"), "{output}");
    }
    assert_eq!(webhooks.failed().await, 1);
    webhooks.ann(&["enable", id]).await.success();
    assert_eq!(webhooks.json(&["show", id]).await["status"], "active");
    webhooks.ann(&["enable", id]).await.refused();
}

#[tokio::test]
async fn payctl_replays_all_recently_failed_webhook_deliveries_and_no_older() {
    let webhooks = Webhooks::open().await;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at, created_at)
         SELECT $1, 'pay_' || n, 'transfer_sent', '{}', 'failed', now(),
                now() - CASE WHEN n > 12000 THEN interval '2 hours' ELSE interval '0' END
         FROM generate_series(2, 12003) n",
    )
    .bind(&webhooks.endpoint)
    .execute(&webhooks.pool)
    .await
    .unwrap();
    let output = webhooks.ann(&["replay", &webhooks.endpoint, "--failed-since", "1h"]).await.success();
    let id = &webhooks.endpoint;
    assert_eq!(
        output,
        format!("10000 queued for webhook endpoint {id}\n2000 queued for webhook endpoint {id}\n")
    );
    assert_eq!(webhooks.failed().await, 3);
}
