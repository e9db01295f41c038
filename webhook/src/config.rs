//! How the webhook is set up: its sections of the configuration that all processes share.
//!
//! Sections of other processes are ignored; an unknown key inside one of its own is refused.

use std::net::SocketAddr;
use std::time::Duration;

use idempotency::{Terms, TermsError};
use outbound_webhooks::OutboundWebhooksOptions;
use outbound_webhooks::config::OutboundWebhooksConfigError;
use payment_ledger::{DatabaseOptions, DatabaseOptionsError};
use serde::Deserialize;
use service_kit::bounds::Bounds;
use service_kit::connection::ConnectionBounds;
use service_kit::signature::SecretError;
use switch_client::{SwitchConfigError, Switches};
use workflow_api::TemporalOptions;

pub use crate::limits::RateOptions;
pub use crate::streams::StreamOptions;

/// For how long a claim of an idempotency key may stand still (S4.4).
const LEASE: Duration = Duration::from_secs(30);

/// Everything that is read.
#[derive(Clone, Debug, Deserialize)]
pub struct Config {
    /// Section `[database]`.
    #[serde(default)]
    pub database: DatabaseOptions,
    /// Section `[temporal]`.
    #[serde(default)]
    pub temporal: TemporalOptions,
    /// Section `[api]`.
    #[serde(default)]
    pub api: ApiOptions,
    /// Section `[outbound_webhooks]`.
    #[serde(default)]
    pub outbound_webhooks: OutboundWebhooksOptions,
    /// Sections `[switches.NAME]`.
    #[serde(default)]
    pub switches: Switches,
}

/// What the HTTP side allows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiOptions {
    /// Address to listen on; port 0 takes a free one. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Hours that an idempotency key is kept, 24 to 72. Default 24.
    pub idempotency_ttl_h: u64,
    /// Largest body. Default 16 KiB.
    pub body_limit_bytes: usize,
    /// Time for a body to come; a slower one is answered 408. Default 10 s.
    pub body_timeout_s: u64,
    /// Most headers of a request; more are answered 431. Default 64.
    pub headers_max: usize,
    /// Largest head of a request, 8 KiB at least; a larger one is answered 431. Default 16 KiB.
    pub head_limit_bytes: usize,
    /// Time that a connection may stand still, between two requests or in the midst of sending or taking
    /// something; then it is closed. Default 20 s.
    pub quiet_timeout_s: u64,
    /// How far a callback's timestamp may be from our clock. Default 300 s.
    pub callback_tolerance_s: u32,
    /// Longest `?wait=`; a longer one is cut to this. Default 30 s.
    pub wait_max_s: u64,
    /// Requests that may wait at once; the next one is answered at once. Default 256.
    pub waiters_max: usize,
    /// Requests under way at once; the next one is answered 503 `overloaded`. Default 1024.
    pub requests_max: usize,
    /// Time for one request, waiting included. Default 40 s.
    pub request_timeout_s: u64,
    /// Payments and cancels that one client may ask for. Repeats are not counted.
    pub writes: RateOptions,
    /// Looks at payments and accounts that one client may take.
    pub reads: RateOptions,
    /// Streams of events.
    pub streams: StreamOptions,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            idempotency_ttl_h: 24,
            body_limit_bytes: 16 * 1024,
            body_timeout_s: 10,
            headers_max: 64,
            head_limit_bytes: 16 * 1024,
            quiet_timeout_s: 20,
            callback_tolerance_s: 300,
            wait_max_s: 30,
            waiters_max: 256,
            requests_max: 1024,
            request_timeout_s: 40,
            writes: RateOptions::default(),
            reads: RateOptions::default(),
            streams: StreamOptions::default(),
        }
    }
}

