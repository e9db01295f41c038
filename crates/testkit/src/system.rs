//! A whole bank and a switch for one test: databases and processes of its own, on free ports.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::Row as _;
use temporalio_client::Client;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::auditor::{self, Audit};
use crate::configuration::configuration;
use crate::database::{self, Database};
use crate::preload::Preload;
use crate::process::Process;
use crate::surroundings::Surroundings;
use crate::switch::SwitchAdmin;
use crate::wait::until;

/// How long a payment may take to end in a test.
const END_WITHIN: Duration = Duration::from_secs(90);
/// The API key every system knows.
pub const API_KEY: &str = "test-key";
/// The account payments are made from; holds [`OPENING_MINOR`] EUR.
pub const ALICE: &str = "ALICE";
/// Opening balance of [`ALICE`], in minor units.
pub const OPENING_MINOR: i64 = 1_000_000;
/// What the switch knows us by.
pub(crate) const SWITCH_TOKEN: &str = "test-switch-token";
/// What the switch `mock` signs its callbacks with.
pub const SWITCH_SECRET: &str = "whsec_dGVzdC1vbmx5LXNlY3JldC0wMTIzNDU2Nzg5YWI=";
/// What the switch `other` signs its callbacks with.
pub const OTHER_SECRET: &str = "whsec_b3RoZXItc3dpdGNoLW9ubHktMDEyMzQ1Njc4OWFi";

/// What the secrets of webhook endpoints are made from.
pub(crate) const WEBHOOKS_MASTER_KEY: &str = "dGVzdC1vbmx5LW1hc3Rlci1rZXktMDEyMzQ1Njc4OWE=";

/// What a test may want different. Times are short, since tests wait for them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fields of the switch's profile, as in the configuration.
    pub profile: Value,
    /// Profile of a second switch, `other`, which serves the destinations `YY`. It has a secret of its own and
    /// stands at the same address; no callbacks of it come by themselves.
    pub other: Option<Value>,
    /// Milliseconds from acceptance at the switch to the end there.
    pub settle_after_ms: u64,
    /// An open payment idle for so long is looked after, in milliseconds.
    pub liveness_check_after_ms: u64,
    /// Workflows kept in the worker's memory; 0 replays every task.
    pub cached_workflows: u64,
    /// Grants of one run of an account lock.
    pub lock_grants_max: u64,
    /// What the switch can do, as in its configuration; fields left out are true.
    pub shape: Value,
    /// Maintenance URL of another PostgreSQL for the bank's database than the common one. The switch's book stays
    /// at the common one.
    pub database_url: Option<String>,
    /// Where our processes find Temporal, as a URL, if not where the tests do: through a proxy.
    pub temporal_address: Option<String>,
    /// A fault that webhook, worker and relay are started with.
    pub preload: Option<Preload>,
    /// URL of the message broker. Nobody follows_switch at the default one.
    pub broker: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            profile: json!({
                "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
                "tombstones": true, "honours_deadline": true, "max_skew_ms": 500, "can_cancel": true,
                "can_recall": true, "has_callback": true,
                "sla_ms": 20_000, "submit_deadline_ms": 30_000, "attempt_timeout_ms": 1_000,
                "submit_budget_ms": 8_000, "backoff_ms": 100, "retry_interval_max_ms": 500,
                "alert_after_ms": 1_000, "start_within_ms": 60_000,
            }),
            other: None,
            settle_after_ms: 50,
            liveness_check_after_ms: 3_000,
            cached_workflows: 100,
            lock_grants_max: 100,
            shape: json!({}),
            database_url: None,
            temporal_address: None,
            preload: None,
            broker: "nats://127.0.0.1:9".into(),
        }
    }
}

impl Options {
    /// With a switch that is given time to answer: for tests that count what it is asked, where an attempt that is given
    /// up on a busy machine would be one more.
    #[must_use]
    pub fn unhurried(self) -> Self {
        self.profile("attempt_timeout_ms", 3_000).profile("submit_budget_ms", 15_000)
    }

    /// With one field of the profile changed.
    #[must_use]
    pub fn profile(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.profile[field] = value.into();
        self
    }

    /// With the second switch, whose profile is the first one's with these fields changed.
    #[must_use]
    pub fn other(mut self, changed: &[(&str, Value)]) -> Self {
        let mut profile = self.profile.clone();
        for (field, value) in changed {
            profile[*field] = value.clone();
        }
        self.other = Some(profile);
        self
    }
}

