//! The client of one switch. It maps each response to the protocol's answer types.
//!
//! | file | content |
//! |---|---|
//! | `submit`, `query`, `cancel`, `recall` | one operation each |
//! | `address` | how a request names a transfer, and what its answer must name |
//! | `map` | a transfer as a query answer or a settled report |

mod address;
mod cancel;
mod map;
mod query;
mod recall;
mod submit;

use std::time::{Duration, Instant};

use jiff::Timestamp;
use payment_protocol::SwitchProfile;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::Reference;
use payment_protocol::money::Money;
use reqwest::Method;
use secrecy::SecretString;

use crate::breaker::CircuitBreaker;
use crate::clock::SwitchClock;
use crate::config::SwitchOptions;
use crate::read_back::LookupKey;
use crate::retry_after::RetryAfter;
use crate::statement::StatementPositions;

/// A transfer to send; the same on every attempt.
#[derive(Clone, Debug)]
pub struct TransferOrder {
    /// Identifies the transfer at the switch.
    pub reference: Reference,
    /// The amount and currency.
    pub money: Money,
    /// The account at the destination bank.
    pub creditor_account: String,
    /// The customer's own id.
    pub end_to_end_id: Option<String>,
    /// The submit deadline on the switch's clock; `None` if the payment's profile does not honour deadlines.
    pub deadline: Option<Timestamp>,
}

/// The transfer that a call is about.
#[derive(Clone, Copy, Debug)]
pub enum TransferRef<'a> {
    /// A transfer by our reference.
    Reference(&'a Reference),
    /// At a switch without references: by the switch's own id or, if that is unknown, by lookup in the listing.
    LookupKey(&'a LookupKey),
}

/// A reply of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchReply<A> {
    /// The switch's answer; a missing response is an answer of `A` too.
    pub answer: A,
    /// Its `Date` header; `None` without a response or without a readable header.
    pub switch_now: Option<Timestamp>,
    /// The switch's own id of the transfer, if the answer names it.
    pub transfer_id: Option<String>,
}

/// The client of one switch. Each HTTP call has the profile's attempt timeout.
#[derive(Debug)]
pub struct SwitchClient {
    pub(crate) name: SwitchName,
    pub(crate) base_url: String,
    pub(crate) api_token: SecretString,
    pub(crate) http: reqwest::Client,
    pub(crate) clock: SwitchClock,
    /// Timeout of one HTTP call.
    pub(crate) timeout: Duration,
    pub(crate) statement_positions: StatementPositions,
    /// Whether the switch's answers name our references.
    has_references: bool,
    breaker: CircuitBreaker,
    pub(crate) retry_after: RetryAfter,
}

/// The HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for switch {switch} could not be built; check the section [switches.{switch}]")]
pub struct ClientError {
    switch: SwitchName,
    #[source]
    source: reqwest::Error,
}

impl<A> SwitchReply<A> {
    /// A reply that names no transfer.
    /// An answer at a time of the switch; `None` if it named none.
    #[must_use]
    pub fn new(answer: A, switch_now: Option<Timestamp>) -> Self {
        Self { answer, switch_now, transfer_id: None }
    }

    pub(crate) fn with_transfer_id(mut self, transfer_id: Option<String>) -> Self {
        self.transfer_id = transfer_id;
        self
    }
}

impl SwitchClient {
    /// A client for the switch that `profile` describes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(options: &SwitchOptions, profile: &SwitchProfile) -> Result<Self, ClientError> {
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let timeout = Duration::from_millis(profile.attempt_timeout_ms);
        let mut builder = reqwest::Client::builder()
            .timeout(timeout)
            .connect_timeout(timeout)
            .redirect(reqwest::redirect::Policy::none());
        if !options.base_url.starts_with("https:") {
            // Plain HTTP is internal traffic: no certificates, no proxy.
            builder = builder.tls_certs_only([]).no_proxy();
        }
        let http =
            builder.build().map_err(|source| ClientError { switch: profile.switch.clone(), source })?;
        let client = Self {
            name: profile.switch.clone(),
            base_url: options.base_url.trim_end_matches('/').to_owned(),
            api_token: options.api_token.clone(),
            http,
            clock: SwitchClock::default(),
            timeout,
            statement_positions: StatementPositions::default(),
            has_references: !profile.needs_account_lock(),
            breaker: CircuitBreaker::new(
                profile.breaker_failures,
                Duration::from_millis(profile.breaker_open_ms),
            ),
            retry_after: RetryAfter::new(Duration::from_millis(profile.retry_interval_max_ms)),
        };
        client.show_breaker();
        Ok(client)
    }

    /// The switch's time now: from an earlier response, otherwise from a call to `/health`.
    ///
    /// # Errors
    /// Why the switch's time is unknown.
    pub async fn switch_now(&self) -> Result<Timestamp, String> {
        if let Some(now) = self.clock.now() {
            return Ok(now);
        }
        // Every response has a Date header, whatever its status.
        self.call("read clock", Method::GET, "/health", None, None).await?;
        self.clock.now().ok_or_else(|| "the switch sends no Date header".into())
    }

    /// Whether a submit may be sent now: the circuit permits it and no `Retry-After` applies. Check before an attempt is
    /// recorded.
    #[must_use]
    pub fn permits_submit(&self) -> bool {
        let now = Instant::now();
        self.breaker.permits(now) && self.retry_after.remaining(now).is_none()
    }

    /// The rest of the switch's last `Retry-After`, at most the profile's `retry_interval_max_ms`; `None` without
    /// one. Repeat a call only after it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.remaining(Instant::now())
    }

    fn show_breaker(&self) {
        let is_open = f64::from(u8::from(self.breaker.is_open()));
        metrics::gauge!("switch_circuit_open", "switch" => self.name.to_string()).set(is_open);
    }
}
