//! NATS JetStream. One stream contains all events; the subject of a message is `{subjects}.{kind}`.

mod consumer;
mod publisher;

use std::path::PathBuf;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{Context, ContextBuilder, CreateStreamError, UpdateStreamError};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::{Client, ConnectError, ConnectOptions, ServerAddr};
use link_kit::{Link, LinkFileError, PlaintextRefused, read_authorities, read_identity};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;

pub use consumer::{Consumer, ConsumerOptions};
pub use publisher::JetStreamPublisher;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest pause between two attempts to reconnect.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval of pings; the connection is closed after about two missing answers.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Time in which the broker recognises the id of a repeated message. It only saves work when the relay did not receive a
/// confirmation; consumers deduplicate without a time limit. It must be short: the broker also discards a republished message
/// as a duplicate in this time if it has dropped the first one since.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(10);

/// Section `[broker]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerOptions {
    /// URL of the broker. Default `nats://127.0.0.1:4222`. A broker of another machine needs `tls:`. Of several servers, give the name that
    /// has the addresses of all: those that a server names are not used.
    pub url: String,
    /// Accept a `nats:` URL of another machine, because the link is encrypted by other means: the password and the events travel there.
    /// Default false.
    pub allow_plaintext: bool,
    /// PEM file of the certificate authorities that may vouch for the broker; no other is trusted. Default: those of the operating
    /// system.
    pub ca_path: Option<PathBuf>,
    /// PEM file with the process's own certificate and private key, for a broker that demands them. Default: none.
    pub client_identity_path: Option<PathBuf>,
    /// User name; requires `password`. Default: none.
    pub user: Option<String>,
    /// Password of `user`. Default: none.
    pub password: Option<SecretString>,
    /// Name of the stream, created if it does not exist. Default `EVENTS`.
    pub stream: String,
    /// First token of all subjects. Default `events`.
    pub subjects: String,
    /// Largest size of the stream, in bytes. A full stream drops its oldest messages; a consumer that had not consumed them
    /// misses them until an operator republishes them ([`crate::operator::republish`]). Default 1 GiB.
    pub max_bytes: i64,
    /// Retention of messages in the stream, in seconds. Default 7 days.
    pub max_age_s: u64,
    /// Replicas of the stream in a cluster, 1 to 5. Default 1.
    pub replicas: usize,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".into(),
            allow_plaintext: false,
            ca_path: None,
            client_identity_path: None,
            user: None,
            password: None,
            stream: "EVENTS".into(),
            subjects: "events".into(),
            max_bytes: 1 << 30,
            max_age_s: 7 * 24 * 3600,
            replicas: 1,
        }
    }
}

impl BrokerOptions {
    /// Adds what encrypts the link.
    fn encrypt(&self, connect: ConnectOptions) -> Result<ConnectOptions, BrokerError> {
        let address: ServerAddr = self.url.parse().map_err(|_| BrokerError::Url)?;
        let is_encrypted = match address.scheme() {
            "tls" => true,
            "nats" => false,
            _ => return Err(BrokerError::Url),
        };
        match Link::to(address.host(), is_encrypted) {
            Link::Tls => {}
            Link::Plaintext if !self.allow_plaintext => {
                return Err(BrokerError::Plaintext(PlaintextRefused {
                    setting: "broker.url",
                    remedy: "write tls:",
                    accept: "broker.allow_plaintext",
                }));
            }
            Link::Plaintext | Link::PlaintextWithinMachine => {
                let files =
                    [("ca_path", &self.ca_path), ("client_identity_path", &self.client_identity_path)];
                let unused = files.into_iter().find(|(_, file)| file.is_some());
                return unused.map_or(Ok(connect), |(setting, _)| Err(BrokerError::Unused(setting)));
            }
        }
        let mut connect = connect.require_tls(true);
        // Read at each connection, so that renewed files are used; checked now, so that a wrong one is known at the start.
        if let Some(path) = &self.ca_path {
            read_authorities("broker.ca_path", path)?;
            connect = connect.add_root_certificates(path.clone());
        }
        if let Some(path) = &self.client_identity_path {
            read_identity("broker.client_identity_path", path)?;
            connect = connect.add_client_certificate(path.clone(), path.clone());
        }
        Ok(connect)
    }
}

