//! A complete bank with a mock switch for one test: databases and processes of its own, on free ports.

mod operators;
mod options;
mod payments;
mod queries;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;

use anyhow::Context as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use temporalio_client::Client;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::auditor::Audit;
use crate::auditor::histories::ClosedHistories;
use crate::auditor::sampler::Sampler;
use crate::config_file;
use crate::database::{self, Database};
use crate::environment::TestEnvironment;
use crate::process::Process;
use crate::switch::SwitchAdmin;

pub use operators::Operators;
pub use options::{LinkFiles, OtherOptions, Proxies, SystemOptions};
pub use payments::{AcceptedPayment, payment_request};

/// The API key of every system.
pub const API_KEY: &str = "test-key";
/// The account that payments are made from in a system's first case.
pub const ALICE: &str = "ALICE";
/// Opening balance of every account, in minor units.
pub const OPENING_MINOR: i64 = 1_000_000;
/// Token by which the bank authenticates at the switch.
pub const SWITCH_TOKEN: &str = "test-switch-token";
/// Secret for the callbacks of the switch `mock`.
pub const SWITCH_SECRET: &str = "whsec_dGVzdC1vbmx5LXNlY3JldC0wMTIzNDU2Nzg5YWI=";
/// Secret for the callbacks of the switch `other`.
pub const OTHER_SECRET: &str = "whsec_b3RoZXItc3dpdGNoLW9ubHktMDEyMzQ1Njc4OWFi";
/// Master key for the secrets of webhook endpoints.
pub(crate) const WEBHOOKS_MASTER_KEY: &str = "dGVzdC1vbmx5LW1hc3Rlci1rZXktMDEyMzQ1Njc4OWE=";

/// Environment variables of a process.
type Variables = BTreeMap<String, String>;

/// A running system. Dropping it kills all its processes.
pub struct System {
    /// The bank's database.
    pub database: Database,
    /// The admin interface of the mock switch.
    pub switch: SwitchAdmin,
    /// payment-worker.
    pub worker: Process,
    /// payments-api.
    pub api: Process,
    /// background-worker.
    pub background_worker: Process,
    /// mock-switch.
    pub mock_switch: Process,
    /// The second mock switch, if there are two.
    pub other: Option<OtherSwitch>,
    /// Prefix of the system's task queues, unique in the shared Temporal.
    pub task_queue: String,
    /// URL of the Temporal frontend.
    pub temporal_address: String,
    /// Currency of all accounts.
    pub(crate) currency: &'static str,
    test_environment: TestEnvironment,
    folder: PathBuf,
    variables: Variables,
    /// The account that payments are made from.
    pub(crate) account: String,
    /// What [`System::audit`] counted before the present case.
    pub(crate) counted_before: Audit,
    pub(crate) sampler: Sampler,
    /// What [`System::audit`] compares with Temporal.
    pub(crate) histories: ClosedHistories,
    /// What was paid in, in minor units: the opening balances, and deposits.
    pub(crate) paid_in_minor: AtomicI64,
    pub(crate) http: reqwest::Client,
    pub(crate) temporal: OnceCell<Client>,
}

/// The second mock switch of a system.
pub struct OtherSwitch {
    /// Its admin interface.
    pub admin: SwitchAdmin,
    /// mock-switch.
    pub process: Process,
}

impl System {
    /// Starts a system, with a folder under the test's name.
    ///
    /// # Errors
    /// If a process does not become ready; the error has the end of its log.
    pub async fn start(name: &str, options: SystemOptions) -> anyhow::Result<Self> {
        Self::start_in(TestEnvironment::load()?, name, options).await
    }

    /// Begins another case on this system, where no case kills a process or changes what others share: payments are made from a new account with
    /// the opening balance, the switches behave well, and [`System::audit`] counts from here.
    ///
    /// # Errors
    /// As [`System::audit`], or if the switch or PostgreSQL does not answer.
    pub async fn next_case(&mut self) -> anyhow::Result<()> {
        self.counted_before = self.audit_all().await?;
        for switch in self.switches() {
            switch.set_default_behaviour(json!({})).await?;
        }
        self.account = format!("ALICE-{}", Uuid::new_v4().simple());
        self.open_account(&self.account).await
    }

