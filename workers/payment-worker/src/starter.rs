//! The starter: starts a workflow for each accepted payment.
//!
//! Payments start at the pace at which the switch accepts submits and we debit what it confirms (the in-flight limit). A burst of acceptances only
//! adds latency; it never causes a compensation.

#![expect(clippy::disallowed_methods, reason = "the starter is a loop of the process, not workflow code")]

use std::convert::Infallible;
use std::time::Duration;

use crash_point::crash_point;
use payment_ledger::steps::start::{START_CHANNEL, StartablePayment};
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::cause::ReserveRefusal;
use postgres_kit::wake_up::WakeUpListener;
use temporalio_client::errors::WorkflowStartError;
use temporalio_client::tonic::{Code, Status};
use temporalio_client::{Client, WorkflowIdReusePolicy, WorkflowStartOptions};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use trace_kit::attribute;
use workflow_api::TemporalOptions;

use crate::config::PaymentWorkerOptions;
use crate::recovery::workflow_status;
use crate::workflow::InterBankPaymentWorkflow;
use crate::{attributes, bounded, traces};

/// Upper bound of starts under way at once.
const STARTS_MAX: usize = 50;
/// Lease of a claimed payment, in milliseconds.
const LEASE_MS: i64 = 10_000;
/// Time for one start at Temporal, shorter than the lease.
const START_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts workflows on this process's own worker.
pub(crate) struct Starter<'a> {
    pub(crate) ledger: Ledger,
    pub(crate) client: Client,
    pub(crate) temporal: &'a TemporalOptions,
    pub(crate) options: &'a PaymentWorkerOptions,
}

/// Outcome of starting a workflow.
pub(crate) enum StartOutcome {
    /// The workflow exists, from this start or an earlier one.
    Started,
    /// Temporal's answer is unknown: start again after the lease.
    Unknown,
    /// Temporal refused the start.
    Refused,
}

