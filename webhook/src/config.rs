//! Options of payments-api: its sections of the configuration that all processes share.
//!
//! Sections of other processes are ignored; an unknown key in one of its own sections is refused.

use std::net::SocketAddr;
use std::time::Duration;

use idempotency::{IdempotencyOptions, IdempotencyOptionsError};
use outbound_webhooks::OutboundWebhooksOptions;
use outbound_webhooks::config::OutboundWebhooksConfigError;
use payment_ledger::{DatabaseOptions, DatabaseOptionsError};
use serde::Deserialize;
use service_kit::bounds::RequestBounds;
use service_kit::connection::ConnectionBounds;
use service_kit::published::PublishedSecret;
use switch_client::{SwitchConfigError, Switches};
use webhook_signature::SecretError;
use workflow_api::TemporalOptions;

pub use crate::limits::RateOptions;
pub use crate::streams::StreamOptions;

/// Lease of an idempotency key (S4.4).
const LEASE: Duration = Duration::from_secs(30);

/// The sections that this process reads.
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

/// Limits of the HTTP API.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiOptions {
    /// Address to listen on; port 0 takes a free one. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// Address of health and metrics, which customers do not reach. Default `127.0.0.1:9104`.
    pub metrics_listen: SocketAddr,
    /// Whether `listen` also serves `/docs` and `/openapi.json`. Default false.
    pub docs: bool,
    /// Retention of an idempotency key in hours, 24 to 72. Default 24.
    pub idempotency_retention_h: u64,
    /// Largest request body; a larger one is answered 413. Default 16 KiB.
    pub body_limit_bytes: usize,
    /// Longest time to receive a body; a slower one is answered 408. Default 10 s.
    pub body_timeout_s: u64,
    /// Upper bound of headers of a request; more are answered 431. Default 64.
    pub headers_max: usize,
    /// Largest head of a request, at least 8 KiB; a larger one is answered 431. Default 16 KiB.
    pub head_limit_bytes: usize,
    /// Longest time without progress on a connection, between two requests or within one; then it is closed. Default 20 s.
    pub idle_timeout_s: u64,
    /// Largest difference between a callback's timestamp and our clock. Default 300 s.
    pub callback_tolerance_s: u32,
    /// Longest `?wait=`; a longer one is reduced to this. Default 30 s.
    pub wait_max_s: u64,
    /// Upper bound of requests that wait with `?wait=`; a further one is answered without waiting. Default 256.
    pub waiters_max: usize,
    /// Upper bound of clients' requests in flight; a further one is answered 503 `overloaded`. Default 1024.
    pub max_in_flight: usize,
    /// The same for callbacks of switches. Default 256.
    pub callbacks_max_in_flight: usize,
    /// The part of `max_in_flight` that one address may use. Default 768. Behind a
    /// proxy, whose address all clients have: as many as `max_in_flight`.
    pub max_in_flight_per_address: usize,
    /// The same part of `callbacks_max_in_flight`. Default 192.
    pub callbacks_max_in_flight_per_address: usize,
    /// Upper bound of connections; a further one is closed. Default 8192; each takes a file descriptor.
    pub connections_max: usize,
    /// Upper bound of connections of one address; a further one is closed. Default 1024. Behind a proxy: as many as `connections_max`.
    pub connections_per_address_max: usize,
    /// Database connections for reads, at least 1, beside those of `database.max_connections`: slow reads take none that a payment or a
    /// callback needs. Default 8.
    pub read_connections: u32,
    /// Longest time of one request, including `?wait=`. Default 40 s.
    pub request_timeout_s: u64,
    /// Rate of writes of one client; retries are not counted.
    pub writes: RateOptions,
    /// Rate of reads of one client.
    pub reads: RateOptions,
    /// Event streams.
    pub streams: StreamOptions,
}

impl Default for ApiOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            metrics_listen: SocketAddr::from(([127, 0, 0, 1], 9104)),
            docs: false,
            idempotency_retention_h: 24,
            body_limit_bytes: 16 * 1024,
            body_timeout_s: 10,
            headers_max: 64,
            head_limit_bytes: 16 * 1024,
            idle_timeout_s: 20,
            callback_tolerance_s: 300,
            wait_max_s: 30,
            waiters_max: 256,
            max_in_flight: 1024,
            callbacks_max_in_flight: 256,
            max_in_flight_per_address: 768,
            callbacks_max_in_flight_per_address: 192,
            connections_max: 8_192,
            connections_per_address_max: 1_024,
            read_connections: 8,
            request_timeout_s: 40,
            writes: RateOptions::default(),
            reads: RateOptions::default(),
            streams: StreamOptions::default(),
        }
    }
}

