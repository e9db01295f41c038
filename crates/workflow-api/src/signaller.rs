//! Tells workflows what came in. Connects when first needed and never keeps a process from starting.

use std::sync::Arc;
use std::time::Duration;

use payment_ledger::inbox::Notice;
use payment_protocol::ids::TxId;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{
    Client, UntypedSignal, UntypedWorkflow, WorkflowDescribeOptions, WorkflowExecutionStatus,
    WorkflowSignalOptions,
};
use temporalio_common::data_converters::{PayloadConverter, RawValue};
use tokio::sync::Mutex;

use crate::{TemporalOptions, signal};

/// Time for one delivery, connecting included.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The workflow was told, or is closed and needs no telling.
    Delivered,
    /// Not told; to be tried again.
    NotYet {
        /// Why.
        detail: String,
    },
}

/// Signals workflows. Cheap to clone.
#[derive(Clone)]
pub struct Signaller {
    options: TemporalOptions,
    identity: &'static str,
    client: Arc<Mutex<Option<Client>>>,
}

impl Signaller {
    /// Does not connect yet.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        Self { options, identity, client: Arc::default() }
    }

    /// Tells the payment's workflow, within two seconds.
    pub async fn deliver(&self, notice: &Notice) -> Delivery {
        if notice.ended {
            return Delivery::Delivered;
        }
        match tokio::time::timeout(DELIVERY_TIMEOUT, self.try_deliver(notice)).await {
            Ok(delivery) => delivery,
            Err(_) => Delivery::NotYet { detail: "no answer within two seconds".into() },
        }
    }

    async fn try_deliver(&self, notice: &Notice) -> Delivery {
        let client = match self.client().await {
            Ok(client) => client,
            Err(detail) => return Delivery::NotYet { detail },
        };
        let handle = client.get_workflow_handle::<UntypedWorkflow>(notice.workflow_id.clone());
        let tx_id = TxId::derive(&notice.payment_id).to_string();
        let (name, payload) = signal(tx_id, &notice.kind);
        let converter = PayloadConverter::default();
        let input = match &payload {
            Some(confirmed) => RawValue::from_value(confirmed, &converter),
            None => RawValue::from_value(&(), &converter),
        };
        match handle.signal(UntypedSignal::new(name), input, WorkflowSignalOptions::default()).await {
            Ok(()) => Delivery::Delivered,
            // Not there or not there any more: only the first is worth another try.
            Err(WorkflowInteractionError::NotFound(_)) => {
                match handle.describe(WorkflowDescribeOptions::default()).await {
                    Ok(found) if found.status() != WorkflowExecutionStatus::Running => Delivery::Delivered,
                    Ok(_) => Delivery::NotYet { detail: "the workflow is being replaced".into() },
                    Err(WorkflowInteractionError::NotFound(_)) => {
                        Delivery::NotYet { detail: "the workflow is not started".into() }
                    }
                    Err(error) => Delivery::NotYet { detail: error.to_string() },
                }
            }
            Err(error) => Delivery::NotYet { detail: error.to_string() },
        }
    }

    async fn client(&self) -> Result<Client, String> {
        let mut slot = self.client.lock().await;
        if let Some(client) = slot.as_ref() {
            return Ok(client.clone());
        }
        let client = self.options.connect(self.identity).await.map_err(|error| error.to_string())?;
        *slot = Some(client.clone());
        Ok(client)
    }
}
