//! `payctl webhooks`: endpoints, deliveries and replays.

use jiff::Timestamp;
use outbound_webhooks::endpoints::{self, CreateEndpointOutcome, NewEndpoint};
use outbound_webhooks::target::Target;
use outbound_webhooks::{OutboundWebhooksOptions, WebhookEvent, fan_out};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::run::{CommandResult, payctl};
use crate::scratch_database::ScratchDatabase;

struct Webhooks {
    scratch: ScratchDatabase,
    pool: PgPool,
    /// Id of tenant acme's endpoint.
    endpoint: String,
}

impl Webhooks {
    /// An endpoint with two deliveries, one of them failed.
    async fn open() -> Self {
        let scratch = ScratchDatabase::migrated().await;
        let pool = PgPool::connect(scratch.url()).await.unwrap();
        let master_key = Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".into());
        let options =
            OutboundWebhooksOptions { master_key, ..OutboundWebhooksOptions::default() }.check().unwrap();
        let target = Target::parse("https://bank.example/hooks", &options.rules).unwrap();
        let new = NewEndpoint { tenant: "acme", target: &target, kinds: &[] };
        let mut connection = pool.acquire().await.unwrap();
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
        Self { scratch, pool, endpoint: endpoint.id.to_string() }
    }

    async fn run(&self, args: &[&str]) -> CommandResult {
        payctl(&[&["webhooks"], args, &["--database-url", self.scratch.url()]].concat()).await
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
        webhooks.run(&["replay", id, "--failed-since", "1h"]).await.success(),
        format!("1 failed delivery queued for webhook endpoint {id}\n")
    );
    assert_eq!(webhooks.failed().await, 0);
    let output = webhooks.run(&["replay", id, "pay_1:transfer_sent"]).await.success();
    assert_eq!(output, format!("event pay_1:transfer_sent queued for webhook endpoint {id}\n"));
    let output = webhooks.run(&["replay", id, "pay_2:transfer_sent"]).await.refused();
    assert!(output.contains("has no delivery of event pay_2:transfer_sent"), "{output}");
    webhooks.run(&["replay", id]).await.refused();
}

#[tokio::test]
async fn payctl_disables_a_webhook_endpoint_with_operator_name_and_reason() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    webhooks.run(&["disable", id, "--by", " ", "--reason", "x"]).await.refused();
    webhooks.run(&["disable", id, "--by", "ann", "--reason", "a flood"]).await.success();
    let shown = webhooks.json(&["show", id]).await;
    assert_eq!(
        (&shown["disabled_reason"], &shown["disabled_note"]),
        (&json!("by_operator"), &json!("ann: a flood"))
    );
    let output = webhooks.run(&["replay", id, "--failed-since", "1h"]).await.refused();
    assert!(output.contains("is disabled"), "{output}");
    webhooks.run(&["enable", id]).await.success();
    assert_eq!(webhooks.json(&["show", id]).await["status"], "active");
    webhooks.run(&["enable", id]).await.refused();
}

#[tokio::test]
async fn payctl_disables_only_a_known_webhook_endpoint_and_with_a_reason() {
    let webhooks = Webhooks::open().await;
    let unknown = "whe_00000000000000000000000000000000";
    let output = webhooks.run(&["disable", unknown, "--by", "ann", "--reason", "a flood"]).await.refused();
    assert!(output.contains("there is no webhook endpoint"), "{output}");
    let id = webhooks.endpoint.as_str();
    webhooks.run(&["disable", id, "--by", "ann", "--reason", " "]).await.refused();
    assert_eq!(webhooks.json(&["show", id]).await["status"], "active");

    webhooks.run(&["disable", id, "--by", "ann", "--reason", "a flood"]).await.success();
    let output = webhooks.run(&["replay", id, "pay_1:transfer_sent"]).await.refused();
    assert!(output.contains("is disabled"), "{output}");
    assert_eq!(webhooks.failed().await, 1);
}

#[tokio::test]
async fn payctl_replays_all_recently_failed_webhook_deliveries_and_no_older() {
    let webhooks = Webhooks::open().await;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at, created_at)
         SELECT $1, 'pay_' || n, 'transfer_sent', '{}', 'failed', now(),
                now() - CASE WHEN n > 1200 THEN interval '2 hours' ELSE interval '0' END
         FROM generate_series(2, 1203) n",
    )
    .bind(&webhooks.endpoint)
    .execute(&webhooks.pool)
    .await
    .unwrap();
    let output = webhooks.run(&["replay", &webhooks.endpoint, "--failed-since", "1h"]).await.success();
    assert_eq!(output, format!("1200 failed deliveries queued for webhook endpoint {}\n", webhooks.endpoint));
    assert_eq!(webhooks.failed().await, 3);
}
