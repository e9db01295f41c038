//! One attempt over HTTP: the request and the response. It accesses no table.

use std::fmt::Display;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use postgres_kit::text::replace_nul;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response};
use trace_kit::{SpanKind, TRACEPARENT, TraceParent, attribute, span};
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};

use super::claim::ClaimedDelivery;
use crate::CheckedOutboundWebhooks;
use crate::schedule::retry_after;
use crate::secret::MasterKey;
use crate::target::{Target, TargetRules};

/// Upper bound of a response body that is read, in bytes; then the connection is closed.
const BODY_READ_MAX: usize = 16 * 1024;
/// Upper bound of a response body that is stored, in bytes.
const BODY_STORED_MAX: usize = 512;
/// Longest stored error text, in characters.
const ERROR_CHARS_MAX: usize = 200;
/// Upper bound of idle connections per host.
const IDLE_PER_HOST: usize = 2;
const USER_AGENT: &str = concat!("outbound-webhooks/", env!("CARGO_PKG_VERSION"));

/// A finished attempt.
#[derive(Debug)]
pub(super) struct AttemptResult {
    pub(super) duration: Duration,
    pub(super) response: AttemptResponse,
}

/// The endpoint's response, or why no response was received.
#[derive(Debug)]
pub(super) enum AttemptResponse {
    Received {
        status: u16,
        retry_after: Option<Duration>,
        /// The start of the body.
        excerpt: String,
    },
    Missing {
        error: String,
    },
    /// Nothing was sent, because of our configuration and not because of the endpoint.
    NotSent {
        error: String,
    },
}

/// Sends deliveries over HTTP.
#[derive(Debug)]
pub(super) struct HttpSender {
    master_key: MasterKey,
    rules: TargetRules,
    timeout: Duration,
    http: Client,
    /// The HTTPS client; an error on a machine without certificates, where HTTPS is impossible.
    https: Result<Client, String>,
}

impl HttpSender {
    pub(super) fn new(
        master_key: MasterKey,
        options: &CheckedOutboundWebhooks,
    ) -> Result<Self, reqwest::Error> {
        // Fails if a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = client(options).tls_certs_only([]).build()?;
        let mut https = client(options).https_only(true);
        if !options.authorities.is_empty() {
            https = https.tls_certs_merge(options.authorities.iter().cloned());
        }
        let https = https.build().map_err(|error| root_cause(&error));
        if let Err(reason) = &https {
            tracing::warn!(
                reason,
                "the sender of outbound webhooks could not build its https client; check the machine's root certificates"
            );
        }
        Ok(Self { master_key, rules: options.rules.clone(), timeout: options.attempt_timeout, http, https })
    }

    pub(super) async fn attempt(&self, claimed: &ClaimedDelivery) -> AttemptResult {
        let span = span(SpanKind::Client, "deliver webhook")
            .child_of(claimed.trace_parent.as_ref())
            .with(attribute::HTTP_METHOD, "POST")
            .with(attribute::MESSAGE_ID, claimed.event_id.clone())
            .with("webhook.endpoint_id", claimed.endpoint.to_string())
            .with(attribute::ATTEMPT, i64::from(claimed.failed_attempts) + 1)
            .start();
        let started = Instant::now();
        let response = match span.run(self.post(claimed)).await {
            Ok(response) => read(response).await,
            Err(response) => response,
        };
        match &response {
            AttemptResponse::Received { status, .. } => span.set(attribute::HTTP_STATUS, i64::from(*status)),
            AttemptResponse::Missing { error } | AttemptResponse::NotSent { error } => {
                span.fail(error.clone())
            }
        }
        AttemptResult { duration: started.elapsed(), response }
    }

    async fn post(&self, claimed: &ClaimedDelivery) -> Result<Response, AttemptResponse> {
        let not_sent =
            |reason: &dyn Display| AttemptResponse::NotSent { error: format!("not sent: {reason}") };
        // The receiver does not know a secret of another master key.
        if claimed.secret_check != self.master_key.check(&claimed.endpoint) {
            return Err(not_sent(
                &"the signing secret was derived from another outbound_webhooks.master_key; rotate the secret",
            ));
        }
        // The rules may have changed since the endpoint was created.
        let target = Target::parse(&claimed.url, &self.rules).map_err(|error| not_sent(&error))?;
        let client = if target.is_https() {
            self.https.as_ref().map_err(|reason| not_sent(reason))?
        } else {
            &self.http
        };
        let now_s = Timestamp::now().as_second();
        let version = claimed.secret_version;
        let mut secrets = vec![self.master_key.secret(&claimed.endpoint, version)];
        if claimed.old_secret_signs && version > 1 {
            secrets.push(self.master_key.secret(&claimed.endpoint, version - 1));
        }
        let body = claimed.body.as_bytes();
        let mut request = client.post(target.url().clone());
        if let Some(position) = TraceParent::current() {
            request = request.header(TRACEPARENT, position.to_string());
        }
        request
            .header(ID_HEADER, &claimed.event_id)
            .header(TIMESTAMP_HEADER, now_s)
            .header(
                SIGNATURE_HEADER,
                webhook_signature::sign_with_each(&secrets, &claimed.event_id, now_s, body),
            )
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_vec())
            .send()
            .await
            .map_err(|error| {
                let cause = root_cause(&error);
                tracing::info!(endpoint.id = %claimed.endpoint, cause, "a delivery attempt to a tenant's webhook endpoint got no response");
                AttemptResponse::Missing { error: self.public_error(&error) }
            })
    }

    /// The error that is stored and shown to the tenant. Only our log has the cause of a failed connection: a name that
    /// resolves to an internal address must look like a name that does not exist.
    fn public_error(&self, error: &reqwest::Error) -> String {
        let text = if error.is_timeout() {
            format!("no answer within {} ms", self.timeout.as_millis())
        } else if error.is_connect() {
            "no connection".to_owned()
        } else {
            format!("the connection broke: {}", root_cause(error))
        };
        text.chars().take(ERROR_CHARS_MAX).collect()
    }
}

/// Settings of both clients: each address is checked after its resolution, there is no proxy that would resolve names, and a
/// redirect counts as a failure.
fn client(options: &CheckedOutboundWebhooks) -> ClientBuilder {
    Client::builder()
        .dns_resolver(options.rules.addresses.clone())
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .timeout(options.attempt_timeout)
        .connect_timeout(options.attempt_timeout)
        .pool_max_idle_per_host(IDLE_PER_HOST)
        .user_agent(USER_AGENT)
}

/// Reads the response. Its status decides; an incomplete or endless body changes nothing.
async fn read(mut response: Response) -> AttemptResponse {
    let status = response.status().as_u16();
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).and_then(retry_after);
    let (mut read, mut excerpt) = (0_usize, Vec::new());
    while let Ok(Some(chunk)) = response.chunk().await {
        let remaining = BODY_STORED_MAX.saturating_sub(excerpt.len());
        excerpt.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
        read = read.saturating_add(chunk.len());
        if read > BODY_READ_MAX {
            break;
        }
    }
    AttemptResponse::Received {
        status,
        retry_after,
        excerpt: replace_nul(&String::from_utf8_lossy(&excerpt)).into_owned(),
    }
}

/// The root cause of an error, in one line.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    replace_nul(&cause.to_string()).into_owned()
}
