//! Tells workflows what came in. Connects when first needed and never keeps a process from starting.

use std::time::Duration;

use payment_ledger::switch::inbox::{InboxMessage, InboxMessageKind};
use payment_protocol::decision::Decision;
use payment_protocol::ids::TxId;
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{UntypedSignal, WorkflowSignalOptions};
use temporalio_common::data_converters::{PayloadConverter, RawValue};

use crate::reach::{Missing, Reach, missing};
use crate::updates::{REFUSED_AT_ONCE, Undelivered, UpdateSender};
use crate::{TemporalOptions, Told, told};

/// Time for one delivery, connecting included.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The workflow was told, or is closed and needs no telling. A decision was taken, which is not yet
    /// carried out.
    Delivered,
    /// Not told; to be tried again.
    NotYet {
        /// Why.
        detail: String,
    },
    /// A decision that the payment will never take.
    Refused {
        /// Why.
        detail: String,
    },
}

/// Signals workflows. Cheap to clone.
#[derive(Clone)]
pub struct Signaller {
    reach: Reach,
}

impl Signaller {
    /// Does not connect yet.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        Self { reach: Reach::new(options, identity) }
    }

    /// Tells the payment's workflow, within two seconds.
    pub async fn deliver(&self, message: &InboxMessage) -> Delivery {
        if message.ended {
            match message.kind {
                InboxMessageKind::Decision(_) => {
                    return Delivery::Refused { detail: "the payment has ended".into() };
                }
                // A workflow that stands before a person does not know of an end that a late attempt wrote.
                InboxMessageKind::FinalStatus => {}
                InboxMessageKind::Callback { .. } | InboxMessageKind::Cancel => return Delivery::Delivered,
            }
        }
        match tokio::time::timeout(DELIVERY_TIMEOUT, self.try_deliver(message)).await {
            Ok(delivery) => delivery,
            Err(_) => Delivery::NotYet { detail: "no answer within two seconds".into() },
        }
    }

    async fn try_deliver(&self, message: &InboxMessage) -> Delivery {
        let (name, payload) = match told(TxId::derive(&message.payment_id).to_string(), &message.kind) {
            Told::Signal(name, payload) => (name, payload),
            Told::Update(decision) => return self.deliver_decision(&message.workflow_id, decision).await,
        };
        let handle = match self.reach.workflow(&message.workflow_id).await {
            Ok(handle) => handle,
            Err(detail) => return Delivery::NotYet { detail },
        };
        let converter = PayloadConverter::default();
        let input = match &payload {
            Some(confirmed) => RawValue::from_value(confirmed, &converter),
            None => RawValue::from_value(&(), &converter),
        };
        match handle.signal(UntypedSignal::new(name), input, WorkflowSignalOptions::default()).await {
            Ok(()) => Delivery::Delivered,
            Err(WorkflowInteractionError::NotFound(_)) => match missing(&handle).await {
                Missing::Closed => Delivery::Delivered,
                // Nobody starts a workflow for a payment that has ended.
                Missing::Unknown if message.ended => Delivery::Delivered,
                Missing::Unknown => Delivery::NotYet { detail: "the workflow is not started".into() },
                Missing::NotYet(detail) => Delivery::NotYet { detail },
            },
            Err(error) => Delivery::NotYet { detail: error.to_string() },
        }
    }

    async fn deliver_decision(&self, workflow_id: &str, decision: &Decision) -> Delivery {
        let sender = UpdateSender::over(self.reach.clone());
        match sender.tell(workflow_id, decision, REFUSED_AT_ONCE).await {
            Ok(_) => Delivery::Delivered,
            Err(Undelivered::Refused { detail }) => Delivery::Refused { detail },
            // The payment is open: where the workflow is closed another run follows, and stands again.
            Err(other) => Delivery::NotYet { detail: other.to_string() },
        }
    }
}
