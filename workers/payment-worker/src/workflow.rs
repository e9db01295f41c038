//! `InterBankPaymentWorkflow`: a thin shell around [`payment_protocol::pay`].

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::time::SystemTime;

use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::{Decision, DecisionOutcome};
use payment_protocol::ids::DecisionId;
use payment_protocol::inbox::CallbackStatus;
use payment_protocol::pay::pay;
use payment_protocol::port::WaitOutcome;
use payment_protocol::state::FinalState;
use payment_protocol::{Payment, PaymentError, PaymentState};
use serde::{Deserialize, Serialize};
use temporalio_common::data_converters::RawValue;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{
    ApplicationFailure, SyncWorkflowContext, WaitConditionOptions, WorkflowCancellationToken,
    WorkflowContext, WorkflowContextView, WorkflowResult,
};
use workflow_api::{NOT_ALLOWED, NOT_NOW, SwitchConfirmed};

use crate::payment_port::TemporalPaymentPort;

/// Events kept until they are heard; FAILUREs beyond it are dropped here and stay in the ledger.
const INBOX_MAX: usize = 100;
/// Steps kept for the query.
const STEPS_MAX: usize = 100;

/// One payment.
#[workflow]
pub struct InterBankPaymentWorkflow {
    payment: Payment,
    /// What was signalled and not heard yet.
    pub(crate) inbox: VecDeque<WaitOutcome>,
    /// The destination account was passed to this payment.
    pub(crate) has_lock: bool,
    /// What it stands before a person for; none while it does not.
    pub(crate) standing: Option<OperatorReason>,
    /// The decision that was taken and is not carried out yet.
    deciding: Option<DecisionId>,
    /// What came of those that were.
    carried_out: BTreeMap<DecisionId, DecisionOutcome>,
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
        Self {
            payment,
            inbox: VecDeque::new(),
            has_lock: false,
            standing: None,
            deciding: None,
            carried_out: BTreeMap::new(),
            state: PaymentState::Started,
            steps: Vec::new(),
        }
    }

    /// Runs the payment to its end. Ends other than settled fail the workflow with the original
    /// error, its type being the cause's word.
    #[run]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<String> {
        let payment = ctx.state(|workflow| workflow.payment.clone());
        let port = TemporalPaymentPort::new(ctx.clone(), &payment);
        let outcome = pay(&port, &payment).await;
        let end = outcome.as_ref().err().map_or(FinalState::Settled, PaymentError::end);
        port.answer_decisions(end).await;
        match outcome {
            Ok(()) => Ok(PaymentState::Settled.to_string()),
            Err(error) => {
                let (code, end) = (error.code().to_owned(), error.end());
                let text = match &error {
                    PaymentError::Compensated(cause) => cause.to_string(),
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
            Some(said) if said.status == CallbackStatus::Failure => WaitOutcome::FailureReported {
                reason: said.reason.unwrap_or_else(|| "no reason given".into()),
            },
            // Also what cannot be read: it only wakes, and a payload must never poison the payment.
            _ => WaitOutcome::SuccessReported,
        });
    }

    /// The customer asked to cancel.
    #[signal(name = "cancelRequested")]
    pub fn cancel_requested(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _said: RawValue) {
        self.put(WaitOutcome::CustomerCancel);
    }

    /// A definite answer of the switch was written while the payment stood before a person.
    #[signal(name = "finalStatusRecorded")]
    pub fn final_status_recorded(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _said: RawValue) {
        self.put(WaitOutcome::FinalStatusRecorded);
    }

    /// The destination account is this payment's alone, until it has ended.
    #[signal(name = "passLock")]
    pub fn pass_lock(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _said: RawValue) {
        self.has_lock = true;
    }

    /// Takes one decision at a time, while the payment stands and for what it stands for.
    #[update_validator(decide)]
    fn may_be_decided(
        &self,
        _ctx: &WorkflowContextView,
        decision: &Decision,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Decision { decision_id, action } = decision;
        if self.carried_out.contains_key(decision_id) {
            return Ok(());
        }
        if let Some(other) = self.deciding.as_ref().filter(|other| *other != decision_id) {
            return Err(format!("{NOT_NOW}decision {other} is being carried out").into());
        }
        match self.standing {
            None => Err(format!("{NOT_NOW}the payment is {} and stands before nobody", self.state).into()),
            Some(reason) if reason.allowed().contains(action) => Ok(()),
            Some(reason) => {
                Err(format!("{NOT_ALLOWED}{action} is not allowed while it stands for {reason}").into())
            }
        }
    }

    /// What people decided, each time under the decision's id. Answers with what came of it.
    #[update(name = "decide")]
    pub async fn decide(ctx: &mut WorkflowContext<Self>, decision: Decision) -> DecisionOutcome {
        let id = decision.decision_id.clone();
        ctx.state_mut(|workflow| {
            if !workflow.carried_out.contains_key(&id) {
                workflow.deciding = Some(id.clone());
                workflow.put(WaitOutcome::Decided(decision));
            }
        });
        let carried_out = |workflow: &Self| workflow.carried_out.contains_key(&id);
        let detached =
            WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build();
        // Under a token of its own the wait is never cancelled.
        let _ = ctx.wait_condition_with_options(carried_out, detached).await;
        let came = ctx.state(|workflow| workflow.carried_out.get(&id).cloned());
        came.unwrap_or_else(|| DecisionOutcome::Refused { detail: "not carried out".into() })
    }

    /// Where the payment stands, and its steps so far.
    #[query(name = "paymentStatus")]
    pub fn payment_status(&self, _ctx: &WorkflowContextView) -> PaymentStatus {
        PaymentStatus { state: self.state, timeline: self.steps.clone() }
    }

    /// A repeat of what waits already says nothing new.
    fn put(&mut self, event: WaitOutcome) {
        let noise = matches!(event, WaitOutcome::FailureReported { .. }) && self.inbox.len() >= INBOX_MAX;
        if !noise && !self.inbox.contains(&event) {
            self.inbox.push_back(event);
        }
    }

    /// The decision that nothing has come of yet.
    pub(crate) fn deciding(&self) -> Option<DecisionId> {
        self.deciding.clone()
    }

    /// Something came of a decision: the next one may be taken.
    pub(crate) fn answer(&mut self, decision_id: DecisionId, came: DecisionOutcome) {
        self.deciding.take_if(|deciding| *deciding == decision_id);
        self.carried_out.insert(decision_id, came);
    }

    pub(crate) fn show(&mut self, state: PaymentState, detail: &str, at: Option<SystemTime>) {
        self.state = state;
        if state != PaymentState::NeedsOperator {
            self.standing = None;
        }
        if self.steps.len() < STEPS_MAX {
            let since_epoch = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            let at_ms = since_epoch.and_then(|d| u64::try_from(d.as_millis()).ok()).unwrap_or(0);
            self.steps.push(Step { state, detail: detail.to_owned(), at_ms });
        }
    }
}
