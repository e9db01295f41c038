//! The options of a test's system. All times are short, since tests wait for them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::preload::Preload;

/// Configuration of one system.
#[derive(Clone, Debug)]
pub struct SystemOptions {
    /// The rail whose shipped profile the switch has, as in the configuration file; `None`: `profile` has every field.
    pub rail: Option<&'static str>,
    /// Fields of the switch profile, as in the configuration file.
    pub profile: Value,
    /// The switch's `claims_limit_minor`; `None` without a limit.
    pub claims_limit_minor: Option<i64>,
    /// A second switch; `None` if there is only one.
    pub other: Option<OtherOptions>,
    /// Time from acceptance at the switch until the transfer settles there, in milliseconds.
    pub settle_after_ms: u64,
    /// Whether the amounts of the mock switch's sandbox table misbehave.
    pub sandbox_amounts: bool,
    /// Idle time after which the liveness check looks at an open payment, in milliseconds.
    pub liveness_check_after_ms: u64,
    /// Pause between two scheduled runs of reconciliation in seconds, those of a window of three pauses and those of everything; 0: none is
    /// scheduled.
    pub reconciliation_interval_s: u32,
    /// Pause between two updates of the gauges of the background-worker, in milliseconds.
    pub metrics_interval_ms: u64,
    /// Workflows in the worker's cache; 0 replays the history at every task.
    pub cached_workflows: u64,
    /// Grants of an account lock before it continues as a new run.
    pub lock_grants_max: u64,
    /// Features of the mock switch, as in its admin interface; omitted fields are true.
    pub shape: Value,
    /// Maintenance URL of another PostgreSQL server for the bank's database; `None` if the shared one. The mock switch always
    /// uses the shared one.
    pub database_url: Option<String>,
    /// Whether the bank's database says that it can lose a confirmed commit, as a server with an asynchronous standby can. Every
    /// submit is then an ordinary activity.
    pub commits_may_be_lost: bool,
    /// URL of Temporal for the processes, for example a proxy; `None` if the same as for the tests.
    pub temporal_address: Option<String>,
    /// Fault of payments-api, payment-worker and background-worker from their start.
    pub preload: Option<Preload>,
    /// URL of the message broker. Nothing listens at the default URL.
    pub broker_url: String,
    /// The files of the encrypted links to Temporal and the broker, where their URLs say so; `None`: the operating system's authorities.
    pub link_files: Option<LinkFiles>,
    /// Currency of all accounts, an ISO 4217 code.
    pub currency: &'static str,
    /// The proxies between a process, by its name, and its servers. The other processes reach them directly.
    pub proxies: BTreeMap<&'static str, Proxies>,
    /// Address (`host:port`) of the proxy to which the switch sends its callbacks; `None`: directly to payments-api.
    pub callback_proxy: Option<String>,
    /// URL of a collector to which the bank's processes export their traces; `None` if they record none.
    pub otlp_endpoint: Option<String>,
}

/// Addresses (`host:port`) of the proxies between one process and its servers; `None`: it reaches the server directly.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// To its database.
    pub database: Option<String>,
    /// To Temporal, in clear.
    pub temporal: Option<String>,
    /// To the message broker, in clear.
    pub broker: Option<String>,
    /// To the switch `mock`.
    pub switch: Option<String>,
}

/// The files of an encrypted link.
#[derive(Clone, Debug)]
pub struct LinkFiles {
    /// The authorities that the bank trusts.
    pub ca_path: PathBuf,
    /// The certificate and the key of the bank's processes.
    pub client_identity_path: PathBuf,
}

/// The second switch of a system, `other`, for the destinations `YY`. It has a secret of its own.
#[derive(Clone, Debug)]
pub struct OtherOptions {
    /// As [`SystemOptions::rail`].
    pub rail: Option<&'static str>,
    /// As [`SystemOptions::profile`].
    pub profile: Value,
    /// Features of a mock switch of its own; `None` if the second switch has the address of the first one, which sends no
    /// callbacks in its name.
    pub shape: Option<Value>,
}

impl Default for SystemOptions {
    fn default() -> Self {
        Self {
            rail: None,
            profile: json!({
                "strategy": "query", "has_query": true, "deduplicates": true, "retention_s": 86_400,
                "tombstones": true, "honours_deadline": true, "max_skew_ms": 500, "can_cancel": true,
                "can_recall": true, "has_callback": true,
                "sla_ms": 20_000, "submit_deadline_ms": 30_000, "attempt_timeout_ms": 1_000,
                "submit_budget_ms": 8_000, "backoff_ms": 100, "retry_interval_max_ms": 500,
                "alert_after_ms": 1_000, "start_within_ms": 60_000,
            }),
            other: None,
            claims_limit_minor: None,
            settle_after_ms: 50,
            sandbox_amounts: false,
            liveness_check_after_ms: 3_000,
            reconciliation_interval_s: 0,
            metrics_interval_ms: 1_000,
            cached_workflows: 100,
            lock_grants_max: 100,
            shape: json!({}),
            database_url: None,
            commits_may_be_lost: false,
            temporal_address: None,
            preload: None,
            broker_url: "nats://127.0.0.1:9".into(),
            link_files: None,
            currency: "EUR",
            proxies: BTreeMap::new(),
            callback_proxy: None,
            otlp_endpoint: None,
        }
    }
}

impl SystemOptions {
    /// Longer timeouts for attempts at the switch: for tests that count requests, or in which a second attempt
    /// changes the result: a timeout on a busy machine would cause one more.
    #[must_use]
    pub fn with_long_attempts(self) -> Self {
        self.with_profile("attempt_timeout_ms", 3_000).with_profile("submit_budget_ms", 15_000)
    }

    /// Sets one field of the profile.
    #[must_use]
    pub fn with_profile(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.profile[field] = value.into();
        self
    }

    /// Adds the second switch, whose profile is that of the first one with these fields changed.
    #[must_use]
    pub fn with_other_switch(mut self, changes: &[(&str, Value)]) -> Self {
        let mut profile = self.profile.clone();
        for (field, value) in changes {
            profile[*field] = value.clone();
        }
        self.other = Some(OtherOptions { rail: self.rail, profile, shape: None });
        self
    }

    /// Adds the second switch with a process and transfers of its own, and the rail, the profile and the features of `kind`.
    #[must_use]
    pub fn with_switch_of_kind(mut self, kind: Self) -> Self {
        self.other = Some(OtherOptions { rail: kind.rail, profile: kind.profile, shape: Some(kind.shape) });
        self
    }
}
