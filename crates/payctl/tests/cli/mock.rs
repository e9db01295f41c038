//! The mock switch itself, on a database of its own, in this process.

use mock_switch::{Config, RunningSwitch, Shape};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::scratch::Scratch;

/// A switch with nothing in its book. Nothing settles by itself, unless it is told to.
pub(crate) struct Mock {
    pub(crate) url: String,
    stop: CancellationToken,
    running: RunningSwitch,
    _scratch: Scratch,
}

impl Mock {
    pub(crate) async fn start(shape: Shape, settle_after_ms: u64) -> Self {
        let scratch = Scratch::new();
        let config = Config {
            listen: ([127, 0, 0, 1], 0).into(),
            database_url: scratch.url().to_owned(),
            // Nobody follows_switch there: what is called back is of no matter here.
            callback_url: "http://127.0.0.1:1/callbacks".into(),
            sandbox_amounts: false,
            shape,
            settle_after_ms,
            ..Config::default()
        };
        let pool = mock_switch::connect(&config).await.unwrap();
        let stop = CancellationToken::new();
        let metrics = service_kit::metrics::install().unwrap();
        let running = mock_switch::start(config, pool, metrics, stop.clone()).await.unwrap();
        let url = format!("http://{}", running.address());
        Self { url, stop, running, _scratch: scratch }
    }

    /// Lets a transfer come in and settle that was not sent by the bank's own ways.
    pub(crate) async fn settle(&self, reference: &str, amount_minor: i64) {
        let order = json!({"reference": reference, "amount_minor": amount_minor, "currency": "EUR",
            "creditor_account": "FR-CAROL-EUR"});
        self.post("/v1/transfers", order).await;
        self.post(&format!("/admin/transfers/{reference}/settle"), json!({})).await;
    }

    /// Every transfer in its book.
    pub(crate) async fn book(&self) -> Value {
        let http = testkit::http();
        http.get(format!("{}/admin/book", self.url)).send().await.unwrap().json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) {
        let request = testkit::http().post(format!("{}{path}", self.url)).bearer_auth("demo-switch-token");
        let answer = request.json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {:?}", answer.text().await);
    }

    /// Stops it in order; its database goes with it.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.running.finished().await.unwrap();
    }
}