    /// The admin interfaces of the switches, each of which has transfers of its own.
    pub(crate) fn switches(&self) -> impl Iterator<Item = &SwitchAdmin> {
        [&self.switch].into_iter().chain(self.other.as_ref().map(|other| &other.admin))
    }

    /// Takes the second switch out of the configuration file. Processes that are restarted afterwards do not know it.
    ///
    /// # Errors
    /// If the file cannot be written, or has no second switch.
    pub fn forget_other_switch(&self) -> anyhow::Result<()> {
        let path = self.folder.join("payments.toml");
        let text = std::fs::read_to_string(&path)?;
        let (kept, _) = text.split_once("[switches.other]").context("the configuration has one switch")?;
        Ok(std::fs::write(path, kept)?)
    }

    /// Replaces the keys of Temporal's payloads in the configuration file. Processes that are restarted afterwards have them.
    ///
    /// # Errors
    /// If the file cannot be written, or has no keys.
    pub fn set_payload_keys(&self, keys: &[&str]) -> anyhow::Result<()> {
        let path = self.folder.join("payments.toml");
        let text = std::fs::read_to_string(&path)?;
        let line = text.lines().find(|line| line.starts_with("payload_keys = "));
        let line = line.context("the configuration has no keys of payloads")?;
        Ok(std::fs::write(&path, text.replace(line, &format!("payload_keys = {keys:?}")))?)
    }