/// A running system. Everything it started is killed when it is dropped.
pub struct System {
    /// The bank's database.
    pub database: Database,
    /// The switch's admin interface.
    pub switch: SwitchAdmin,
    /// Runs payments.
    pub worker: Process,
    /// Takes payments and callbacks.
    pub api: Process,
    /// Tells again what was not delivered.
    pub background_worker: Process,
    /// The other party.
    pub mock_switch: Process,
    /// Task queue prefix, and so this system's own corner of Temporal.
    pub task_queue: String,
    /// The Temporal frontend.
    pub temporal_address: String,
    surroundings: Surroundings,
    folder: PathBuf,
    environment: BTreeMap<String, String>,
    pub(crate) http: reqwest::Client,
    pub(crate) temporal: OnceCell<Client>,
}

/// A payment that the API accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Its id.
    pub payment_id: String,
    /// What the switch knows it by.
    pub reference: String,
    /// The idempotency key it was made with.
    pub key: String,
}

impl System {
    /// Starts a system under a test's name.
    ///
    /// # Errors
    /// What could not be started, with the end of its log.
    pub async fn start(name: &str, options: Options) -> anyhow::Result<Self> {
        let surroundings = Surroundings::find()?;
        let folder = surroundings.scratch.join(format!("{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        let database =
            database::fresh(options.database_url.as_deref().unwrap_or(&surroundings.database_url)).await?;
        let switch_database = database::empty(&surroundings.database_url).await?;
        let task_queue = format!("test-{}", Uuid::new_v4().simple());

        let config = |base_url: &str| -> anyhow::Result<PathBuf> {
            let path = folder.join("payments.toml");
            let text = configuration(
                &database.url,
                options.temporal_address.as_ref().unwrap_or(&surroundings.temporal_address),
                &task_queue,
                base_url,
                &options,
            )?;
            std::fs::write(&path, text)?;
            Ok(path)
        };
        let fault = options.preload.map(|preload| preload.environment(&folder)).transpose()?;
        let environment = |path: PathBuf| {
            let mut environment: BTreeMap<_, _> = fault.iter().flatten().cloned().collect();
            environment.insert("PAYMENTS_CONFIG".to_owned(), path.display().to_string());
            environment
        };
        let (binaries, logs) = (surroundings.binaries.as_path(), folder.as_path());

        // The webhook does not call the switch, so it can come first and say where callbacks go.
        let unknown_yet = config("http://127.0.0.1:9")?;
        let api =
            Process::start("payments-api", binaries, logs, "PAYMENTS_API__LISTEN", environment(unknown_yet))
                .await?;
        let switch_environment = [
            ("MOCK_SWITCH_DATABASE_URL", switch_database),
            ("MOCK_SWITCH_API_TOKEN", SWITCH_TOKEN.into()),
            ("MOCK_SWITCH_CALLBACK_URL", format!("{}/callbacks/mock", api.url())),
            ("MOCK_SWITCH_CALLBACK_SECRET", SWITCH_SECRET.into()),
            ("MOCK_SWITCH_SETTLE_AFTER_MS", options.settle_after_ms.to_string()),
            ("MOCK_SWITCH_SANDBOX_AMOUNTS", "false".into()),
        ];
        let switch_environment =
            switch_environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mock_switch =
            Process::start("mock-switch", binaries, logs, "MOCK_SWITCH_LISTEN", switch_environment).await?;
        let environment = environment(config(&mock_switch.url())?);
        let worker = Process::start(
            "payment-worker",
            binaries,
            logs,
            "PAYMENTS_WORKER__METRICS_LISTEN",
            environment.clone(),
        );
        let background_worker = Process::start(
            "background-worker",
            binaries,
            logs,
            "PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN",
            environment.clone(),
        );
        let (worker, background_worker) = tokio::try_join!(worker, background_worker)?;

        let system = Self {
            switch: SwitchAdmin::new(mock_switch.url()),
            database,
            worker,
            api,
            background_worker,
            mock_switch,
            task_queue,
            temporal_address: surroundings.temporal_address.clone(),
            surroundings,
            folder,
            environment,
            http: crate::http(),
            temporal: OnceCell::new(),
        };
        system.switch.shape(options.shape).await?;
        system.open_accounts().await?;
        Ok(system)
    }

    /// Starts one more process of this bank: a second one of its kind, or one that not every test needs.
    /// `listen_variable` is the setting of its address.
    ///
    /// # Errors
    /// With the end of its log when it does not become ready.
    pub async fn start_another(
        &self,
        name: &'static str,
        listen_variable: &'static str,
    ) -> anyhow::Result<Process> {
        let logs = self.folder.join(Uuid::new_v4().simple().to_string());
        std::fs::create_dir_all(&logs)?;
        Process::start(name, &self.surroundings.binaries, &logs, listen_variable, self.environment.clone())
            .await
    }

    /// Accounts and an API key, written by hand: the test shares no code with the service.
    async fn open_accounts(&self) -> anyhow::Result<()> {
        let mut tx = self.database.pool.begin().await?;
        for internal in ["holding", "escrow", "funding"] {
            sqlx::query("INSERT INTO accounts (account_id, tenant_id, kind, currency) VALUES ($1, 'internal', 'internal', 'EUR')")
                .bind(format!("internal:{internal}:EUR"))
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query(
            "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes)
             VALUES ('pk_000000000000', $1, 'test', 'test', $2, '{pay,read,webhooks}')",
        )
        .bind(Sha256::digest(API_KEY).to_vec())
        .bind(self.client())
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        self.open_account(ALICE).await
    }

    /// The client that the API key belongs to, another in each system: payment ids come from it, and all systems
    /// share one Temporal.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.task_queue
    }

    /// Opens a customer's account that holds [`OPENING_MINOR`] EUR.
    ///
    /// # Errors
    /// What PostgreSQL said.
    pub async fn open_account(&self, account_id: &str) -> anyhow::Result<()> {
        sqlx::query(
            "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
             VALUES ($1, 'test', 'customer', 'EUR', 0)",
        )
        .bind(account_id)
        .execute(&self.database.pool)
        .await?;
        sqlx::query(
            "WITH done AS (INSERT INTO operations (operation_key, outcome) VALUES ('opening:' || $1, 'done'))
             INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('opening:' || $1, 'fund', 'internal:funding:EUR', $1, $2, 'EUR')",
        )
        .bind(account_id)
        .bind(OPENING_MINOR)
        .execute(&self.database.pool)
        .await?;
        Ok(())
    }

    /// Posts a payment under a key; gives the answer as it is.
    ///
    /// # Errors
    /// No answer.
    pub async fn post_payment(&self, key: &str, body: &Value) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}/api/v1/payments", self.api.url());
        let request = self.http.post(url).bearer_auth(API_KEY).header("Idempotency-Key", key).json(body);
        Ok(request.send().await?)
    }

