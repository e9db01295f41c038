//! The payment workflow as other processes see it: type name, signals, update, query, and clients
//! that reach it.
//!
//! payments-api and background-worker deliver inbox messages through [`Signaller`], payctl sends operator
//! decisions through [`UpdateSender`], reconciliation lists workflows through [`PaymentWorkflows`]. No
//! payment depends on a delivery being on time: the inbox row is authoritative, and a signal only wakes
//! the workflow.

mod client;
mod namespace;
mod payload_codec;
mod payment_workflows;
mod signaller;
mod updates;

use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use link_kit::{Link, LinkFileError, PlaintextRefused, read_authorities, read_identity};
use payment_protocol::inbox::CallbackStatus;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use temporalio_client::errors::ClientConnectError;
use temporalio_client::{
    Client, ClientOptions, ClientTlsOptions, ConnectionOptions, GrpcCompression, TlsOptions, Url,
};
use temporalio_common::data_converters::{DataConverter, DefaultFailureConverter, PayloadConverter};
use temporalio_common::telemetry::metrics::TemporalMeter;
use tokio::time::timeout;

pub use client::{NoStatus, described_status};
pub use namespace::{NamespaceIdError, is_missing_workflow, namespace_id};
pub use payload_codec::{DecryptError, EncryptError, PayloadKeyError, PayloadKeys};
pub use payment_workflows::{PaymentWorkflowPager, PaymentWorkflows};
pub use signaller::{InboxDeliveryOutcome, Signaller};
pub use updates::{NOT_ALLOWED, NOT_NOW, UpdateError, UpdateOutcome, UpdateSender};

/// Time for a connection to open, also when the client connects again: without a limit it would wait two minutes for a machine that is gone.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for a client to connect and Temporal's first answer.
const CONNECTED_WITHIN: Duration = Duration::from_secs(15);

/// Type name of the payment workflow.
pub(crate) const WORKFLOW_TYPE: &str = "InterBankPaymentWorkflow";
/// Signal: a callback of the switch was stored. Payload: [`SwitchConfirmed`].
pub const SWITCH_CONFIRMED: &str = "switchConfirmed";
/// Signal: the customer requested a cancel. No payload.
pub const CANCEL_REQUESTED: &str = "cancelRequested";
/// Signal: a final status was recorded while the payment awaited an operator. No payload.
pub const FINAL_STATUS_RECORDED: &str = "finalStatusRecorded";
/// Update: apply an operator decision. The Update ID is the decision's id.
pub const DECIDE: &str = "decide";
/// Query: the payment's state and its steps so far.
pub const PAYMENT_STATUS: &str = "paymentStatus";

/// Payload of [`SWITCH_CONFIRMED`] (S0.6). The payload only wakes the workflow: before money moves, the
/// workflow reads the final status from the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchConfirmed {
    /// The payment's transaction id.
    pub tx_id: String,
    /// The reported result.
    pub status: CallbackStatus,
    /// The switch's reason, mostly for a failure.
    pub reason: Option<String>,
    /// The switch's id of the event.
    pub event_id: String,
}

/// Connection to Temporal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TemporalOptions {
    /// URL of the Temporal frontend. Default `http://127.0.0.1:7233`. A frontend of another machine needs `https:`.
    pub address: String,
    /// Accept an `http:` address of another machine, because the link is encrypted by other means: accounts and amounts travel there,
    /// and who answers in Temporal's place decides about payments. Default false.
    pub allow_plaintext: bool,
    /// PEM file of the certificate authorities that may vouch for the frontend; no other is trusted. Default: those of the operating
    /// system.
    pub ca_path: Option<PathBuf>,
    /// PEM file with the process's own certificate and private key, for a frontend that demands them. Default: none.
    pub client_identity_path: Option<PathBuf>,
    /// API key of the namespace; requires `https:`. Default: none.
    pub api_key: Option<SecretString>,
    /// Keys of the payloads that Temporal stores, each 32 random bytes in base64: the first one encrypts, each decrypts what it encrypted.
    /// Required, unless `allow_clear_payloads` is set. Default: none.
    pub payload_keys: Vec<SecretString>,
    /// Accept that Temporal stores accounts and amounts in clear: `payload_keys` then only decrypt. Default false.
    pub allow_clear_payloads: bool,
    /// Temporal namespace. Default `default`.
    pub namespace: String,
    /// Prefix of the task queues; the switch's name is appended. Default `payments`.
    pub task_queue: String,
    /// Whether requests and responses are compressed (gzip), which costs CPU time on both sides: for a Temporal behind a slow
    /// network. Default false.
    pub compression: bool,
}

