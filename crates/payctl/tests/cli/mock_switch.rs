//! The mock switch, in this process and on its own database.

use ::mock_switch::{Config, RunningSwitch, Shape};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::scratch_database::ScratchDatabase;

/// A mock switch without transfers.
pub(crate) struct MockSwitch {
    pub(crate) url: String,
    stop: CancellationToken,
    running: RunningSwitch,
    _scratch: ScratchDatabase,
}

impl MockSwitch {
    /// Starts the switch; a transfer settles after `settle_after_ms`.
    pub(crate) async fn start(shape: Shape, settle_after_ms: u64) -> Self {
        let scratch = ScratchDatabase::new();
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            database_url: scratch.url().to_owned(),
            // No server listens there: these tests ignore callbacks.
            callback_url: "http://127.0.0.1:1/callbacks".into(),
            sandbox_amounts: false,
            shape,
            settle_after_ms,
            ..Config::default()
        };
        let pool = ::mock_switch::connect(&config).await.unwrap();
        let stop = CancellationToken::new();
        let metrics = service_kit::metrics::install().unwrap();
        let running = ::mock_switch::start(config, pool, metrics, stop.clone()).await.unwrap();
        let url = format!("http://{}", running.address());
        Self { url, stop, running, _scratch: scratch }
    }

    /// Submits and settles a transfer directly at the switch.
    pub(crate) async fn settle(&self, reference: &str, amount_minor: i64) {
        let order = json!({"reference": reference, "amount_minor": amount_minor, "currency": "EUR",
            "creditor_account": "FR-CAROL-EUR"});
        self.post("/v1/transfers", order).await;
        self.post(&format!("/admin/transfers/{reference}/settle"), json!({})).await;
    }

    /// Every transfer at the switch.
    pub(crate) async fn book(&self) -> Value {
        let http = testkit::http();
        http.get(format!("{}/admin/book", self.url)).send().await.unwrap().json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) {
        let request = testkit::http().post(format!("{}{path}", self.url)).bearer_auth("demo-switch-token");
        let response = request.json(&body).send().await.unwrap();
        assert!(response.status().is_success(), "{path}: {:?}", response.text().await);
    }

    /// Stops the switch and drops its database.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.finished().await.unwrap();
    }
}
