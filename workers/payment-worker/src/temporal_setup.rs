//! What the payment-worker sets up at Temporal where it does not exist: the search attribute of payments, and the schedules of reconciliation
//! runs. It asks until they exist: without the attribute no payment starts, without a schedule no run of it does.

#![expect(clippy::disallowed_methods, reason = "the set-up waits outside workflow code")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crash_point::crash_point;
use futures::future::join_all;
use temporalio_client::Client;
use temporalio_client::tonic::{Code, Status};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use workflow_api::TemporalOptions;

use crate::config::PaymentWorkerOptions;
use crate::{attributes, reconciliation};

/// Time for one answer of Temporal, longer than the client's own tries.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval between two errors that are logged: a cluster may deny this process what its operators have set up.
const LOG_INTERVAL: Duration = Duration::from_secs(3_600);

/// Sets up what is missing, until `stop`. Cancels `answered` once Temporal has answered about everything: it may deny this process what its
/// operators have set up, and then payments need not wait.
///
/// # Errors
/// The schedules cannot be described to Temporal.
pub(crate) async fn run(
    client: &Client,
    temporal: &TemporalOptions,
    options: &PaymentWorkerOptions,
    answered: &CancellationToken,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    crash_point("before setting up Temporal");
    let schedules = reconciliation::schedules(client, temporal, options)?;
    let unanswered = AtomicUsize::new(1 + schedules.len());
    let is_answered = || {
        if unanswered.fetch_sub(1, Ordering::Relaxed) == 1 {
            answered.cancel();
        }
    };
    let attribute = set_up(
        "the search attribute of payments".to_owned(),
        "unless it exists, Temporal refuses to start payment workflows",
        async || attributes::register(client, &temporal.namespace).await,
        is_answered,
        stop,
    );
    let schedules = join_all(schedules.iter().map(|schedule| {
        set_up(
            format!("the schedule {} of reconciliation runs", schedule.id),
            "unless it exists, no run of it starts",
            async move || schedule.create().await,
            is_answered,
            stop,
        )
    }));
    tokio::join!(attribute, schedules);
    Ok(())
}

/// Asks Temporal until `what` exists; calls `is_answered` once, after its first answer.
async fn set_up(
    what: String,
    consequence: &str,
    ask: impl AsyncFn() -> Result<(), Status>,
    is_answered: impl FnOnce(),
    stop: &CancellationToken,
) {
    let mut is_answered = Some(is_answered);
    let mut logged: Option<Instant> = None;
    while let Some(answer) = stop.run_until_cancelled(timeout(ANSWER_TIMEOUT, ask())).await {
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer within 15 s")));
        if answer.as_ref().map_or_else(is_of_temporal, |()| true)
            && let Some(is_answered) = is_answered.take()
        {
            is_answered();
        }
        match answer {
            Ok(()) => return tracing::info!("the payment-worker set up {what} at Temporal"),
            Err(status) if status.code() == Code::AlreadyExists => return,
            Err(status) if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) => {
                logged = Some(Instant::now());
                tracing::error!(%status, "the payment-worker could not set up {what} at Temporal, and tries again; {consequence}");
            }
            Err(_) => {}
        }
        let _ = stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
    }
}

/// Whether the status is an answer about the request: Temporal has it, or refuses it.
fn is_of_temporal(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::AlreadyExists
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::InvalidArgument
            | Code::Unimplemented
    )
}
