//! What other processes know of the payment workflow: its name, its signals, the update that carries a
//! decision, and how to reach it.
//!
//! The webhook and the relay both tell workflows what came in; what they say and how a lost word is
//! told apart from a word that is of no use any more stands here once. Nothing here is needed for a
//! payment to be right: the inbox row is the truth, a signal only wakes.

mod reach;
mod running;
mod signaller;
mod updates;

use std::str::FromStr as _;

use payment_ledger::switch::inbox::InboxMessageKind;
use payment_protocol::decision::Decision;
use serde::{Deserialize, Serialize};
use temporalio_client::errors::ClientConnectError;
use temporalio_client::{Client, ClientOptions, ConnectionOptions, Url};

pub use running::{Running, RunningWorkflows};
pub use signaller::{Delivery, Signaller};
pub use updates::{Delivered, NOT_ALLOWED, NOT_NOW, Undelivered, UpdateSender};

/// Type name of the payment workflow.
pub const WORKFLOW_TYPE: &str = "InterBankPaymentWorkflow";
/// Signal: a callback of the switch is stored.
pub const SWITCH_CONFIRMED: &str = "switchConfirmed";
/// Signal: the customer asked to cancel.
pub const CANCEL_REQUESTED: &str = "cancelRequested";
/// Signal: a definite answer of the switch was written while the payment stood before a person.
pub const FINAL_STATUS_RECORDED: &str = "finalStatusRecorded";
/// Update: what people decided about a payment that stands before them. Its id is the decision's.
pub const DECIDE: &str = "decide";
/// Query: where the payment stands, and its steps so far.
pub const PAYMENT_STATUS: &str = "paymentStatus";

/// Payload of [`SWITCH_CONFIRMED`] (S0.6). It wakes the workflow; what it claims is looked up in the
/// ledger before money moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchConfirmed {
    /// The transaction it is about.
    pub tx_id: String,
    /// `SUCCESS` or `FAILURE`.
    pub status: String,
    /// The switch's words.
    pub reason: Option<String>,
    /// The switch's id of the event.
    pub event_id: String,
}

/// Where Temporal is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TemporalOptions {
    /// URL of the frontend. Default `http://127.0.0.1:7233`.
    pub address: String,
    /// Namespace. Default `default`.
    pub namespace: String,
    /// Prefix of the task queues; the switch's name is appended. Default `payments`.
    pub task_queue: String,
}

impl Default for TemporalOptions {
    fn default() -> Self {
        Self {
            address: "http://127.0.0.1:7233".into(),
            namespace: "default".into(),
            task_queue: "payments".into(),
        }
    }
}

/// No connection to Temporal.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is not a URL.
    #[error("temporal.address {0:?} is not a URL; write it like http://127.0.0.1:7233")]
    Address(String),
    /// The server did not answer.
    #[error("Temporal at {address} does not answer")]
    Unreachable {
        /// Where it was looked for.
        address: String,
        /// What the client said.
        #[source]
        source: Box<ClientConnectError>,
    },
    /// The client refused its options.
    #[error("the Temporal client refused its options: {0}")]
    Options(String),
}

impl TemporalOptions {
    /// Connects under `identity` (shown in the UI).
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(&self, identity: &str) -> Result<Client, ConnectError> {
        let url = Url::from_str(&self.address).map_err(|_| ConnectError::Address(self.address.clone()))?;
        let connection = ConnectionOptions::new(url).identity(identity.to_owned()).build();
        let options = ClientOptions::new(self.namespace.clone()).build();
        Client::connect(connection, options).await.map_err(|source| ConnectError::Unreachable {
            address: self.address.clone(),
            source: Box::new(source),
        })
    }
}

/// How a message is told: by a signal, or as an update.
enum Told<'a> {
    Signal(&'static str, Option<SwitchConfirmed>),
    Update(&'a Decision),
}

fn told(tx_id: String, kind: &InboxMessageKind) -> Told<'_> {
    match kind {
        InboxMessageKind::Cancel => Told::Signal(CANCEL_REQUESTED, None),
        InboxMessageKind::FinalStatus => Told::Signal(FINAL_STATUS_RECORDED, None),
        InboxMessageKind::Decision(decision) => Told::Update(decision),
        InboxMessageKind::Callback { status, reason, event_id } => Told::Signal(
            SWITCH_CONFIRMED,
            Some(SwitchConfirmed {
                tx_id,
                status: status.clone(),
                reason: reason.clone(),
                event_id: event_id.clone(),
            }),
        ),
    }
}