impl Default for TemporalOptions {
    fn default() -> Self {
        Self {
            address: "http://127.0.0.1:7233".into(),
            allow_plaintext: false,
            ca_path: None,
            client_identity_path: None,
            api_key: None,
            payload_keys: Vec::new(),
            allow_clear_payloads: false,
            namespace: "default".into(),
            task_queue: "payments".into(),
            compression: false,
        }
    }
}

/// The connection to Temporal failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not a URL.
    #[error("temporal.address {0:?} is not a URL; write it like http://127.0.0.1:7233")]
    Address(String),
    /// Temporal is on another machine, and the link to it is not encrypted.
    #[error(transparent)]
    Plaintext(#[from] PlaintextRefused),
    /// A file of the link cannot be used.
    #[error(transparent)]
    File(#[from] LinkFileError),
    /// A setting of an encrypted link would have no effect.
    #[error(
        "temporal.{0} has no effect, because temporal.address is no https: URL; write https:, or leave temporal.{0} out"
    )]
    Unused(&'static str),
    /// A key of payloads cannot be used.
    #[error(transparent)]
    PayloadKey(#[from] PayloadKeyError),
    /// Temporal would store payloads in clear.
    #[error(
        "temporal.payload_keys is empty: Temporal would store accounts and amounts in clear; set a key from openssl rand -base64 32, or temporal.allow_clear_payloads = true to accept that"
    )]
    ClearPayloads,
    /// The server did not answer in time.
    #[error(
        "Temporal at {address} did not answer within 15 s; check temporal.address and that Temporal runs"
    )]
    Timeout {
        /// The configured address.
        address: String,
    },
    /// The server cannot be reached.
    #[error("Temporal at {address} does not answer; check temporal.address and that Temporal runs")]
    Unreachable {
        /// The configured address.
        address: String,
        /// The client's error.
        #[source]
        source: Box<ClientConnectError>,
    },
    /// The client rejected its options.
    #[error("the Temporal client rejected its options; check the section [temporal]: {0}")]
    Options(String),
}

