//! The broker: NATS JetStream. One stream keeps all events; a message's subject is `{subjects}.{lane}.{kind}`.
//!
//! A lane is a part of the keys. A consumer takes each lane in by itself, so that a key's events mostly come one after the other
//! and eight effects at once are under way.

mod consumer;
mod publisher;

use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{Context, ContextBuilder, CreateStreamError, UpdateStreamError};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::{Client, ConnectError, ConnectOptions};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

pub use consumer::{Consumer, ConsumerOptions};
pub use publisher::JetStream;

/// Parts of the keys. For ever: what a broker keeps lies in these.
pub const LANES: u8 = 8;

/// How long the broker may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long a connection may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Longest pause between two tries to connect again.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(1);
/// A broker that is silent for about two of these is taken for gone.
const PING_EVERY: Duration = Duration::from_secs(5);
/// In which the broker knows a message's id again; who takes events in must know it for ever. It only spares work where a relay
/// did not hear the answer, and it must be short: a message that the broker has dropped since is taken for a duplicate, too, and
/// can be told again only when this is over.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(10);

/// Section `[broker]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BrokerOptions {
    /// Where it is. Default `nats://127.0.0.1:4222`; `tls://..` for an encrypted connection.
    pub url: String,
    /// Who we are; with `password`. Default: nobody.
    pub user: Option<String>,
    /// With `user`.
    pub password: Option<SecretString>,
    /// The stream, made when it is not there. Default `EVENTS`.
    pub stream: String,
    /// First part of all subjects. Default `events`.
    pub subjects: String,
    /// How large the stream may become, in bytes; then the oldest make room. Whoever is further behind misses them until they are
    /// published again ([`crate::keep::republish`]). Default 1 GiB.
    pub max_bytes: i64,
    /// How long a message is kept, in seconds. Default 7 days.
    pub max_age_s: u64,
    /// Copies in a cluster, 1 to 5. Default 1.
    pub replicas: usize,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            url: "nats://127.0.0.1:4222".into(),
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

