//! The naive client's world: its process, a switch of its own, a gate between them, and the account that it charges.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, ensure};
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use testkit::environment::TestEnvironment;
use testkit::process::Process;
use testkit::switch::SwitchAdmin;
use testkit::system::{SWITCH_TOKEN, start_switch};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::gate::Gate;
use crate::run::{AMOUNT_MINOR, Entry, Outcome};

/// The environment variable of the client's address.
const LISTEN: &str = "NAIVE_CLIENT_LISTEN";

/// The account of one run.
#[derive(Default)]
pub(super) struct Account {
    charges: Vec<i64>,
    frozen: bool,
}

/// The running client.
pub(super) struct NaiveClient {
    pub(super) process: Process,
    pub(super) switch: SwitchAdmin,
    pub(super) gate: Gate,
    servers: TestEnvironment,
    folder: PathBuf,
    account: Arc<Mutex<Account>>,
    http: reqwest::Client,
    serving: JoinHandle<()>,
    /// Kept running.
    _mock_switch: Process,
}

fn lock(account: &Mutex<Account>) -> MutexGuard<'_, Account> {
    account.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Deserialize)]
struct Charge {
    amount_minor: i64,
}

/// `POST /charges`: books whatever it is asked to, unless the account is frozen.
async fn charge(State(account): State<Arc<Mutex<Account>>>, Json(charge): Json<Charge>) -> StatusCode {
    let mut account = lock(&account);
    if account.frozen {
        return StatusCode::CONFLICT;
    }
    account.charges.push(charge.amount_minor);
    StatusCode::OK
}

impl NaiveClient {
    pub(super) async fn start(servers: TestEnvironment) -> anyhow::Result<Self> {
        let gate = Gate::start().await?;
        let folder = servers.scratch.join(format!("naive-client-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(folder.join("orders"))?;
        let mock_switch =
            start_switch(&servers, &folder, format!("http://{}/callbacks/mock", gate.address), 0, false)
                .await?;
        let switch = SwitchAdmin::new(mock_switch.url());
        switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
        let account = Arc::<Mutex<Account>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.context("no port is free")?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/charges", post(charge)).with_state(Arc::clone(&account));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the naive client's account has stopped"
                );
            }
        });
        let process = start_client(&servers, &folder, &gate).await?;
        gate.connect(|targets| {
            targets.switch = mock_switch.url();
            targets.client = process.url();
            targets.account = format!("http://{address}");
        });
        let http = testkit::http();
        Ok(Self { process, switch, gate, servers, folder, account, http, serving, _mock_switch: mock_switch })
    }

    /// A new account for a run.
    pub(super) fn open_account(&self) {
        *lock(&self.account) = Account::default();
    }

    pub(super) fn freeze(&self) {
        lock(&self.account).frozen = true;
    }

    /// The customer orders; returns the order.
    pub(super) async fn order(&self) -> anyhow::Result<String> {
        let order = Uuid::new_v4().simple().to_string();
        let body = json!({"order": order, "amount_minor": AMOUNT_MINOR});
        let url = format!("{}/orders", self.process.url());
        let status = self.http.post(url).json(&body).send().await?.status();
        ensure!(status == StatusCode::ACCEPTED, "the naive client answered {status} to the order");
        Ok(order)
    }

    /// What the client says of an order: `open`, `settled` or `failed`.
    pub(super) fn answer(&self, order: &str) -> anyhow::Result<String> {
        let text = std::fs::read_to_string(self.folder.join("orders").join(order))?;
        Ok(text.split(' ').next().unwrap_or_default().to_owned())
    }

    /// A stranger's SUCCESS, which the switch did not send.
    pub(super) async fn forge(&self, reference: &str) -> anyhow::Result<()> {
        let body = json!({"reference": reference, "status": "SUCCESS", "amount_minor": AMOUNT_MINOR});
        let url = format!("{}/callbacks/mock", self.process.url());
        self.http.post(url).json(&body).send().await?.error_for_status()?;
        Ok(())
    }

    /// Stops the client (SIGSTOP) and starts another one; returns the stopped one.
    pub(super) async fn stop(&mut self) -> anyhow::Result<Process> {
        self.process.pause()?;
        let other = start_client(&self.servers, &self.folder, &self.gate).await?;
        self.gate.connect(|targets| targets.client = other.url());
        Ok(std::mem::replace(&mut self.process, other))
    }

    /// The account, and what left the bank, after the orders of a run have ended.
    pub(super) async fn outcome(&self, orders: &[String]) -> anyhow::Result<Outcome> {
        let first = orders.first().context("no order")?;
        let transfers = self.switch.transfers().await?.into_iter();
        let left_minor = transfers
            .filter(|transfer| transfer.status == "SETTLED")
            .filter(|transfer| orders.iter().any(|order| transfer.reference.starts_with(order.as_str())))
            .filter_map(|transfer| transfer.amount_minor)
            .sum();
        let account = lock(&self.account);
        let entries =
            account.charges.iter().map(|amount| Entry { text: "Payment".into(), amount_minor: -amount });
        Ok(Outcome {
            answer: self.answer(first)?,
            entries: entries.collect(),
            charged_minor: account.charges.iter().sum(),
            claimed_minor: 0,
            left_minor,
        })
    }
}

impl Drop for NaiveClient {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Starts an instance of the client; all share the orders.
async fn start_client(
    servers: &TestEnvironment,
    folder: &std::path::Path,
    gate: &Gate,
) -> anyhow::Result<Process> {
    let logs = folder.join(Uuid::new_v4().simple().to_string());
    std::fs::create_dir_all(&logs)?;
    let variables = [
        ("NAIVE_CLIENT_ORDERS", folder.join("orders").display().to_string()),
        ("NAIVE_CLIENT_PEERS", format!("http://{}", gate.address)),
        ("NAIVE_CLIENT_API_TOKEN", SWITCH_TOKEN.into()),
    ];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Process::start("naive-client", &servers.binaries, &logs, LISTEN, variables).await
}
