//! Runs every path on a system: replays and counts its history, records it if `RECORD` is set, and repeats the path with a
//! worker that caches one workflow, so that each wait ends with a replay.

use std::collections::BTreeMap;

use testkit::{System, SystemOptions};
use tokio::sync::Mutex;

use crate::groups::{Group, groups};
use crate::history_files::{self, Histories, replay};
use crate::paths::{self, Mode};

/// Held while a system runs, one at a time, since each runs many payments.
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn r27_every_payment_path_ends_as_expected_and_its_history_replays() -> anyhow::Result<()> {
    let _alone = ALONE.lock().await;
    let mut observed = Histories::new();
    for Group { name, options, paths } in groups() {
        let system = System::start(&format!("paths-{name}"), options).await?;
        for (name, workflow_id) in paths::drive_all(&system, &paths, Mode::Concurrent).await? {
            observed.insert(name, system.history(&workflow_id).await?);
        }
        system.audit().await?;
    }
    let failures = replay(&observed).await?;
    assert!(failures.is_empty(), "the workflow is not deterministic: {failures:#?}");
    let recorded = history_files::read()?;
    if let Some(record) = std::env::var_os("RECORD") {
        if record == "new" {
            observed.retain(|name, _| !recorded.contains_key(name));
        }
        return history_files::write(&observed);
    }

    // A slow machine may add a few events; a loop that writes history adds many.
    let sizes: BTreeMap<_, _> = observed
        .iter()
        .map(|(name, events)| (name, (events.len(), recorded.get(name).map_or(0, Vec::len))))
        .collect();
    let grown: Vec<_> = sizes.iter().filter(|(_, (now, recorded))| *now > recorded * 2).collect();
    assert!(
        grown.is_empty(),
        "paths with more than twice the recorded events, as (now, recorded); see tests/replay/README.md: {grown:?}"
    );
    Ok(())
}

#[tokio::test]
async fn r27_every_payment_path_ends_with_a_worker_cache_of_one() -> anyhow::Result<()> {
    let _alone = ALONE.lock().await;
    // One path at a time: evicting a workflow during a local activity fails an assertion in debug builds of
    // temporalio-sdk-core 0.10.1 (`managed_run.rs`, "This is an SDK bug"), which ends the worker.
    for Group { name, options, paths } in groups() {
        // The account lock workflow would evict the payment's workflow during a local activity.
        let cached_workflows = if name == "account-lock" { 2 } else { 1 };
        let options = SystemOptions { cached_workflows, ..options };
        let system = System::start(&format!("cache-of-one-{name}"), options).await?;
        paths::drive_all(&system, &paths, Mode::Evicted).await?;
        system.audit().await?;
    }
    Ok(())
}
