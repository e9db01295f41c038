//! `InterBankPaymentWorkflow`: a thin shell around [`payment_protocol::pay`].

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::VecDeque;
use std::time::SystemTime;

use payment_protocol::pay::pay;
use payment_protocol::world::Event;
use payment_protocol::{Payment, PaymentError, PaymentState};
use serde::{Deserialize, Serialize};
use temporalio_common::data_converters::RawValue;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{
    ApplicationFailure, SyncWorkflowContext, WorkflowContext, WorkflowContextView, WorkflowResult,
};
use workflow_api::SwitchConfirmed;

use crate::world::TemporalWorld;

/// Events kept until they are heard; FAILUREs beyond it are dropped here and stay in the ledger.
const INBOX_MAX: usize = 100;
/// Steps kept for the query.
const STEPS_MAX: usize = 100;

/// One payment.
#[workflow]
pub struct InterBankPaymentWorkflow {
    payment: Payment,
    /// What was signalled and not heard yet.
    pub(crate) inbox: VecDeque<Event>,
    state: PaymentState,
    steps: Vec<Step>,
}

/// One step, as the query shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Where the payment stood.
    pub state: PaymentState,
    /// What had happened.
    pub detail: String,
    /// Workflow time, in milliseconds since the epoch.
    pub at_ms: u64,
}

/// Answer of the query `paymentStatus`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PaymentStatus {
    /// Where the payment stands.
    pub state: PaymentState,
    /// Its steps so far, oldest first.
    pub timeline: Vec<Step>,
}

#[workflow_methods]
impl InterBankPaymentWorkflow {
    /// Signals may arrive before `run`: the inbox is there from the start.
    #[init]
    pub fn new(_ctx: &WorkflowContextView, payment: Payment) -> Self {
        Self { payment, inbox: VecDeque::new(), state: PaymentState::Started, steps: Vec::new() }
    }

    /// Runs the payment to its end. Ends other than settled fail the workflow with the original
    /// error, its type being the cause's word.
    #[run]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<String> {
        let payment = ctx.state(|workflow| workflow.payment.clone());
        let world = TemporalWorld::new(ctx.clone(), &payment);
        match pay(&world, &payment).await {
            Ok(()) => Ok(PaymentState::Settled.to_string()),
            Err(error) => {
                let (code, end) = (error.code().to_owned(), error.end());
                let text = match &error {
                    PaymentError::Undone(cause) => cause.to_string(),
                    other => other.to_string(),
                };
                Err(ApplicationFailure::builder(anyhow::anyhow!("{end}: {text}"))
                    .type_name(code)
                    .non_retryable(true)
                    .build()
                    .into())
            }
        }
    }

    /// The switch said something. What it claims is looked up in the ledger before money moves.
    #[signal(name = "switchConfirmed")]
    pub fn switch_confirmed(&mut self, _ctx: &mut SyncWorkflowContext<Self>, said: RawValue) {
        let said =
            said.payloads.first().and_then(|said| serde_json::from_slice::<SwitchConfirmed>(&said.data).ok());
        self.put(match said {
            Some(said) if said.status == "FAILURE" => {
                Event::FailureReported { reason: said.reason.unwrap_or_else(|| "no reason given".into()) }
            }
            // Also what cannot be read: it only wakes, and a payload must never poison the payment.
            _ => Event::SuccessReported,
        });
    }

    /// The customer asked to cancel.
    #[signal(name = "cancelRequested")]
    pub fn cancel_requested(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _said: RawValue) {
        self.put(Event::CustomerCancel);
    }

    /// A definite answer of the switch was written while the payment stood before a person.
    #[signal(name = "verdictWritten")]
    pub fn verdict_written(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _said: RawValue) {
        self.put(Event::VerdictWritten);
    }

    /// Where the payment stands, and its steps so far.
    #[query(name = "paymentStatus")]
    pub fn payment_status(&self, _ctx: &WorkflowContextView) -> PaymentStatus {
        PaymentStatus { state: self.state, timeline: self.steps.clone() }
    }

    /// A repeat of what waits already says nothing new.
    fn put(&mut self, event: Event) {
        let noise = matches!(event, Event::FailureReported { .. }) && self.inbox.len() >= INBOX_MAX;
        if !noise && !self.inbox.contains(&event) {
            self.inbox.push_back(event);
        }
    }

    pub(crate) fn show(&mut self, state: PaymentState, detail: &str, at: Option<SystemTime>) {
        self.state = state;
        if self.steps.len() < STEPS_MAX {
            let since_epoch = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            let at_ms = since_epoch.and_then(|d| u64::try_from(d.as_millis()).ok()).unwrap_or(0);
            self.steps.push(Step { state, detail: detail.to_owned(), at_ms });
        }
    }
}