/// The broker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The URL is invalid, or the broker rejected the connection for good.
    #[error("the process cannot use the broker at {url}; set broker.url to a URL like nats://host:4222")]
    Connect {
        /// The configured URL.
        url: String,
        /// Why the connection failed.
        source: ConnectError,
    },
    /// The text is not the URL of a NATS server over TCP.
    #[error(
        "broker.url is not a URL of a broker; write it like nats://127.0.0.1:4222 or tls://broker.example:4222"
    )]
    Url,
    /// The broker is on another machine, and the link to it is not encrypted.
    #[error(transparent)]
    Plaintext(#[from] PlaintextRefused),
    /// A file of the link cannot be used.
    #[error(transparent)]
    File(#[from] LinkFileError),
    /// A setting of an encrypted link would have no effect.
    #[error(
        "broker.{0} has no effect, because broker.url is no tls: URL; write tls:, or leave broker.{0} out"
    )]
    Unused(&'static str),
    /// No connection at the moment; the client reconnects on its own.
    #[error("the process has no connection to the broker now; the NATS client reconnects by itself")]
    NotConnected,
    /// The stream could not be read or created.
    #[error(
        "the broker's stream {stream} could not be read or created; check that JetStream is enabled at the broker"
    )]
    Stream {
        /// Name of the stream.
        stream: String,
        /// The broker's answer.
        source: CreateStreamError,
    },
    /// A stream of this name exists with settings that cannot be changed.
    #[error(
        "the broker's stream {stream} exists with {setting}; if the stream belongs to this service, delete it at the broker and republish its events; otherwise set broker.stream to an unused name"
    )]
    StreamDiffers {
        /// Name of the stream.
        stream: String,
        /// The first setting that differs.
        setting: &'static str,
    },
    /// The broker refused the configured limits.
    #[error(
        "the broker refused to change its stream {stream} to the configured broker.max_bytes, broker.max_age_s and broker.replicas; correct these settings"
    )]
    StreamLimits {
        /// Name of the stream.
        stream: String,
        /// The broker's answer.
        source: UpdateStreamError,
    },
    /// The durable consumer could not be created, or its messages ended.
    #[error("the event consumer {consumer} could not receive messages from the broker")]
    Consumer {
        /// Durable name of the consumer.
        consumer: String,
        /// The broker's answer.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A connection to the broker, restored on its own after an outage, and the stream.
#[derive(Clone, Debug)]
pub struct Broker {
    client: Client,
    context: Context,
    options: BrokerOptions,
}

impl Broker {
    /// Connects under the name of the process. Also succeeds while the broker is unavailable.
    ///
    /// # Errors
    /// [`BrokerError`]: the URL or another setting of the link is invalid.
    pub async fn connect(options: &BrokerOptions, process: &str) -> Result<Self, BrokerError> {
        let mut connect = ConnectOptions::new()
            .name(process)
            // A broker names its other servers before the link is encrypted: who is on the way could name one of their own, without TLS.
            .ignore_discovered_servers()
            .retry_on_initial_connect()
            .connection_timeout(CONNECT_TIMEOUT)
            .request_timeout(Some(REQUEST_TIMEOUT))
            .ping_interval(PING_INTERVAL)
            .reconnect_delay_callback(|attempts| {
                let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
                Duration::from_millis(50).saturating_mul(attempts.min(1_000)).min(RECONNECT_PAUSE_MAX)
            });
        connect = options.encrypt(connect)?;
        if let (Some(user), Some(password)) = (&options.user, &options.password) {
            connect = connect.user_and_password(user.clone(), password.expose_secret().to_owned());
        }
        let client = connect
            .connect(options.url.as_str())
            .await
            .map_err(|source| BrokerError::Connect { url: options.url.clone(), source })?;
        let context = ContextBuilder::new().timeout(REQUEST_TIMEOUT).build(client.clone());
        Ok(Self { client, context, options: options.clone() })
    }

    /// Checks that the broker is connected. Without a connection the client would keep messages in memory and send them late.
    ///
    /// # Errors
    /// [`BrokerError::NotConnected`].
    pub fn ensure_connected(&self) -> Result<(), BrokerError> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => Err(BrokerError::NotConnected),
        }
    }

    /// The stream, created if it does not exist, with the configured limits.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn stream(&self) -> Result<Stream, BrokerError> {
        self.ensure_connected()?;
        let name = &self.options.stream;
        let expected = stream_config(&self.options);
        let get_or_create = async || {
            let stream = self.context.get_or_create_stream(expected.clone()).await;
            stream.map_err(|source| BrokerError::Stream { stream: name.clone(), source })
        };
        let stream = get_or_create().await?;
        let actual = &stream.cached_info().config;
        if let Some(setting) = fixed_difference(actual, &expected) {
            return Err(BrokerError::StreamDiffers { stream: name.clone(), setting });
        }
        if has_same_limits(actual, &expected) {
            return Ok(stream);
        }
        let refused = |source| BrokerError::StreamLimits { stream: name.clone(), source };
        self.context.update_stream(&expected).await.map_err(refused)?;
        get_or_create().await
    }

    /// The subject of an event; `None` if the kind cannot be a token of a subject.
    fn subject(&self, kind: &str) -> Option<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_token = !kind.is_empty() && kind.len() <= 64 && kind.bytes().all(is_plain);
        is_token.then(|| format!("{}.{kind}", self.options.subjects))
    }
}

fn stream_config(options: &BrokerOptions) -> Config {
    let max_age = Duration::from_secs(options.max_age_s);
    Config {
        name: options.stream.clone(),
        subjects: vec![format!("{}.>", options.subjects)],
        // Messages stay after their consumption: with interest retention, a restarted broker had dropped messages that other
        // consumers had not consumed.
        retention: RetentionPolicy::Limits,
        // A slow consumer must not stop the publication of events.
        discard: DiscardPolicy::Old,
        max_bytes: options.max_bytes,
        max_age,
        storage: StorageType::File,
        num_replicas: options.replicas,
        duplicate_window: DUPLICATE_WINDOW.min(max_age),
        ..Config::default()
    }
}

/// The first difference in a setting that an existing stream cannot or should not change.
fn fixed_difference(actual: &Config, expected: &Config) -> Option<&'static str> {
    if actual.subjects != expected.subjects {
        Some("other subjects")
    } else if actual.retention != expected.retention {
        Some("another retention policy")
    } else if actual.discard != expected.discard {
        Some("another discard policy")
    } else if actual.storage != expected.storage || actual.no_ack || actual.sealed {
        Some("another storage type, without acknowledgements, or sealed")
    } else {
        None
    }
}

fn has_same_limits(actual: &Config, expected: &Config) -> bool {
    let limits =
        |config: &Config| (config.max_bytes, config.max_age, config.num_replicas, config.duplicate_window);
    limits(actual) == limits(expected)
}