    /// Makes a payment of `amount` EUR from [`ALICE`], which must be accepted.
    ///
    /// # Errors
    /// What the API said instead.
    pub async fn pay(&self, amount: &str) -> anyhow::Result<Accepted> {
        self.pay_as(&payment(amount)).await
    }

    /// Makes a payment with this body, which must be accepted.
    ///
    /// # Errors
    /// What the API said instead.
    pub async fn pay_as(&self, body: &Value) -> anyhow::Result<Accepted> {
        let key = Uuid::new_v4().to_string();
        let answer = self.post_payment(&key, body).await?;
        let status = answer.status();
        let body: Value = answer.json().await?;
        if status != 201 {
            bail!("the payment was not accepted: {status} {body}");
        }
        let text = |field: &str| {
            body[field].as_str().map(str::to_owned).with_context(|| format!("no {field} in {body}"))
        };
        Ok(Accepted {
            payment_id: text("payment_id")?,
            reference: format!("{}:submit", text("transaction_id")?),
            key,
        })
    }

    /// The payment as the API shows it.
    ///
    /// # Errors
    /// What the API said instead.
    pub async fn payment(&self, payment_id: &str) -> anyhow::Result<Value> {
        let url = format!("{}/api/v1/payments/{payment_id}", self.api.url());
        Ok(self.http.get(url).bearer_auth(API_KEY).send().await?.error_for_status()?.json().await?)
    }

