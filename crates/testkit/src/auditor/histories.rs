//! Temporal's histories as the third book: how each payment's last workflow run closed, compared with the bank's ledger.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use sqlx::Row as _;
use temporalio_client::errors::WorkflowInteractionError;

use crate::System;
use crate::temporal::{EventType, HistoryEvent, failure_message};

/// Histories that are read at once.
const CONCURRENT_READS: usize = 8;

/// Pause between two reads of open runs.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for the runs of ended payments to close where no worker is ready.
const WITHOUT_WORKER: Duration = Duration::from_secs(5);

/// Time limit for the runs of ended payments to close.
const CLOSES_WITHIN: Duration = Duration::from_secs(60);

/// How a run closed that somebody terminated.
const TERMINATED: &str = "WorkflowExecutionTerminated";

/// What the histories say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryAudit {
    /// Payments with a history.
    pub compared: usize,
    /// Steps that Temporal gave to a worker more than once.
    pub repeated_steps: usize,
    /// Payments whose history differs from the ledger, or that have none; in words.
    pub disagreements: Vec<String>,
}

/// A payment in the bank's ledger.
struct Booked {
    payment_id: String,
    workflow_id: String,
    state: String,
    /// Whether it has an entry in the journal.
    moved_money: bool,
}

/// Reads the history of each payment's last workflow run, and compares its end with the payment's: settled <=> the run completed,
/// otherwise it failed with the final state in its message. A payment that has not ended has a run that has not either. Only a payment
/// that ended before it began may have no history: the customer cancelled it, or its time was past, and no money moved.
///
/// # Errors
/// If PostgreSQL or Temporal does not answer.
pub async fn compare(system: &System) -> anyhow::Result<HistoryAudit> {
    stream::iter(Booked::all(system).await?)
        .map(|payment| async move {
            let history = payment.history(system).await?;
            anyhow::Ok((system.histories.compare(&payment, history.as_deref()), payment, history))
        })
        .buffer_unordered(CONCURRENT_READS)
        .try_fold(HistoryAudit::default(), |mut audit, (comparison, payment, history)| async move {
            if let Some(history) = history {
                audit.compared += 1;
                audit.repeated_steps += repeated_steps(&history);
            }
            audit.disagreements.extend(match comparison {
                Comparison::Agrees => None,
                Comparison::Differs(disagreement) => Some(disagreement),
                Comparison::StillOpen => Some(payment.disagreement("still runs")),
            });
            Ok(audit)
        })
        .await
}

/// The histories of a system whose processes may still run: those that agreed are not read again.
#[derive(Debug, Default)]
pub(crate) struct ClosedHistories {
    agreed: Mutex<BTreeSet<String>>,
    /// Those that a test has deleted.
    deleted: Mutex<BTreeSet<String>>,
    /// Those that a test has terminated: a step that was under way may end the payment.
    terminated: Mutex<BTreeSet<String>>,
}

/// What the history of a payment says.
enum Comparison {
    Agrees,
    /// In words.
    Differs(String),
    /// The payment has ended, and its run not yet, or the payment has moved while its history was read.
    StillOpen,
}

impl ClosedHistories {
    /// No history of this workflow is expected any more.
    pub(crate) fn was_deleted(&self, workflow_id: &str) {
        lock(&self.deleted).insert(workflow_id.to_owned());
    }

    /// This workflow may have closed so, whatever the end of its payment.
    pub(crate) fn was_terminated(&self, workflow_id: &str) {
        lock(&self.terminated).insert(workflow_id.to_owned());
    }

    /// Compares the last workflow run of each payment with it: of one that has ended, the run has closed with its end; of one that is open, the
    /// run is too. A run closes a moment later than its payment ends: those that are open are waited for. They may stay open only where
    /// the test has ended or paused the worker.
    ///
    /// # Errors
    /// Every payment whose run closed with another end, has not closed or should not have, or that has no history, or the error of Temporal or
    /// PostgreSQL.
    pub(crate) async fn check(&self, system: &System) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let open = self.check_closed(system).await?;
            if open.is_empty() || started.elapsed() > WITHOUT_WORKER && !system.worker.is_ready().await {
                return Ok(());
            }
            ensure!(started.elapsed() < CLOSES_WITHIN, "the workflows of ended payments still run: {open:?}");
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// The same without a wait; returns the workflows whose runs are open.
    pub(crate) async fn check_closed(&self, system: &System) -> anyhow::Result<Vec<String>> {
        let known = lock(&self.agreed).clone();
        let payments = Booked::all(system).await?.into_iter();
        let payments = payments.filter(|payment| !known.contains(&payment.workflow_id));
        let compared: Vec<(Booked, Comparison)> = stream::iter(payments)
            .map(|payment| async move {
                let history = payment.history(system).await?;
                let comparison = self.compare(&payment, history.as_deref());
                let differs = matches!(comparison, Comparison::Differs(_)) && !payment.has_ended();
                let has_moved = differs && payment.has_moved(system).await?;
                anyhow::Ok((payment, if has_moved { Comparison::StillOpen } else { comparison }))
            })
            .buffer_unordered(CONCURRENT_READS)
            .try_collect()
            .await?;
        let mut open = Vec::new();
        let mut disagreements = Vec::new();
        for (payment, comparison) in compared {
            match comparison {
                Comparison::Agrees if payment.has_ended() => {
                    lock(&self.agreed).insert(payment.workflow_id);
                }
                Comparison::Agrees => {}
                Comparison::Differs(disagreement) => disagreements.push(disagreement),
                Comparison::StillOpen => open.push(payment.workflow_id),
            }
        }
        ensure!(disagreements.is_empty(), "bank and Temporal disagree:\n{}", disagreements.join("\n"));
        Ok(open)
    }