    /// The same with given servers and binaries.
    ///
    /// # Errors
    /// As [`System::start`].
    pub async fn start_in(
        test_environment: TestEnvironment,
        name: &str,
        options: SystemOptions,
    ) -> anyhow::Result<Self> {
        let folder = test_environment.scratch.join(format!("{name}-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        let maintenance_url = options.database_url.as_deref().unwrap_or(&test_environment.database_url);
        let database = database::create_for_bank(maintenance_url).await?;
        // For the examination of a failure.
        std::fs::write(folder.join("database.url"), &database.owner_url)?;
        if options.commits_may_be_lost {
            database.set("synchronous_commit", "off").await?;
        }
        let task_queue = format!("test-{}", Uuid::new_v4().simple());

        let fault = options.preload.map(|preload| preload.environment(&folder)).transpose()?;
        let variables = |switch_url: &str, other_url: &str| -> anyhow::Result<Variables> {
            let path = folder.join("payments.toml");
            let temporal = options.temporal_address.as_ref().unwrap_or(&test_environment.temporal_address);
            let urls = (switch_url, other_url);
            let text = config_file::render(temporal, &task_queue, urls, &options)?;
            std::fs::write(&path, text)?;
            let mut variables: Variables = fault.iter().flatten().cloned().collect();
            variables.insert("PAYMENTS_CONFIG".to_owned(), path.display().to_string());
            if let Some(endpoint) = &options.otlp_endpoint {
                variables.insert("OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(), endpoint.clone());
                // Spans wait in a process for this long, in milliseconds; a killed process loses them.
                variables.insert("OTEL_BSP_SCHEDULE_DELAY".to_owned(), "50".to_owned());
            }
            Ok(variables)
        };
        let start = async |name, listen_variable, variables| {
            let proxies = options.proxies.get(name).cloned().unwrap_or_default();
            let variables = with_servers(&database, name, &proxies, variables)?;
            Process::start(name, &test_environment.binaries, &folder, listen_variable, variables).await
        };

        // The API does not call a switch, so it starts first and provides the URL for callbacks.
        let nowhere = "http://127.0.0.1:9";
        let api = start("payments-api", "PAYMENTS_API__LISTEN", variables(nowhere, nowhere)?).await?;
        let bank = options.callback_proxy.as_ref().unwrap_or(&api.address);
        let callback_url = format!("http://{bank}/callbacks/mock");
        let proxies = options.proxies.get("mock-switch").cloned().unwrap_or_default();
        let (settle_after_ms, sandbox_amounts) = (options.settle_after_ms, options.sandbox_amounts);
        let callbacks = (callback_url, SWITCH_SECRET);
        let mock_switch =
            start_mock(&test_environment, &folder, callbacks, settle_after_ms, sandbox_amounts, &proxies)
                .await?;
        let switch_url = mock_switch.url();
        let other = start_other_switch(&test_environment, &folder, &api.url(), &options).await?;
        let other_url = other.as_ref().map_or(switch_url.clone(), |other| other.process.url());
        let variables = variables(&switch_url, &other_url)?;
        let worker = start("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN", variables.clone());
        let background_worker =
            start("background-worker", "PAYMENTS_BACKGROUND_WORKER__METRICS_LISTEN", variables.clone());
        let (worker, background_worker) = tokio::try_join!(worker, background_worker)?;

        let sampler = Sampler::start(database.pool.clone());
        let system = Self {
            switch: SwitchAdmin::new(mock_switch.url()),
            database,
            worker,
            api,
            background_worker,
            mock_switch,
            other,
            task_queue,
            temporal_address: test_environment.temporal_address.clone(),
            currency: options.currency,
            test_environment,
            folder,
            variables,
            account: ALICE.to_owned(),
            counted_before: Audit::default(),
            sampler,
            histories: ClosedHistories::default(),
            paid_in_minor: AtomicI64::new(0),
            http: crate::http(),
            temporal: OnceCell::new(),
        };
        system.switch.set_shape(options.shape).await?;
        system.open_accounts().await?;
        Ok(system)
    }

    /// Starts another process of this bank: a second instance, or a process that only some tests need. `listen_variable`
    /// is the environment variable of its listen address.
    ///
    /// # Errors
    /// If the process does not become ready; the error has the end of its log.
    pub async fn start_process(
        &self,
        name: &'static str,
        listen_variable: &'static str,
    ) -> anyhow::Result<Process> {
        self.start_process_behind(name, listen_variable, &Proxies::default()).await
    }

    /// The same with proxies between the process and its servers.
    ///
    /// # Errors
    /// As [`System::start_process`].
    pub async fn start_process_behind(
        &self,
        name: &'static str,
        listen_variable: &'static str,
        proxies: &Proxies,
    ) -> anyhow::Result<Process> {
        let logs = self.folder.join(Uuid::new_v4().simple().to_string());
        std::fs::create_dir_all(&logs)?;
        let binaries = &self.test_environment.binaries;
        let variables = with_servers(&self.database, name, proxies, self.variables.clone())?;
        Process::start(name, binaries, &logs, listen_variable, variables).await
    }

    /// A program of this bank that runs to its end, as an operator would start it: with the bank's configuration, and as the
    /// owner of the database.
    #[must_use]
    pub fn command(&self, name: &str) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(self.test_environment.binaries.join(name));
        command
            .env_clear()
            .envs(&self.variables)
            .env("PAYMENTS_DATABASE__URL", &self.database.owner_url)
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// The folder with the logs and the configuration of the processes.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The client of the API key. It is unique to this system: payment ids are derived from it, and all systems share one
    /// Temporal.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.task_queue
    }

    /// Inserts the internal accounts, the API key and [`ALICE`] by SQL: the test shares no code with the service.
    async fn open_accounts(&self) -> anyhow::Result<()> {
        let mut tx = self.database.pool.begin().await?;
        for internal in ["holding", "escrow", "funding", "claims", "losses"] {
            sqlx::query("INSERT INTO accounts (account_id, tenant_id, kind, currency) VALUES ($1, 'internal', 'internal', $2)")
                .bind(format!("internal:{internal}:{}", self.currency))
                .bind(self.currency)
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
}

/// Adds the database, under the login of the process, and the addresses of the proxies in place of the servers behind them.
fn with_servers(
    database: &Database,
    process: &str,
    proxies: &Proxies,
    mut variables: Variables,
) -> anyhow::Result<Variables> {
    let database_url = database.url_behind(process, proxies.database.as_deref())?;
    let url = |scheme: &str, address: &String| format!("{scheme}://{address}");
    let servers = [
        ("PAYMENTS_DATABASE__URL", Some(database_url)),
        ("PAYMENTS_TEMPORAL__ADDRESS", proxies.temporal.as_ref().map(|address| url("http", address))),
        ("PAYMENTS_BROKER__URL", proxies.broker.as_ref().map(|address| url("nats", address))),
        ("PAYMENTS_SWITCHES__MOCK__BASE_URL", proxies.switch.as_ref().map(|address| url("http", address))),
    ];
    for (name, url) in servers {
        variables.extend(url.map(|url| (name.to_owned(), url)));
    }
    if process == "background-worker" {
        // All its loops begin at once, each on a connection, which costs the server more than the statements of most tests.
        variables.entry("PAYMENTS_DATABASE__MAX_CONNECTIONS".to_owned()).or_insert_with(|| "6".to_owned());
    }
    Ok(variables)
}

/// Starts the second mock switch, if it has a process of its own.
async fn start_other_switch(
    test_environment: &TestEnvironment,
    folder: &Path,
    api_url: &str,
    options: &SystemOptions,
) -> anyhow::Result<Option<OtherSwitch>> {
    let Some(shape) = options.other.as_ref().and_then(|other| other.shape.clone()) else { return Ok(None) };
    let folder = folder.join("other");
    std::fs::create_dir_all(&folder)?;
    let (callback_url, settle_after_ms) = (format!("{api_url}/callbacks/other"), options.settle_after_ms);
    let callbacks = (callback_url, OTHER_SECRET);
    let process =
        start_mock(test_environment, &folder, callbacks, settle_after_ms, false, &Proxies::default()).await?;
    let admin = SwitchAdmin::new(process.url());
    admin.set_shape(shape).await?;
    Ok(Some(OtherSwitch { admin, process }))
}

/// Starts a mock switch with a database of its own, whose behaviour is set by its admin interface, and by the amount of a
/// transfer if `sandbox_amounts` is true.
///
/// # Errors
/// If it does not become ready; the error has the end of its log.
pub async fn start_switch(
    test_environment: &TestEnvironment,
    folder: &Path,
    callback_url: String,
    settle_after_ms: u64,
    sandbox_amounts: bool,
) -> anyhow::Result<Process> {
    let callbacks = (callback_url, SWITCH_SECRET);
    start_mock(test_environment, folder, callbacks, settle_after_ms, sandbox_amounts, &Proxies::default())
        .await
}

/// The same with the URL of its callbacks and the secret that signs them, and a proxy to its database.
async fn start_mock(
    test_environment: &TestEnvironment,
    folder: &Path,
    (callback_url, secret): (String, &str),
    settle_after_ms: u64,
    sandbox_amounts: bool,
    proxies: &Proxies,
) -> anyhow::Result<Process> {
    let database_url = database::create_for_switch(&test_environment.database_url).await?;
    let database_url = match &proxies.database {
        Some(proxy) => database::at(&database_url, proxy)?,
        None => database_url,
    };
    let variables = [
        ("MOCK_SWITCH_DATABASE_URL", database_url),
        ("MOCK_SWITCH_API_TOKEN", SWITCH_TOKEN.into()),
        ("MOCK_SWITCH_CALLBACK_URL", callback_url),
        ("MOCK_SWITCH_CALLBACK_SECRET", secret.into()),
        ("MOCK_SWITCH_SETTLE_AFTER_MS", settle_after_ms.to_string()),
        ("MOCK_SWITCH_SANDBOX_AMOUNTS", sandbox_amounts.to_string()),
    ];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Process::start("mock-switch", &test_environment.binaries, folder, "MOCK_SWITCH_LISTEN", variables).await
}