    /// Asks to cancel as the customer; gives the answer as it is.
    ///
    /// # Errors
    /// No answer.
    pub async fn cancel(&self, payment_id: &str) -> anyhow::Result<reqwest::Response> {
        let url = format!("{}/api/v1/payments/{payment_id}/cancel", self.api.url());
        let key = Uuid::new_v4().to_string();
        Ok(self.http.post(url).bearer_auth(API_KEY).header("Idempotency-Key", key).send().await?)
    }

    /// The payment's state in the bank's own row.
    ///
    /// # Errors
    /// What PostgreSQL said.
    pub async fn state(&self, payment_id: &str) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar("SELECT state FROM payments WHERE payment_id = $1")
            .bind(payment_id)
            .fetch_one(&self.database.pool)
            .await?)
    }

    /// Waits until the payment is in `state`.
    ///
    /// # Errors
    /// With where it stands and the worker's log, when it does not get there.
    pub async fn wait_for_state(&self, payment_id: &str, state: &str) -> anyhow::Result<()> {
        let what = format!("{payment_id} is {state}");
        let reached =
            until(&what, END_WITHIN, || async { Ok((self.state(payment_id).await? == state).then_some(())) });
        match reached.await {
            Ok(()) => Ok(()),
            Err(error) => {
                let timeline = self.timeline(payment_id).await.unwrap_or_default().join("\n");
                Err(error.context(format!("{timeline}\n{}", self.worker.log_tail())))
            }
        }
    }

    /// Waits until no payment is open.
    ///
    /// # Errors
    /// With how many are, when some stay so.
    pub async fn wait_until_all_have_ended(&self) -> anyhow::Result<()> {
        let ended = until("every payment has ended", END_WITHIN, || async {
            let open: i64 = sqlx::query_scalar("SELECT count(*) FROM payments WHERE ended_at IS NULL")
                .fetch_one(&self.database.pool)
                .await?;
            Ok((open == 0).then_some(()))
        });
        ended.await.map_err(|error| error.context(self.worker.log_tail()))
    }

    /// The payment's timeline, as `state: detail`.
    ///
    /// # Errors
    /// What PostgreSQL said.
    pub async fn timeline(&self, payment_id: &str) -> anyhow::Result<Vec<String>> {
        let rows = sqlx::query("SELECT state, detail FROM timeline WHERE payment_id = $1 ORDER BY entry_id")
            .bind(payment_id)
            .fetch_all(&self.database.pool)
            .await?;
        Ok(rows
            .iter()
            .map(|row| format!("{}: {}", row.get::<String, _>(0), row.get::<String, _>(1)))
            .collect())
    }

    /// Kinds of the exceptions opened for a payment, sorted.
    ///
    /// # Errors
    /// What PostgreSQL said.
    pub async fn exceptions(&self, payment_id: &str) -> anyhow::Result<Vec<String>> {
        Ok(sqlx::query_scalar("SELECT kind FROM exceptions WHERE payment_id = $1 ORDER BY kind")
            .bind(payment_id)
            .fetch_all(&self.database.pool)
            .await?)
    }

    /// What [`ALICE`] can spend, in minor units.
    ///
    /// # Errors
    /// What PostgreSQL said.
    pub async fn available(&self) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar("SELECT available_minor FROM accounts WHERE account_id = $1")
            .bind(ALICE)
            .fetch_one(&self.database.pool)
            .await?)
    }

    /// Waits until everything stored for a payment was told to its workflow.
    ///
    /// # Errors
    /// When it is not told in time.
    pub async fn wait_until_told(&self, payment_id: &str) -> anyhow::Result<()> {
        let what = format!("the workflow of {payment_id} was told everything");
        until(&what, END_WITHIN, || async {
            let untold: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM inbox WHERE payment_id = $1 AND delivered_at IS NULL",
            )
            .bind(payment_id)
            .fetch_one(&self.database.pool)
            .await?;
            Ok((untold == 0).then_some(()))
        })
        .await
    }

    /// Compares bank and switch, and conservation. Called at the end of every test.
    ///
    /// # Errors
    /// Every disagreement.
    pub async fn audit(&self) -> anyhow::Result<Audit> {
        auditor::compare(&self.database.pool, &self.switch).await
    }
}

/// Body of a payment from [`ALICE`].
#[must_use]
pub fn payment(amount: &str) -> Value {
    json!({"amount": amount, "currency": "EUR", "source_account": ALICE, "destination_account": "XX-BOB"})
}
