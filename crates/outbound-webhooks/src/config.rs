//! Section `[outbound_webhooks]`: settings of the processes that manage endpoints or send deliveries.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

use crate::address::AddressPolicy;
use crate::schedule::Schedule;
use crate::secret::{MasterKey, MasterKeyError};
use crate::target::TargetRules;

/// Section `[outbound_webhooks]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundWebhooksOptions {
    /// The key from which the secrets of all endpoints are derived: base64 of at least 32 bytes. Another key changes every
    /// secret. Without a key no endpoint is created and nothing is sent. Default: none.
    pub master_key: Option<SecretString>,
    /// Permits `http` URLs. Default false.
    pub allow_http: bool,
    /// Permitted ports; an empty list permits every port. Default 443 and 8443.
    pub allowed_ports: Vec<u16>,
    /// Permitted networks besides the public internet, such as `10.1.0.0/16`. Default: none.
    pub allowed_networks: Vec<IpNet>,
    /// PEM file of trusted certificate authorities besides those of the system. Default: none.
    pub ca_path: Option<PathBuf>,
    /// Upper bound of endpoints of one tenant, at least 1. Default 10.
    pub endpoints_max: i64,
    /// How long the previous secret signs too after a rotation, in seconds. Default 24 hours.
    pub secret_overlap_s: u32,
    /// Timeout of one attempt, in milliseconds, at least 1. Default 10000.
    pub attempt_timeout_ms: u64,
    /// Lease of a claimed delivery, in milliseconds; at least twice the attempt's timeout. The attempts of a sender that died are
    /// repeated after it. Default 30000.
    pub lease_ms: u64,
    /// Delays before the second, third and further attempts, in milliseconds, with a jitter of up to a fifth; a delivery fails
    /// after the last attempt. Default 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h.
    pub pauses_ms: Vec<u64>,
    /// Delay of a delivery that could not be sent because of our configuration, in milliseconds, at least 1, with a jitter of
    /// up to a fifth. Default 5 min.
    pub postpone_ms: u64,
    /// Longest `Retry-After` that is obeyed, in seconds. Default 24 hours.
    pub retry_after_max_s: u64,
    /// An endpoint is disabled if every attempt has failed for this long, in seconds. Default 5 days.
    pub disable_after_s: u32,
    /// In-flight limit of one process, at least 1. Default 64.
    pub max_in_flight: usize,
    /// In-flight limit of one endpoint, at least 1; two processes that claim at the same time may each reach it. Default 4.
    pub max_in_flight_per_endpoint: i64,
    /// In-flight limit of all endpoints of one tenant, at least 1, with the same exception. Default 16.
    pub max_in_flight_per_tenant: i64,
    /// Interval at which due deliveries are claimed, in milliseconds, at least 1. Default 250.
    pub poll_interval_ms: u64,
    /// Retention of deliveries and their attempts after their end, in seconds; longer than the sum of all delays. A delivery
    /// that could not be sent for this long fails. Default 30 days.
    pub retention_s: u64,
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_S: u32 = 24 * 3_600;

impl Default for OutboundWebhooksOptions {
    fn default() -> Self {
        Self {
            master_key: None,
            allow_http: false,
            allowed_ports: vec![443, 8443],
            allowed_networks: Vec::new(),
            ca_path: None,
            endpoints_max: 10,
            secret_overlap_s: DAY_S,
            attempt_timeout_ms: 10_000,
            lease_ms: 30_000,
            pauses_ms: vec![
                5_000,
                5 * MINUTE_MS,
                30 * MINUTE_MS,
                2 * HOUR_MS,
                5 * HOUR_MS,
                10 * HOUR_MS,
                14 * HOUR_MS,
                20 * HOUR_MS,
                24 * HOUR_MS,
            ],
            postpone_ms: 5 * MINUTE_MS,
            retry_after_max_s: 24 * 3_600,
            disable_after_s: 5 * DAY_S,
            max_in_flight: 64,
            max_in_flight_per_endpoint: 4,
            max_in_flight_per_tenant: 16,
            poll_interval_ms: 250,
            retention_s: 30 * 24 * 3_600,
        }
    }
}

