//! The payment workflow as other processes see it: type name, signals, update, query, and clients
//! that reach it.
//!
//! payments-api and background-worker deliver inbox messages through [`Signaller`], payctl sends operator
//! decisions through [`UpdateSender`], reconciliation lists workflows through [`PaymentWorkflows`]. No
//! payment depends on a delivery being on time: the inbox row is authoritative, and a signal only wakes
//! the workflow.

mod client;
mod namespace;
mod payment_workflows;
mod signaller;
mod updates;

use std::str::FromStr as _;

use payment_protocol::inbox::CallbackStatus;
use serde::{Deserialize, Serialize};
use temporalio_client::errors::ClientConnectError;
use temporalio_client::{Client, ClientOptions, ConnectionOptions, GrpcCompression, Url};
use temporalio_common::telemetry::metrics::TemporalMeter;

pub use client::{NoStatus, described_status};
pub use namespace::{NamespaceIdError, is_missing_workflow, namespace_id};
pub use payment_workflows::{PaymentWorkflowPager, PaymentWorkflows};
pub use signaller::{InboxDeliveryOutcome, Signaller};
pub use updates::{NOT_ALLOWED, NOT_NOW, UpdateError, UpdateOutcome, UpdateSender};

/// Type name of the payment workflow.
pub const WORKFLOW_TYPE: &str = "InterBankPaymentWorkflow";
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
    /// URL of the Temporal frontend. Default `http://127.0.0.1:7233`.
    pub address: String,
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
    /// The server did not answer.
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
        let url = Url::from_str(&self.address).map_err(|_| ConnectError::Address(self.address.clone()))?;
        let connection = ConnectionOptions::new(url)
            .identity(identity.to_owned())
            .maybe_metrics_meter(meter)
            .grpc_compression(if self.compression { GrpcCompression::Gzip } else { GrpcCompression::None })
            .build();
        let options = ClientOptions::new(self.namespace.clone()).build();
        Client::connect(connection, options).await.map_err(|source| ConnectError::Unreachable {
            address: self.address.clone(),
            source: Box::new(source),
        })
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