impl Starter<'_> {
    /// Claims and starts accepted payments until `stop`.
    pub(crate) async fn start_accepted(&self, stop: &CancellationToken) {
        let mut wake_up = WakeUpListener::open(self.ledger.pool(), START_CHANNEL).await;
        let claim = async |capacity| Ok::<_, Infallible>(self.claim_accepted(capacity).await);
        let work = async |startable: StartablePayment| {
            let id = startable.payment.payment_id.clone();
            if let Err(error) = self.start_or_refuse(startable).await {
                tracing::warn!(
                    payment.id = %id,
                    error = &error as &dyn std::error::Error,
                    "the payment-worker could not record the start of an accepted payment; a payment-worker starts the payment again after the lease"
                );
            }
        };
        let pause = async || {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(self.options.poll_interval_ms)) => {}
                () = wake_up.wait() => {}
            }
        };
        let Ok(()) = bounded::run(STARTS_MAX, claim, work, pause, stop).await;
    }

    async fn claim_accepted(&self, capacity: usize) -> Vec<StartablePayment> {
        let limit = i64::try_from(capacity).unwrap_or(i64::MAX);
        self.ledger.claim_accepted(limit, LEASE_MS, self.options.max_in_flight).await.unwrap_or_else(
            |error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the payment-worker could not claim accepted payments; it tries again"
                );
                Vec::new()
            },
        )
    }

    /// Starts the payment's workflow; refuses a payment instead that the customer cancelled or whose time is past, if Temporal has no
    /// workflow of it.
    pub(crate) async fn start_or_refuse(&self, startable: StartablePayment) -> Result<(), LedgerError> {
        let id = startable.payment.payment_id.clone();
        let refusal = match (startable.cancel_requested, startable.too_late) {
            (true, _) => ReserveRefusal::CustomerCancel,
            (false, true) => ReserveRefusal::StartedTooLate,
            (false, false) => return self.start_and_record(startable).await,
        };
        match workflow_status(&self.client, &startable.workflow_id).await {
            Ok(None) => self.ledger.refuse_unreserved(&id, refusal).await,
            // The database lost the start and all that followed: the transfer may have been sent.
            Ok(Some(_)) => self.ledger.mark_started(&id).await,
            Err(detail) => {
                tracing::warn!(
                    payment.id = %id,
                    detail,
                    "Temporal did not say whether a payment has a workflow, so the payment-worker does not refuse it; it tries again after the lease"
                );
                Ok(())
            }
        }
    }

    /// Starts the payment's workflow, and records an outcome that is known.
    pub(crate) async fn start_and_record(&self, startable: StartablePayment) -> Result<(), LedgerError> {
        let id = startable.payment.payment_id.clone();
        crash_point("before starting a workflow");
        match self.start(startable).await {
            StartOutcome::Started => {
                crash_point("after starting a workflow");
                self.ledger.mark_started(&id).await
            }
            StartOutcome::Unknown => Ok(()),
            StartOutcome::Refused => self.ledger.record_start_rejection(&id).await,
        }
    }

    async fn start(&self, startable: StartablePayment) -> StartOutcome {
        let StartablePayment { payment, workflow_id, trace_parent, .. } = startable;
        // No amount: the client encrypts the input, and not these two.
        let summary = format!("Payment via switch {}", payment.profile.switch);
        let details = format!("Payment {} via switch {}", payment.payment_id, payment.profile.switch);
        let payment_id = payment.payment_id.clone();
        let (span, header) = traces::start_span(trace_parent.as_deref(), &payment_id, &workflow_id);
        let options = WorkflowStartOptions::new(self.temporal.task_queue.clone(), workflow_id.clone())
            .id_reuse_policy(WorkflowIdReusePolicy::RejectDuplicate)
            // An eager start gives the workflow to this process, whichever version is the current one.
            .enable_eager_workflow_start(self.options.build_id.is_empty())
            .search_attributes(attributes::of(&payment))
            .static_summary(summary)
            .static_details(details)
            .maybe_header(header)
            .build();
        let start = self.client.start_workflow(InterBankPaymentWorkflow::run, payment, options);
        let Ok(started) = timeout(START_TIMEOUT, start).await else {
            span.fail("Temporal did not answer");
            tracing::warn!(
                payment.id = %payment_id,
                "Temporal did not answer the start of a payment's workflow within 5 s; a payment-worker starts the workflow again after the lease"
            );
            return StartOutcome::Unknown;
        };
        match started {
            Ok(_) => {
                metrics::counter!("payments_started_total").increment(1);
                tracing::info!(payment.id = %payment_id, workflow.id = workflow_id, "the payment-worker started the workflow of a payment");
                StartOutcome::Started
            }
            // Started before: by another starter, or by this one if it lost Temporal's answer (S1.7).
            Err(WorkflowStartError::AlreadyStarted { .. }) => {
                span.set(attribute::REPLAYED, true);
                StartOutcome::Started
            }
            Err(WorkflowStartError::Rpc(status)) if !rejects_the_payment(&status) => {
                span.fail("Temporal did not confirm the start");
                tracing::warn!(
                    payment.id = %payment_id,
                    %status,
                    "Temporal did not confirm the start of a payment's workflow; a payment-worker starts the workflow again after the lease"
                );
                StartOutcome::Unknown
            }
            Err(error) => {
                span.fail("Temporal refused the start");
                tracing::error!(
                    payment.id = %payment_id,
                    error = &error as &dyn std::error::Error,
                    "Temporal refused to start the workflow of a payment; the payment waits and a payment-worker tries again"
                );
                StartOutcome::Refused
            }
        }
    }
}

/// Whether Temporal's error is about this payment's start. Every other error is about the connection, the namespace or the
/// worker's permission: an expired certificate must not make every accepted payment need an operator. Nor must a namespace that does not
/// know the search attribute of payments.
fn rejects_the_payment(status: &Status) -> bool {
    status.code() == Code::InvalidArgument
        && !status.message().to_ascii_lowercase().contains("search attribute")
}

#[cfg(test)]
mod tests;
