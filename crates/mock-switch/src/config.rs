//! The configuration and its defaults. Environment variables are `MOCK_SWITCH_` and the key in capitals, nested keys joined
//! by `__`.

use std::fmt;
use std::net::SocketAddr;

use secrecy::SecretString;
use serde::Deserialize;
use webhook_signature::Secret;

use crate::rail::Rail;
use crate::settings::Shape;

/// The configuration of one mock switch. The defaults are for demonstration on one machine; the token and the secret
/// protect nothing.
#[derive(Clone, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Address to listen on; port 0 takes a free one. Default `127.0.0.1:8090`.
    pub listen: SocketAddr,
    /// The switch's own database; created if it does not exist.
    pub database_url: String,
    /// Name in logs and in the user agent of callbacks. Default `mock`.
    pub name: String,
    /// Bearer token of `/v1`, and of changes by `/admin`. Default `demo-switch-token`.
    pub api_token: SecretString,
    /// URL that receives callbacks; plain HTTP only.
    pub callback_url: String,
    /// Signs callbacks. Default `whsec_` and base64 of a text that says not to use it.
    pub callback_secret: Secret,
    /// Time from acceptance to the end of a transfer, in milliseconds. Default 1500.
    pub settle_after_ms: u64,
    /// Whether the amounts of the sandbox table misbehave. Default true.
    pub sandbox_amounts: bool,
    /// Whether `/admin` is served. Default true.
    pub admin: bool,
    /// Shifts the switch's clock, in milliseconds. Default 0.
    pub clock_offset_ms: i64,
    /// The rail whose shape this switch has; default none. `MOCK_SWITCH_RAIL=fednow`.
    pub rail: Option<Rail>,
    /// The capabilities of this switch; not read if `rail` is set.
    pub shape: Shape,
}

impl Config {
    /// The configured capabilities.
    pub(crate) fn configured_shape(&self) -> Shape {
        self.rail.map_or(self.shape, Rail::shape)
    }
}

/// Omits the token, the secret and the database's address with its password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("listen", &self.listen)
            .field("name", &self.name)
            .field("callback_url", &self.callback_url)
            .field("settle_after_ms", &self.settle_after_ms)
            .field("shape", &self.configured_shape())
            .finish_non_exhaustive()
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8090)),
            database_url: "postgres://payments@127.0.0.1:5632/mock_switch".to_owned(),
            name: "mock".to_owned(),
            api_token: "demo-switch-token".into(),
            callback_url: "http://127.0.0.1:8080/callbacks/mock".to_owned(),
            callback_secret: Secret::from_bytes(*b"demo-only-secret-do-not-use-it!!"),
            settle_after_ms: 1500,
            sandbox_amounts: true,
            admin: true,
            clock_offset_ms: 0,
            rail: None,
            shape: Shape::default(),
        }
    }
}