/// A configuration that is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The database is refused.
    #[error("the database is refused")]
    Database(#[from] DatabaseOptionsError),
    /// A number that switches something off.
    #[error("{0} must be greater than zero")]
    Zero(&'static str),
    /// A head that no server could be held to.
    #[error("api.head_limit_bytes ({given}) must be {} at least", ConnectionBounds::HEAD_BYTES_MIN)]
    Head {
        /// The configured size.
        given: usize,
    },
    /// A rate that kill_switches everybody or nobody.
    #[error("[{section}] needs 1 <= per_s <= burst <= {burst_max}, not per_s = {per_s}, burst = {burst}")]
    Rate {
        /// Which rate.
        section: &'static str,
        /// The configured rate.
        per_s: u32,
        /// The configured burst.
        burst: u32,
        /// The largest burst.
        burst_max: u32,
    },
    /// Webhook endpoints are set up wrong.
    #[error(transparent)]
    Webhooks(#[from] OutboundWebhooksConfigError),
    /// Keys kept too short or too long.
    #[error("api.idempotency_ttl_h is refused")]
    Terms(#[from] TermsError),
    /// Every long wait would end in a timeout.
    #[error("api.wait_max_s ({wait_max_s}) must be less than api.request_timeout_s ({request_timeout_s})")]
    WaitOutlivesRequest {
        /// The configured wait.
        wait_max_s: u64,
        /// The configured timeout.
        request_timeout_s: u64,
    },
    /// A switch is refused.
    #[error("a switch is refused")]
    Switch(#[from] SwitchConfigError),
    /// A secret that cannot verify anything.
    #[error("[switches.{switch}] has a callback secret that cannot be used")]
    CallbackSecret {
        /// Which switch.
        switch: String,
        /// Why. It does not repeat the secret.
        #[source]
        source: SecretError,
    },
}

impl ApiOptions {
    /// Checks the numbers against each other and gives the bounds of a request.
    ///
    /// # Errors
    /// [`SetupError::Zero`] or [`SetupError::WaitOutlivesRequest`].
    pub fn bounds(&self) -> Result<Bounds, SetupError> {
        not_zero("api.body_limit_bytes", self.body_limit_bytes)?;
        not_zero("api.body_timeout_s", self.body_timeout_s)?;
        not_zero("api.requests_max", self.requests_max)?;
        if self.wait_max_s >= self.request_timeout_s {
            return Err(SetupError::WaitOutlivesRequest {
                wait_max_s: self.wait_max_s,
                request_timeout_s: self.request_timeout_s,
            });
        }
        Ok(Bounds {
            body_bytes: self.body_limit_bytes,
            body_timeout: Duration::from_secs(self.body_timeout_s),
            request_timeout: Duration::from_secs(self.request_timeout_s),
        })
    }

    /// The bounds of a connection.
    ///
    /// # Errors
    /// [`SetupError::Zero`] or [`SetupError::Head`].
    pub fn connection_bounds(&self) -> Result<ConnectionBounds, SetupError> {
        not_zero("api.headers_max", self.headers_max)?;
        not_zero("api.quiet_timeout_s", self.quiet_timeout_s)?;
        if self.head_limit_bytes < ConnectionBounds::HEAD_BYTES_MIN {
            return Err(SetupError::Head { given: self.head_limit_bytes });
        }
        Ok(ConnectionBounds {
            headers_max: self.headers_max,
            head_bytes: self.head_limit_bytes,
            quiet: Duration::from_secs(self.quiet_timeout_s),
        })
    }

    /// How idempotency keys are kept.
    ///
    /// # Errors
    /// [`SetupError::Terms`].
    pub fn terms(&self) -> Result<Terms, SetupError> {
        Ok(Terms::new(self.idempotency_ttl_h, LEASE)?)
    }
}

pub(crate) fn not_zero<T: Default + PartialEq>(setting: &'static str, number: T) -> Result<(), SetupError> {
    if number == T::default() { Err(SetupError::Zero(setting)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted_and_numbers_that_contradict_are_not() {
        let options = ApiOptions::default();
        assert!(options.bounds().is_ok());
        assert_eq!(options.connection_bounds().unwrap(), ConnectionBounds::default());
        assert_eq!(options.terms().unwrap(), Terms::default());

        let wait = ApiOptions { wait_max_s: 40, ..ApiOptions::default() };
        assert!(matches!(wait.bounds(), Err(SetupError::WaitOutlivesRequest { .. })));
        let body = ApiOptions { body_limit_bytes: 0, ..ApiOptions::default() };
        assert!(matches!(body.bounds(), Err(SetupError::Zero("api.body_limit_bytes"))));
        let head = ApiOptions { head_limit_bytes: 8_191, ..ApiOptions::default() };
        assert!(matches!(head.connection_bounds(), Err(SetupError::Head { given: 8_191 })));
        let quiet = ApiOptions { quiet_timeout_s: 0, ..ApiOptions::default() };
        assert!(matches!(quiet.connection_bounds(), Err(SetupError::Zero("api.quiet_timeout_s"))));
        let ttl = ApiOptions { idempotency_ttl_h: 1, ..ApiOptions::default() };
        assert!(matches!(ttl.terms(), Err(SetupError::Terms(_))));
    }
}