/// Why the broker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The URL cannot be read, or the connection is refused for good.
    #[error("the broker at {url} cannot be used; set broker.url to one like nats://host:4222")]
    Connect {
        /// As configured.
        url: String,
        /// What is wrong.
        source: ConnectError,
    },
    /// No connection at the moment.
    #[error("there is no connection to the broker")]
    NotConnected,
    /// The stream cannot be looked at or made.
    #[error("the stream {stream} cannot be had")]
    Stream {
        /// Which.
        stream: String,
        /// What the broker said.
        source: CreateStreamError,
    },
    /// A stream of this name is there and is another.
    #[error(
        "the stream {stream} is set up otherwise: {what}; if it was ours, delete it there and have its events published again; otherwise name another in broker.stream"
    )]
    StreamDiffers {
        /// Which.
        stream: String,
        /// In what.
        what: &'static str,
    },
    /// The stream's bounds cannot be changed to those that are configured.
    #[error("the bounds of the stream {stream} cannot be changed")]
    Bounds {
        /// Which.
        stream: String,
        /// What the broker said.
        source: UpdateStreamError,
    },
    /// The consumer cannot be had, or what it brings has ended.
    #[error("the consumer {consumer} cannot be had")]
    Consumer {
        /// Which.
        consumer: String,
        /// What the broker said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A connection that comes and goes with the broker, and the stream.
#[derive(Clone, Debug)]
pub struct Broker {
    client: Client,
    context: Context,
    options: BrokerOptions,
}

impl Broker {
    /// A connection under the process's name. The broker need not be there yet.
    ///
    /// # Errors
    /// [`BrokerError::Connect`]: a URL that is none.
    pub async fn connect(options: &BrokerOptions, process: &str) -> Result<Self, BrokerError> {
        let mut connect = ConnectOptions::new()
            .name(process)
            .retry_on_initial_connect()
            .connection_timeout(CONNECT_WITHIN)
            .request_timeout(Some(ANSWER_WITHIN))
            .ping_interval(PING_EVERY)
            .reconnect_delay_callback(|tries| {
                let tries = u32::try_from(tries).unwrap_or(u32::MAX);
                Duration::from_millis(50).saturating_mul(tries.min(1_000)).min(RECONNECT_PAUSE_MAX)
            });
        if let (Some(user), Some(password)) = (&options.user, &options.password) {
            connect = connect.user_and_password(user.clone(), password.expose_secret().to_owned());
        }
        let client = connect
            .connect(options.url.as_str())
            .await
            .map_err(|source| BrokerError::Connect { url: options.url.clone(), source })?;
        let context = ContextBuilder::new().timeout(ANSWER_WITHIN).build(client.clone());
        Ok(Self { client, context, options: options.clone() })
    }

    /// Whether the broker is connected now. What is sent while it is not would wait in memory and be sent late.
    ///
    /// # Errors
    /// [`BrokerError::NotConnected`].
    pub fn is_connected(&self) -> Result<(), BrokerError> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => Err(BrokerError::NotConnected),
        }
    }

    /// The stream, made if it is not there.
    ///
    /// # Errors
    /// [`BrokerError`].
    pub async fn stream(&self) -> Result<Stream, BrokerError> {
        self.is_connected()?;
        let BrokerOptions { stream, subjects, max_bytes, max_age_s, replicas, .. } = &self.options;
        let wanted = Config {
            name: stream.clone(),
            subjects: vec![format!("{subjects}.>")],
            // Never dropped for having been taken in: a broker that was started again has dropped so what others had not.
            retention: RetentionPolicy::Limits,
            // Who is so far behind keeps nobody else from being told.
            discard: DiscardPolicy::Old,
            max_bytes: *max_bytes,
            max_age: Duration::from_secs(*max_age_s),
            storage: StorageType::File,
            num_replicas: *replicas,
            duplicate_window: DUPLICATE_WINDOW.min(Duration::from_secs(*max_age_s)),
            ..Config::default()
        };
        let get = async || {
            let found = self.context.get_or_create_stream(wanted.clone()).await;
            found.map_err(|source| BrokerError::Stream { stream: stream.clone(), source })
        };
        let found = get().await?;
        let is = &found.cached_info().config;
        let what = if is.subjects != wanted.subjects {
            "its subjects"
        } else if is.retention != wanted.retention {
            "what it keeps"
        } else if is.discard != wanted.discard {
            "what it does when it is full"
        } else if is.storage != wanted.storage || is.no_ack || is.sealed {
            "how it keeps messages"
        } else if (is.max_bytes, is.max_age, is.num_replicas, is.duplicate_window)
            == (wanted.max_bytes, wanted.max_age, wanted.num_replicas, wanted.duplicate_window)
        {
            return Ok(found);
        } else {
            let lost = |source| BrokerError::Bounds { stream: stream.clone(), source };
            self.context.update_stream(&wanted).await.map_err(lost)?;
            return get().await;
        };
        Err(BrokerError::StreamDiffers { stream: stream.clone(), what })
    }

    /// The subject of an event; none for a kind that cannot be a part of one.
    fn subject(&self, key: &str, kind: &str) -> Option<String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_token = !kind.is_empty() && kind.len() <= 64 && kind.bytes().all(plain);
        is_token.then(|| format!("{}.{}.{kind}", self.options.subjects, lane(key)))
    }
}

/// The lane of a key.
fn lane(key: &str) -> u8 {
    Sha256::digest(key.as_bytes())[0] % LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_lane() {
        // Written down: messages of former releases lie in these lanes.
        assert_eq!(["a", "b", "pay_0", "pay_1"].map(lane), [2, 6, 1, 6]);
        let mut used = [false; LANES as usize];
        (0..200).for_each(|n| used[usize::from(lane(&format!("key {n}")))] = true);
        assert_eq!(used, [true; LANES as usize], "every lane has keys");
    }
}
