//! `InterBankPaymentWorkflow`: a thin shell around [`payment_protocol::pay`].

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::time::{Duration, SystemTime};

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
    ApplicationFailure, SyncWorkflowContext, WorkflowContext, WorkflowContextView, WorkflowResult,
};
use workflow_api::{NOT_ALLOWED, NOT_NOW, SwitchConfirmed};

use crate::payment_port::{TemporalPaymentPort, detached_wait};

/// Upper bound of events in the inbox. A FAILURE beyond the limit is dropped here; the ledger keeps it.
const INBOX_MAX: usize = 100;
/// Upper bound of timeline entries that the query returns.
const TIMELINE_MAX: usize = 100;

/// The workflow of one payment.
#[workflow]
pub struct InterBankPaymentWorkflow {
    payment: Payment,
    /// Signalled events that the payment has not processed yet, oldest first.
    pub(crate) inbox: VecDeque<WaitOutcome>,
    pub(crate) holds_account_lock: bool,
    /// Why the payment needs an operator; `None` if it needs none.
    pub(crate) operator_reason: Option<OperatorReason>,
    /// The accepted decision that has no outcome yet.
    pending_decision: Option<DecisionId>,
    decision_outcomes: BTreeMap<DecisionId, DecisionOutcome>,
    state: PaymentState,
    timeline: Vec<TimelineEntry>,
}

/// A change of state, as the query shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TimelineEntry {
    /// The new state.
    pub state: PaymentState,
    /// The cause of the state.
    pub detail: String,
    /// Workflow time, in milliseconds since the epoch.
    pub at_ms: u64,
}

/// Answer of the query `paymentStatus`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PaymentStatus {
    /// The current state.
    pub state: PaymentState,
    /// Changes of state so far, oldest first, at most 100.
    pub timeline: Vec<TimelineEntry>,
}

#[workflow_methods]
impl InterBankPaymentWorkflow {
    /// Signals may arrive before `run`, so the inbox exists from the start.
    #[init]
    pub fn new(_ctx: &WorkflowContextView, payment: Payment) -> Self {
        Self {
            payment,
            inbox: VecDeque::new(),
            holds_account_lock: false,
            operator_reason: None,
            pending_decision: None,
            decision_outcomes: BTreeMap::new(),
            state: PaymentState::Started,
            timeline: Vec::new(),
        }
    }

    /// Runs the payment to its final state. Any final state but `settled` fails the workflow with the original
    /// error; the failure's type is the code of the first cause.
    #[run]
    pub async fn run(ctx: &mut WorkflowContext<Self>) -> WorkflowResult<String> {
        if crash_point::is_other_release() {
            ctx.timer(Duration::from_millis(1)).await;
        }
        let payment = ctx.state(|workflow| workflow.payment.clone());
        let port = TemporalPaymentPort::new(ctx.clone(), &payment);
        let outcome = pay(&port, &payment).await;
        let end = outcome.as_ref().map_or_else(PaymentError::end, |()| Some(FinalState::Settled));
        port.close_pending_decisions(end).await;
        match outcome {
            Ok(()) => Ok(PaymentState::Settled.to_string()),
            Err(error) => {
                let code = error.code().to_owned();
                let text = match &error {
                    PaymentError::Compensated(cause) => cause.to_string(),
                    other => other.to_string(),
                };
                let text = match end {
                    Some(end) => format!("{end}: {text}"),
                    None => text,
                };
                Err(ApplicationFailure::builder(anyhow::anyhow!(text))
                    .type_name(code)
                    .non_retryable(true)
                    .build()
                    .into())
            }
        }
    }

    /// A callback of the switch is stored. The ledger, not the signal, decides whether money moves.
    #[signal(name = "switchConfirmed")]
    pub fn switch_confirmed(&mut self, _ctx: &mut SyncWorkflowContext<Self>, payload: RawValue) {
        let callback = payload
            .payloads
            .first()
            .and_then(|payload| serde_json::from_slice::<SwitchConfirmed>(&payload.data).ok());
        self.enqueue(match callback {
            Some(callback) if callback.status == CallbackStatus::Failure => WaitOutcome::FailureReported {
                reason: callback.reason.unwrap_or_else(|| "no reason given".into()),
            },
            Some(callback) if callback.status == CallbackStatus::Returned => WaitOutcome::FinalStatusRecorded,
            // An unreadable payload counts as SUCCESS: the event only wakes the payment, which reads the ledger.
            _ => WaitOutcome::SuccessReported,
        });
    }