/// The configuration is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The database options are invalid.
    #[error("the configuration section [database] is invalid")]
    Database(#[from] DatabaseOptionsError),
    /// A number is zero that must not be.
    #[error("the configuration key {0} must be greater than zero")]
    Zero(&'static str),
    /// The largest head is smaller than the HTTP server supports.
    #[error("api.head_limit_bytes must be at least {}, not {given}", ConnectionBounds::HEAD_BYTES_MIN)]
    Head {
        /// The configured size.
        given: usize,
    },
    /// A rate admits no request, or every request.
    #[error(
        "the configuration section [{section}] requires 1 <= per_s <= burst <= {burst_max}, not per_s = {per_s}, burst = {burst}"
    )]
    Rate {
        /// Section of the rate.
        section: &'static str,
        /// The configured rate.
        per_s: u32,
        /// The configured burst.
        burst: u32,
        /// The largest burst.
        burst_max: u32,
    },
    /// The options of outbound webhooks are invalid.
    #[error(transparent)]
    Webhooks(#[from] OutboundWebhooksConfigError),
    /// The retention of idempotency keys is too short or too long.
    #[error("the configuration key api.idempotency_retention_h is invalid")]
    Idempotency(#[from] IdempotencyOptionsError),
    /// The longest wait would exceed the request timeout.
    #[error("api.wait_max_s ({wait_max_s}) must be less than api.request_timeout_s ({request_timeout_s})")]
    WaitExceedsRequestTimeout {
        /// The configured wait.
        wait_max_s: u64,
        /// The configured timeout.
        request_timeout_s: u64,
    },
    /// The options of a switch are invalid.
    #[error("the configuration section [switches] is invalid")]
    Switch(#[from] SwitchConfigError),
    /// A secret is published.
    #[error(transparent)]
    Published(#[from] PublishedSecret),
    /// A callback secret is malformed.
    #[error(
        "callback_secrets in the configuration section [switches.{switch}] has an entry that is no webhook secret"
    )]
    CallbackSecret {
        /// Name of the switch.
        switch: String,
        /// The cause, without the secret.
        #[source]
        source: SecretError,
    },
}

impl ApiOptions {
    /// Checks the numbers against each other and returns the bounds of a request.
    ///
    /// # Errors
    /// [`SetupError::Zero`] or [`SetupError::WaitExceedsRequestTimeout`].
    pub fn bounds(&self) -> Result<RequestBounds, SetupError> {
        not_zero("api.body_limit_bytes", self.body_limit_bytes)?;
        not_zero("api.body_timeout_s", self.body_timeout_s)?;
        if self.wait_max_s >= self.request_timeout_s {
            return Err(SetupError::WaitExceedsRequestTimeout {
                wait_max_s: self.wait_max_s,
                request_timeout_s: self.request_timeout_s,
            });
        }
        Ok(RequestBounds {
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
        not_zero("api.idle_timeout_s", self.idle_timeout_s)?;
        not_zero("api.read_connections", self.read_connections)?;
        not_zero("api.connections_max", self.connections_max)?;
        not_zero("api.connections_per_address_max", self.connections_per_address_max)?;
        if self.head_limit_bytes < ConnectionBounds::HEAD_BYTES_MIN {
            return Err(SetupError::Head { given: self.head_limit_bytes });
        }
        Ok(ConnectionBounds {
            headers_max: self.headers_max,
            head_bytes: self.head_limit_bytes,
            idle: Duration::from_secs(self.idle_timeout_s),
            connections_max: self.connections_max,
            connections_per_address_max: self.connections_per_address_max,
        })
    }

    /// Retention and lease of idempotency keys.
    ///
    /// # Errors
    /// [`SetupError::Idempotency`].
    pub fn idempotency(&self) -> Result<IdempotencyOptions, SetupError> {
        Ok(IdempotencyOptions::new(self.idempotency_retention_h, LEASE)?)
    }
}

pub(crate) fn not_zero<T: Default + PartialEq>(setting: &'static str, number: T) -> Result<(), SetupError> {
    if number == T::default() { Err(SetupError::Zero(setting)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_api_options_are_valid_and_contradictory_ones_refused() {
        let options = ApiOptions::default();
        assert!(options.bounds().is_ok());
        assert_eq!(options.connection_bounds().unwrap(), ConnectionBounds::default());
        assert_eq!(options.idempotency().unwrap(), IdempotencyOptions::default());

        let wait = ApiOptions { wait_max_s: 40, ..ApiOptions::default() };
        assert!(matches!(wait.bounds(), Err(SetupError::WaitExceedsRequestTimeout { .. })));
        let body = ApiOptions { body_limit_bytes: 0, ..ApiOptions::default() };
        assert!(matches!(body.bounds(), Err(SetupError::Zero("api.body_limit_bytes"))));
        let head = ApiOptions { head_limit_bytes: 8_191, ..ApiOptions::default() };
        assert!(matches!(head.connection_bounds(), Err(SetupError::Head { given: 8_191 })));
        let idle = ApiOptions { idle_timeout_s: 0, ..ApiOptions::default() };
        assert!(matches!(idle.connection_bounds(), Err(SetupError::Zero("api.idle_timeout_s"))));
        let retention = ApiOptions { idempotency_retention_h: 1, ..ApiOptions::default() };
        assert!(matches!(retention.idempotency(), Err(SetupError::Idempotency(_))));
    }
}
