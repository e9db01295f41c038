//! The kind of switch that speaks JSON over HTTP. It maps each response to the protocol's answer types.
//!
//! | file | content |
//! |---|---|
//! | `submit`, `query`, `cancel`, `recall` | one operation each |
//! | `read_back` | lookup of a transfer in the listing of a switch without references |
//! | `statement` | lookup of a transfer in the statement, and the statement's pages |
//! | `report` | a callback's body |
//! | `address` | how a request names a transfer, and what its answer must name |
//! | `map` | a transfer as a query answer or a settled report |
//! | `http`, `bodies`, `integer` | one HTTP call and its response; the JSON of requests and responses |

mod address;
mod bodies;
mod cancel;
mod http;
mod integer;
mod map;
mod query;
pub(crate) mod read_back;
mod recall;
mod report;
mod statement;
mod submit;

use std::time::{Duration, Instant};

use async_trait::async_trait;
use jiff::Timestamp;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::{CompensationKey, StepKey};
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::{QueryAnswer, SendAnswer};
use reqwest::Method;
use secrecy::SecretString;

use crate::breaker::CircuitBreaker;
use crate::client::{
    ClientError, LookupKey, StatementPage, SwitchClient, SwitchReply, TransferOrder, TransferRef,
};
use crate::clock::SwitchClock;
use crate::config::SwitchOptions;
use crate::retry_after::RetryAfter;
use statement::StatementPositions;

pub use report::{CallbackBody, HttpJsonReports};

/// The client of one switch of this kind. Each HTTP call has the profile's attempt timeout.
#[derive(Debug)]
pub struct HttpJsonClient {
    pub(crate) name: SwitchName,
    pub(crate) base_url: String,
    /// Checked to be there by [`crate::Switches::check`]; without it the switch refuses every request.
    pub(crate) api_token: Option<SecretString>,
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

impl HttpJsonClient {
    /// A client for the switch that `profile` describes.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn new(options: &SwitchOptions, profile: &SwitchProfile) -> Result<Self, ClientError> {
        let failed = |source| ClientError { switch: profile.switch.clone(), source };
        let timeout = Duration::from_millis(profile.attempt_timeout_ms);
        let builder = options.http_client().map_err(|error| failed(error.into()))?;
        let builder = builder.timeout(timeout).connect_timeout(timeout);
        let http = builder.build().map_err(|error| failed(error.into()))?;
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

#[async_trait]
impl SwitchClient for HttpJsonClient {
    async fn send(&self, order: &TransferOrder) -> SwitchReply<SendAnswer> {
        self.send(order).await
    }

    async fn repeat(&self, order: &TransferOrder) -> SwitchReply<QueryAnswer> {
        self.repeat(order).await
    }

    async fn query(&self, transfer: TransferRef<'_>) -> SwitchReply<QueryAnswer> {
        self.query(transfer).await
    }

    async fn cancel(&self, transfer: TransferRef<'_>, key: &CompensationKey) -> SwitchReply<CancelAnswer> {
        self.cancel(transfer, key).await
    }

    async fn recall(&self, transfer: TransferRef<'_>, key: &StepKey) -> SwitchReply<RecallAnswer> {
        self.recall(transfer, key).await
    }

    async fn statement(&self, lookup_key: &LookupKey) -> SwitchReply<QueryAnswer> {
        self.statement(lookup_key).await
    }

    async fn statement_page(&self, after: Option<&str>) -> Result<StatementPage, String> {
        self.statement_page(after).await
    }

    async fn statement_position(&self) -> Option<String> {
        self.statement_position().await
    }

    async fn marker(&self, creditor_account: &str) -> Result<String, String> {
        self.marker(creditor_account).await
    }

    async fn switch_now(&self) -> Result<Timestamp, String> {
        self.switch_now().await
    }

    fn permits_submit(&self) -> bool {
        self.permits_submit()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after()
    }
}