    /// The customer requested a cancel.
    #[signal(name = "cancelRequested")]
    pub fn cancel_requested(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _payload: RawValue) {
        self.enqueue(WaitOutcome::CustomerCancel);
    }

    /// The ledger recorded a final status while the payment needed an operator.
    #[signal(name = "finalStatusRecorded")]
    pub fn final_status_recorded(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _payload: RawValue) {
        self.enqueue(WaitOutcome::FinalStatusRecorded);
    }

    /// The account lock passed to this payment, which holds it until its final state.
    #[signal(name = "passLock")]
    pub fn pass_lock(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _payload: RawValue) {
        self.holds_account_lock = true;
    }

    /// Accepts one decision at a time, while the payment needs an operator and if its reason allows the action.
    #[update_validator(decide)]
    fn validate_decision(
        &self,
        _ctx: &WorkflowContextView,
        decision: &Decision,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Decision { decision_id, action } = decision;
        if self.decision_outcomes.contains_key(decision_id) {
            return Ok(());
        }
        if let Some(other) = self.pending_decision.as_ref().filter(|other| *other != decision_id) {
            return Err(format!("{NOT_NOW}the earlier decision {other} is still being applied").into());
        }
        match self.operator_reason {
            None => {
                Err(format!("{NOT_NOW}the payment needs no operator; its state is {}", self.state).into())
            }
            Some(reason) if reason.allowed().contains(action) => Ok(()),
            Some(reason) => {
                Err(format!("{NOT_ALLOWED}the operator reason {reason} does not allow the action {action}")
                    .into())
            }
        }
    }

    /// Applies an operator decision once per decision id, and returns its outcome.
    #[update(name = "decide")]
    pub async fn decide(ctx: &mut WorkflowContext<Self>, decision: Decision) -> DecisionOutcome {
        let id = decision.decision_id.clone();
        ctx.state_mut(|workflow| {
            if !workflow.decision_outcomes.contains_key(&id) {
                workflow.pending_decision = Some(id.clone());
                workflow.enqueue(WaitOutcome::Decided(decision));
            }
        });
        let applied = |workflow: &Self| workflow.decision_outcomes.contains_key(&id);
        let _ = ctx.wait_condition_with_options(applied, detached_wait()).await;
        let outcome = ctx.state(|workflow| workflow.decision_outcomes.get(&id).cloned());
        outcome.unwrap_or_else(|| DecisionOutcome::Refused { detail: "the decision was not applied".into() })
    }

    /// The current state and the timeline.
    #[query(name = "paymentStatus")]
    pub fn payment_status(&self, _ctx: &WorkflowContextView) -> PaymentStatus {
        PaymentStatus { state: self.state, timeline: self.timeline.clone() }
    }

    /// Drops an event that the inbox already holds, and a FAILURE if the inbox is full.
    fn enqueue(&mut self, event: WaitOutcome) {
        let dropped = matches!(event, WaitOutcome::FailureReported { .. }) && self.inbox.len() >= INBOX_MAX;
        if !dropped && !self.inbox.contains(&event) {
            self.inbox.push_back(event);
        }
    }

    /// The accepted decision that has no outcome yet.
    pub(crate) fn pending_decision(&self) -> Option<DecisionId> {
        self.pending_decision.clone()
    }

    /// Records a decision's outcome, which answers its update; the next decision may be accepted.
    pub(crate) fn record_decision_outcome(&mut self, decision_id: DecisionId, outcome: DecisionOutcome) {
        self.pending_decision.take_if(|pending| *pending == decision_id);
        self.decision_outcomes.insert(decision_id, outcome);
    }

    pub(crate) fn record_state(&mut self, state: PaymentState, detail: &str, at: Option<SystemTime>) {
        self.state = state;
        if state != PaymentState::NeedsOperator {
            self.operator_reason = None;
        }
        if self.timeline.len() < TIMELINE_MAX {
            let since_epoch = at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
            let at_ms = since_epoch.and_then(|d| u64::try_from(d.as_millis()).ok()).unwrap_or(0);
            self.timeline.push(TimelineEntry { state, detail: detail.to_owned(), at_ms });
        }
    }
}
