//! One attempt: what is sent, and what came back. It touches no table.

use std::fmt::Display;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response};
use service_kit::signature::{self, ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER};

use super::claim::Claimed;
use crate::CheckedOutboundWebhooks;
use crate::schedule::retry_after;
use crate::secret::MasterKey;
use crate::target::{Target, TargetRules};

/// Most of an answer that is read, in bytes; an endpoint that says more is not listened to.
const ANSWER_READ_MAX: usize = 16 * 1024;
/// Most of it that is kept, in bytes.
const ANSWER_KEPT_MAX: usize = 512;
/// Most of an error's words that are kept, in characters.
const ERROR_CHARS_MAX: usize = 200;
/// Idle connections to one endpoint that are kept.
const IDLE_PER_HOST: usize = 2;
/// What we call ourselves.
const USER_AGENT: &str = concat!("outbound-webhooks/", env!("CARGO_PKG_VERSION"));

/// What came of an attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) took: Duration,
    pub(super) came: Came,
}

/// An answer, or why there is none.
#[derive(Debug)]
pub(super) enum Came {
    Answer {
        status: u16,
        wish: Option<Duration>,
        beginning: String,
    },
    Nothing {
        why: String,
    },
    /// Nothing went out, for a reason that is ours and not the endpoint's.
    NotSent {
        why: String,
    },
}

/// Posts.
#[derive(Debug)]
pub(super) struct Courier {
    master_key: MasterKey,
    rules: TargetRules,
    timeout: Duration,
    plain: Client,
    /// None on a machine without certificates: what is encrypted cannot be sent, and says so.
    encrypted: Result<Client, String>,
}

impl Courier {
    pub(super) fn new(
        master_key: MasterKey,
        options: &CheckedOutboundWebhooks,
    ) -> Result<Self, reqwest::Error> {
        // Refused when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plain = client(options).tls_certs_only([]).build()?;
        let mut encrypted = client(options).https_only(true);
        if !options.authorities.is_empty() {
            encrypted = encrypted.tls_certs_merge(options.authorities.iter().cloned());
        }
        let encrypted = encrypted.build().map_err(|error| root(&error));
        if let Err(reason) = &encrypted {
            tracing::warn!(reason, "no webhook can be sent to https: this machine has no certificates");
        }
        Ok(Self {
            master_key,
            rules: options.rules.clone(),
            timeout: options.attempt_timeout,
            plain,
            encrypted,
        })
    }

    /// Makes the attempt.
    pub(super) async fn attempt(&self, claimed: &Claimed) -> Attempt {
        let begun = Instant::now();
        let came = match self.post(claimed).await {
            Ok(response) => answer(response).await,
            Err(came) => came,
        };
        Attempt { took: begun.elapsed(), came }
    }

    async fn post(&self, claimed: &Claimed) -> Result<Response, Came> {
        let not_sent = |why: &dyn Display| Came::NotSent { why: format!("not sent: {why}") };
        // Another master key signs with secrets that nobody was shown.
        if claimed.secret_check != self.master_key.check(&claimed.endpoint) {
            return Err(not_sent(&"the secret was made of another outbound_webhooks.master_key; rotate it"));
        }
        // The rules may have changed since the endpoint was made.
        let target = Target::read(&claimed.url, &self.rules).map_err(|error| not_sent(&error))?;
        let client = if target.is_encrypted() {
            self.encrypted.as_ref().map_err(|reason| not_sent(reason))?
        } else {
            &self.plain
        };
        let now_s = Timestamp::now().as_second();
        let version = claimed.secret_version;
        let mut secrets = vec![self.master_key.secret(&claimed.endpoint, version)];
        if claimed.old_secret_signs && version > 1 {
            secrets.push(self.master_key.secret(&claimed.endpoint, version - 1));
        }
        let body = claimed.body.as_bytes();
        client
            .post(target.url().clone())
            .header(ID_HEADER, &claimed.event_id)
            .header(TIMESTAMP_HEADER, now_s)
            .header(SIGNATURE_HEADER, signature::sign_with_each(&secrets, &claimed.event_id, now_s, body))
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_vec())
            .send()
            .await
            .map_err(|error| {
                let cause = root(&error);
                tracing::info!(endpoint.id = %claimed.endpoint, cause, "no answer of a webhook endpoint");
                Came::Nothing { why: self.no_answer(&error) }
            })
    }

    /// What is stored, and shown to the tenant. Why there is no connection is for our log alone: a name that leads inside must
    /// not be told from one that is not there.
    fn no_answer(&self, error: &reqwest::Error) -> String {
        let why = if error.is_timeout() {
            format!("no answer within {} ms", self.timeout.as_millis())
        } else if error.is_connect() {
            "no connection".to_owned()
        } else {
            format!("the connection broke: {}", root(error))
        };
        why.chars().take(ERROR_CHARS_MAX).collect()
    }
}

/// What both clients do alike: each address is judged, no proxy looks up names for us, and whoever sends us elsewhere has not
/// answered.
fn client(options: &CheckedOutboundWebhooks) -> ClientBuilder {
    Client::builder()
        .dns_resolver(options.rules.reach.clone())
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .timeout(options.attempt_timeout)
        .connect_timeout(options.attempt_timeout)
        .pool_max_idle_per_host(IDLE_PER_HOST)
        .user_agent(USER_AGENT)
}

/// Reads the answer. Its status is what counts: a body that breaks off, or never ends, takes nothing from it.
async fn answer(mut response: Response) -> Came {
    let status = response.status().as_u16();
    let wish = response.headers().get(RETRY_AFTER).and_then(|wish| wish.to_str().ok()).and_then(retry_after);
    let (mut read, mut beginning) = (0_usize, Vec::new());
    while let Ok(Some(chunk)) = response.chunk().await {
        let room = ANSWER_KEPT_MAX.saturating_sub(beginning.len());
        beginning.extend_from_slice(&chunk[..chunk.len().min(room)]);
        read = read.saturating_add(chunk.len());
        if read > ANSWER_READ_MAX {
            break;
        }
    }
    // PostgreSQL's text holds no NUL.
    let beginning = String::from_utf8_lossy(&beginning).replace('\0', "\u{fffd}");
    Came::Answer { status, wish, beginning }
}

/// The first cause of an error, in one line.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string().replace('\0', "\u{fffd}")
}
