//! Where the real system is: the section `real` of the playground's configuration, which only a machine with that system has.

use std::net::SocketAddr;
use std::path::PathBuf;

use secrecy::SecretString;
use serde::Deserialize;
use workflow_api::TemporalOptions;

/// The name of the switch in the bank's configuration: `[switches.playground]`.
pub(super) const SWITCH: &str = "playground";

/// Section `real`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// URL of the payments database with its owner's rights, as for `payctl demo`: the engine opens and funds an account for
    /// each run.
    pub database_url: SecretString,
    /// URL of payments-api.
    pub api_url: String,
    /// Connection to Temporal.
    #[serde(default)]
    pub temporal: TemporalOptions,
    /// URL of the mock switch that the bank's configuration calls `playground`.
    pub switch_url: String,
    /// Token by which the naive client authenticates at that switch.
    #[serde(default = "default_switch_token")]
    pub switch_token: SecretString,
    /// Where the proxy listens for requests to the switch: `base_url` of `[switches.playground]`.
    pub requests_listen: SocketAddr,
    /// Where the proxy listens for the switch's callbacks: `callback_url` of that switch, whatever its path is.
    pub callbacks_listen: SocketAddr,
    /// The program of the naive client. Default `naive-client` in the folder of this program.
    #[serde(default)]
    pub naive_client: Option<PathBuf>,
    /// Folder for the account files of the naive client. Default a folder of this process among the system's temporary files.
    #[serde(default)]
    pub folder: Option<PathBuf>,
}

fn default_switch_token() -> SecretString {
    "demo-switch-token".into()
}
