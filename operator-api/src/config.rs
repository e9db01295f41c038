//! Options of operator-api: its sections of the configuration that all processes share.
//!
//! Sections of other processes are ignored; an unknown key in one of its own sections is refused.

use std::net::SocketAddr;

use payment_ledger::DatabaseOptions;
use serde::Deserialize;
use service_kit::published::PublishedSecret;
use switch_client::{SwitchConfigError, Switches};
use workflow_api::TemporalOptions;

/// The sections that this process reads.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// Section `[database]`.
    #[serde(default)]
    pub database: DatabaseOptions,
    /// Section `[temporal]`.
    #[serde(default)]
    pub temporal: TemporalOptions,
    /// Section `[operator_api]`.
    #[serde(default)]
    pub operator_api: OperatorApiOptions,
    /// Sections `[switches.NAME]`: a switch is queried before a correction moves money.
    #[serde(default)]
    pub switches: Switches,
}

/// Section `[operator_api]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OperatorApiOptions {
    /// Address to listen on, which operators reach and customers do not; port 0 takes a free one. Default `127.0.0.1:8081`.
    pub listen: SocketAddr,
    /// Address of health and metrics. Default `127.0.0.1:9105`.
    pub metrics_listen: SocketAddr,
    /// Whether `listen` also serves `/docs` and `/openapi.json`. Default false.
    pub docs: bool,
}

impl Default for OperatorApiOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9105)),
            docs: false,
        }
    }
}

/// The configuration is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The options of a switch are invalid.
    #[error("the configuration section [switches] is invalid")]
    Switch(#[from] SwitchConfigError),
    /// A secret is published.
    #[error(transparent)]
    Published(#[from] PublishedSecret),
}
