//! Payments that lose their workflows, as after an outage of Temporal that its database did not survive: how fast they are resumed and
//! end, and what that costs.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use sqlx::PgPool;
use temporalio_client::{UntypedWorkflow, WorkflowTerminateOptions};
use workflow_api::TemporalOptions;

use super::load::{Order, Payer};
use super::{Args, Snapshot, WITHIN};
use crate::common::{print_now, round2};

/// The mock switch accepts a transfer of this amount, and neither settles nor rejects it by itself.
const UNDECIDED: Order<'static> = Order { amount: "90.04", destination: "FR-BENCH" };
/// Workflows that are terminated at once.
const TERMINATIONS: usize = 16;
/// Interval between two looks at the payments.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Time for each payment to be submitted, or to be resumed and end, at the least.
const WITHIN_EACH: Duration = Duration::from_millis(200);

/// How many of the payments have come how far.
struct Progress {
    submitted: i64,
    resumed: i64,
    ended: i64,
    /// The transfer was sent more than once.
    sent_again: i64,
}

/// Makes payments that their switch does not decide, terminates the workflow of each, and waits until all are resumed and have ended. The
/// figures include the terminations, since the first payments are resumed meanwhile.
pub(super) async fn measure(
    args: &Args,
    pool: &PgPool,
    payer: &Payer,
    temporal: &TemporalOptions,
) -> anyhow::Result<Value> {
    let lost = args.lost as usize;
    print_now(&format!("{lost} payments lose their workflows\n"))?;
    let accepted = payer.accept(&UNDECIDED, lost, args.concurrency as usize).await?;
    let payment_ids: Vec<String> = accepted.into_iter().map(|(id, _)| id).collect();
    let within = WITHIN + WITHIN_EACH * args.lost;
    wait(pool, &payment_ids, within, |progress| progress.submitted as usize == lost).await?;
    let client = temporal.connect("bench").await?;
    let before = Snapshot::take(pool, &args.processes, payer).await?;
    let started = Instant::now();
    stream::iter(&payment_ids)
        .map(|id| {
            let workflow = client.get_workflow_handle::<UntypedWorkflow>(id);
            async move { workflow.terminate(WorkflowTerminateOptions::default()).await }
        })
        .buffer_unordered(TERMINATIONS)
        .try_collect::<Vec<()>>()
        .await?;
    wait(pool, &payment_ids, within, |progress| progress.resumed as usize == lost).await?;
    let resumed_s = started.elapsed().as_secs_f64();
    let end = wait(pool, &payment_ids, within, |progress| progress.ended as usize == lost).await?;
    let ended_s = started.elapsed().as_secs_f64();
    let used = Snapshot::take(pool, &args.processes, payer).await?.since(&before);
    Ok(json!({
        "payments": lost,
        "resumed_per_s": round2(lost as f64 / resumed_s),
        "ended_per_s": round2(lost as f64 / ended_s),
        "cpu_ms": round2(used.counted_cpu_ms() / lost as f64),
        "sent_again": end.sent_again,
    }))
}

/// Waits until the payments have come as far as `is_done` says.
async fn wait(
    pool: &PgPool,
    payment_ids: &[String],
    within: Duration,
    is_done: impl Fn(&Progress) -> bool,
) -> anyhow::Result<Progress> {
    let started = Instant::now();
    loop {
        let (submitted, resumed, ended, sent_again) = sqlx::query_as(
            "SELECT count(*) FILTER (WHERE state IN ('submitted', 'cancelling') OR ended_at IS NOT NULL),
                    count(*) FILTER (WHERE resume_count > 0), count(*) FILTER (WHERE ended_at IS NOT NULL),
                    count(*) FILTER (WHERE attempts > 1)
             FROM payments WHERE payment_id = ANY ($1)",
        )
        .bind(payment_ids)
        .fetch_one(pool)
        .await?;
        let progress = Progress { submitted, resumed, ended, sent_again };
        if is_done(&progress) {
            return Ok(progress);
        }
        ensure!(
            started.elapsed() < within,
            "after {within:?}, of {} payments {submitted} were submitted, {resumed} are resumed and {ended} have ended",
            payment_ids.len()
        );
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}
