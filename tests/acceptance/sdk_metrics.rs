//! The metrics of the Temporal SDK at the payment-worker's `/metrics`.

use monitoring::metrics::SDK_METRICS;
use serde_json::json;
use testkit::{System, SystemOptions};

/// Appear with the first event of their kind, which this test does not cause: a workflow task that fails, a poll that ends after a
/// minute without a task, a request that Temporal refuses, a workflow that another worker has to replay.
const RARE: [&str; 5] = [
    "temporal_workflow_task_execution_failed_total",
    "temporal_workflow_task_queue_poll_empty_total",
    "temporal_request_failure_total",
    "temporal_sticky_cache_miss_total",
    "temporal_sticky_cache_total_forced_eviction_total",
];

/// A metric that the SDK renamed would be missing.
#[tokio::test]
async fn s0_15_the_payment_worker_exports_the_listed_metrics_of_the_sdk() -> anyhow::Result<()> {
    let system = System::start("sdk-metrics", SystemOptions::default()).await?;
    // The attempt within the workflow task fails, and so does the first one of the activity.
    system.switch.set_default_behaviour(json!({"submit": [{"fault": "error_503", "times": 2}]})).await?;
    let payment = system.pay("1.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let text = reqwest::get(format!("{}/metrics", system.worker.url())).await?.text().await?;
    let missing: Vec<_> = SDK_METRICS
        .iter()
        .map(|entry| entry.metric.name)
        .filter(|name| !text.lines().any(|line| line.starts_with(name)) && !RARE.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?} are missing:\n{text}");
    let labels = format!("{{task_queue=\"{}\",worker_type=\"WorkflowWorker\"}} ", system.task_queue);
    let slots = format!("temporal_worker_task_slots_available{labels}");
    let available =
        text.lines().find_map(|line| line.strip_prefix(&slots)).unwrap_or_default().parse::<u32>();
    assert!(available.as_ref().is_ok_and(|slots| *slots > 0), "{available:?}:\n{text}");
    Ok(())
}
