//! `webhooks`: what operators see of endpoints, and what they do about them.

use jiff::Timestamp;
use outbound_webhooks::endpoints::{self, CreateEndpointOutcome, NewEndpoint};
use outbound_webhooks::target::Target;
use outbound_webhooks::{OutboundWebhooksOptions, WebhookEvent, fan_out};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::run::{Ran, payctl};
use crate::scratch::Scratch;

struct Webhooks {
    scratch: Scratch,
    pool: PgPool,
    /// The one endpoint of acme.
    endpoint: String,
}

impl Webhooks {
    /// With two events, of which one failed.
    async fn open() -> Self {
        let scratch = Scratch::migrated().await;
        let pool = PgPool::connect(scratch.url()).await.unwrap();
        let master_key = Some("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".into());
        let options =
            OutboundWebhooksOptions { master_key, ..OutboundWebhooksOptions::default() }.check().unwrap();
        let target = Target::parse("https://bank.example/hooks", &options.rules).unwrap();
        let new = NewEndpoint { tenant: "acme", target: &target, kinds: &[] };
        let mut connection = pool.acquire().await.unwrap();
        let made = endpoints::create(&mut connection, options.master_key.as_ref().unwrap(), new, 10).await;
        let CreateEndpointOutcome::Created(endpoint) = made.unwrap() else { panic!("no endpoint was made") };
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
            };
            fan_out(&mut connection, &message).await.unwrap();
        }
        sqlx::raw_sql(
            "UPDATE webhook_deliveries SET state = 'failed', tries = 10, ended_at = now() WHERE event_id = 'pay_1:transfer_sent';
             INSERT INTO webhook_attempts (position, took_ms, status, error)
             SELECT position, 12, 500, 'answered 500' FROM webhook_deliveries WHERE state = 'failed'",
        )
        .execute(&pool)
        .await
        .unwrap();
        Self { scratch, pool, endpoint: endpoint.id.to_string() }
    }

    async fn run(&self, args: &[&str]) -> Ran {
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
async fn endpoints_and_what_they_were_sent_are_shown() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    for said in [webhooks.run(&["list"]).await.done(), webhooks.run(&["show", id]).await.done()] {
        for part in [id, "acme", "active", "https://bank.example/hooks"] {
            assert!(said.contains(part), "{part}\n{said}");
        }
        assert!(!said.contains("whsec_"), "{said}");
    }
    assert_eq!(webhooks.run(&["list", "--tenant", "globex"]).await.done(), "no webhook endpoint\n");
    let listed = webhooks.json(&["list"]).await;
    assert_eq!(listed["webhook_endpoints"][0], webhooks.json(&["show", id]).await);

    let said = webhooks.run(&["deliveries", id]).await.not_as_it_should_be();
    for part in ["pay_1:transfer_sent", "failed", "answered 500", "pay_1:transfer_pending", "pending"] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let pending = webhooks.run(&["deliveries", id, "--state", "pending"]).await.done();
    assert!(!pending.contains("transfer_sent") && pending.contains("none"), "{pending}");
    let document = webhooks.json(&["deliveries", id, "--state", "failed"]).await;
    assert_eq!(document["deliveries"][0]["attempts"][0]["status"], 500);
    let unknown = "whe_00000000000000000000000000000000";
    for command in ["show", "deliveries"] {
        let said = webhooks.run(&[command, unknown]).await.refused();
        assert!(said.contains("there is no webhook endpoint"), "{said}");
    }
}

#[tokio::test]
async fn what_failed_is_sent_again() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    assert_eq!(
        webhooks.run(&["replay", id, "--failed-since", "1h"]).await.done(),
        "1 events are sent again\n"
    );
    assert_eq!(webhooks.failed().await, 0);
    let said = webhooks.run(&["replay", id, "pay_1:transfer_sent"]).await.done();
    assert_eq!(said, "pay_1:transfer_sent is sent again\n");
    let said = webhooks.run(&["replay", id, "pay_2:transfer_sent"]).await.refused();
    assert!(said.contains("was not to be sent"), "{said}");
    webhooks.run(&["replay", id]).await.refused();
}

#[tokio::test]
async fn an_endpoint_is_disabled_with_a_name_and_a_reason() {
    let webhooks = Webhooks::open().await;
    let id = webhooks.endpoint.as_str();
    webhooks.run(&["disable", id, "--by", " ", "--reason", "x"]).await.refused();
    webhooks.run(&["disable", id, "--by", "ann", "--reason", "a flood"]).await.done();
    let shown = webhooks.json(&["show", id]).await;
    assert_eq!(
        (&shown["disabled_for"], &shown["disabled_note"]),
        (&json!("operator"), &json!("ann: a flood"))
    );
    let said = webhooks.run(&["replay", id, "--failed-since", "1h"]).await.refused();
    assert!(said.contains("is disabled"), "{said}");
    webhooks.run(&["enable", id]).await.done();
    assert_eq!(webhooks.json(&["show", id]).await["status"], "active");
    webhooks.run(&["enable", id]).await.refused();
}

#[tokio::test]
async fn what_is_not_there_is_not_disabled_nor_anything_for_no_reason() {
    let webhooks = Webhooks::open().await;
    let unknown = "whe_00000000000000000000000000000000";
    let said = webhooks.run(&["disable", unknown, "--by", "ann", "--reason", "a flood"]).await.refused();
    assert!(said.contains("there is no webhook endpoint"), "{said}");
    let id = webhooks.endpoint.as_str();
    webhooks.run(&["disable", id, "--by", "ann", "--reason", " "]).await.refused();
    assert_eq!(webhooks.json(&["show", id]).await["status"], "active");

    webhooks.run(&["disable", id, "--by", "ann", "--reason", "a flood"]).await.done();
    let said = webhooks.run(&["replay", id, "pay_1:transfer_sent"]).await.refused();
    assert!(said.contains("is disabled"), "{said}");
    assert_eq!(webhooks.failed().await, 1);
}

#[tokio::test]
async fn however_much_failed_lately_is_sent_again_and_nothing_older() {
    let webhooks = Webhooks::open().await;
    sqlx::query(
        "INSERT INTO webhook_deliveries (endpoint_id, event_id, kind, body, state, ended_at, made_at)
         SELECT $1, 'pay_' || n, 'transfer_sent', '{}', 'failed', now(),
                now() - CASE WHEN n > 1200 THEN interval '2 hours' ELSE interval '0' END
         FROM generate_series(2, 1203) n",
    )
    .bind(&webhooks.endpoint)
    .execute(&webhooks.pool)
    .await
    .unwrap();
    let said = webhooks.run(&["replay", &webhooks.endpoint, "--failed-since", "1h"]).await.done();
    assert_eq!(said, "1200 events are sent again\n");
    assert_eq!(webhooks.failed().await, 3);
}