/// A configuration that is rejected at start-up.
#[derive(Debug, thiserror::Error)]
pub enum OutboundWebhooksConfigError {
    /// The master key is invalid.
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    /// A setting is zero.
    #[error("outbound_webhooks.{0} must be greater than zero")]
    Zero(&'static str),
    /// The lease could expire during an attempt.
    #[error(
        "outbound_webhooks.lease_ms ({lease_ms}) must be at least twice outbound_webhooks.attempt_timeout_ms ({attempt_timeout_ms})"
    )]
    Lease {
        /// The configured lease.
        lease_ms: u64,
        /// The configured timeout of an attempt.
        attempt_timeout_ms: u64,
    },
    /// Deliveries could be deleted before their last attempt.
    #[error(
        "outbound_webhooks.retention_s ({retention_s}) must exceed the sum of outbound_webhooks.pauses_ms, with jitter and outbound_webhooks.retry_after_max_s ({pauses_s} s)"
    )]
    Retention {
        /// The configured retention.
        retention_s: u64,
        /// Longest possible sum of all delays.
        pauses_s: u64,
    },
    /// The file of certificate authorities is missing or invalid.
    #[error("the certificates in outbound_webhooks.ca_path {} could not be loaded; name a readable PEM file", path.display())]
    CaFile {
        /// The configured path.
        path: PathBuf,
        /// Why the file is unusable.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Checked settings.
#[derive(Clone, Debug)]
pub struct CheckedOutboundWebhooks {
    /// See [`OutboundWebhooksOptions::master_key`].
    pub master_key: Option<MasterKey>,
    /// Rules for URLs.
    pub rules: TargetRules,
    /// See [`OutboundWebhooksOptions::ca_path`].
    pub authorities: Vec<reqwest::Certificate>,
    /// See [`OutboundWebhooksOptions::endpoints_max`].
    pub endpoints_max: i64,
    /// See [`OutboundWebhooksOptions::secret_overlap_s`].
    pub secret_overlap_s: u32,
    /// See [`OutboundWebhooksOptions::attempt_timeout_ms`].
    pub attempt_timeout: Duration,
    /// See [`OutboundWebhooksOptions::lease_ms`].
    pub lease: Duration,
    /// Delays between attempts.
    pub schedule: Schedule,
    /// See [`OutboundWebhooksOptions::postpone_ms`].
    pub postpone: Duration,
    /// See [`OutboundWebhooksOptions::disable_after_s`].
    pub disable_after_s: u32,
    /// See [`OutboundWebhooksOptions::max_in_flight`].
    pub max_in_flight: usize,
    /// See [`OutboundWebhooksOptions::max_in_flight_per_endpoint`].
    pub max_in_flight_per_endpoint: i64,
    /// See [`OutboundWebhooksOptions::max_in_flight_per_tenant`].
    pub max_in_flight_per_tenant: i64,
    /// See [`OutboundWebhooksOptions::poll_interval_ms`].
    pub poll_interval: Duration,
    /// See [`OutboundWebhooksOptions::retention_s`].
    pub retention: Duration,
}

impl OutboundWebhooksOptions {
    /// The master key with the name of its setting, if it is configured.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str)> {
        let key = self.master_key.as_ref();
        key.map(|key| ("outbound_webhooks.master_key".to_owned(), key.expose_secret())).into_iter()
    }

    /// Checks the settings and reads the files that they name.
    ///
    /// # Errors
    /// [`OutboundWebhooksConfigError`].
    pub fn check(&self) -> Result<CheckedOutboundWebhooks, OutboundWebhooksConfigError> {
        for (setting, is_zero) in [
            ("endpoints_max", self.endpoints_max < 1),
            ("attempt_timeout_ms", self.attempt_timeout_ms == 0),
            ("postpone_ms", self.postpone_ms == 0),
            ("disable_after_s", self.disable_after_s == 0),
            ("max_in_flight", self.max_in_flight == 0),
            ("max_in_flight_per_endpoint", self.max_in_flight_per_endpoint < 1),
            ("max_in_flight_per_tenant", self.max_in_flight_per_tenant < 1),
            ("poll_interval_ms", self.poll_interval_ms == 0),
        ] {
            if is_zero {
                return Err(OutboundWebhooksConfigError::Zero(setting));
            }
        }
        if self.lease_ms / 2 < self.attempt_timeout_ms {
            let (lease_ms, attempt_timeout_ms) = (self.lease_ms, self.attempt_timeout_ms);
            return Err(OutboundWebhooksConfigError::Lease { lease_ms, attempt_timeout_ms });
        }
        let schedule = Schedule::new(
            self.pauses_ms.iter().copied().map(Duration::from_millis).collect(),
            Duration::from_secs(self.retry_after_max_s),
        );
        let pauses_s = schedule.longest().as_secs();
        if self.retention_s <= pauses_s {
            return Err(OutboundWebhooksConfigError::Retention { retention_s: self.retention_s, pauses_s });
        }
        Ok(CheckedOutboundWebhooks {
            master_key: self.master_key.as_ref().map(MasterKey::parse).transpose()?,
            rules: TargetRules {
                http: self.allow_http,
                ports: self.allowed_ports.clone(),
                addresses: AddressPolicy::new(self.allowed_networks.clone()),
            },
            authorities: self.authorities()?,
            endpoints_max: self.endpoints_max,
            secret_overlap_s: self.secret_overlap_s,
            attempt_timeout: Duration::from_millis(self.attempt_timeout_ms),
            lease: Duration::from_millis(self.lease_ms),
            schedule,
            postpone: Duration::from_millis(self.postpone_ms),
            disable_after_s: self.disable_after_s,
            max_in_flight: self.max_in_flight,
            max_in_flight_per_endpoint: self.max_in_flight_per_endpoint,
            max_in_flight_per_tenant: self.max_in_flight_per_tenant,
            poll_interval: Duration::from_millis(self.poll_interval_ms),
            retention: Duration::from_secs(self.retention_s),
        })
    }

    fn authorities(&self) -> Result<Vec<reqwest::Certificate>, OutboundWebhooksConfigError> {
        let Some(path) = &self.ca_path else { return Ok(Vec::new()) };
        let invalid = |source: Box<dyn std::error::Error + Send + Sync>| {
            OutboundWebhooksConfigError::CaFile { path: path.clone(), source }
        };
        let pem = std::fs::read(path).map_err(|error| invalid(error.into()))?;
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| invalid(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_webhook_options_are_valid_and_contradictory_ones_rejected() {
        assert!(OutboundWebhooksOptions::default().check().unwrap().master_key.is_none());
        let error = |change: fn(&mut OutboundWebhooksOptions)| {
            let mut options = OutboundWebhooksOptions::default();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(error(|options| options.lease_ms = 19_999).contains("lease_ms"));
        // Eight delays of a day, the maximum of Retry-After, and one of a day and a fifth.
        assert!(error(|options| options.retention_s = 794_880).contains("pauses_ms"));
        assert!(
            error(|options| options.max_in_flight_per_endpoint = 0).contains("max_in_flight_per_endpoint")
        );
        assert!(error(|options| options.max_in_flight_per_tenant = 0).contains("max_in_flight_per_tenant"));
        assert!(error(|options| options.master_key = Some("short".into())).contains("openssl"));
        assert!(error(|options| options.ca_path = Some("/no/such.pem".into())).contains("/no/such.pem"));
    }
}
