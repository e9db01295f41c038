//! `/api/v1/webhook-endpoints`: endpoints, their secrets and their deliveries. Delivery itself is tested in
//! `crates/outbound-webhooks`.

mod deliveries;
mod endpoints;
mod secrets;

use outbound_webhooks::{EndpointId, WebhookEvent, fan_out};
use postgres_kit::Pool;
use serde_json::{Value, json};

use crate::support::{ACME, Api};

const ENDPOINTS: &str = "/api/v1/webhook-endpoints";
const HOOK: &str = "https://bank.example/hooks";

fn request(url: &str) -> String {
    json!({ "url": url }).to_string()
}

fn path(endpoint: &Value) -> String {
    format!("{ENDPOINTS}/{}", endpoint["endpoint_id"].as_str().unwrap())
}

fn id(endpoint: &Value) -> EndpointId {
    EndpointId::new(endpoint["endpoint_id"].as_str().unwrap()).unwrap()
}

impl Api {
    async fn created_endpoint(&self, key: &str) -> Value {
        let response = self.post(ACME, ENDPOINTS, key, &request(HOOK)).await;
        assert_eq!(response.status, 201, "{response:?}");
        response.json
    }

    /// Creates the deliveries of an event of acme.
    async fn fan_out_event(&self, event_id: &str) {
        let data = json!({"payment_id": "pay_1"});
        let message = WebhookEvent {
            tenant: "acme",
            event_id,
            kind: "transfer_sent",
            version: 1,
            key: "pay_1",
            sequence: 1,
            at: jiff::Timestamp::UNIX_EPOCH,
            data: &data,
            trace_parent: None,
        };
        let mut connection = Pool::from(self.pool.clone()).acquire().await.unwrap();
        fan_out(&mut connection, &[message]).await.unwrap();
    }

    /// Asserts that the secret is stored neither as text nor in the bytes of a response.
    async fn assert_not_stored(&self, secret: &str) {
        let secret = secret.trim_start_matches("whsec_");
        for table in ["webhook_endpoints", "idempotency.keys"] {
            let rows = format!("SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t");
            let rows: String =
                sqlx::query_scalar(sqlx::AssertSqlSafe(rows)).fetch_one(&self.pool).await.unwrap();
            let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!rows.is_empty() && !rows.contains(secret) && !rows.contains(&hex), "{table}");
        }
    }

    async fn fail_all_deliveries(&self) {
        sqlx::query("UPDATE webhook_deliveries SET state = 'failed', failed_attempts = 10, ended_at = now()")
            .execute(&self.pool)
            .await
            .unwrap();
    }

    async fn scheduled_events(&self) -> Vec<String> {
        let due = "SELECT event_id FROM webhook_deliveries WHERE state = 'pending' AND failed_attempts = 0 ORDER BY event_id";
        sqlx::query_scalar(due).fetch_all(&self.pool).await.unwrap()
    }
}
