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
/// that ended before it began may have no history: the customer cancelled it, or its time was past, and no money moved. `terminated`:
/// workflows that an operator terminated, perhaps just after their payment had ended.
///
/// # Errors
/// If PostgreSQL does not answer. A history that Temporal does not return is a disagreement.
pub async fn compare(system: &System, terminated: &BTreeSet<String>) -> anyhow::Result<HistoryAudit> {
    stream::iter(Booked::all(system).await?)
        .map(|payment| async move {
            let read = system.history(&payment.workflow_id).await;
            anyhow::Ok((payment, read))
        })
        .buffer_unordered(CONCURRENT_READS)
        .try_fold(HistoryAudit::default(), |mut audit, (payment, read)| async move {
            match read {
                Ok(history) => {
                    audit.compared += 1;
                    audit.repeated_steps += repeated_steps(&history);
                    audit.disagreements.extend(disagreement(&payment, &history, terminated));
                }
                Err(_) if payment.never_began() => {}
                Err(error) => {
                    audit.disagreements.push(format!("{} has no history: {error:#}", payment.payment_id))
                }
            }
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

/// What the history of a payment that has ended says.
enum Comparison {
    Agrees,
    Differs(String),
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

    /// Compares the last workflow run of each payment that has ended with its end. A run closes a moment later than its payment ends: those
    /// that are open are waited for, `within` at most, since a test may have ended every worker.
    ///
    /// # Errors
    /// Every payment whose run closed with another end, or that has no history, or the error of Temporal or PostgreSQL.
    pub(crate) async fn check(&self, system: &System, within: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        while self.compare_once(system).await? > 0 && started.elapsed() < within {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// The same without a wait; returns how many runs are open.
    async fn compare_once(&self, system: &System) -> anyhow::Result<usize> {
        let known = lock(&self.agreed).clone();
        let ended = Booked::all(system).await?.into_iter();
        let ended = ended.filter(|payment| payment.has_ended() && !known.contains(&payment.workflow_id));
        let compared: Vec<(String, Comparison)> = stream::iter(ended)
            .map(|payment| async move {
                let comparison = match system.history(&payment.workflow_id).await {
                    Ok(history) => match close(&history).map(end_of) {
                        Some(end) if end == payment.state => Comparison::Agrees,
                        Some(end)
                            if end == TERMINATED && lock(&self.terminated).contains(&payment.workflow_id) =>
                        {
                            Comparison::Agrees
                        }
                        Some(end) => Comparison::Differs(payment.disagreement(Some(&end))),
                        None => Comparison::StillOpen,
                    },
                    Err(error) if !is_missing(&error) => return Err(error),
                    Err(_) if payment.never_began() || lock(&self.deleted).contains(&payment.workflow_id) => {
                        Comparison::Agrees
                    }
                    Err(_) => Comparison::Differs(payment.disagreement(Some("is missing"))),
                };
                Ok((payment.workflow_id, comparison))
            })
            .buffer_unordered(CONCURRENT_READS)
            .try_collect()
            .await?;
        let mut open = 0;
        let mut disagreements = Vec::new();
        for (workflow_id, comparison) in compared {
            match comparison {
                Comparison::Agrees => drop(lock(&self.agreed).insert(workflow_id)),
                Comparison::Differs(disagreement) => disagreements.push(disagreement),
                Comparison::StillOpen => open += 1,
            }
        }
        ensure!(disagreements.is_empty(), "bank and Temporal disagree:\n{}", disagreements.join("\n"));
        Ok(open)
    }
}

fn lock(ids: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether Temporal has no such workflow.
fn is_missing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(WorkflowInteractionError::NotFound(_)))
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

    fn disagreement(&self, end: Option<&str>) -> String {
        format!("{} is {}, and its workflow {}", self.payment_id, self.state, end.unwrap_or("runs"))
    }

    fn never_began(&self) -> bool {
        matches!(self.state.as_str(), "cancelled" | "rejected") && !self.moved_money
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

fn disagreement(payment: &Booked, history: &[HistoryEvent], terminated: &BTreeSet<String>) -> Option<String> {
    let end = close(history).map(end_of);
    match (payment.has_ended(), end.as_deref()) {
        (true, Some(end)) if end == payment.state => None,
        (false, None) => None,
        (true, Some(TERMINATED)) if terminated.contains(&payment.workflow_id) => None,
        (_, end) => Some(payment.disagreement(end)),
    }
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