impl TemporalOptions {
    /// Checks everything that a connection needs, without connecting.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn check(&self) -> Result<(), ConnectError> {
        self.target()?;
        self.keys().map(drop)
    }

    /// The keys of payloads.
    ///
    /// # Errors
    /// [`ConnectError::PayloadKey`], [`ConnectError::ClearPayloads`].
    pub fn keys(&self) -> Result<PayloadKeys, ConnectError> {
        let keys = PayloadKeys::read(&self.payload_keys)?;
        match (keys.encrypts(), self.allow_clear_payloads) {
            (_, true) => Ok(keys.only_decrypting()),
            (true, false) => Ok(keys),
            (false, false) => Err(ConnectError::ClearPayloads),
        }
    }

    /// What encrypts and decrypts payloads. The texts of failures are payloads too; their types stay in clear. A task with a payload whose
    /// key is missing fails and is repeated: taken for a payload of another form, it would become an outcome.
    ///
    /// # Errors
    /// As [`TemporalOptions::keys`].
    pub fn data_converter(&self) -> Result<DataConverter, ConnectError> {
        let keys = self.keys()?;
        let failures = DefaultFailureConverter::new(keys.encrypts());
        Ok(DataConverter::new(PayloadConverter::default(), failures, keys))
    }

    /// The keys of payloads, each with the name of its setting.
    pub fn secrets(&self) -> impl Iterator<Item = (String, &str)> {
        self.payload_keys.iter().map(|key| ("temporal.payload_keys".to_owned(), key.expose_secret()))
    }

    /// Connects under `identity`, which the Temporal UI shows.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, identity: &str) -> Result<Client, ConnectError> {
        self.connect_measured(identity, None).await
    }

    /// The same, with requests and polls measured by `meter`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect_measured(
        &self,
        identity: &str,
        meter: Option<TemporalMeter>,
    ) -> Result<Client, ConnectError> {
        let (url, tls) = self.target()?;
        let connection = ConnectionOptions::new(url)
            .identity(identity.to_owned())
            .maybe_tls_options(tls)
            .maybe_api_key(self.api_key.as_ref().map(|key| key.expose_secret().to_owned()))
            .maybe_metrics_meter(meter)
            .connect_timeout(CONNECT_TIMEOUT)
            .grpc_compression(if self.compression { GrpcCompression::Gzip } else { GrpcCompression::None })
            .build();
        let options =
            ClientOptions::new(self.namespace.clone()).data_converter(self.data_converter()?).build();
        let connected = timeout(CONNECTED_WITHIN, Client::connect(connection, options)).await;
        let connected = connected.map_err(|_| ConnectError::Timeout { address: self.address.clone() })?;
        connected.map_err(|source| ConnectError::Unreachable {
            address: self.address.clone(),
            source: Box::new(source),
        })
    }

    /// Temporal's URL, and what encrypts the link to it.
    fn target(&self) -> Result<(Url, Option<TlsOptions>), ConnectError> {
        let not_a_url = || ConnectError::Address(self.address.clone());
        let url = Url::from_str(&self.address).map_err(|_| not_a_url())?;
        let is_encrypted = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(not_a_url()),
        };
        match Link::to(url.host_str().ok_or_else(not_a_url)?, is_encrypted) {
            Link::Tls => {
                let tls = self.tls()?;
                Ok((url, Some(tls)))
            }
            Link::Plaintext if !self.allow_plaintext => Err(ConnectError::Plaintext(PlaintextRefused {
                setting: "temporal.address",
                remedy: "write https:",
                accept: "temporal.allow_plaintext",
            })),
            Link::Plaintext | Link::PlaintextWithinMachine => {
                let unused = [
                    ("api_key", self.api_key.is_some()),
                    ("ca_path", self.ca_path.is_some()),
                    ("client_identity_path", self.client_identity_path.is_some()),
                ];
                match unused.into_iter().find(|(_, is_set)| *is_set) {
                    Some((setting, _)) => Err(ConnectError::Unused(setting)),
                    None => Ok((url, None)),
                }
            }
        }
    }

    fn tls(&self) -> Result<TlsOptions, ConnectError> {
        let authorities = self.ca_path.as_ref().map(|path| read_authorities("temporal.ca_path", path));
        let identity = self.client_identity_path.as_ref();
        let identity =
            identity.map(|path| read_identity("temporal.client_identity_path", path)).transpose()?;
        // One file holds both: of each text only the part with its kind is read.
        let identity = identity
            .map(|pem| ClientTlsOptions::builder().client_cert(pem.clone()).client_private_key(pem).build());
        Ok(TlsOptions::builder()
            .maybe_server_root_ca_cert(authorities.transpose()?)
            .maybe_client_tls_options(identity)
            .build())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The JSON is part of recorded workflow histories.
    #[test]
    fn s0_6_the_signal_payload_has_the_switchs_status_words() {
        let words = [
            (CallbackStatus::Success, "SUCCESS"),
            (CallbackStatus::Failure, "FAILURE"),
            (CallbackStatus::Returned, "RETURNED"),
        ];
        for (status, word) in words {
            let payload =
                SwitchConfirmed { tx_id: "tx_1".into(), status, reason: None, event_id: "evt_1".into() };
            let json =
                serde_json::json!({"tx_id": "tx_1", "status": word, "reason": null, "event_id": "evt_1"});
            assert_eq!(serde_json::to_value(&payload).unwrap(), json);
            assert_eq!(serde_json::from_value::<SwitchConfirmed>(json).unwrap(), payload);
        }
    }
}
