//! Section `[outbound_webhooks]`: what processes that make endpoints or send to them are told.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use secrecy::SecretString;
use serde::Deserialize;

use crate::address::Reach;
use crate::schedule::Schedule;
use crate::secret::{MasterKey, MasterKeyError};
use crate::target::TargetRules;

/// Section `[outbound_webhooks]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutboundWebhooksOptions {
    /// What all secrets of endpoints are made from: base64 of 32 bytes at least. Another one changes every secret. Without
    /// one no endpoint is made and nothing is sent. Default: none.
    pub master_key: Option<SecretString>,
    /// Whether a URL may be `http`. Default false.
    pub allow_http: bool,
    /// Ports that may be connected to; an empty list means every port. Default 443 and 8443.
    pub allowed_ports: Vec<u16>,
    /// Networks that may be reached besides the public internet, like `10.1.0.0/16`. Default: none.
    pub allowed_networks: Vec<IpNet>,
    /// PEM file of certificate authorities that are trusted besides the system's. Default: none.
    pub ca_file: Option<PathBuf>,
    /// Endpoints of one tenant, at least 1. Default 10.
    pub endpoints_max: i64,
    /// For how long after a rotation the old secret signs too, in seconds. Default 24 hours.
    pub secret_overlap_s: u32,
    /// Time for one attempt, all in all, in milliseconds, at least 1. Default 10000.
    pub attempt_timeout_ms: u64,
    /// For how long an attempt is one sender's, in milliseconds; at least twice the attempt's time. After the death of a sender
    /// its attempts are made again so much later. Default 30000.
    pub lease_ms: u64,
    /// Pauses before the second attempt, the third and so on, in milliseconds, up to a fifth longer by chance; after the last
    /// one a delivery has failed. Default 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h.
    pub pauses_ms: Vec<u64>,
    /// Pause before another look at what could not be sent by a fault of ours, in milliseconds, at least 1; up to a fifth longer
    /// by chance. Default 5 min.
    pub postpone_ms: u64,
    /// Longest `Retry-After` that is obeyed, in seconds. Default 24 hours.
    pub retry_after_max_s: u64,
    /// An endpoint at which every attempt has failed for so long is disabled, in seconds. Default 5 days.
    pub disable_after_s: u32,
    /// Attempts under way at once in one process, at least 1. Default 64.
    pub max_in_flight: usize,
    /// Attempts under way at once at one endpoint, at least 1; two processes that look at the same moment may both take as
    /// many. Default 4.
    pub max_in_flight_per_endpoint: i64,
    /// Attempts under way at once at all endpoints of one tenant, at least 1, with the same exception. Default 16.
    pub max_in_flight_per_tenant: i64,
    /// Pause between two looks for what is due, in milliseconds, at least 1. Default 250.
    pub poll_interval_ms: u64,
    /// For how long deliveries and their attempts are kept after their end, in seconds; longer than all pauses together. What could
    /// not be sent for so long has failed. Default 30 days.
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
            ca_file: None,
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

