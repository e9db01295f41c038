//! Options of operator-api: its sections of the configuration that all processes share.
//!
//! Sections of other processes are ignored; an unknown key in one of its own sections is refused.

use std::net::SocketAddr;
use std::path::PathBuf;

use payment_ledger::DatabaseOptions;
use serde::Deserialize;
use service_kit::published::PublishedSecret;
use switch_client::{SwitchConfigError, Switches};
use workflow_api::TemporalOptions;

use crate::oidc::OidcSetupError;

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
    /// Section `[operator_api.oidc]`. Without it operators log in with passwords only.
    pub oidc: Option<OidcOptions>,
}

/// Section `[operator_api.oidc]`: the OpenID provider at which operators log in.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcOptions {
    /// URL of the provider, exactly as its discovery document has it.
    pub issuer: String,
    /// Id of payctl's client at the provider: one without a secret, for the authorization code with PKCE and a redirect to
    /// `http://127.0.0.1`, and for device codes.
    pub client_id: String,
    /// PEM file of the authorities that the provider's certificate is checked with; without it, those of the system.
    #[serde(default)]
    pub ca_path: Option<PathBuf>,
    /// Accept a provider on another machine without TLS, because other means protect the link. Default false.
    #[serde(default)]
    pub allow_plaintext: bool,
}

impl Default for OperatorApiOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9105)),
            docs: false,
            oidc: None,
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
    /// The options of the OpenID provider are invalid.
    #[error(transparent)]
    Oidc(#[from] OidcSetupError),
}
