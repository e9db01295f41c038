//! Delivers inbox messages to payment workflows, by signal or Update.

use std::time::Duration;

use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::inbox::{InboxMessage, InboxMessageKind};
use temporalio_client::errors::WorkflowInteractionError;
use temporalio_client::{UntypedSignal, WorkflowSignalOptions};
use temporalio_common::data_converters::{PayloadConverter, RawValue};

use crate::client::{LazyClient, NotFoundReason, not_found_reason};
use crate::updates::{REJECTION_WAIT, UpdateError, UpdateOutcome, UpdateSender};
use crate::{CANCEL_REQUESTED, FINAL_STATUS_RECORDED, SWITCH_CONFIRMED, SwitchConfirmed, TemporalOptions};

/// Time for one delivery, connecting included.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Outcome of one delivery of an inbox message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboxDeliveryOutcome {
    /// The workflow has the message, or is closed and needs none. A decision was accepted, not yet applied.
    Delivered,
    /// The workflow answers with the outcome of the decision, which it has applied.
    Applied(DecisionOutcome),
    /// The workflow does not have the message; deliver again.
    NotDelivered {
        /// Why the message is not delivered.
        detail: String,
    },
    /// The payment will never accept this decision.
    Rejected {
        /// Why the decision is rejected.
        detail: String,
    },
}

impl InboxDeliveryOutcome {
    /// Whether the workflow has the message, or needs none.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        matches!(self, Self::Delivered | Self::Applied(_))
    }
}

/// Delivers inbox messages. Connects on first use. Cheap to clone.
#[derive(Clone)]
pub struct Signaller {
    client: LazyClient,
}

/// How a message reaches the workflow.
enum Request<'a> {
    Signal(&'static str, Option<SwitchConfirmed>),
    Update(&'a Decision),
}

impl Signaller {
    /// A signaller that connects on first use. The Temporal UI shows `identity`.
    #[must_use]
    pub fn new(options: TemporalOptions, identity: &'static str) -> Self {
        Self { client: LazyClient::new(options, identity) }
    }

    /// Delivers one message to the payment's workflow within two seconds.
    pub async fn deliver(&self, message: &InboxMessage) -> InboxDeliveryOutcome {
        if message.ended {
            match message.kind {
                InboxMessageKind::Decision(_) => {
                    return InboxDeliveryOutcome::Rejected { detail: "the payment has ended".into() };
                }
                // A workflow that awaits an operator does not know of a final state written by a late attempt.
                InboxMessageKind::FinalStatusRecorded => {}
                InboxMessageKind::Callback { .. } | InboxMessageKind::Cancel => {
                    return InboxDeliveryOutcome::Delivered;
                }
            }
        }
        match tokio::time::timeout(DELIVERY_TIMEOUT, self.try_deliver(message)).await {
            Ok(outcome) => outcome,
            Err(_) => not_delivered("Temporal gave no answer within 2 s"),
        }
    }

    async fn try_deliver(&self, message: &InboxMessage) -> InboxDeliveryOutcome {
        let (name, payload) = match request(&message.payment_id, &message.kind) {
            Request::Signal(name, payload) => (name, payload),
            Request::Update(decision) => return self.deliver_decision(&message.workflow_id, decision).await,
        };
        let handle = match self.client.workflow(&message.workflow_id).await {
            Ok(handle) => handle,
            Err(detail) => return not_delivered(detail),
        };
        let converter = PayloadConverter::default();
        let input = match &payload {
            Some(confirmed) => RawValue::from_value(confirmed, &converter),
            None => RawValue::from_value(&(), &converter),
        };
        match handle.signal(UntypedSignal::new(name), input, WorkflowSignalOptions::default()).await {
            Ok(()) => InboxDeliveryOutcome::Delivered,
            Err(WorkflowInteractionError::NotFound(_)) => match not_found_reason(&handle).await {
                NotFoundReason::Closed => InboxDeliveryOutcome::Delivered,
                // No workflow is started for a payment that has ended.
                NotFoundReason::Unknown if message.ended => InboxDeliveryOutcome::Delivered,
                NotFoundReason::Unknown => not_delivered("the workflow is not started"),
                NotFoundReason::Transient(detail) => not_delivered(detail),
            },
            Err(error) => not_delivered(error.to_string()),
        }
    }

    async fn deliver_decision(&self, workflow_id: &str, decision: &Decision) -> InboxDeliveryOutcome {
        let sender = UpdateSender::with_client(self.client.clone());
        match sender.send(workflow_id, decision, REJECTION_WAIT).await {
            Ok(UpdateOutcome::Accepted) => InboxDeliveryOutcome::Delivered,
            Ok(UpdateOutcome::Completed(outcome)) => InboxDeliveryOutcome::Applied(outcome),
            Err(UpdateError::Rejected { detail }) => InboxDeliveryOutcome::Rejected { detail },
            // The payment is open: after a closed workflow another run follows and awaits the operator again.
            Err(other) => not_delivered(other.to_string()),
        }
    }
}

fn not_delivered(detail: impl Into<String>) -> InboxDeliveryOutcome {
    InboxDeliveryOutcome::NotDelivered { detail: detail.into() }
}

fn request<'a>(payment_id: &PaymentId, kind: &'a InboxMessageKind) -> Request<'a> {
    match kind {
        InboxMessageKind::Cancel => Request::Signal(CANCEL_REQUESTED, None),
        InboxMessageKind::FinalStatusRecorded => Request::Signal(FINAL_STATUS_RECORDED, None),
        InboxMessageKind::Decision(decision) => Request::Update(decision),
        InboxMessageKind::Callback { status, reason, event_id } => Request::Signal(
            SWITCH_CONFIRMED,
            Some(SwitchConfirmed {
                tx_id: TxId::derive(payment_id).to_string(),
                status: *status,
                reason: reason.clone(),
                event_id: event_id.clone(),
            }),
        ),
    }
}