/// A section that is refused at start-up.
#[derive(Debug, thiserror::Error)]
pub enum OutboundWebhooksConfigError {
    /// The master key cannot be one.
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    /// A number that switches something off.
    #[error("webhooks.{0} must be greater than zero")]
    Zero(&'static str),
    /// A sender could lose an attempt to another one while it makes it.
    #[error(
        "webhooks.lease_ms ({lease_ms}) must be twice webhooks.attempt_timeout_ms ({attempt_timeout_ms}) at least"
    )]
    Lease {
        /// As configured.
        lease_ms: u64,
        /// As configured.
        attempt_timeout_ms: u64,
    },
    /// What is still tried would be deleted.
    #[error(
        "webhooks.retention_s ({retention_s}) must be more than all of webhooks.pauses_ms together, each as long as webhooks.retry_after_max_s can make it ({pauses_s} s)"
    )]
    Kept {
        /// As configured.
        retention_s: u64,
        /// All pauses together, as long as they can be.
        pauses_s: u64,
    },
    /// The file of certificate authorities cannot be used.
    #[error("webhooks.ca_file {} cannot be used", path.display())]
    CaFile {
        /// As configured.
        path: PathBuf,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A section that was checked.
#[derive(Clone, Debug)]
pub struct CheckedOutboundWebhooks {
    /// See [`OutboundWebhooksOptions::master_key`].
    pub master_key: Option<MasterKey>,
    /// What URLs may look like.
    pub rules: TargetRules,
    /// See [`OutboundWebhooksOptions::ca_file`].
    pub authorities: Vec<reqwest::Certificate>,
    /// See [`OutboundWebhooksOptions::endpoints_max`].
    pub endpoints_max: i64,
    /// See [`OutboundWebhooksOptions::secret_overlap_s`].
    pub secret_overlap_s: u32,
    /// See [`OutboundWebhooksOptions::attempt_timeout_ms`].
    pub attempt_timeout: Duration,
    /// See [`OutboundWebhooksOptions::lease_ms`].
    pub lease: Duration,
    /// When an attempt is made again.
    pub schedule: Schedule,
    /// See [`OutboundWebhooksOptions::postpone_ms`].
    pub put_off: Duration,
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
    pub kept: Duration,
}

impl OutboundWebhooksOptions {
    /// Checks the settings, each and against each other, and reads the files they name.
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
            return Err(OutboundWebhooksConfigError::Kept { retention_s: self.retention_s, pauses_s });
        }
        Ok(CheckedOutboundWebhooks {
            master_key: self.master_key.as_ref().map(MasterKey::read).transpose()?,
            rules: TargetRules {
                http: self.allow_http,
                ports: self.allowed_ports.clone(),
                reach: Reach::new(self.allowed_networks.clone()),
            },
            authorities: self.authorities()?,
            endpoints_max: self.endpoints_max,
            secret_overlap_s: self.secret_overlap_s,
            attempt_timeout: Duration::from_millis(self.attempt_timeout_ms),
            lease: Duration::from_millis(self.lease_ms),
            schedule,
            put_off: Duration::from_millis(self.postpone_ms),
            disable_after_s: self.disable_after_s,
            max_in_flight: self.max_in_flight,
            max_in_flight_per_endpoint: self.max_in_flight_per_endpoint,
            max_in_flight_per_tenant: self.max_in_flight_per_tenant,
            poll_interval: Duration::from_millis(self.poll_interval_ms),
            kept: Duration::from_secs(self.retention_s),
        })
    }

    fn authorities(&self) -> Result<Vec<reqwest::Certificate>, OutboundWebhooksConfigError> {
        let Some(path) = &self.ca_file else { return Ok(Vec::new()) };
        let refused = |source: Box<dyn std::error::Error + Send + Sync>| {
            OutboundWebhooksConfigError::CaFile { path: path.clone(), source }
        };
        let pem = std::fs::read(path).map_err(|error| refused(error.into()))?;
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| refused(error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_accepted_and_what_contradicts_is_not() {
        assert!(OutboundWebhooksOptions::default().check().unwrap().master_key.is_none());
        let refused = |change: fn(&mut OutboundWebhooksOptions)| {
            let mut options = OutboundWebhooksOptions::default();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(refused(|options| options.lease_ms = 19_999).contains("lease_ms"));
        // Eight days, since an endpoint may ask for a day each time, and one and a fifth.
        assert!(refused(|options| options.retention_s = 794_880).contains("pauses_ms"));
        assert!(
            refused(|options| options.max_in_flight_per_endpoint = 0).contains("max_in_flight_per_endpoint")
        );
        assert!(refused(|options| options.max_in_flight_per_tenant = 0).contains("max_in_flight_per_tenant"));
        assert!(refused(|options| options.master_key = Some("short".into())).contains("openssl"));
        assert!(refused(|options| options.ca_file = Some("/no/such.pem".into())).contains("/no/such.pem"));
    }
}