    /// Compares a payment with the history of its last workflow run.
    fn compare(&self, payment: &Booked, history: Option<&[HistoryEvent]>) -> Comparison {
        let Some(history) = history else {
            return if payment.never_began() || lock(&self.deleted).contains(&payment.workflow_id) {
                Comparison::Agrees
            } else {
                Comparison::Differs(payment.disagreement("is missing"))
            };
        };
        match (payment.has_ended(), close(history).map(end_of)) {
            (true, Some(end)) if end == payment.state => Comparison::Agrees,
            (_, Some(end)) if end == TERMINATED && lock(&self.terminated).contains(&payment.workflow_id) => {
                Comparison::Agrees
            }
            (_, Some(end)) => Comparison::Differs(payment.disagreement(&end)),
            (true, None) => Comparison::StillOpen,
            (false, None) => Comparison::Agrees,
        }
    }
}

fn lock(ids: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Booked {
    async fn all(system: &System) -> anyhow::Result<Vec<Self>> {
        let rows = sqlx::query(
            "SELECT payment_id, workflow_id, state, EXISTS (SELECT FROM journal j WHERE j.payment_id = p.payment_id) AS moved_money
             FROM payments p ORDER BY payment_id",
        )
        .fetch_all(&system.database.pool)
        .await?;
        let booked = rows.iter().map(|row| Self {
            payment_id: row.get("payment_id"),
            workflow_id: row.get("workflow_id"),
            state: row.get("state"),
            moved_money: row.get("moved_money"),
        });
        Ok(booked.collect())
    }

    fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "settled" | "rejected" | "failed" | "timed_out" | "cancelled")
    }

    /// The history of its last workflow run, if Temporal has one.
    async fn history(&self, system: &System) -> anyhow::Result<Option<Vec<HistoryEvent>>> {
        match system.history(&self.workflow_id).await {
            Ok(history) => Ok(Some(history)),
            Err(error) if matches!(error.downcast_ref(), Some(WorkflowInteractionError::NotFound(_))) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether it has another state or workflow by now.
    async fn has_moved(&self, system: &System) -> anyhow::Result<bool> {
        let stays = "SELECT state = $2 AND workflow_id = $3 FROM payments WHERE payment_id = $1";
        let stays = sqlx::query_scalar::<_, bool>(stays)
            .bind(&self.payment_id)
            .bind(&self.state)
            .bind(&self.workflow_id);
        Ok(!stays.fetch_one(&system.database.pool).await?)
    }

    fn disagreement(&self, end: &str) -> String {
        format!("{} is {}, and its workflow {end}", self.payment_id, self.state)
    }

    fn never_began(&self) -> bool {
        matches!(self.state.as_str(), "accepted" | "cancelled" | "rejected") && !self.moved_money
    }
}

/// Steps whose attempt that succeeded, or failed for good, was not the first.
fn repeated_steps(history: &[HistoryEvent]) -> usize {
    use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
    let repeated = |event: &&HistoryEvent| matches!(&event.attributes, Some(Attributes::ActivityTaskStartedEventAttributes(started)) if started.attempt > 1);
    history.iter().filter(repeated).count()
}

/// The event with which a run closed.
fn close(history: &[HistoryEvent]) -> Option<&HistoryEvent> {
    history.last().filter(|event| {
        matches!(
            event.event_type(),
            EventType::WorkflowExecutionCompleted
                | EventType::WorkflowExecutionFailed
                | EventType::WorkflowExecutionTimedOut
                | EventType::WorkflowExecutionTerminated
                | EventType::WorkflowExecutionCanceled
        )
    })
}

/// The final state that a workflow run closed with, or its closing event.
fn end_of(close: &HistoryEvent) -> String {
    use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
    match &close.attributes {
        Some(Attributes::WorkflowExecutionCompletedEventAttributes(_)) => "settled".to_owned(),
        Some(Attributes::WorkflowExecutionFailedEventAttributes(failed)) => {
            let message = failed.failure.as_ref().map(failure_message);
            match message {
                Some(Ok(message)) => message.split(':').next().unwrap_or_default().to_owned(),
                Some(Err(error)) => format!("failed: {error:#}"),
                None => "failed without a reason".to_owned(),
            }
        }
        _ => format!("{:?}", close.event_type()),
    }
}
